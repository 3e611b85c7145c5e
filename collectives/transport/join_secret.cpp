#include <troupe/collectives/transport/join_secret.hpp>

#include <troupe/device/error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <sys/stat.h>

#include <cstring>
#include <fstream>

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
  std::string message{whose == connection_side::listener ? "troupe transport 2 listener"
                                                         : "troupe transport 2 dialer.."};
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

std::string read_join_token(const std::filesystem::path& file) {
  struct stat found {};
  std::ifstream from{file, std::ios::binary};
  if (!from || ::stat(file.c_str(), &found) != 0 || S_ISDIR(found.st_mode))
    throw_system_error(errc::missing, "open", "the join token's file '" + file.string() + "' cannot be read");
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw exception{errc::invalid_argument,
                    "the join token's file '" + file.string() + "' can be read or written by others: chmod 600 it"};
  std::string token(join_secret::longest + 2, '\0');
  from.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<std::size_t>(from.gcount()));
  if (const std::size_t end = token.find_first_of("\r\n"); end != std::string::npos) token.resize(end);
  if (token.size() > join_secret::longest)
    throw exception{errc::invalid_argument, "the join token's file '" + file.string() + "' holds more than " +
                                                std::to_string(join_secret::longest) + " characters"};
  return token;
}

} // namespace troupe
