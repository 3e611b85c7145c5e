#include <troupe/actors/transport/outgoing_connection.hpp>

#include <cerrno>
#include <utility>

namespace troupe {

namespace {

guard_event_kind kind_of(guard_verdict verdict) {
  switch (verdict) {
    case guard_verdict::admitted: return guard_event_kind::admitted;
    case guard_verdict::wrong_token: return guard_event_kind::bad_token;
    case guard_verdict::malformed: return guard_event_kind::bad_protocol;
    case guard_verdict::too_many: return guard_event_kind::too_many;
    case guard_verdict::unreachable: return guard_event_kind::unreachable;
  }
  return guard_event_kind::bad_protocol;
}

} // namespace

outgoing_connection::outgoing_connection(guard_terms& terms, guard_socket from, const guard_destination& to,
                                         time_point now)
  : terms_{terms}, to_{to}, inside_{std::move(from)}, deadline_{later(now, terms.limits.connect)} {
  watch_peer(inside_.descriptor(), terms.limits.stall);
}

outgoing_connection::~outgoing_connection() {
  if (phase_ == phase::splice) --terms_.admitted;
}

void outgoing_connection::advance(time_point now) {
  while (go_on(now)) {
  }
  if (now < due() || is_over() || is_admitted()) return;
  if (phase_ == phase::connect)
    fail(guard_event_kind::unreachable,
         "could not be reached within " + std::to_string(terms_.limits.connect.count()) + " ms: it does not answer");
  else
    fail(guard_event_kind::too_slow,
         "did not finish " + std::string{terms_.tls ? "TLS handshake and preamble" : "the preamble"} + " within " +
             std::to_string(terms_.limits.admission.count()) + " ms: is it a controller of troupe?");
}

bool outgoing_connection::go_on(time_point now) {
  switch (phase_) {
    case phase::dial: dial(); return false; // poll reports when it is connected
    case phase::connect: return connected(now);
    case phase::handshake:
      if (!settle(outside_.handshake(), phase::greeting)) return false;
      occasion_.channel = outside_.binding();
      return true;
    case phase::greeting: return settle(greeting_.read(outside_), phase::claim) && claim_place();
    case phase::claim: return settle(claim_.write(outside_), phase::answer);
    case phase::answer: return settle(answer_.read(outside_), phase::answer) && judge_answer(now);
    case phase::splice: run_splice(now); return false;
    case phase::over: return false;
  }
  return false;
}

/// Reports the sentence "the controller at ADDRESS" + \p predicate, and ends the connection.
bool outgoing_connection::fail(guard_event_kind kind, const std::string& predicate) {
  cut(kind, "the controller at " + to_.name + " " + predicate);
  return false;
}

bool outgoing_connection::settle(channel_progress got, phase next) {
  switch (got) {
    case channel_progress::done: phase_ = next; return true;
    case channel_progress::blocked: return false;
    case channel_progress::ended: return fail(guard_event_kind::broken, "closed the connection before it admitted us");
    case channel_progress::failed: return fail(outside_.fault().kind, outside_.fault().text);
  }
  return false;
}

void outgoing_connection::dial() {
  if (terms_.admitted >= terms_.limits.connections)
    return cut(guard_event_kind::too_many, "this process has " + std::to_string(terms_.admitted) +
                                               " connections to the controller at " + to_.name +
                                               ", which is the limit");
  while (next_address_ < to_.addresses.size()) {
    connecting_ = begin_connect(to_.addresses[next_address_++]);
    if (connecting_) {
      phase_ = phase::connect;
      return;
    }
    connect_code_ = errno;
  }
  fail(guard_event_kind::unreachable, "could not be reached: " + connect_failure_text(connect_code_));
}

bool outgoing_connection::connected(time_point now) {
  pollfd look{connecting_.descriptor(), POLLOUT, 0};
  if (::poll(&look, 1, 0) == 0) return false;
  connect_code_ = connect_result(connecting_.descriptor());
  if (connect_code_ != 0) {
    phase_ = phase::dial;
    return true;
  }
  watch_peer(connecting_.descriptor(), terms_.limits.stall);
  outside_ = terms_.tls ? guard_channel{std::move(connecting_), *terms_.tls, guard_side::dialer, terms_.expected_peer}
                        : guard_channel{std::move(connecting_)};
  deadline_ = later(now, terms_.limits.admission);
  phase_ = phase::handshake;
  return true;
}

bool outgoing_connection::claim_place() {
  const std::optional<guard_nonce> nonce = decode_greeting(greeting_.bytes());
  if (!nonce)
    return fail(guard_event_kind::bad_protocol,
                "sent an unknown preamble: is it a controller of this version of troupe, in the same mode?");
  occasion_.of_listener = *nonce;
  occasion_.of_dialer = fresh_nonce();
  claim_ = fixed_message{encode(guard_claim{occasion_.of_dialer, terms_.secret.proof(guard_side::dialer, occasion_)})};
  return true;
}

bool outgoing_connection::judge_answer(time_point now) {
  const std::optional<guard_answer> answer = decode_answer(answer_.bytes());
  if (!answer) return fail(guard_event_kind::bad_protocol, "sent an unknown answer");
  if (answer->verdict != guard_verdict::admitted)
    return fail(kind_of(answer->verdict), std::string{meaning_of(answer->verdict)});
  if (!is_same(answer->proof, terms_.secret.proof(guard_side::listener, occasion_)))
    return fail(guard_event_kind::bad_token, "does not know the join token: it is not our controller");
  ++terms_.admitted;
  phase_ = phase::splice;
  splice_.emplace(terms_.limits, now);
  terms_.report(guard_event_kind::admitted, to_.name, "the controller at " + to_.name + " admitted us");
  return true;
}

void outgoing_connection::run_splice(time_point now) {
  splice_->advance(outside_, inside_, now);
  if (splice_->fault()) {
    const guard_fault& why = *splice_->fault();
    if (splice_->is_outside())
      fail(why.kind, why.text);
    else
      cut(why.kind, "this process " + why.text);
  } else if (splice_->is_over()) {
    cut(guard_event_kind::ended, "the connection to the controller at " + to_.name + " ended in order");
  }
}

void outgoing_connection::cut(guard_event_kind kind, const std::string& why) {
  if (!std::exchange(is_reported_, true)) terms_.report(kind, to_.name, why);
  if (phase_ == phase::splice) {
    --terms_.admitted;
    static_cast<void>(outside_.finish()); // TLS close notification, if the socket has room
  }
  phase_ = phase::over;
}

void outgoing_connection::gather(std::vector<pollfd>& into) const {
  switch (phase_) {
    case phase::connect: into.push_back({connecting_.descriptor(), POLLOUT, 0}); return;
    case phase::handshake:
    case phase::greeting:
    case phase::answer: into.push_back({outside_.descriptor(), outside_.read_events(), 0}); return;
    case phase::claim: into.push_back({outside_.descriptor(), outside_.write_events(), 0}); return;
    case phase::splice: splice_->gather(outside_, inside_, into); return;
    case phase::dial:
    case phase::over: return;
  }
}

time_point outgoing_connection::due() const noexcept {
  return phase_ == phase::splice ? splice_->due() : deadline_;
}

} // namespace troupe
