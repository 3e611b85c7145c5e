#include <troupe/actors/transport/join_secret.hpp>

#include <troupe/device/error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

namespace troupe {

join_secret::join_secret(std::string_view token) {
  if (token.empty())
    throw exception{errc::invalid_argument, "the join token is empty: give all processes of a world the same one "
                                            "(`troupe certs` makes one, in the file join.token)"};
  if (token.size() < shortest || token.size() > longest)
    throw exception{errc::invalid_argument,
                    "the join token has " + std::to_string(token.size()) + " characters: use one of " +
                        std::to_string(shortest) + " to " + std::to_string(longest) +
                        " that cannot be guessed (`troupe certs` makes one, in the file join.token)"};
  token_.assign(token);
}

join_secret::~join_secret() {
  OPENSSL_cleanse(token_.data(), token_.size());
}

guard_digest join_secret::proof(guard_side whose, const join_occasion& occasion) const {
  static constexpr std::string_view of_listener = "troupe guard 1 listener";
  static constexpr std::string_view of_dialer = "troupe guard 1 dialer..";
  static_assert(of_listener.size() == of_dialer.size());
  const std::string_view label = whose == guard_side::listener ? of_listener : of_dialer;

  std::array<std::uint8_t, of_dialer.size() + 2 * guard_nonce_bytes + guard_digest_bytes> message{};
  auto* at = std::copy(label.begin(), label.end(), message.begin());
  at = std::copy(occasion.of_listener.begin(), occasion.of_listener.end(), at);
  at = std::copy(occasion.of_dialer.begin(), occasion.of_dialer.end(), at);
  std::copy(occasion.channel.begin(), occasion.channel.end(), at);

  guard_digest made{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), token_.data(), static_cast<int>(token_.size()), message.data(), message.size(), made.data(),
           &length) == nullptr ||
      length != made.size())
    throw exception{errc::internal, "OpenSSL could not compute an HMAC with SHA-256"};
  return made;
}

bool is_same(const guard_digest& one, const guard_digest& other) noexcept {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

guard_nonce fresh_nonce() {
  guard_nonce made{};
  if (RAND_bytes(made.data(), static_cast<int>(made.size())) != 1)
    throw exception{errc::internal, "OpenSSL could not generate random numbers"};
  return made;
}

} // namespace troupe
