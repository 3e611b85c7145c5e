#include <troupe/collectives/transport/join_handshake.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>

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

/// Copies the next bytes of \p from into \p part, and removes them.
template <class Part>
void take(std::string_view& from, Part& part) {
  std::copy_n(from.begin(), part.size(), part.begin());
  from.remove_prefix(part.size());
}

template <class Part>
void add(std::string& to, const Part& part) {
  to.append(part.begin(), part.end());
}

std::string_view meaning_of(join_verdict verdict) noexcept {
  switch (verdict) {
    case join_verdict::admitted: return "admitted us";
    case join_verdict::wrong_token: return "refused the join token";
    case join_verdict::malformed: return "did not understand our preamble: is it another version of troupe?";
    case join_verdict::too_many: return "has reached its limit of connections";
    case join_verdict::other_version: return "is of another version of troupe";
  }
  return "answered something unknown";
}

transport_event_kind kind_of(join_verdict verdict) noexcept {
  switch (verdict) {
    case join_verdict::admitted: return transport_event_kind::admitted;
    case join_verdict::wrong_token: return transport_event_kind::bad_token;
    case join_verdict::malformed: return transport_event_kind::bad_protocol;
    case join_verdict::too_many: return transport_event_kind::too_many;
    case join_verdict::other_version: return transport_event_kind::other_version;
  }
  return transport_event_kind::bad_protocol;
}

join_step failed(transport_event_kind kind, std::string text) {
  return {.fault = transport_fault{kind, std::move(text)}};
}

join_step refused(join_verdict verdict, std::string text) {
  return {.reply = encode(join_answer{.verdict = verdict}),
          .fault = transport_fault{kind_of(verdict), std::move(text)}};
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
  std::string payload;
  add(payload, greeting.nonce);
  add(payload, greeting.version);
  return encode_frame(frame_kind::greeting, payload);
}

std::string encode(const join_claim& claim) {
  std::string payload;
  add(payload, claim.nonce);
  add(payload, claim.version);
  add(payload, claim.proof);
  return encode_frame(frame_kind::claim, payload);
}

std::string encode(const join_answer& answer) {
  std::string payload{static_cast<char>(answer.verdict), 0, 0, 0};
  add(payload, answer.proof);
  return encode_frame(frame_kind::answer, payload);
}

std::optional<join_greeting> decode_greeting(const frame& from) {
  if (from.kind != frame_kind::greeting || from.payload.size() != join_greeting_bytes) return std::nullopt;
  std::string_view rest = from.payload;
  join_greeting made;
  take(rest, made.nonce);
  take(rest, made.version);
  return is_valid(made.version) ? std::optional{made} : std::nullopt;
}

std::optional<join_claim> decode_claim(const frame& from) {
  if (from.kind != frame_kind::claim || from.payload.size() != join_claim_bytes) return std::nullopt;
  std::string_view rest = from.payload;
  join_claim made;
  take(rest, made.nonce);
  take(rest, made.version);
  take(rest, made.proof);
  return is_valid(made.version) ? std::optional{made} : std::nullopt;
}

std::optional<join_answer> decode_answer(const frame& from) {
  if (from.kind != frame_kind::answer || from.payload.size() != join_answer_bytes) return std::nullopt;
  const auto verdict = static_cast<std::uint8_t>(from.payload[0]);
  std::string_view rest = from.payload;
  if (verdict > last_join_verdict || rest.substr(1, 3) != std::string_view{"\0\0\0", 3}) return std::nullopt;
  rest.remove_prefix(4);
  join_answer made{.verdict = static_cast<join_verdict>(verdict)};
  take(rest, made.proof);
  return made;
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
  if (side_ == connection_side::listener) return judge_claim(next, open_count, most_open, has_more);
  return has_claimed_ ? judge_answer(next) : claim_place(next);
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

join_step join_handshake::judge_claim(const frame& from, int open_count, int most_open, bool has_more) {
  const std::optional<join_claim> claim = decode_claim(from);
  if (!claim) return refuse_garbage();
  if (has_more) return refused(join_verdict::malformed, "sent more than the preamble");
  transcript_.of_dialer = claim->nonce;
  transcript_.version_of_dialer = claim->version;
  if (!is_same(claim->proof, secret_.proof(connection_side::dialer, transcript_)))
    return refused(join_verdict::wrong_token, "does not know the join token");
  const auto proved = [this](join_verdict verdict) {
    return encode(join_answer{verdict, secret_.proof(connection_side::listener, transcript_, verdict)});
  };
  // Only now: the version is text of a peer, and is reported for one that knows the token.
  if (transcript_.version_of_dialer != transcript_.version_of_listener)
    return {.reply = proved(join_verdict::other_version),
            .fault = transport_fault{transport_event_kind::other_version,
                                     versions_text(transcript_.version_of_dialer, transcript_.version_of_listener)}};
  if (open_count >= most_open)
    return refused(join_verdict::too_many,
                   "was refused: " + std::to_string(open_count) + " connections are open, which is the limit");
  return {.reply = proved(join_verdict::admitted), .is_admitted = true};
}

join_step join_handshake::claim_place(const frame& from) {
  const std::optional<join_greeting> greeting = decode_greeting(from);
  if (!greeting) return refuse_garbage();
  has_claimed_ = true;
  transcript_.of_listener = greeting->nonce;
  transcript_.version_of_listener = greeting->version;
  return {.reply = encode(join_claim{transcript_.of_dialer, transcript_.version_of_dialer,
                                     secret_.proof(connection_side::dialer, transcript_)})};
}

join_step join_handshake::judge_answer(const frame& from) const {
  const std::optional<join_answer> answer = decode_answer(from);
  if (!answer) return refuse_garbage();
  const bool is_proved = is_same(answer->proof, secret_.proof(connection_side::listener, transcript_, answer->verdict));
  if (answer->verdict == join_verdict::other_version && is_proved)
    return failed(transport_event_kind::other_version,
                  versions_text(transcript_.version_of_listener, transcript_.version_of_dialer));
  if (answer->verdict != join_verdict::admitted)
    return failed(kind_of(answer->verdict), std::string{meaning_of(answer->verdict)});
  if (!is_proved)
    return failed(transport_event_kind::bad_token, "does not know the join token: it is not our controller");
  return {.is_admitted = true};
}

} // namespace troupe
