#include <troupe/processes/transport/connection.hpp>

#include <troupe/processes/transport/tls_identity.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Longest time for which the socket of a refused or closed peer is still read.
constexpr std::chrono::milliseconds farewell{500};

/// Returns the probable reason why a peer is not admitted in time. If only one side has certificates, a plain dialer
/// and a listener with TLS wait for each other.
const char* hint_of_slow_admission(const connection_terms& terms) {
  if (terms.side == connection_side::listener)
    return terms.tls ? ": has it no certificates (control.ca, control.certificate, control.key)?" : "";
  return terms.tls ? ": is it a controller of troupe?"
                   : ": is it a controller of troupe? If it has certificates (--certs), give this process some, too "
                     "(control.ca, control.certificate, control.key)";
}

} // namespace

connection_terms::connection_terms(connection_side which, transport_mode mode, const transport_limits& bounds,
                                   const transport_credentials& credentials, std::string_view troupe_version,
                                   transport_event_sink sink)
  : side{which},
    limits{bounds},
    secret{credentials.token},
    version{encode_version(troupe_version)},
    expected_peer{credentials.expected_peer},
    reports{bounds, std::move(sink)} {
  require_valid(limits);
  if (mode == transport_mode::plain) return;
  const tls_identity identity = read_tls_identity(side, credentials);
  tls = make_tls_context(side, identity);
  for (const std::string& one : identity.warnings) reports.report(transport_event_kind::warning, {}, one);
}

connection::connection(connection_terms& terms, std::string peer, time_point now)
  : terms_{terms},
    peer_{std::move(peer)},
    phase_{terms.tls ? phase::securing : phase::joining},
    deadline_{later(now, terms.limits.admission)},
    last_received_{now},
    last_sent_{now} {
  if (terms.tls) {
    tls_.emplace(*terms.tls, terms.side, terms.expected_peer);
    secure(now);
  } else {
    begin_to_join();
  }
}

connection::~connection() {
  if (is_open()) --terms_.admitted;
}

void connection::secure(time_point now) {
  const tls_progress got = tls_->handshake();
  gather();
  if (got == tls_progress::failed) return give_up(tls_->fault(), now);
  if (got == tls_progress::done) begin_to_join();
}

void connection::begin_to_join() {
  phase_ = phase::joining;
  handshake_.emplace(terms_.side, terms_.secret, terms_.version, tls_ ? tls_->binding() : join_digest{});
  emit(handshake_->start());
}

void connection::receive(std::string_view bytes, time_point now) {
  if (phase_ == phase::leaving || phase_ == phase::over) return;
  last_received_ = now;
  if (!tls_) return parse(bytes, now);
  tls_->feed(bytes);
  if (phase_ == phase::securing) secure(now);
  if (phase_ == phase::securing || phase_ == phase::leaving) return;
  std::string plain;
  const tls_progress got = tls_->read(plain);
  gather();
  parse(plain, now);
  if (phase_ != phase::joining && phase_ != phase::open) return;
  if (got == tls_progress::failed) give_up(tls_->fault(), now);
  if (got == tls_progress::ended) receive_end(now);
}

void connection::parse(std::string_view bytes, time_point now) {
  while (!bytes.empty() && (phase_ == phase::joining || phase_ == phase::open)) {
    std::optional<frame> complete;
    bytes.remove_prefix(parser_.receive(bytes, complete));
    if (parser_.has_fault()) {
      if (phase_ == phase::joining) return join(handshake_->refuse_garbage(), now);
      return give_up({transport_event_kind::bad_frame, parser_.fault_text()}, now);
    }
    if (!complete) return;
    if (phase_ == phase::open && opening_ && !opening_->open(complete->payload))
      return give_up({transport_event_kind::bad_frame, "sent a message that another process has made or changed"}, now);
    if (phase_ == phase::open)
      messages_.push_back(std::move(complete->payload));
    else
      join(handshake_->receive(*complete, terms_.admitted, terms_.limits.connections, !bytes.empty()), now);
  }
}

void connection::join(const join_step& step, time_point now) {
  emit(step.reply);
  if (step.fault) return give_up(*step.fault, now);
  if (!step.is_admitted) return;
  phase_ = phase::open;
  was_admitted_ = true;
  ++terms_.admitted;
  const bool is_listener = terms_.side == connection_side::listener;
  std::size_t longest = terms_.limits.frame_bytes;
  if (!tls_) { // TLS protects the messages otherwise
    sealing_.emplace(handshake_->message_key(terms_.side));
    opening_.emplace(handshake_->message_key(is_listener ? connection_side::dialer : connection_side::listener));
    longest += frame_cipher::overhead_bytes;
  }
  handshake_.reset();
  parser_.accept_messages(static_cast<std::uint32_t>(longest));
  terms_.reports.report(transport_event_kind::admitted, peer_,
                        is_listener ? "was admitted" : "the controller at " + peer_ + " admitted us");
}

