#include <troupe/actors/transport/incoming_connection.hpp>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace troupe {

namespace {

/// Time for which a refused socket is still read.
constexpr std::chrono::milliseconds farewell{500};

guard_channel public_side(guard_terms& terms, guard_socket socket) {
  if (!terms.tls) return guard_channel{std::move(socket)};
  return {std::move(socket), *terms.tls, guard_side::listener, terms.expected_peer};
}

} // namespace

incoming_connection::incoming_connection(guard_terms& terms, guard_socket socket, const guard_address& peer,
                                         time_point now)
  : terms_{terms},
    peer_{peer.text()},
    outside_{public_side(terms, std::move(socket))},
    deadline_{later(now, terms.limits.admission)} {
  watch_peer(outside_.descriptor(), terms.limits.stall);
  occasion_.of_listener = fresh_nonce();
  greeting_ = fixed_message{encode_greeting(occasion_.of_listener)};
}

incoming_connection::~incoming_connection() {
  if (phase_ == phase::splice) --terms_.admitted;
}

void incoming_connection::advance(time_point now) {
  while (go_on(now)) {
  }
  if (now < due() || is_over() || is_admitted()) return;
  if (phase_ == phase::leave || phase_ == phase::refuse) {
    phase_ = phase::over;
  } else if (phase_ == phase::reach) {
    refuse(guard_verdict::unreachable,
           {guard_event_kind::unreachable, "could not be forwarded: the control port did not answer in time"}, now);
  } else {
    leave({guard_event_kind::too_slow, "did not finish " +
                                           std::string{terms_.tls ? "TLS handshake and preamble" : "the preamble"} +
                                           " within " + std::to_string(terms_.limits.admission.count()) + " ms"},
          now);
  }
}

bool incoming_connection::go_on(time_point now) {
  switch (phase_) {
    case phase::handshake: {
      if (!settle(outside_.handshake(), phase::greet, now)) return false;
      occasion_.channel = outside_.binding();
      return true;
    }
    case phase::greet: return settle(greeting_.write(outside_), phase::claim, now);
    case phase::claim: return settle(claim_.read(outside_), phase::claim, now) && judge_claim(now);
    case phase::reach: return reached(now);
    case phase::answer:
      if (!settle(answer_.write(outside_), phase::answer, now)) return false;
      admit(now);
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
    case phase::over: return false;
  }
  return false;
}

/// Enters the phase \p next if the present one is done, and leaves if it failed.
bool incoming_connection::settle(channel_progress got, phase next, time_point now) {
  switch (got) {
    case channel_progress::done: phase_ = next; return true;
    case channel_progress::blocked: return false;
    case channel_progress::ended:
      leave({guard_event_kind::broken, "closed the connection before it was admitted"}, now);
      return false;
    case channel_progress::failed: leave(outside_.fault(), now); return false;
  }
  return false;
}

bool incoming_connection::judge_claim(time_point now) {
  const std::optional<guard_claim> claim = decode_claim(claim_.bytes());
  if (!claim) {
    refuse(guard_verdict::malformed,
           {guard_event_kind::bad_protocol, "sent an unknown preamble: is it a process of this version of troupe?"},
           now);
    return true;
  }
  std::array<std::uint8_t, 1> more{};
  std::size_t count = 0;
  if (outside_.read(more, count) == channel_progress::done) {
    refuse(guard_verdict::malformed, {guard_event_kind::bad_protocol, "sent more than the preamble"}, now);
    return true;
  }
  occasion_.of_dialer = claim->nonce;
  if (!is_same(claim->proof, terms_.secret.proof(guard_side::dialer, occasion_))) {
    refuse(guard_verdict::wrong_token, {guard_event_kind::bad_token, "does not know the join token"}, now);
    return true;
  }
  if (terms_.admitted >= terms_.limits.connections) {
    refuse(guard_verdict::too_many,
           {guard_event_kind::too_many,
            "was refused: " + std::to_string(terms_.admitted) + " connections are open, which is the limit"},
           now);
    return true;
  }
  guard_socket socket = terms_.connect_inside();
  if (!socket) {
    refuse(guard_verdict::unreachable,
           {guard_event_kind::unreachable, "could not be forwarded: " + connect_failure_text(errno)}, now);
    return true;
  }
  inside_ = guard_channel{std::move(socket)};
  deadline_ = later(now, terms_.limits.connect);
  phase_ = phase::reach;
  return false; // poll reports when it is connected
}

