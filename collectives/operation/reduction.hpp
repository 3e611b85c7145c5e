/// Defines how a collective combines the ranks' elements.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace troupe {

/// avg is the sum divided by the number of ranks. For integers it is a wrapping sum followed by a truncating division.
/// For floats every rank's elements are multiplied by 1/n, rounded to the dtype, before the sum; Gloo, without a
/// hierarchy, divides it. pre_mul_sum is the sum after each rank has multiplied its own elements by its own factor.
enum class reduction : std::uint8_t { sum, prod, min, max, avg, pre_mul_sum };
inline constexpr auto all_reductions = enum_values<reduction>;

/// Returns the reduction called \p name. Errors: invalid_argument, which lists the known names.
[[nodiscard]] inline reduction parse_reduction(std::string_view name) {
  return parse_enum<reduction>("reduction", name);
}

/// One rank's factor of a pre_mul_sum: one element of the request's dtype, given by value or in memory of the rank's
/// device. A factor in device memory is read when the operation runs, and is held until the outcome like any buffer.
struct factor {
  std::array<std::byte, 8> value{}; ///< The element's bytes, from the front; used if memory is empty.
  buffer memory{};

  /// Makes a factor by value. \p element has the request's dtype: float for f32, std::uint16_t with the bits of an f16
  /// …
  template <class Element>
  [[nodiscard]] static factor of(Element element) noexcept {
    static_assert(sizeof(Element) <= 8);
    factor made;
    std::memcpy(made.value.data(), &element, sizeof element);
    return made;
  }
  /// Makes a factor from the one element in \p element, which is on the rank's device.
  [[nodiscard]] static factor on_device(buffer element) {
    factor made;
    made.memory = std::move(element);
    return made;
  }
};

/// A reduction with its factor, as the methods of collectives take it: reduction::max, or reduce_op::pre_mul_sum(f).
struct reduce_op {
  reduction kind = reduction::sum;
  troupe::factor factor{};

  /// Converts \p one, which must not need a factor. For pre_mul_sum see below.
  reduce_op(reduction one) : kind{one} {} // NOLINT(google-explicit-constructor): a reduction is all that most need
  /// Returns the sum of elements that each rank has multiplied by \p by. A request to all ranks uses the same factor at
  /// every rank. For a factor in device memory, or a different one at each rank, request operations instead.
  [[nodiscard]] static reduce_op pre_mul_sum(troupe::factor by) {
    reduce_op made{reduction::pre_mul_sum};
    made.factor = std::move(by);
    return made;
  }
};

} // namespace troupe
