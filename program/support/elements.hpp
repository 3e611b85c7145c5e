/// Converts elements of every dtype to numbers and back: integers keep their type, and floats become doubles, which
/// represent all of them exactly.
#pragma once

#include <troupe/collectives/backend/mock/small_float.hpp>
#include <troupe/collectives/operation/dtype.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace troupe::program {

/// Describes an element of a dtype that has a C++ type.
template <class T>
struct plain_element {
  using stored = T;
  using number = std::conditional_t<std::is_integral_v<T>, T, double>;
  static constexpr int digits = std::is_integral_v<T> ? 0 : std::numeric_limits<T>::digits; ///< For a float.
  static constexpr int lowest_exponent = std::numeric_limits<T>::min_exponent - 1;          ///< For a normal float.
  static number decode(stored value) noexcept { return value; }
  static stored encode(number value) noexcept { return static_cast<stored>(value); }
};

/// Describes an element of a dtype that only small_float can convert.
template <class Format>
struct narrow_element {
  using stored = typename Format::bits;
  using number = double;
  static constexpr int digits = Format::width - 1 - std::bit_width(static_cast<unsigned>(Format::bias));
  static constexpr int lowest_exponent = 1 - Format::bias;
  static number decode(stored value) noexcept { return static_cast<number>(Format::decode(value)); }
  static stored encode(number value) noexcept { return Format::encode(static_cast<float>(value)); }
};

/// Calls \p use with a value of \p type's element struct.
template <class Use>
decltype(auto) with_element(dtype type, Use use) {
  switch (type) {
    case dtype::u8: return use(plain_element<std::uint8_t>{});
    case dtype::i8: return use(plain_element<std::int8_t>{});
    case dtype::i32: return use(plain_element<std::int32_t>{});
    case dtype::u32: return use(plain_element<std::uint32_t>{});
    case dtype::i64: return use(plain_element<std::int64_t>{});
    case dtype::u64: return use(plain_element<std::uint64_t>{});
    case dtype::f16: return use(narrow_element<float16>{});
    case dtype::f32: return use(plain_element<float>{});
    case dtype::f64: break;
    case dtype::bf16: return use(narrow_element<bfloat16>{});
    case dtype::f8e4m3: return use(narrow_element<float8_e4m3>{});
    case dtype::f8e5m2: return use(narrow_element<float8_e5m2>{});
  }
  return use(plain_element<double>{});
}

/// Loads the element at \p from, which need not be aligned.
template <class Element>
typename Element::number load_element(const std::byte* from) noexcept {
  typename Element::stored value;
  std::memcpy(&value, from, sizeof value);
  return Element::decode(value);
}

template <class Element>
void store_element(typename Element::number value, std::byte* to) noexcept {
  const typename Element::stored element = Element::encode(value);
  std::memcpy(to, &element, sizeof element);
}

/// Stores an element whose dtype is only known at run time. \p value is rounded to the dtype.
inline void store_element(std::byte* to, dtype type, double value) {
  with_element(
      type, [&]<class Element>(Element) { store_element<Element>(static_cast<typename Element::number>(value), to); });
}

} // namespace troupe::program
