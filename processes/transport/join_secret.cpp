#include <troupe/processes/transport/join_secret.hpp>

#include <troupe/device/error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <utility>

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

join_digest join_secret::proof(connection_side whose, const handshake_transcript& transcript,
                               join_verdict verdict) const {
  return digest(whose == connection_side::listener ? "troupe transport 2 listener" : "troupe transport 2 dialer..",
                transcript, verdict);
}

join_digest join_secret::message_key(connection_side whose, const handshake_transcript& transcript) const {
  return digest(whose == connection_side::listener ? "troupe messages 2 listener." : "troupe messages 2 dialer...",
                transcript, join_verdict::admitted);
}

join_digest join_secret::digest(std::string label, const handshake_transcript& transcript, join_verdict verdict) const {
  std::string message = std::move(label);
  const auto add = [&message](const auto& part) { message.append(part.begin(), part.end()); };
  add(transcript.of_listener);
  add(transcript.of_dialer);
  add(transcript.channel);
  add(transcript.version_of_listener);
  add(transcript.version_of_dialer);
  message += static_cast<char>(verdict);

  join_digest made{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), token_.data(), static_cast<int>(token_.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), made.data(), &length) == nullptr ||
      length != made.size())
    throw exception{errc::internal, "OpenSSL could not compute an HMAC with SHA-256"};
  return made;
}

bool is_same(const join_digest& one, const join_digest& other) noexcept {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

join_digest digest_of(std::string_view bytes) {
  join_digest made{};
  unsigned length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), made.data(), &length, EVP_sha256(), nullptr) != 1 || length != made.size())
    throw exception{errc::internal, "OpenSSL could not compute a SHA-256"};
  return made;
}

join_nonce fresh_nonce() {
  join_nonce made{};
  if (RAND_bytes(made.data(), static_cast<int>(made.size())) != 1)
    throw exception{errc::internal, "OpenSSL could not generate random numbers"};
  return made;
}

std::string make_join_token() {
  static constexpr std::string_view digits = "0123456789abcdef";
  join_nonce bits = fresh_nonce();
  std::string made;
  for (const std::uint8_t one : bits) {
    made += digits[one >> 4U];
    made += digits[one & 15U];
  }
  OPENSSL_cleanse(bits.data(), bits.size());
  return made;
}

} // namespace troupe
