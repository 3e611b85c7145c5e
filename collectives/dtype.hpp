/// Element types of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// An element type. bf16 is the upper half of an f32.
enum class dtype : std::uint8_t { u8, i32, i64, f32, f64, bf16 };

inline constexpr dtype all_dtypes[] = {dtype::u8, dtype::i32, dtype::i64, dtype::f32, dtype::f64, dtype::bf16};

/// Size of one element; 0 for a value that names no dtype.
[[nodiscard]] constexpr std::size_t size_bytes(dtype type) noexcept {
  switch (type) {
    case dtype::u8: return 1;
    case dtype::bf16: return 2;
    case dtype::i32:
    case dtype::f32: return 4;
    case dtype::i64:
    case dtype::f64: return 8;
  }
  return 0;
}

[[nodiscard]] std::string_view to_string(dtype type) noexcept;

/// The dtype called \p name ("f32"). Errors: invalid_argument, naming those that exist.
[[nodiscard]] dtype parse_dtype(std::string_view name);

} // namespace troupe