bool incoming_connection::reached(time_point now) {
  pollfd look{inside_.descriptor(), POLLOUT, 0};
  if (::poll(&look, 1, 0) == 0) return false;
  if (const int code = connect_result(inside_.descriptor()); code != 0) {
    refuse(guard_verdict::unreachable,
           {guard_event_kind::unreachable, "could not be forwarded: " + connect_failure_text(code)}, now);
    return true;
  }
  watch_peer(inside_.descriptor(), terms_.limits.stall);
  answer_ = fixed_message{
      encode(guard_answer{guard_verdict::admitted, terms_.secret.proof(guard_side::listener, occasion_)})};
  phase_ = phase::answer;
  return true;
}

void incoming_connection::admit(time_point now) {
  ++terms_.admitted;
  phase_ = phase::splice;
  splice_.emplace(terms_.limits, now);
  terms_.report(guard_event_kind::admitted, peer_, "was admitted");
}

void incoming_connection::run_splice(time_point now) {
  splice_->advance(outside_, inside_, now);
  if (splice_->fault()) {
    const guard_fault& why = *splice_->fault();
    cut(why.kind, splice_->is_outside() ? why.text : "lost its connection: the controller " + why.text);
  } else if (splice_->is_over()) {
    cut(guard_event_kind::ended, "ended the connection in order");
  }
}

/// Reads one block per call, so that a peer that keeps sending cannot delay the other connections.
void incoming_connection::read_off() {
  std::array<std::uint8_t, 4096> nowhere{};
  std::size_t count = 0;
  const channel_progress got = outside_.read(nowhere, count);
  if (got == channel_progress::ended || got == channel_progress::failed) phase_ = phase::over;
}

void incoming_connection::report_fault(const guard_fault& why) {
  if (std::exchange(is_reported_, true)) return;
  if (is_admitted())
    terms_.report(why.kind, peer_, why.text);
  else
    terms_.report_stranger(why.kind, peer_, why.text);
}

void incoming_connection::refuse(guard_verdict verdict, guard_fault why, time_point now) {
  report_fault(why);
  answer_ = fixed_message{encode(guard_answer{.verdict = verdict})};
  inside_ = {};
  deadline_ = later(now, farewell);
  phase_ = phase::refuse;
}

void incoming_connection::leave(const guard_fault& why, time_point now) {
  report_fault(why);
  outside_.drop_tls();
  static_cast<void>(outside_.finish());
  deadline_ = later(now, farewell);
  phase_ = phase::leave;
}

void incoming_connection::cut(guard_event_kind kind, const std::string& why) {
  report_fault({kind, why});
  if (phase_ == phase::splice) {
    --terms_.admitted;
    static_cast<void>(outside_.finish()); // TLS close notification, if the socket has room
  }
  phase_ = phase::over;
}

void incoming_connection::gather(std::vector<pollfd>& into) const {
  switch (phase_) {
    case phase::handshake:
    case phase::claim:
    case phase::leave: into.push_back({outside_.descriptor(), outside_.read_events(), 0}); return;
    case phase::greet:
    case phase::answer:
    case phase::refuse: into.push_back({outside_.descriptor(), outside_.write_events(), 0}); return;
    case phase::reach: into.push_back({inside_.descriptor(), POLLOUT, 0}); return;
    case phase::splice: splice_->gather(outside_, inside_, into); return;
    case phase::over: return;
  }
}

time_point incoming_connection::due() const noexcept {
  return phase_ == phase::splice ? splice_->due() : deadline_;
}

} // namespace troupe