void connection::receive_end(time_point now) {
  has_input_ended_ = true;
  if (phase_ == phase::leaving || phase_ == phase::over) return settle();
  if (tls_) { // a peer ends a session with a close_notify; otherwise the connection was cut
    tls_->feed_end();
    std::string plain;
    const tls_progress got = phase_ == phase::securing ? tls_->handshake() : tls_->read(plain);
    if (got == tls_progress::failed) return give_up(tls_->fault(), now);
  }
  if (phase_ != phase::open) {
    const bool is_listener = terms_.side == connection_side::listener;
    std::string text = std::string{"closed the connection before it "} + (is_listener ? "was admitted" : "admitted us");
    if (!is_listener && !tls_) text += hint_of_slow_admission(terms_);
    return give_up({transport_event_kind::broken, std::move(text)}, now);
  }
  if (!parser_.is_between_frames())
    return give_up({transport_event_kind::broken, "ended the connection inside of a frame"}, now);
  output_.clear();
  unsent_bytes_ = 0; // the peer does not read it any more
  close(transport_event_kind::ended, "ended the connection", now);
}

void connection::lose(const std::string& why, time_point now) {
  has_input_ended_ = true;
  output_.clear();
  unsent_bytes_ = 0;
  if (phase_ == phase::leaving || phase_ == phase::over) return settle();
  give_up({transport_event_kind::broken, why + (phase_ == phase::securing ? " during the TLS handshake" : "")}, now);
}

void connection::send(std::string_view payload, time_point now) {
  if (!is_open()) return;
  if (payload.empty() || payload.size() > terms_.limits.frame_bytes)
    return give_up({transport_event_kind::bad_frame, "was not sent a message of " + std::to_string(payload.size()) +
                                                         " bytes: the limit is 1 to " +
                                                         std::to_string(terms_.limits.frame_bytes)},
                   now);
  if (unsent_bytes_ == 0) last_sent_ = now;
  emit(sealing_ ? encode_frame(frame_kind::message, sealing_->seal(payload))
                : encode_frame(frame_kind::message, payload));
  if (unsent_bytes_ <= terms_.limits.queue_bytes) return;
  const std::string waiting = std::to_string(unsent_bytes_);
  lose("was too slow: " + waiting + " bytes waited for it, and the limit is " +
           std::to_string(terms_.limits.queue_bytes),
       now);
}

void connection::close(transport_event_kind kind, const std::string& why, time_point now) {
  if (phase_ == phase::leaving || phase_ == phase::over) return;
  give_up({kind, why}, now);
}

void connection::tick(time_point now) {
  if (now < due()) return;
  switch (phase_) {
    case phase::securing:
    case phase::joining:
      return give_up({transport_event_kind::too_slow, std::string{"did not finish "} +
                                                          (terms_.tls ? "TLS handshake and preamble" : "the preamble") +
                                                          " within " + std::to_string(terms_.limits.admission.count()) +
                                                          " ms" + hint_of_slow_admission(terms_)},
                     now);
    case phase::open:
      return lose("transferred nothing for " + std::to_string(terms_.limits.stall.count()) + " ms", now);
    case phase::leaving: phase_ = phase::over; return;
    case phase::over: return;
  }
}

time_point connection::due() const noexcept {
  switch (phase_) {
    case phase::open: {
      time_point first = time_point::max();
      if (unsent_bytes_ > 0) first = later(last_sent_, terms_.limits.stall);
      if (!parser_.is_between_frames()) first = std::min(first, later(last_received_, terms_.limits.stall));
      return first;
    }
    case phase::over: return time_point::max();
    default: return deadline_;
  }
}

std::string connection::take_output() {
  return std::exchange(output_, {});
}

void connection::sent(std::size_t bytes, time_point now) {
  unsent_bytes_ -= std::min(bytes, unsent_bytes_);
  last_sent_ = now;
  settle();
}

std::vector<std::string> connection::take_messages() {
  return std::exchange(messages_, {});
}

void connection::emit(std::string_view bytes) {
  if (bytes.empty()) return;
  if (tls_) {
    tls_->write(bytes);
    return gather();
  }
  output_ += bytes;
  unsent_bytes_ += bytes.size();
}

void connection::gather() {
  const std::string made = tls_->take_output();
  output_ += made;
  unsent_bytes_ += made.size();
}

/// Records and reports the fault, and begins to end the connection.
void connection::give_up(const transport_fault& why, time_point now) {
  const bool was_open = is_open();
  std::string text = why.text;
  if (terms_.side == connection_side::dialer) text = "the controller at " + peer_ + " " + why.text;
  fault_ = transport_fault{why.kind, text};
  leave(now);
  if (was_open || terms_.side == connection_side::dialer)
    terms_.reports.report(why.kind, peer_, std::move(text));
  else
    terms_.reports.report_stranger(why.kind, peer_, std::move(text), now);
}

void connection::leave(time_point now) {
  if (is_open()) --terms_.admitted;
  phase_ = phase::leaving;
  deadline_ = later(now, farewell);
  if (tls_) {
    tls_->finish();
    gather();
  }
  settle();
}

void connection::settle() noexcept {
  if (phase_ == phase::leaving && has_input_ended_ && unsent_bytes_ == 0) phase_ = phase::over;
}

} // namespace troupe
