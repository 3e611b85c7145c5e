#include <troupe/actors/transport/proxy_connection.hpp>

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace troupe {

void proxy_state::report(proxy_event_kind kind, std::string peer, std::string text) const noexcept {
  if (!on_event) return;
  try {
    on_event({kind, std::move(peer), std::move(text)});
  } catch (...) { // NOLINT(bugprone-empty-catch): an exception from the event sink must not end the proxy
  }
}

void proxy_state::report_stranger(proxy_event_kind kind, std::string peer, std::string text) noexcept {
  const time_point now = std::chrono::steady_clock::now();
  if (now >= window_end_) {
    const std::uint64_t before = std::exchange(left_out_, 0);
    window_end_ = later(now, limits.report_window);
    reported_ = 0;
    if (before > 0)
      report(proxy_event_kind::left_out, {},
             std::to_string(before) + " more connections were refused or closed before they were admitted");
  }
  if (reported_ >= limits.reports) {
    ++left_out_;
    return;
  }
  report(kind, std::move(peer), std::move(text));
  if (++reported_ < limits.reports) return;
  report(proxy_event_kind::left_out, {},
         std::to_string(reported_) + " connections were not admitted: further ones are counted and not reported for " +
             std::to_string(limits.report_window.count()) + " ms");
}

proxy_connection::proxy_connection(proxy_state& shared, proxy_side side, phase first, std::string peer,
                                   time_point deadline)
  : shared_{shared}, side_{side}, phase_{first}, peer_{std::move(peer)}, deadline_{deadline} {}

proxy_connection::~proxy_connection() {
  if (is_admitted()) --shared_.admitted;
}

void proxy_connection::advance(time_point now) {
  while (step(now)) {
  }
  if (now >= due() && !is_over() && !is_admitted()) expire(now);
}

bool proxy_connection::settle(channel_progress got, phase next, time_point now) {
  switch (got) {
    case channel_progress::done: phase_ = next; return true;
    case channel_progress::blocked: return false;
    case channel_progress::ended:
      give_up({proxy_event_kind::broken, std::string{"closed the connection before it "} +
                                             (side_ == proxy_side::listener ? "was admitted" : "admitted us")},
              now);
      return false;
    case channel_progress::failed: give_up(outside_.fault(), now); return false;
  }
  return false;
}

void proxy_connection::admit(const std::string& text, time_point now) {
  ++shared_.admitted;
  phase_ = phase::splice;
  splice_.emplace(shared_.limits, now);
  shared_.report(proxy_event_kind::admitted, peer_, text);
}

void proxy_connection::run_splice(time_point now) {
  splice_->advance(outside_, inside_, now);
  if (splice_->fault())
    cut(splice_->fault()->kind, describe_end(&*splice_->fault(), splice_->is_outside()));
  else if (splice_->is_over())
    cut(proxy_event_kind::ended, describe_end(nullptr, false));
}

void proxy_connection::report_once(const proxy_fault& why) {
  if (std::exchange(is_reported_, true)) return;
  if (is_admitted() || side_ == proxy_side::dialer)
    shared_.report(why.kind, peer_, why.text);
  else
    shared_.report_stranger(why.kind, peer_, why.text);
}

proxy_fault proxy_connection::too_slow_fault() const {
  return {proxy_event_kind::too_slow, "did not finish " +
                                          std::string{shared_.tls ? "TLS handshake and preamble" : "the preamble"} +
                                          " within " + std::to_string(shared_.limits.admission.count()) + " ms"};
}

void proxy_connection::cut(proxy_event_kind kind, const std::string& why) {
  report_once({kind, why});
  if (is_admitted()) {
    --shared_.admitted;
    static_cast<void>(outside_.finish()); // TLS close notification, if the socket has room
  }
  phase_ = phase::over;
}

void proxy_connection::gather(std::vector<pollfd>& into) const {
  const bool listens = side_ == proxy_side::listener;
  const auto wait_outside = [&](bool reads) {
    into.push_back({outside_.descriptor(), reads ? outside_.read_events() : outside_.write_events(), 0});
  };
  switch (phase_) {
    case phase::handshake:
    case phase::leave: return wait_outside(true);
    case phase::refuse: return wait_outside(false);
    case phase::greet:
    case phase::answer: return wait_outside(!listens);
    case phase::claim: return wait_outside(listens);
    case phase::connect:
    case phase::reach: into.push_back({connecting(), POLLOUT, 0}); return;
    case phase::splice: splice_->gather(outside_, inside_, into); return;
    case phase::dial:
    case phase::over: return;
  }
}

namespace {

/// Time for which a refused socket is still read.
constexpr std::chrono::milliseconds farewell{500};

proxy_channel public_side(proxy_state& shared, file_descriptor socket) {
  if (!shared.tls) return proxy_channel{std::move(socket)};
  return {std::move(socket), *shared.tls, proxy_side::listener, shared.expected_peer};
}

} // namespace

incoming_connection::incoming_connection(proxy_state& shared, file_descriptor socket, const proxy_address& peer,
                                         time_point now)
  : proxy_connection{shared, proxy_side::listener, phase::handshake, peer.text(), later(now, shared.limits.admission)} {
  outside_ = public_side(shared, std::move(socket));
  watch_peer(outside_.descriptor(), shared.limits.stall);
  transcript_.of_listener = fresh_nonce();
  greeting_ = fixed_message{encode_greeting(transcript_.of_listener)};
}

void incoming_connection::expire(time_point now) {
  if (phase_ == phase::leave || phase_ == phase::refuse)
    phase_ = phase::over;
  else if (phase_ == phase::reach)
    refuse(join_verdict::unreachable,
           {proxy_event_kind::unreachable, "could not be forwarded: the control port did not answer in time"}, now);
  else
    give_up(too_slow_fault(), now);
}

bool incoming_connection::step(time_point now) {
  switch (phase_) {
    case phase::handshake: {
      if (!settle(outside_.handshake(), phase::greet, now)) return false;
      transcript_.channel = outside_.binding();
      return true;
    }
    case phase::greet: return settle(greeting_.write(outside_), phase::claim, now);
    case phase::claim: return settle(claim_.read(outside_), phase::claim, now) && judge_claim(now);
    case phase::reach: return reached(now);
    case phase::answer:
      if (!settle(answer_.write(outside_), phase::answer, now)) return false;
      admit("was admitted", now);
      return true;
    case phase::splice: run_splice(now); return false;
    case phase::refuse: {
      const channel_progress got = answer_.write(outside_);
      if (got == channel_progress::blocked) return false;
      if (got == channel_progress::done) static_cast<void>(outside_.finish());
      phase_ = phase::leave;
      outside_.drop_tls();
      static_cast<void>(outside_.finish());
      return true;
    }
    case phase::leave: read_off(); return false;
    default: return false;
  }
}

bool incoming_connection::judge_claim(time_point now) {
  const std::optional<join_claim> claim = decode_claim(claim_.bytes());
  if (!claim) {
    refuse(join_verdict::malformed,
           {proxy_event_kind::bad_protocol, "sent an unknown preamble: is it a process of this version of troupe?"},
           now);
    return true;
  }
  std::array<std::uint8_t, 1> more{};
  std::size_t count = 0;
  if (outside_.read(more, count) == channel_progress::done) {
    refuse(join_verdict::malformed, {proxy_event_kind::bad_protocol, "sent more than the preamble"}, now);
    return true;
  }
  transcript_.of_dialer = claim->nonce;
  if (!is_same(claim->proof, shared_.secret.proof(proxy_side::dialer, transcript_))) {
    refuse(join_verdict::wrong_token, {proxy_event_kind::bad_token, "does not know the join token"}, now);
    return true;
  }
  if (shared_.admitted >= shared_.limits.connections) {
    refuse(join_verdict::too_many,
           {proxy_event_kind::too_many,
            "was refused: " + std::to_string(shared_.admitted) + " connections are open, which is the limit"},
           now);
    return true;
  }
  file_descriptor socket = shared_.connect_inside();
  if (!socket) {
    refuse(join_verdict::unreachable,
           {proxy_event_kind::unreachable, "could not be forwarded: " + connect_failure_text(errno)}, now);
    return true;
  }
  inside_ = proxy_channel{std::move(socket)};
  deadline_ = later(now, shared_.limits.connect);
  phase_ = phase::reach;
  return false; // poll reports when it is connected
}

bool incoming_connection::reached(time_point now) {
  pollfd polled{inside_.descriptor(), POLLOUT, 0};
  if (::poll(&polled, 1, 0) == 0) return false;
  if (const int code = connect_result(inside_.descriptor()); code != 0) {
    refuse(join_verdict::unreachable,
           {proxy_event_kind::unreachable, "could not be forwarded: " + connect_failure_text(code)}, now);
    return true;
  }
  watch_peer(inside_.descriptor(), shared_.limits.stall);
  answer_ = fixed_message{
      encode(join_answer{join_verdict::admitted, shared_.secret.proof(proxy_side::listener, transcript_)})};
  phase_ = phase::answer;
  return true;
}

std::string incoming_connection::describe_end(const proxy_fault* why, bool is_outside) const {
  if (why == nullptr) return "ended the connection in order";
  return is_outside ? why->text : "lost its connection: the controller " + why->text;
}

/// Reads one block per call, so that a peer that keeps sending cannot delay the other connections.
void incoming_connection::read_off() {
  std::array<std::uint8_t, 4096> nowhere{};
  std::size_t count = 0;
  const channel_progress got = outside_.read(nowhere, count);
  if (got == channel_progress::ended || got == channel_progress::failed) phase_ = phase::over;
}

void incoming_connection::refuse(join_verdict verdict, const proxy_fault& why, time_point now) {
  report_once(why);
  answer_ = fixed_message{encode(join_answer{.verdict = verdict})};
  inside_ = {};
  deadline_ = later(now, farewell);
  phase_ = phase::refuse;
}

void incoming_connection::give_up(const proxy_fault& why, time_point now) {
  report_once(why);
  outside_.drop_tls();
  static_cast<void>(outside_.finish());
  deadline_ = later(now, farewell);
  phase_ = phase::leave;
}

namespace {

proxy_event_kind kind_of(join_verdict verdict) {
  switch (verdict) {
    case join_verdict::admitted: return proxy_event_kind::admitted;
    case join_verdict::wrong_token: return proxy_event_kind::bad_token;
    case join_verdict::malformed: return proxy_event_kind::bad_protocol;
    case join_verdict::too_many: return proxy_event_kind::too_many;
    case join_verdict::unreachable: return proxy_event_kind::unreachable;
  }
  return proxy_event_kind::bad_protocol;
}

} // namespace

outgoing_connection::outgoing_connection(proxy_state& shared, file_descriptor from, const proxy_destination& to,
                                         time_point now)
  : proxy_connection{shared, proxy_side::dialer, phase::dial, to.name, later(now, shared.limits.connect)}, to_{to} {
  inside_ = proxy_channel{std::move(from)};
  watch_peer(inside_.descriptor(), shared.limits.stall);
}

void outgoing_connection::expire(time_point) {
  if (phase_ == phase::connect)
    fail(proxy_event_kind::unreachable,
         "could not be reached within " + std::to_string(shared_.limits.connect.count()) + " ms: it does not answer");
  else
    fail(proxy_event_kind::too_slow, too_slow_fault().text + ": is it a controller of troupe?");
}

bool outgoing_connection::step(time_point now) {
  switch (phase_) {
    case phase::dial: dial(); return false; // poll reports when it is connected
    case phase::connect: return connected(now);
    case phase::handshake:
      if (!settle(outside_.handshake(), phase::greet, now)) return false;
      transcript_.channel = outside_.binding();
      return true;
    case phase::greet: return settle(greeting_.read(outside_), phase::claim, now) && claim_place();
    case phase::claim: return settle(claim_.write(outside_), phase::answer, now);
    case phase::answer: return settle(answer_.read(outside_), phase::answer, now) && judge_answer(now);
    case phase::splice: run_splice(now); return false;
    default: return false;
  }
}

/// Reports the sentence "the controller at ADDRESS" + \p predicate, and ends the connection.
bool outgoing_connection::fail(proxy_event_kind kind, const std::string& predicate) {
  cut(kind, "the controller at " + to_.name + " " + predicate);
  return false;
}

void outgoing_connection::give_up(const proxy_fault& why, time_point) {
  fail(why.kind, why.text);
}

std::string outgoing_connection::describe_end(const proxy_fault* why, bool is_outside) const {
  if (why == nullptr) return "the connection to the controller at " + to_.name + " ended in order";
  return (is_outside ? "the controller at " + to_.name + " " : "this process ") + why->text;
}

void outgoing_connection::dial() {
  if (shared_.admitted >= shared_.limits.connections)
    return cut(proxy_event_kind::too_many, "this process has " + std::to_string(shared_.admitted) +
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
  fail(proxy_event_kind::unreachable, "could not be reached: " + connect_failure_text(connect_code_));
}

bool outgoing_connection::connected(time_point now) {
  pollfd polled{connecting_.native(), POLLOUT, 0};
  if (::poll(&polled, 1, 0) == 0) return false;
  connect_code_ = connect_result(connecting_.native());
  if (connect_code_ != 0) {
    phase_ = phase::dial;
    return true;
  }
  watch_peer(connecting_.native(), shared_.limits.stall);
  outside_ = shared_.tls
                 ? proxy_channel{std::move(connecting_), *shared_.tls, proxy_side::dialer, shared_.expected_peer}
                 : proxy_channel{std::move(connecting_)};
  deadline_ = later(now, shared_.limits.admission);
  phase_ = phase::handshake;
  return true;
}

bool outgoing_connection::claim_place() {
  const std::optional<join_nonce> nonce = decode_greeting(greeting_.bytes());
  if (!nonce)
    return fail(proxy_event_kind::bad_protocol,
                "sent an unknown preamble: is it a controller of this version of troupe, in the same mode?");
  transcript_.of_listener = *nonce;
  transcript_.of_dialer = fresh_nonce();
  claim_ =
      fixed_message{encode(join_claim{transcript_.of_dialer, shared_.secret.proof(proxy_side::dialer, transcript_)})};
  return true;
}

bool outgoing_connection::judge_answer(time_point now) {
  const std::optional<join_answer> answer = decode_answer(answer_.bytes());
  if (!answer) return fail(proxy_event_kind::bad_protocol, "sent an unknown answer");
  if (answer->verdict != join_verdict::admitted)
    return fail(kind_of(answer->verdict), std::string{meaning_of(answer->verdict)});
  if (!is_same(answer->proof, shared_.secret.proof(proxy_side::listener, transcript_)))
    return fail(proxy_event_kind::bad_token, "does not know the join token: it is not our controller");
  admit("the controller at " + to_.name + " admitted us", now);
  return true;
}

} // namespace troupe
