/// Defines the form in which the mock's ranks exchange operations: plain values and addresses, like a kernel's
/// arguments. The request holds the memory (BUF-1).
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
  /// True for a part received from another process. It has only the elements that its rank sends to this one, and gets
  /// no result.
  bool is_remote = false;
  std::size_t send_first = 0; ///< The index of the first element at send.
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::vector<std::size_t> send_at{}; ///< For the v-forms: each rank's displacement, in elements.
  std::vector<std::size_t> recv_at{};
  std::array<std::byte, 8> factor{};
  const std::byte* factor_on_device = nullptr; ///< Read when the operation runs; replaces factor.
};

/// Returns one call for each part of a group, else one. Copies are not allowed.
/// Errors: invalid_argument for an access beyond a buffer's end, or an unknown dtype or reduction.
[[nodiscard]] std::vector<mock_call> calls_of(const operation& what, rank self, int world_size);

/// Elements of a rank's send buffer or receive buffer.
struct element_range {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Returns the part of the send buffer of \p call that goes to rank \p to. Without counts, all parts have one size.
[[nodiscard]] element_range sent_part(const mock_call& call, std::size_t to);
/// Returns the part of the receive buffer of \p call that comes from rank \p from.
[[nodiscard]] element_range received_part(const mock_call& call, std::size_t from);

/// Returns which elements of rank \p from's send buffer the result of rank \p to depends on. \p call is the part of
/// rank \p from.
[[nodiscard]] element_range elements_for(const mock_call& call, std::size_t from, std::size_t to);

/// Computes one collective. \p ranks are the matching parts of all ranks, in rank order.
void perform(std::span<const mock_call* const> ranks);
/// Moves the data of a send to the matching recv.
void perform_transfer(const mock_call& from, const mock_call& to);

/// Calls \p work with an empty operation of the kind \p kind, its index in troupe::operation, to select an overload.
template <std::size_t Index = 0, class Work>
void visit_kind(std::size_t kind, const Work& work) {
  if constexpr (Index < std::variant_size_v<operation::variant>) {
    if (kind == Index) return work(std::variant_alternative_t<Index, operation::variant>{});
    visit_kind<Index + 1>(kind, work);
  }
}

} // namespace troupe
