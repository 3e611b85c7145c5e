/// Defines the preamble by which a dialer and a listener prove to each other that they know the join token, without
/// sending it. Its three messages precede all of CAF's bytes. All have fixed sizes, so neither side can make the other
/// wait for more bytes or buffer more.
///
///   listener → dialer  greeting  "TRPG", version, 3 × 0, nonce (32)               40 bytes
///   dialer → listener  claim     "TRPG", version, 3 × 0, nonce (32), proof (32)   72 bytes
///   listener → dialer  answer    "TRPG", version, verdict, 2 × 0, proof (32)      40 bytes; proof is 0 unless admitted
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::size_t join_nonce_bytes = 32;
inline constexpr std::size_t join_digest_bytes = 32; ///< SHA-256

using join_nonce = std::array<std::uint8_t, join_nonce_bytes>;
using join_digest = std::array<std::uint8_t, join_digest_bytes>;

/// The side that makes a proof. A proof of one side is not valid for the other.
enum class proxy_side : std::uint8_t { listener, dialer };

/// Binds a proof to one connection.
struct handshake_transcript {
  join_nonce of_listener{};
  join_nonce of_dialer{};
  join_digest channel{}; ///< Exported from the TLS session; zeros without TLS.
};

/// A join token. It is never printed, and it is wiped from memory by the destructor. Threads: const members from any
/// thread.
class join_secret {
public:
  static constexpr std::size_t shortest = 16; ///< Minimum length in characters.
  static constexpr std::size_t longest = 1'024;

  /// Stores \p token. Errors: invalid_argument if it is shorter or longer than the limits. The error's text does not
  /// contain the token.
  explicit join_secret(std::string_view token);
  join_secret(const join_secret&) = delete;
  join_secret& operator=(const join_secret&) = delete;
  ~join_secret();

  /// Returns the HMAC-SHA256 of \p whose and \p occasion with the token as key. Errors: internal, if OpenSSL fails.
  [[nodiscard]] join_digest proof(proxy_side whose, const handshake_transcript& transcript) const;

private:
  std::string token_;
};

/// Compares two digests in constant time.
[[nodiscard]] bool is_same(const join_digest& one, const join_digest& other) noexcept;

/// Returns 32 random bytes. Errors: internal, if the system has no randomness.
[[nodiscard]] join_nonce fresh_nonce();

/// Returns a new join token: 32 random bytes as 64 hexadecimal digits. Never print it, and never put it on a command
/// line, which everybody on the machine can read. Errors: internal, if the system has no randomness.
[[nodiscard]] std::string make_join_token();

inline constexpr std::uint8_t preamble_version = 1;
inline constexpr std::size_t join_greeting_bytes = 40;
inline constexpr std::size_t join_claim_bytes = 72;
inline constexpr std::size_t join_answer_bytes = 40;

/// The listener's decision about a dialer.
enum class join_verdict : std::uint8_t {
  admitted = 0,
  wrong_token = 1,
  malformed = 2,   ///< Not a claim of this version, or more bytes than a claim.
  too_many = 3,    ///< The listener has reached its limit of connections.
  unreachable = 4, ///< The listener could not reach the service behind it.
};
inline constexpr std::uint8_t last_join_verdict = 4;

/// Returns \p verdict from the dialer's view as a predicate for a sentence about the listener: "refused the join
/// token".
[[nodiscard]] std::string_view meaning_of(join_verdict verdict) noexcept;

/// Dialer → listener: its nonce and the proof that it knows the token.
struct join_claim {
  join_nonce nonce{};
  join_digest proof{};
};

/// Listener → dialer: whether the dialer is admitted, and the listener's own proof.
struct join_answer {
  join_verdict verdict = join_verdict::malformed;
  join_digest proof{};
};

[[nodiscard]] std::array<std::uint8_t, join_greeting_bytes> encode_greeting(const join_nonce& nonce) noexcept;
[[nodiscard]] std::array<std::uint8_t, join_claim_bytes> encode(const join_claim& claim) noexcept;
[[nodiscard]] std::array<std::uint8_t, join_answer_bytes> encode(const join_answer& answer) noexcept;

/// Decode the three messages. Each function returns nullopt if the bytes are not its message in this version.
[[nodiscard]] std::optional<join_nonce> decode_greeting(std::span<const std::uint8_t, join_greeting_bytes> bytes);
[[nodiscard]] std::optional<join_claim> decode_claim(std::span<const std::uint8_t, join_claim_bytes> bytes);
[[nodiscard]] std::optional<join_answer> decode_answer(std::span<const std::uint8_t, join_answer_bytes> bytes);

} // namespace troupe
