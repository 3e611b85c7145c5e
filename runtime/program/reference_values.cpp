#include "reference_values.hpp"

#include <troupe/collectives/mock/small_float.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace troupe::program {

namespace {

constexpr std::size_t period = 16'381; // prime

template <class Format>
struct narrow {
  using format = Format;
  typename Format::bits bits = 0;
};

/// Bits of a float's significand; 0 for integers.
template <class T>
constexpr int significand_bits = std::is_floating_point_v<T> ? std::numeric_limits<T>::digits : 0;
template <int Exponent, int Mantissa, bool HasInfinity>
constexpr int significand_bits<narrow<small_float<Exponent, Mantissa, HasInfinity>>> = Mantissa + 1;

template <class T>
constexpr bool is_narrow = false;
template <class Format>
constexpr bool is_narrow<narrow<Format>> = true;

/// Calls \p use with a value of \p type's element.
template <class Use>
decltype(auto) with_element(dtype type, Use use) {
  switch (type) {
    case dtype::u8: return use(std::uint8_t{});
    case dtype::i8: return use(std::int8_t{});
    case dtype::i32: return use(std::int32_t{});
    case dtype::u32: return use(std::uint32_t{});
    case dtype::i64: return use(std::int64_t{});
    case dtype::u64: return use(std::uint64_t{});
    case dtype::f32: return use(float{});
    case dtype::f64: return use(double{});
    case dtype::f16: return use(narrow<float16>{});
    case dtype::bf16: return use(narrow<bfloat16>{});
    case dtype::f8e4m3: return use(narrow<float8_e4m3>{});
    case dtype::f8e5m2: break;
  }
  return use(narrow<float8_e5m2>{});
}

/// What an element is compared and combined in: integers modulo 2⁶⁴, floats in f64, which holds all others exactly.
template <class T>
auto load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (is_narrow<T>)
    return static_cast<double>(T::format::decode(value.bits));
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<double>(value);
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return value;
  else
    return static_cast<std::int64_t>(value);
}

template <class T, class Value>
void store(Value value, std::byte* to) noexcept {
  T element;
  if constexpr (is_narrow<T>)
    element.bits = T::format::encode(static_cast<float>(value));
  else
    element = static_cast<T>(value);
  std::memcpy(to, &element, sizeof element);
}

template <class Value>
Value combine(Value left, Value right, reduction op) noexcept {
  switch (op) {
    case reduction::min: return std::min(left, right);
    case reduction::max: return std::max(left, right);
    default: break;
  }
  if constexpr (std::is_integral_v<Value>)
    return static_cast<Value>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
  else
    return left + right;
}

/// splitmix64: neighbours and seeds that differ by one give unrelated bits.
std::uint64_t scramble(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

/// Floats over \p ranks: every stride-th rank gives up to ± largest, so that no sum of them exceeds the significand.
struct float_range {
  std::int64_t largest = 1;
  std::int64_t stride = 1;
};

float_range exact_range(int significand, int ranks) noexcept {
  constexpr int enough = 30;
  const std::int64_t exact = std::int64_t{1} << std::min(significand, enough);
  return {std::max<std::int64_t>(1, exact / ranks), (ranks + exact - 1) / exact};
}

template <class T>
std::vector<std::byte> make_input(std::uint64_t seed, int rank, int ranks) {
  std::vector<std::byte> values(period * sizeof(T));
  for (std::size_t i = 0; i < period; ++i) {
    const std::uint64_t random = scramble((scramble(seed) + static_cast<std::uint64_t>(rank)) ^ scramble(i));
    if constexpr (significand_bits < T >> 0) {
      const auto [largest, stride] = exact_range(significand_bits<T>, ranks);
      const auto above = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(2 * largest + 1));
      const bool gives = (static_cast<std::int64_t>(i) + rank) % stride == 0;
      store<T>(gives ? static_cast<double>(above - largest) : 0.0, &values[i * sizeof(T)]);
    } else {
      store<T>(random, &values[i * sizeof(T)]);
    }
  }
  return values;
}

template <class T>
std::vector<std::byte> reduce(const std::vector<std::vector<std::byte>>& inputs, reduction op) {
  std::vector<std::byte> result(inputs.front().size());
  for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
    auto value = load<T>(&inputs.front()[at]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) value = combine(value, load<T>(&inputs[rank][at]), op);
    store<T>(value, &result[at]);
  }
  return result;
}

template <class T>
std::size_t count_different(const std::byte* seen, const std::byte* expected, std::size_t bytes) {
  if (std::memcmp(seen, expected, bytes) == 0) return 0;
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
    const auto one = load<T>(seen + at);
    const auto other = load<T>(expected + at);
    wrong += one == other ? 0U : 1U; // so asked, a NaN is wrong
  }
  return wrong;
}

/// Calls \p use(bytes into the pattern, bytes into the range, bytes) for each stretch that does not wrap.
template <class Use>
void for_each_stretch(std::size_t first, std::size_t range_bytes, std::size_t element_bytes, Use use) {
  std::size_t at = first % period * element_bytes;
  for (std::size_t done = 0; done < range_bytes;) {
    const std::size_t bytes = std::min(range_bytes - done, period * element_bytes - at);
    use(at, done, bytes);
    done += bytes;
    at = 0;
  }
}

} // namespace

reference_values::reference_values(dtype type, reduction op, int ranks, std::uint64_t seed) : type_{type} {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    for (int rank = 0; rank < ranks; ++rank) inputs_.push_back(make_input<T>(seed, rank, ranks));
    reduced_ = reduce<T>(inputs_, op);
  });
}

void reference_values::fill(int rank, std::size_t first, std::span<std::byte> to) const {
  const pattern& values = inputs_.at(static_cast<std::size_t>(rank));
  for_each_stretch(first, to.size(), troupe::size_bytes(type_),
                   [&](std::size_t from, std::size_t at, std::size_t bytes) {
                     std::memcpy(to.data() + at, values.data() + from, bytes);
                   });
}

std::size_t reference_values::count_wrong(std::optional<int> from, std::size_t first,
                                          std::span<const std::byte> seen) const {
  const pattern& expected = from ? inputs_.at(static_cast<std::size_t>(*from)) : reduced_;
  std::size_t wrong = 0;
  with_element(type_, [&](auto element) {
    for_each_stretch(first, seen.size(), sizeof element, [&](std::size_t at, std::size_t done, std::size_t bytes) {
      wrong += count_different<decltype(element)>(seen.data() + done, expected.data() + at, bytes);
    });
  });
  return wrong;
}

} // namespace troupe::program
