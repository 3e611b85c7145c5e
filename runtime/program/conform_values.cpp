#include "conform_values.hpp"

#include <troupe/collectives/mock/small_float.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace troupe::program {

namespace {

template <class Stored>
void put(std::byte* at, Stored value) {
  std::memcpy(at, &value, sizeof value);
}

template <class Stored>
Stored get(const std::byte* at) {
  Stored value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Half the distance between 1 and the next number.
double unit_roundoff(dtype type) {
  switch (type) {
    case dtype::f64: return std::ldexp(1, -53);
    case dtype::f32: return std::ldexp(1, -24);
    case dtype::f16: return std::ldexp(1, -11);
    case dtype::bf16: return std::ldexp(1, -8);
    case dtype::f8e4m3: return std::ldexp(1, -4);
    case dtype::f8e5m2: return std::ldexp(1, -3);
    default: return 0;
  }
}

constexpr double average_unit = 2; ///< What ranks bring to an avg, a multiple of this and of their number.

} // namespace

void store_element(std::byte* at, dtype type, double value) {
  switch (type) {
    case dtype::u8: return put(at, static_cast<std::uint8_t>(value));
    case dtype::i8: return put(at, static_cast<std::int8_t>(value));
    case dtype::i32: return put(at, static_cast<std::int32_t>(value));
    case dtype::u32: return put(at, static_cast<std::uint32_t>(value));
    case dtype::i64: return put(at, static_cast<std::int64_t>(value));
    case dtype::u64: return put(at, static_cast<std::uint64_t>(value));
    case dtype::f16: return put(at, float16::encode(static_cast<float>(value)));
    case dtype::f32: return put(at, static_cast<float>(value));
    case dtype::f64: return put(at, value);
    case dtype::bf16: return put(at, bfloat16::encode(static_cast<float>(value)));
    case dtype::f8e4m3: return put(at, float8_e4m3::encode(static_cast<float>(value)));
    case dtype::f8e5m2: return put(at, float8_e5m2::encode(static_cast<float>(value)));
  }
}

double load_element(const std::byte* at, dtype type) {
  switch (type) {
    case dtype::u8: return get<std::uint8_t>(at);
    case dtype::i8: return get<std::int8_t>(at);
    case dtype::i32: return get<std::int32_t>(at);
    case dtype::u32: return get<std::uint32_t>(at);
    case dtype::i64: return static_cast<double>(get<std::int64_t>(at));
    case dtype::u64: return static_cast<double>(get<std::uint64_t>(at));
    case dtype::f16: return static_cast<double>(float16::decode(get<std::uint16_t>(at)));
    case dtype::f32: return static_cast<double>(get<float>(at));
    case dtype::f64: return get<double>(at);
    case dtype::bf16: return static_cast<double>(bfloat16::decode(get<std::uint16_t>(at)));
    case dtype::f8e4m3: return static_cast<double>(float8_e4m3::decode(get<std::uint8_t>(at)));
    case dtype::f8e5m2: return static_cast<double>(float8_e5m2::decode(get<std::uint8_t>(at)));
  }
  return 0;
}

double input_value(int self, int world_size, std::size_t index, reduction op) {
  const auto rank = static_cast<std::size_t>(self);
  const auto size = static_cast<std::size_t>(world_size);
  switch (op) {
    // An e5m2 has three significant bits: sums and products stay within 4 and 8.
    case reduction::sum:
    case reduction::pre_mul_sum: return rank == index % size || rank == (index / 3 + 1) % size ? 1 : 0;
    case reduction::prod: return rank == index % size || rank == (index / 3 + 1) % size ? 2 : 1;
    case reduction::min:
    case reduction::max: return static_cast<double>((index + 3 * rank) % 7);
    case reduction::avg: return average_unit * static_cast<double>(index % 3);
  }
  return 0;
}

double factor_value(int self) {
  return self % 2 == 0 ? 2 : 1;
}

double combined_value(int world_size, std::size_t index, reduction op) {
  double result = op == reduction::prod ? 1 : 0;
  for (int self = 0; self < world_size; ++self) {
    const double mine = input_value(self, world_size, index, op);
    switch (op) {
      case reduction::sum:
      case reduction::avg: result += mine; break;
      case reduction::pre_mul_sum: result += mine * factor_value(self); break;
      case reduction::prod: result *= mine; break;
      case reduction::min: result = self == 0 ? mine : std::min(result, mine); break;
      case reduction::max: result = self == 0 ? mine : std::max(result, mine); break;
    }
  }
  return op == reduction::avg ? result / world_size : result;
}

double tolerance(int world_size, reduction op, dtype type) {
  const bool exact_mean = (world_size & (world_size - 1)) == 0 && world_size <= 8;
  if (op != reduction::avg || exact_mean) return 0;
  return 2 * average_unit * (world_size + 2) * unit_roundoff(type);
}

} // namespace troupe::program
