/// Element types of collectives.
#pragma once

#include <troupe/device/enum_names.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// An element type. bf16 is the upper half of an f32; f8e4m3 has no infinity (OCP "e4m3fn").
enum class dtype : std::uint8_t { u8, i8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2 };
inline constexpr auto all_dtypes = enum_values<dtype>;

/// Returns the size of one element in bytes, or 0 for an unknown value.
[[nodiscard]] constexpr std::size_t size_bytes(dtype type) noexcept {
  switch (type) {
    case dtype::u8:
    case dtype::i8:
    case dtype::f8e4m3:
    case dtype::f8e5m2: return 1;
    case dtype::f16:
    case dtype::bf16: return 2;
    case dtype::i32:
    case dtype::u32:
    case dtype::f32: return 4;
    case dtype::i64:
    case dtype::u64:
    case dtype::f64: return 8;
  }
  return 0;
}

/// Returns whether elements are integers, signed or unsigned.
[[nodiscard]] constexpr bool is_integer(dtype type) noexcept {
  switch (type) {
    case dtype::u8:
    case dtype::i8:
    case dtype::i32:
    case dtype::u32:
    case dtype::i64:
    case dtype::u64: return true;
    default: return false;
  }
}

/// Returns the dtype called \p name ("f32"). Errors: invalid_argument, which lists the known names.
[[nodiscard]] inline dtype parse_dtype(std::string_view name) {
  return parse_enum<dtype>("dtype", name);
}

} // namespace troupe
