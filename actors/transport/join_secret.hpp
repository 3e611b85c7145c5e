/// Holds the join token and proves its knowledge to the other side without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::size_t guard_nonce_bytes = 32;
inline constexpr std::size_t guard_digest_bytes = 32; ///< SHA-256

using guard_nonce = std::array<std::uint8_t, guard_nonce_bytes>;
using guard_digest = std::array<std::uint8_t, guard_digest_bytes>;

/// The side that makes a proof. A proof of one side is not valid for the other.
enum class guard_side : std::uint8_t { listener, dialer };

/// Binds a proof to one connection.
struct join_occasion {
  guard_nonce of_listener{};
  guard_nonce of_dialer{};
  guard_digest channel{}; ///< Exported from the TLS session; zeros without TLS.
};

/// A join token. It is never printed, and it is wiped from memory by the destructor. Threads: const members from any
/// thread.
class join_secret {
public:
  static constexpr std::size_t shortest = 16; ///< Characters.
  static constexpr std::size_t longest = 1'024;

  /// Stores \p token. Errors: invalid_argument if it is shorter or longer than the limits. The text does not contain
  /// it.
  explicit join_secret(std::string_view token);
  join_secret(const join_secret&) = delete;
  join_secret& operator=(const join_secret&) = delete;
  ~join_secret();

  /// Returns the HMAC-SHA256 of \p whose and \p occasion under the token. Errors: internal, if OpenSSL fails.
  [[nodiscard]] guard_digest proof(guard_side whose, const join_occasion& occasion) const;

private:
  std::string token_;
};

/// Compares two digests in constant time.
[[nodiscard]] bool is_same(const guard_digest& one, const guard_digest& other) noexcept;

/// Returns 32 random bytes. Errors: internal, if the system has no randomness.
[[nodiscard]] guard_nonce fresh_nonce();

} // namespace troupe
