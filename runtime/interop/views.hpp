/// Uses the client's own arrays as operands without a copy: std::span, std::vector, thrust::device_vector,
/// cuda::std::span, and any type with data() and size(). No CUDA header is needed.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span> // and std::ranges::borrowed_range, without the views of <ranges>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// Elements of one type in memory for requests, row-major without gaps.
///
/// Shapes: memory holds exactly count() elements, and is empty if there are none.
/// Lifetime: copies share the memory and its owner. A request in flight holds the memory too.
struct tensor {
  buffer memory{};
  dtype type = dtype::f32;
  std::vector<std::size_t> shape{}; ///< The last dimension is the innermost. Empty: one element.
  std::optional<rank> on{};         ///< The rank on whose device it is. Empty: host memory, usable by every rank.
  shared_event ready{};             ///< The memory may be used after this event. Null: it may be used now.

  /// Returns the number of elements.
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : shape) product *= extent;
    return product;
  }
  /// Returns the tensor as an operand of a request.
  [[nodiscard]] operand as_operand() const { return {memory, ready}; }
};

/// Maps an element type to its dtype. Specialise it for your own types, for example half types:
///   template <> struct troupe::dtype_of<__nv_bfloat16> { static constexpr dtype value = dtype::bf16; };
template <class T>
struct dtype_of {};

template <>
struct dtype_of<float> {
  static constexpr dtype value = dtype::f32;
};
template <>
struct dtype_of<double> {
  static constexpr dtype value = dtype::f64;
};
template <>
struct dtype_of<std::byte> {
  static constexpr dtype value = dtype::u8;
};

/// Integers of a width that has a dtype. Characters and bool are excluded.
template <class T>
concept integer_element = std::integral<T> &&(sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8) &&
                          !std::same_as<T, bool> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
                          !std::same_as<T, char8_t> && !std::same_as<T, char32_t>;

template <integer_element T>
struct dtype_of<T> {
  static constexpr dtype value = sizeof(T) == 1   ? (std::signed_integral<T> ? dtype::i8 : dtype::u8)
                                 : sizeof(T) == 4 ? (std::signed_integral<T> ? dtype::i32 : dtype::u32)
                                                  : (std::signed_integral<T> ? dtype::i64 : dtype::u64);
};

/// A trivially copyable type that has a dtype of its size.
template <class T>
concept element = std::is_trivially_copyable_v<T> && requires {
  requires sizeof(T) == size_bytes(dtype_of<T>::value);
};

class world;

/// Returns the address of \p pointer, which is a plain pointer, has get() as thrust::device_ptr does, or is like an
/// iterator.
template <class Pointer>
[[nodiscard]] constexpr auto* raw_pointer(const Pointer& pointer) {
  if constexpr (std::is_pointer_v<Pointer>)
    return pointer;
  else if constexpr (requires { pointer.get(); })
    return raw_pointer(pointer.get());
  else
    return std::to_address(pointer);
}

/// Contiguous elements. They must be writable, because an operand may be written.
template <class Range>
concept contiguous_elements = requires(Range& range) {
  { range.size() } -> std::convertible_to<std::size_t>;
  requires element<std::remove_pointer_t<decltype(raw_pointer(range.data()))>>;
};

template <contiguous_elements Range>
using element_of = std::remove_pointer_t<decltype(raw_pointer(std::declval<Range&>().data()))>;

/// Wraps \p count elements from \p first for requests of rank \p target: device memory of its device, or host memory,
/// pinned or pageable, depending on the address. Lifetime: \p owner is held as long as any handle to the memory; null:
/// the caller keeps the memory valid for that time. Errors: invalid_argument (null), wrong_device. Threads: any.
[[nodiscard]] tensor adopt_elements(const world& where, rank target, void* first, std::size_t count, dtype type,
                                    std::shared_ptr<void> owner);

/// Wraps the elements of \p range as a tensor of one dimension. Lifetime: holds nothing. The memory must stay valid and
/// must not move until the replies of all requests that name it have arrived and every handle has been destroyed: no
/// push_back(), no clear(). Errors and threads: as adopt_elements().
template <class Range>
requires contiguous_elements<std::remove_reference_t<Range>> &&
    (std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>) [[nodiscard]] tensor
    borrow(const world& where, rank target, Range&& range) { // NOLINT: not forwarded, only read
  using type = element_of<std::remove_reference_t<Range>>;
  return adopt_elements(where, target, raw_pointer(range.data()), range.size(), dtype_of<type>::value, nullptr);
}

/// Wraps the elements of \p range as borrow() does, but holds the range as long as any handle. The range may be
/// destroyed on a thread of troupe.
template <contiguous_elements Range>
[[nodiscard]] tensor share(const world& where, rank target, std::shared_ptr<Range> range) {
  auto* const first = raw_pointer(range->data());
  const std::size_t count = range->size();
  return adopt_elements(where, target, first, count, dtype_of<element_of<Range>>::value, std::move(range));
}

/// Wraps the elements of \p range as share() does, after moving the range, which is destroyed with the last handle.
/// Views, which own nothing, are not accepted.
template <class Range>
requires contiguous_elements<Range> &&(!std::is_lvalue_reference_v<Range>)&&(!std::ranges::borrowed_range<Range>)
    [[nodiscard]] tensor give(const world& where, rank target, Range&& range) {
  return share(where, target, std::make_shared<Range>(std::move(range))); // NOLINT(bugprone-move-forwarding-reference)
}

} // namespace troupe
