#include <troupe/actors/transport/preamble.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t preamble_head_bytes = 8;
using preamble_head = std::array<std::uint8_t, preamble_head_bytes>;

constexpr preamble_head head_with(guard_verdict verdict) {
  return {'T', 'R', 'P', 'G', guard_preamble_version, static_cast<std::uint8_t>(verdict), 0, 0};
}

constexpr preamble_head plain_head = head_with(guard_verdict::admitted);

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

std::string_view meaning_of(guard_verdict verdict) noexcept {
  switch (verdict) {
    case guard_verdict::admitted: return "admitted us";
    case guard_verdict::wrong_token: return "refused the join token";
    case guard_verdict::malformed: return "did not understand our preamble: is it another version of troupe?";
    case guard_verdict::too_many: return "has reached its limit of connections";
    case guard_verdict::unreachable: return "has no process at its control port: is the controller still starting?";
  }
  return "answered something unknown";
}

std::array<std::uint8_t, guard_greeting_bytes> encode_greeting(const guard_nonce& nonce) noexcept {
  std::array<std::uint8_t, guard_greeting_bytes> made{};
  std::copy(nonce.begin(), nonce.end(), std::copy(plain_head.begin(), plain_head.end(), made.begin()));
  return made;
}

std::array<std::uint8_t, guard_claim_bytes> encode(const guard_claim& claim) noexcept {
  std::array<std::uint8_t, guard_claim_bytes> made{};
  auto* at = std::copy(plain_head.begin(), plain_head.end(), made.begin());
  at = std::copy(claim.nonce.begin(), claim.nonce.end(), at);
  std::copy(claim.proof.begin(), claim.proof.end(), at);
  return made;
}

std::array<std::uint8_t, guard_answer_bytes> encode(const guard_answer& answer) noexcept {
  std::array<std::uint8_t, guard_answer_bytes> made{};
  const preamble_head head = head_with(answer.verdict);
  std::copy(answer.proof.begin(), answer.proof.end(), std::copy(head.begin(), head.end(), made.begin()));
  return made;
}

std::optional<guard_nonce> decode_greeting(std::span<const std::uint8_t, guard_greeting_bytes> bytes) {
  if (!has_plain_head(bytes)) return std::nullopt;
  return taken<guard_nonce_bytes>(bytes, preamble_head_bytes);
}

std::optional<guard_claim> decode_claim(std::span<const std::uint8_t, guard_claim_bytes> bytes) {
  if (!has_plain_head(bytes)) return std::nullopt;
  return guard_claim{.nonce = taken<guard_nonce_bytes>(bytes, preamble_head_bytes),
                     .proof = taken<guard_digest_bytes>(bytes, preamble_head_bytes + guard_nonce_bytes)};
}

std::optional<guard_answer> decode_answer(std::span<const std::uint8_t, guard_answer_bytes> bytes) {
  if (bytes[5] > last_guard_verdict) return std::nullopt;
  const auto verdict = static_cast<guard_verdict>(bytes[5]);
  const preamble_head head = head_with(verdict);
  if (!std::equal(head.begin(), head.end(), bytes.begin())) return std::nullopt;
  return guard_answer{.verdict = verdict, .proof = taken<guard_digest_bytes>(bytes, preamble_head_bytes)};
}

} // namespace troupe
