/// Arrays of the client's own as operands, without a copy: std::span, std::vector, thrust::device_vector,
/// cuda::std::span and whatever else has data() and size(). No CUDA header is needed.
#pragma once

#include <troupe/runtime/interop/dtype_of.hpp>
#include <troupe/runtime/interop/tensor.hpp>

#include <cstddef>
#include <memory>
#include <ranges>
#include <type_traits>
#include <utility>

namespace troupe {

class world;

/// The address behind \p pointer: a plain one, or one with get(), as thrust::device_ptr has, or like an iterator.
template <class Pointer>
[[nodiscard]] constexpr auto* raw_pointer(const Pointer& pointer) {
  if constexpr (std::is_pointer_v<Pointer>)
    return pointer;
  else if constexpr (requires { pointer.get(); })
    return raw_pointer(pointer.get());
  else
    return std::to_address(pointer);
}

/// Elements that lie one behind the other and may be written, since an operand may be.
template <class Range>
concept contiguous_elements = requires(Range& range) {
  { range.size() } -> std::convertible_to<std::size_t>;
  requires element<std::remove_pointer_t<decltype(raw_pointer(range.data()))>>;
};

template <contiguous_elements Range>
using element_of = std::remove_pointer_t<decltype(raw_pointer(std::declval<Range&>().data()))>;

/// \p count elements from \p first for requests of \p whom: device memory of its device, or host memory, pinned or
/// ordinary, which is told from the address.
/// Lifetime: \p owner is held as long as any handle lives; null: the memory stays valid for so long by your promise.
/// Errors: invalid_argument (null), wrong_device. Threads: any.
[[nodiscard]] tensor adopt_elements(const world& where, rank whom, void* first, std::size_t count, dtype type,
                                    std::shared_ptr<void> owner);

/// The elements of \p range, of one dimension.
/// Lifetime: nothing is held. The memory must stay valid, and where it is, until the replies of all requests that name
/// it are there and every handle is gone: no push_back(), no clear().
/// Errors and threads: adopt_elements()'s.
template <class Range>
requires contiguous_elements<std::remove_reference_t<Range>> &&
    (std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>) [[nodiscard]] tensor
    borrow(const world& where, rank whom, Range&& range) { // NOLINT: not forwarded, only looked at
  using type = element_of<std::remove_reference_t<Range>>;
  return adopt_elements(where, whom, raw_pointer(range.data()), range.size(), dtype_of<type>::value, nullptr);
}

/// The same of a range that is held as long as any handle lives. It may end on a thread of troupe's.
template <contiguous_elements Range>
[[nodiscard]] tensor share(const world& where, rank whom, std::shared_ptr<Range> range) {
  auto* const first = raw_pointer(range->data());
  const std::size_t count = range->size();
  return adopt_elements(where, whom, first, count, dtype_of<element_of<Range>>::value, std::move(range));
}

/// The same of a range that is moved in and destroyed with the last handle. A view, which owns nothing, is refused.
template <class Range>
requires contiguous_elements<Range> &&(!std::is_lvalue_reference_v<Range>)&&(!std::ranges::borrowed_range<Range>)
    [[nodiscard]] tensor give(const world& where, rank whom, Range&& range) {
  return share(where, whom, std::make_shared<Range>(std::move(range)));
}

} // namespace troupe
