/// The join token, and how two sides prove to each other that they know it without sending it.
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

/// Whose proof it is: one side's is never taken for the other's.
enum class guard_side : std::uint8_t { listener, dialer };

/// What a proof is about: this connection and no other.
struct join_occasion {
  guard_nonce of_listener{};
  guard_nonce of_dialer{};
  guard_digest channel{}; ///< Exported from the TLS session; zeros without TLS.
};

/// A join token. It is never printed, and wiped from memory with its owner. Threads: const members, any.
class join_secret {
public:
  static constexpr std::size_t shortest = 16; ///< Characters.
  static constexpr std::size_t longest = 1'024;

  /// Errors: invalid_argument where \p token is shorter or longer than that. The text does not repeat it.
  explicit join_secret(std::string_view token);
  join_secret(const join_secret&) = delete;
  join_secret& operator=(const join_secret&) = delete;
  ~join_secret();

  /// HMAC-SHA256 under the token, of side and occasion. Errors: internal, where OpenSSL fails.
  [[nodiscard]] guard_digest proof(guard_side whose, const join_occasion& occasion) const;

private:
  std::string token_;
};

/// Whether both are the same, in a time that does not depend on where they differ.
[[nodiscard]] bool is_same(const guard_digest& one, const guard_digest& other) noexcept;

/// Errors: internal, where the system has no randomness.
[[nodiscard]] guard_nonce fresh_nonce();

} // namespace troupe
