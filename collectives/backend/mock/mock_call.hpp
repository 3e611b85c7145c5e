/// A collective as plain values and addresses, as a kernel's arguments are: what the mock's ranks bring to each other.
/// Whoever asked holds the memory (BUF-1).
#pragma once

#include <troupe/collectives/operation/signature.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

namespace troupe {

/// One rank's part of one operation.
struct mock_call {
  signature what;
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::vector<std::size_t> send_at{}; ///< Of the v-forms: each rank's displacement, in elements.
  std::vector<std::size_t> recv_at{};
  std::array<std::byte, 8> factor{};
  const std::byte* factor_on_device = nullptr; ///< Read when the operation runs; instead of factor.
};

/// One for each part of a group, else one. Not for copies.
/// Errors: invalid_argument for what would be written or read beyond a buffer's end, or has no dtype or reduction.
[[nodiscard]] std::vector<mock_call> calls_of(const operation& what, rank self, int world_size);

/// Computes one collective: \p ranks are all ranks' parts, in rank order, that agree.
void perform(std::span<const mock_call* const> ranks);
/// Moves what one send gives to the recv that meets it.
void perform_transfer(const mock_call& from, const mock_call& to);

/// Calls \p work with an empty alternative of troupe::operation by its index: one of its overloads.
template <std::size_t Index = 0, class Work>
void visit_kind(std::size_t kind, const Work& work) {
  if constexpr (Index < std::variant_size_v<operation>) {
    if (kind == Index) return work(std::variant_alternative_t<Index, operation>{});
    visit_kind<Index + 1>(kind, work);
  }
}

} // namespace troupe
