#include <troupe/processes/transport/join_handshake.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

bool is_of_a_version(char one) noexcept {
  return (one >= '0' && one <= '9') || (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || one == '.' ||
         one == '+' || one == '-' || one == '~';
}

/// Returns whether \p version has the form that encode_version() makes.
bool is_valid(const join_version& version) noexcept {
  const auto* const end = std::find(version.begin(), version.end(), '\0');
  return end != version.begin() && std::all_of(version.begin(), end, is_of_a_version) &&
         std::all_of(end, version.end(), [](char one) { return one == '\0'; });
}

std::string text_of(const join_version& version) {
  return {version.begin(), std::find(version.begin(), version.end(), '\0')};
}

/// Encodes a message. Its members are bytes only, so its memory is copied unchanged.
template <class Message>
std::string encode_as(frame_kind kind, const Message& one) {
  return encode_frame(kind, {reinterpret_cast<const char*>(&one), sizeof one});
}

template <class Message>
std::optional<Message> decode_as(frame_kind kind, const frame& from) {
  if (from.kind != kind || from.payload.size() != sizeof(Message)) return std::nullopt;
  Message made;
  std::memcpy(&made, from.payload.data(), sizeof made);
  return made;
}

/// Returns the fault that a verdict means for the dialer.
transport_fault fault_of(join_verdict verdict) {
  switch (verdict) {
    case join_verdict::admitted: return {transport_event_kind::admitted, "admitted us"};
    case join_verdict::wrong_token: return {transport_event_kind::bad_token, "refused the join token"};
    case join_verdict::malformed:
      return {transport_event_kind::bad_protocol, "did not understand our preamble: is it another version of troupe?"};
    case join_verdict::too_many: return {transport_event_kind::too_many, "has reached its limit of connections"};
    case join_verdict::other_version: return {transport_event_kind::other_version, "is of another version of troupe"};
  }
  return {transport_event_kind::bad_protocol, "sent an unknown verdict"};
}

join_step failed(transport_event_kind kind, std::string text) {
  return {.fault = transport_fault{kind, std::move(text)}};
}

join_step refused(join_verdict verdict, std::string text) {
  return {.reply = encode(join_answer{.verdict = verdict}),
          .fault = transport_fault{fault_of(verdict).kind, std::move(text)}};
}

} // namespace

join_version encode_version(std::string_view version) {
  join_version made{};
  if (version.size() <= made.size()) std::copy(version.begin(), version.end(), made.begin());
  if (version.size() > made.size() || version.find('\0') != std::string_view::npos || !is_valid(made))
    throw exception{errc::invalid_argument, "'" + std::string{version} + "' is not a version: use 1 to " +
                                                std::to_string(made.size()) + " letters, digits and \".+-~\""};
  return made;
}

std::string encode(const join_greeting& greeting) {
  return encode_as(frame_kind::greeting, greeting);
}

std::string encode(const join_claim& claim) {
  return encode_as(frame_kind::claim, claim);
}

std::string encode(const join_answer& answer) {
  return encode_as(frame_kind::answer, answer);
}

std::optional<join_greeting> decode_greeting(const frame& from) {
  const auto made = decode_as<join_greeting>(frame_kind::greeting, from);
  return made && is_valid(made->version) ? made : std::nullopt;
}

std::optional<join_claim> decode_claim(const frame& from) {
  const auto made = decode_as<join_claim>(frame_kind::claim, from);
  return made && is_valid(made->version) ? made : std::nullopt;
}

std::optional<join_answer> decode_answer(const frame& from) {
  const auto made = decode_as<join_answer>(frame_kind::answer, from);
  const bool is_known = made && made->verdict <= last_join_verdict && made->zeros == decltype(made->zeros){};
  return is_known ? made : std::nullopt;
}

