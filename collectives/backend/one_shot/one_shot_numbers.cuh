/// The arithmetic of one-shot kernels: the same as host_reduce.hpp, on the eight bytes of a line. Elements are combined
/// by rank, so that all ranks get the same result, and narrow floats in f32, rounded once.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace troupe::one_shot_numbers {

/// reduction (operation/reduction.hpp), which the kernels do not include because it names buffers.
enum class reduce_kind : std::uint8_t { sum, prod, min, max, avg, pre_mul_sum };

/// An element as it is stored, and as it is combined.
template <class Stored, class Combined = Stored>
struct element {
  using stored = Stored;
  using combined = Combined;
};

template <class Number>
struct plain : element<Number> {
  static __device__ Number load(Number one) { return one; }
  static __device__ Number store(Number one) { return one; }
};

struct half_float : element<std::uint16_t, float> {
  static __device__ float load(std::uint16_t one) { return __half2float(__ushort_as_half(one)); }
  static __device__ std::uint16_t store(float one) { return __half_as_ushort(__float2half_rn(one)); }
};

struct brain_float : element<std::uint16_t, float> {
  static __device__ float load(std::uint16_t one) { return __bfloat162float(__ushort_as_bfloat16(one)); }
  static __device__ std::uint16_t store(float one) { return __bfloat16_as_ushort(__float2bfloat16_rn(one)); }
};

/// f8e4m3 has no infinity: what is too large becomes the largest number. f8e5m2 has one.
template <__nv_fp8_interpretation_t Format, __nv_saturation_t Overflow>
struct eight_bits : element<std::uint8_t, float> {
  static __device__ float load(std::uint8_t one) { return __half2float(__half{__nv_cvt_fp8_to_halfraw(one, Format)}); }
  static __device__ std::uint8_t store(float one) { return __nv_cvt_float_to_fp8(one, Overflow, Format); }
};
using f8e4m3_element = eight_bits<__NV_E4M3, __NV_SATFINITE>;
using f8e5m2_element = eight_bits<__NV_E5M2, __NV_NOSAT>;

// Intrinsics, because the compiler would fuse a product and a sum into one instruction that rounds once.
inline __device__ float add(float a, float b) {
  return __fadd_rn(a, b);
}
inline __device__ double add(double a, double b) {
  return __dadd_rn(a, b);
}
inline __device__ float multiply(float a, float b) {
  return __fmul_rn(a, b);
}
inline __device__ double multiply(double a, double b) {
  return __dmul_rn(a, b);
}

