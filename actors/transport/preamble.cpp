#include <troupe/actors/transport/preamble.hpp>

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

join_digest join_secret::proof(proxy_side whose, const handshake_transcript& transcript) const {
  static constexpr std::string_view of_listener = "troupe guard 1 listener";
  static constexpr std::string_view of_dialer = "troupe guard 1 dialer..";
  static_assert(of_listener.size() == of_dialer.size());
  const std::string_view label = whose == proxy_side::listener ? of_listener : of_dialer;

  std::array<std::uint8_t, of_dialer.size() + 2 * join_nonce_bytes + join_digest_bytes> message{};
  auto* at = std::copy(label.begin(), label.end(), message.begin());
  at = std::copy(transcript.of_listener.begin(), transcript.of_listener.end(), at);
  at = std::copy(transcript.of_dialer.begin(), transcript.of_dialer.end(), at);
  std::copy(transcript.channel.begin(), transcript.channel.end(), at);

  join_digest made{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), token_.data(), static_cast<int>(token_.size()), message.data(), message.size(), made.data(),
           &length) == nullptr ||
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
    made += digits[one >> 4u];
    made += digits[one & 15u];
  }
  OPENSSL_cleanse(bits.data(), bits.size());
  return made;
}

namespace {

constexpr std::size_t preamble_head_bytes = 8;
using preamble_head = std::array<std::uint8_t, preamble_head_bytes>;

constexpr preamble_head head_with(join_verdict verdict) {
  return {'T', 'R', 'P', 'G', preamble_version, static_cast<std::uint8_t>(verdict), 0, 0};
}

constexpr preamble_head plain_head = head_with(join_verdict::admitted);

template <std::size_t N>
std::array<std::uint8_t, N> taken(std::span<const std::uint8_t> bytes, std::size_t from) {
  std::array<std::uint8_t, N> made{};
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(from), N, made.begin());
  return made;
}

bool has_plain_head(std::span<const std::uint8_t> bytes) {
  return std::equal(plain_head.begin(), plain_head.end(), bytes.begin());
}

} // namespace

std::string_view meaning_of(join_verdict verdict) noexcept {
  switch (verdict) {
    case join_verdict::admitted: return "admitted us";
    case join_verdict::wrong_token: return "refused the join token";
    case join_verdict::malformed: return "did not understand our preamble: is it another version of troupe?";
    case join_verdict::too_many: return "has reached its limit of connections";
    case join_verdict::unreachable: return "has no process at its control port: is the controller still starting?";
  }
  return "sent an unknown answer";
}

std::array<std::uint8_t, join_greeting_bytes> encode_greeting(const join_nonce& nonce) noexcept {
  std::array<std::uint8_t, join_greeting_bytes> made{};
  std::copy(nonce.begin(), nonce.end(), std::copy(plain_head.begin(), plain_head.end(), made.begin()));
  return made;
}

std::array<std::uint8_t, join_claim_bytes> encode(const join_claim& claim) noexcept {
  std::array<std::uint8_t, join_claim_bytes> made{};
  auto* at = std::copy(plain_head.begin(), plain_head.end(), made.begin());
  at = std::copy(claim.nonce.begin(), claim.nonce.end(), at);
  std::copy(claim.proof.begin(), claim.proof.end(), at);
  return made;
}

std::array<std::uint8_t, join_answer_bytes> encode(const join_answer& answer) noexcept {
  std::array<std::uint8_t, join_answer_bytes> made{};
  const preamble_head head = head_with(answer.verdict);
  std::copy(answer.proof.begin(), answer.proof.end(), std::copy(head.begin(), head.end(), made.begin()));
  return made;
}

std::optional<join_nonce> decode_greeting(std::span<const std::uint8_t, join_greeting_bytes> bytes) {
  if (!has_plain_head(bytes)) return std::nullopt;
  return taken<join_nonce_bytes>(bytes, preamble_head_bytes);
}

std::optional<join_claim> decode_claim(std::span<const std::uint8_t, join_claim_bytes> bytes) {
  if (!has_plain_head(bytes)) return std::nullopt;
  return join_claim{.nonce = taken<join_nonce_bytes>(bytes, preamble_head_bytes),
                    .proof = taken<join_digest_bytes>(bytes, preamble_head_bytes + join_nonce_bytes)};
}

std::optional<join_answer> decode_answer(std::span<const std::uint8_t, join_answer_bytes> bytes) {
  if (bytes[5] > last_join_verdict) return std::nullopt;
  const auto verdict = static_cast<join_verdict>(bytes[5]);
  const preamble_head head = head_with(verdict);
  if (!std::equal(head.begin(), head.end(), bytes.begin())) return std::nullopt;
  return join_answer{.verdict = verdict, .proof = taken<join_digest_bytes>(bytes, preamble_head_bytes)};
}

} // namespace troupe