join_handshake::join_handshake(connection_side side, const join_secret& secret, const join_version& version,
                               const join_digest& channel)
  : side_{side}, secret_{secret} {
  transcript_.channel = channel;
  (side == connection_side::listener ? transcript_.of_listener : transcript_.of_dialer) = fresh_nonce();
  (side == connection_side::listener ? transcript_.version_of_listener : transcript_.version_of_dialer) = version;
}

std::string join_handshake::start() const {
  if (side_ == connection_side::dialer) return {};
  return encode(join_greeting{transcript_.of_listener, transcript_.version_of_listener});
}

join_step join_handshake::receive(const frame& next, int open_count, int most_open, bool has_more) {
  if (side_ == connection_side::listener) return check_claim(next, open_count, most_open, has_more);
  return has_claimed_ ? check_answer(next) : make_claim(next);
}

join_step join_handshake::refuse_garbage() const {
  if (side_ == connection_side::listener)
    return refused(join_verdict::malformed, "sent an unknown preamble: is it a process of this version of troupe?");
  if (has_claimed_) return failed(transport_event_kind::bad_protocol, "sent an unknown answer");
  return failed(transport_event_kind::bad_protocol,
                "sent an unknown preamble: is it a controller of this version of troupe, in the same mode?");
}

std::string join_handshake::versions_text(const join_version& theirs, const join_version& ours) const {
  return "is of troupe " + text_of(theirs) + ", and this process is of " + text_of(ours) +
         ": use one version in all processes of a world";
}

join_step join_handshake::check_claim(const frame& from, int open_count, int most_open, bool has_more) {
  const std::optional<join_claim> claim = decode_claim(from);
  if (!claim) return refuse_garbage();
  if (has_more) return refused(join_verdict::malformed, "sent more than the preamble");
  transcript_.of_dialer = claim->nonce;
  transcript_.version_of_dialer = claim->version;
  if (!is_same(claim->proof, secret_.proof(connection_side::dialer, transcript_)))
    return refused(join_verdict::wrong_token, "does not know the join token");
  const auto proved = [this](join_verdict verdict) {
    return encode(
        join_answer{.verdict = verdict, .proof = secret_.proof(connection_side::listener, transcript_, verdict)});
  };
  // Checked after the token, because the version is text of the peer and is reported only for a peer that knows the
  // token.
  if (transcript_.version_of_dialer != transcript_.version_of_listener)
    return {.reply = proved(join_verdict::other_version),
            .fault = transport_fault{transport_event_kind::other_version,
                                     versions_text(transcript_.version_of_dialer, transcript_.version_of_listener)}};
  if (open_count >= most_open)
    return refused(join_verdict::too_many,
                   "was refused: " + std::to_string(open_count) + " connections are open, which is the limit");
  return {.reply = proved(join_verdict::admitted), .is_admitted = true};
}

join_step join_handshake::make_claim(const frame& from) {
  const std::optional<join_greeting> greeting = decode_greeting(from);
  if (!greeting) return refuse_garbage();
  has_claimed_ = true;
  transcript_.of_listener = greeting->nonce;
  transcript_.version_of_listener = greeting->version;
  return {.reply = encode(join_claim{transcript_.of_dialer, transcript_.version_of_dialer,
                                     secret_.proof(connection_side::dialer, transcript_)})};
}

join_step join_handshake::check_answer(const frame& from) const {
  const std::optional<join_answer> answer = decode_answer(from);
  if (!answer) return refuse_garbage();
  const bool is_proved = is_same(answer->proof, secret_.proof(connection_side::listener, transcript_, answer->verdict));
  if (answer->verdict == join_verdict::other_version && is_proved)
    return failed(transport_event_kind::other_version,
                  versions_text(transcript_.version_of_listener, transcript_.version_of_dialer));
  if (answer->verdict != join_verdict::admitted) return {.fault = fault_of(answer->verdict)};
  if (!is_proved)
    return failed(transport_event_kind::bad_token, "does not know the join token: it is not our controller");
  return {.is_admitted = true};
}

} // namespace troupe