/// Integers wrap: signed overflow is undefined, and narrow types are promoted.
template <class T>
__device__ T add(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
template <class T>
__device__ T multiply(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

template <class T>
constexpr bool is_float = false;
template <>
inline constexpr bool is_float<float> = true;
template <>
inline constexpr bool is_float<double> = true;

template <class T>
__device__ bool is_nan(T one) {
  if constexpr (is_float<T>) return one != one;
  return false;
}

/// A NaN wins, and of equal values the earlier rank's (+0 and −0).
template <class T>
__device__ T lesser(T a, T b) {
  return is_nan(a) || !(b < a || is_nan(b)) ? a : b;
}
template <class T>
__device__ T greater(T a, T b) {
  return is_nan(a) || !(a < b || is_nan(b)) ? a : b;
}

template <class T>
__device__ T combine(reduce_kind how, T a, T b) {
  switch (how) {
    case reduce_kind::prod: return multiply(a, b);
    case reduce_kind::min: return lesser(a, b);
    case reduce_kind::max: return greater(a, b);
    default: return add(a, b);
  }
}

/// The mean of integers: their sum, divided without its fraction.
template <class T>
__device__ T finished(reduce_kind how, T sum, int ranks) {
  if constexpr (!is_float<T>)
    if (how == reduce_kind::avg) {
      if constexpr (static_cast<T>(-1) < T{})
        return static_cast<T>(static_cast<std::int64_t>(sum) / ranks);
      else
        return static_cast<T>(static_cast<std::uint64_t>(sum) / static_cast<std::uint64_t>(ranks));
    }
  return sum;
}

template <class Stored>
__device__ Stored lane(std::uint64_t line, int index) {
  const auto bits = line >> (static_cast<unsigned>(index) * 8U * sizeof(Stored));
  if constexpr (sizeof(Stored) == 8) {
    if constexpr (is_float<Stored>)
      return __longlong_as_double(static_cast<long long>(bits));
    else
      return static_cast<Stored>(bits);
  } else if constexpr (is_float<Stored>)
    return __uint_as_float(static_cast<std::uint32_t>(bits));
  else
    return static_cast<Stored>(bits);
}

template <class Stored>
__device__ std::uint64_t as_lane(Stored one, int index) {
  std::uint64_t bits = 0;
  if constexpr (sizeof(Stored) == 8) {
    if constexpr (is_float<Stored>)
      bits = static_cast<std::uint64_t>(__double_as_longlong(one));
    else
      bits = static_cast<std::uint64_t>(one);
  } else if constexpr (is_float<Stored>)
    bits = __float_as_uint(one);
  else if constexpr (sizeof(Stored) == 4)
    bits = static_cast<std::uint32_t>(one);
  else if constexpr (sizeof(Stored) == 2)
    bits = static_cast<std::uint16_t>(one);
  else
    bits = static_cast<std::uint8_t>(one);
  return bits << (static_cast<unsigned>(index) * 8U * sizeof(Stored));
}

/// Returns a rank's own elements as they go into the sum: multiplied by its factor, or by 1/n for a mean of floats.
template <class Element>
__device__ std::uint64_t changed(reduce_kind how, std::uint64_t line, std::uint64_t factor, int ranks) {
  using stored = typename Element::stored;
  using combined = typename Element::combined;
  combined by{};
  if (how == reduce_kind::pre_mul_sum)
    by = Element::load(lane<stored>(factor, 0));
  else if constexpr (is_float<combined>) {
    if (how != reduce_kind::avg) return line;
    by = Element::load(Element::store(combined{1} / static_cast<combined>(ranks)));
  } else
    return line;
  std::uint64_t made = 0;
#pragma unroll 2 // of all lanes, the code of narrow types would be long
  for (int i = 0; i < static_cast<int>(8 / sizeof(stored)); ++i)
    made |= as_lane<stored>(Element::store(multiply(Element::load(lane<stored>(line, i)), by)), i);
  return made;
}

/// Combines the lines of the first \p ranks of \p N ranks, in their order.
template <class Element, int N>
__device__ std::uint64_t folded(reduce_kind how, const std::uint64_t (&lines)[N], int ranks) {
  using stored = typename Element::stored;
  std::uint64_t made = 0;
#pragma unroll 2
  for (int i = 0; i < static_cast<int>(8 / sizeof(stored)); ++i) {
    auto sum = Element::load(lane<stored>(lines[0], i));
#pragma unroll
    for (int r = 1; r < N; ++r)
      if (r < ranks) sum = combine(how, sum, Element::load(lane<stored>(lines[r], i)));
    made |= as_lane<stored>(Element::store(finished(how, sum, ranks)), i);
  }
  return made;
}

/// folded() by sum, without a loop.
template <class Element, int N>
__device__ std::uint64_t summed(const std::uint64_t (&lines)[N], std::uint32_t ranks) {
  using stored = typename Element::stored;
  std::uint64_t made = 0;
#pragma unroll
  for (int i = 0; i < static_cast<int>(8 / sizeof(stored)); ++i) {
    auto sum = Element::load(lane<stored>(lines[0], i));
#pragma unroll
    for (std::uint32_t r = 1; r < N; ++r)
      if (r < ranks) sum = add(sum, Element::load(lane<stored>(lines[r], i)));
    made |= as_lane<stored>(Element::store(sum), i);
  }
  return made;
}

/// Calls \p use with the element of \p type.
template <class Use>
__device__ std::uint64_t with_element(dtype type, const Use& use) {
  switch (type) {
    case dtype::u8: return use(plain<std::uint8_t>{});
    case dtype::i8: return use(plain<std::int8_t>{});
    case dtype::u32: return use(plain<std::uint32_t>{});
    case dtype::i32: return use(plain<std::int32_t>{});
    case dtype::u64: return use(plain<std::uint64_t>{});
    case dtype::i64: return use(plain<std::int64_t>{});
    case dtype::f16: return use(half_float{});
    case dtype::bf16: return use(brain_float{});
    case dtype::f8e4m3: return use(f8e4m3_element{});
    case dtype::f8e5m2: return use(f8e5m2_element{});
    case dtype::f64: return use(plain<double>{});
    case dtype::f32: break;
  }
  return use(plain<float>{});
}

} // namespace troupe::one_shot_numbers
