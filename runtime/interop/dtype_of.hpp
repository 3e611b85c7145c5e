/// Maps C++ element types to dtypes.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace troupe {

/// Specialise it for your own types, for example half types:
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

} // namespace troupe
