/// Defines the three messages that a dialer and a listener exchange before they pass on any of CAF's bytes. All have
/// fixed sizes, so neither side can make the other wait for more bytes or buffer more.
///
///   listener → dialer  greeting  "TRPG", version, 3 × 0, nonce (32)               40 bytes
///   dialer → listener  claim     "TRPG", version, 3 × 0, nonce (32), proof (32)   72 bytes
///   listener → dialer  answer    "TRPG", version, verdict, 2 × 0, proof (32)      40 bytes; proof is 0 unless admitted
#pragma once

#include <troupe/actors/transport/join_secret.hpp>

#include <optional>
#include <span>
#include <string_view>

namespace troupe {

inline constexpr std::uint8_t guard_preamble_version = 1;
inline constexpr std::size_t guard_greeting_bytes = 40;
inline constexpr std::size_t guard_claim_bytes = 72;
inline constexpr std::size_t guard_answer_bytes = 40;

/// The listener's decision about a dialer.
enum class guard_verdict : std::uint8_t {
  admitted = 0,
  wrong_token = 1,
  malformed = 2,   ///< Not a claim of this version, or more bytes than a claim.
  too_many = 3,    ///< The listener has reached its limit of connections.
  unreachable = 4, ///< The listener could not reach the service behind it.
};
inline constexpr std::uint8_t last_guard_verdict = 4;

/// Describes \p verdict from the dialer's view as a predicate: "refused the join token".
[[nodiscard]] std::string_view meaning_of(guard_verdict verdict) noexcept;

/// Dialer → listener: its nonce and the proof that it knows the token.
struct guard_claim {
  guard_nonce nonce{};
  guard_digest proof{};
};

/// Listener → dialer: whether it is admitted, and the listener's own proof.
struct guard_answer {
  guard_verdict verdict = guard_verdict::malformed;
  guard_digest proof{};
};

[[nodiscard]] std::array<std::uint8_t, guard_greeting_bytes> encode_greeting(const guard_nonce& nonce) noexcept;
[[nodiscard]] std::array<std::uint8_t, guard_claim_bytes> encode(const guard_claim& claim) noexcept;
[[nodiscard]] std::array<std::uint8_t, guard_answer_bytes> encode(const guard_answer& answer) noexcept;

/// These return nullopt if the bytes are not such a message of this version.
[[nodiscard]] std::optional<guard_nonce> decode_greeting(std::span<const std::uint8_t, guard_greeting_bytes> bytes);
[[nodiscard]] std::optional<guard_claim> decode_claim(std::span<const std::uint8_t, guard_claim_bytes> bytes);
[[nodiscard]] std::optional<guard_answer> decode_answer(std::span<const std::uint8_t, guard_answer_bytes> bytes);

} // namespace troupe
