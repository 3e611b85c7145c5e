/// How a collective combines the ranks' elements.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace troupe {

/// avg is the sum divided by the number of ranks: in integers a wrapping sum and then a division that truncates; in
/// floats every rank's elements are multiplied by 1/n, rounded to the dtype, before the sum.
/// pre_mul_sum is the sum after each rank has multiplied its own elements by its own factor.
enum class reduction : std::uint8_t { sum, prod, min, max, avg, pre_mul_sum };

inline constexpr reduction all_reductions[] = {reduction::sum, reduction::prod, reduction::min,
                                               reduction::max, reduction::avg,  reduction::pre_mul_sum};

/// "sum", "min", "max"; empty for a value that names no reduction.
[[nodiscard]] std::string_view to_string(reduction op) noexcept;

/// The reduction called \p name. Errors: invalid_argument, naming those that exist.
[[nodiscard]] reduction parse_reduction(std::string_view name);

/// One rank's factor of a pre_mul_sum: one element of the request's dtype, by value or on the rank's device. One on
/// the device is read when the operation runs there, and is held until the outcome as any buffer is.
struct factor {
  std::array<std::byte, 8> value{}; ///< The element's bytes, from the front; used where there is no memory.
  buffer memory{};

  /// \p element is a value of the request's dtype: float for f32, std::uint16_t with the bits of an f16 …
  template <class Element>
  [[nodiscard]] static factor of(Element element) noexcept {
    static_assert(sizeof(Element) <= 8);
    factor made;
    std::memcpy(made.value.data(), &element, sizeof element);
    return made;
  }
  /// The one element that \p element holds, on the rank's device.
  [[nodiscard]] static factor on_device(buffer element) {
    factor made;
    made.memory = std::move(element);
    return made;
  }
};

} // namespace troupe
