/// The preamble by which a listener and a dialer prove to each other that they know the join token, without sending it,
/// and compare their versions of troupe.
///
///   listener → dialer  greeting  nonce (32), version (24)
///   dialer → listener  claim     nonce (32), version (24), proof (32)
///   listener → dialer  answer    verdict, 3 × 0, proof (32); the proof is 0 unless the dialer knows the token
///
/// Both proofs cover both nonces, both versions and a value of the TLS session. The listener's proof also covers its
/// verdict. All frames have fixed sizes, so neither side can make the other wait for more bytes or buffer more.
#pragma once

#include <troupe/processes/transport/frame.hpp>
#include <troupe/processes/transport/join_secret.hpp>
#include <troupe/processes/transport/transport_options.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Returns \p version as the preamble sends it. Errors: invalid_argument if it is empty, longer than 24 characters, or
/// contains other characters than letters, digits and ".+-~".
[[nodiscard]] join_version encode_version(std::string_view version);

struct join_greeting {
  join_nonce nonce{};
  join_version version{};
};
struct join_claim {
  join_nonce nonce{};
  join_version version{};
  join_digest proof{};
};
struct join_answer {
  join_verdict verdict = join_verdict::malformed;
  std::array<std::uint8_t, 3> zeros{};
  join_digest proof{};
};

static_assert(sizeof(join_greeting) == join_greeting_bytes && sizeof(join_claim) == join_claim_bytes &&
              sizeof(join_answer) == join_answer_bytes);

[[nodiscard]] std::string encode(const join_greeting& greeting);
[[nodiscard]] std::string encode(const join_claim& claim);
[[nodiscard]] std::string encode(const join_answer& answer);

/// Decode a frame of the preamble. Return nullopt if it is not a valid message of this kind.
[[nodiscard]] std::optional<join_greeting> decode_greeting(const frame& from);
[[nodiscard]] std::optional<join_claim> decode_claim(const frame& from);
[[nodiscard]] std::optional<join_answer> decode_answer(const frame& from);

/// The result of a step of the preamble.
struct join_step {
  std::string reply{};                    ///< Bytes to send.
  std::optional<transport_fault> fault{}; ///< Why the connection cannot be admitted, as a predicate about the peer.
  bool is_admitted = false;
};

/// One side's part of the preamble. It has neither sockets nor a clock. Threads: one.
class join_handshake {
public:
  /// \p secret must outlive it. \p channel is a value of the TLS session; zeros without TLS.
  join_handshake(connection_side side, const join_secret& secret, const join_version& version,
                 const join_digest& channel);

  /// Returns the bytes with which this side begins; empty for a dialer.
  [[nodiscard]] std::string start() const;

  /// Continues with the next frame of the peer. \p open_count and \p most_open: present and maximum number of admitted
  /// connections of a listener. \p has_more: the peer has sent more bytes than this frame. A dialer must not do so
  /// before the answer.
  [[nodiscard]] join_step receive(const frame& next, int open_count, int most_open, bool has_more);

  /// Refuses a peer whose bytes are not a frame.
  [[nodiscard]] join_step refuse_garbage() const;

  /// Returns the key of the messages of side \p whose. Call it after the admission. Errors: internal.
  [[nodiscard]] join_digest message_key(connection_side whose) const { return secret_.message_key(whose, transcript_); }

private:
  [[nodiscard]] join_step check_claim(const frame& from, int open_count, int most_open, bool has_more);
  [[nodiscard]] join_step make_claim(const frame& from);
  [[nodiscard]] join_step check_answer(const frame& from) const;
  [[nodiscard]] std::string versions_text(const join_version& theirs, const join_version& ours) const;

  connection_side side_;
  const join_secret& secret_;
  handshake_transcript transcript_;
  bool has_claimed_ = false;
};

} // namespace troupe
