/// The join token: how it is created, and how a process proves to another that it knows the token, without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::size_t join_nonce_bytes = 32;
inline constexpr std::size_t join_digest_bytes = 32; ///< SHA-256
inline constexpr std::size_t join_version_bytes = 24;

using join_nonce = std::array<std::uint8_t, join_nonce_bytes>;
using join_digest = std::array<std::uint8_t, join_digest_bytes>;
/// The version of troupe as text, padded with zeros.
using join_version = std::array<char, join_version_bytes>;

/// The side of a connection. A proof of one side is not valid for the other.
enum class connection_side : std::uint8_t { listener, dialer };

/// The listener's decision about a dialer.
enum class join_verdict : std::uint8_t {
  admitted = 0,
  wrong_token = 1,
  malformed = 2,     ///< Not a claim of this version, or more bytes than a claim.
  too_many = 3,      ///< The listener has reached its limit of connections.
  other_version = 4, ///< The dialer knows the token and is of another version of troupe.
};
inline constexpr join_verdict last_join_verdict = join_verdict::other_version;

/// Binds a proof to one connection.
struct handshake_transcript {
  join_nonce of_listener{};
  join_nonce of_dialer{};
  join_digest channel{}; ///< Exported from the TLS session; zeros without TLS.
  join_version version_of_listener{};
  join_version version_of_dialer{};
};

/// A join token. It is never printed, and it is wiped from memory by the destructor. Threads: const members from any
/// thread.
class join_secret {
public:
  static constexpr std::size_t shortest = 16; ///< Characters.
  static constexpr std::size_t longest = 1'024;

  /// Stores \p token. Errors: invalid_argument if it is shorter or longer than the limits. The error's text does not
  /// contain the token.
  explicit join_secret(std::string_view token);
  join_secret(const join_secret&) = delete;
  join_secret& operator=(const join_secret&) = delete;
  ~join_secret();

  /// Returns the HMAC-SHA256 of \p whose, \p transcript and \p verdict under the token. A dialer proves before the
  /// verdict and passes admitted. Errors: internal, if OpenSSL fails.
  [[nodiscard]] join_digest proof(connection_side whose, const handshake_transcript& transcript,
                                  join_verdict verdict = join_verdict::admitted) const;
  /// Returns the key of the messages that side \p whose sends on a connection without TLS. Errors: as proof().
  [[nodiscard]] join_digest message_key(connection_side whose, const handshake_transcript& transcript) const;

private:
  /// Returns the HMAC-SHA256 of \p label, \p transcript and \p verdict.
  [[nodiscard]] join_digest digest(std::string label, const handshake_transcript& transcript,
                                   join_verdict verdict) const;

  std::string token_;
};

/// Compares two digests in constant time.
[[nodiscard]] bool is_same(const join_digest& one, const join_digest& other) noexcept;

/// Returns the SHA-256 of \p bytes. Errors: internal, if OpenSSL fails.
[[nodiscard]] join_digest digest_of(std::string_view bytes);

/// Returns 32 random bytes. Errors: internal, if the system has no randomness.
[[nodiscard]] join_nonce fresh_nonce();

/// Returns a new join token: 32 random bytes as 64 hexadecimal digits. Never print it, and never put it on a command
/// line, which all users of the machine can read. Errors: internal, if the system has no randomness.
[[nodiscard]] std::string make_join_token();

} // namespace troupe
