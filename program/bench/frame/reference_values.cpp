#include <troupe/program/bench/frame/reference_values.hpp>

#include <troupe/collectives/backend/small_float.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

namespace troupe::program {

namespace {

constexpr std::size_t period = 16'381; // A prime number.

// Elements of every dtype as numbers: integers keep their type, and floats become doubles, which represent all of them
// exactly.

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

template <class Element>
constexpr bool is_float = Element::digits > 0;

template <class Number>
Number wrapping_sum(Number left, Number right) noexcept {
  if constexpr (std::is_integral_v<Number>)
    return static_cast<Number>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
  else
    return left + right;
}

template <class Number>
Number wrapping_product(Number left, Number right) noexcept {
  if constexpr (std::is_integral_v<Number>)
    return static_cast<Number>(static_cast<std::uint64_t>(left) * static_cast<std::uint64_t>(right));
  else
    return left * right;
}

/// Every stride-th rank contributes values from −largest to largest, and the other ranks contribute 0.
struct whole_range {
  std::int64_t largest = 1;
  std::int64_t stride = 1;
};

/// Returns a range for which no sum over \p ranks ranks exceeds \p exact.
whole_range range_within(std::int64_t exact, std::int64_t ranks) noexcept {
  return {std::max<std::int64_t>(1, exact / ranks), (ranks + exact - 1) / exact};
}

/// Returns the largest absolute whole number up to which an element and its sums are exact.
template <class Element>
constexpr std::int64_t exact_up_to() noexcept {
  constexpr int enough = 30;
  if constexpr (is_float<Element>)
    return std::int64_t{1} << std::min(Element::digits, enough);
  else
    return std::min<std::uint64_t>(std::numeric_limits<typename Element::number>::max() / 2, 1U << enough);
}

constexpr int largest_factor = 2;

template <class Element>
typename Element::number factor_of(int self, value_kind kind) noexcept {
  using number = typename Element::number;
  if constexpr (!is_float<Element>)
    if (kind == value_kind::full) return static_cast<number>(scramble(static_cast<std::uint64_t>(self) + 77));
  return static_cast<number>(self % 2 == 0 ? largest_factor : 1);
}

/// Generates one rank's inputs.
template <class Element>
class input_maker {
public:
  using number = typename Element::number;

  input_maker(reduction op, int ranks, int self, value_kind kind)
    : op_{op},
      self_{self},
      wraps_{kind == value_kind::full && !is_float<Element>},
      sums_{range_within(exact_up_to<Element>(),
                         std::int64_t{op == reduction::pre_mul_sum ? largest_factor : 1} * ranks)},
      products_{(ranks + most_factors - 1) / most_factors} {}

  [[nodiscard]] number make(std::uint64_t random, std::size_t index) const noexcept {
    if (wraps_) return static_cast<number>(random);
    const std::int64_t turn = static_cast<std::int64_t>(index) + self_;
    if (op_ == reduction::prod) return factor(random, turn % products_ == 0);
    if (turn % sums_.stride != 0) return number{0};
    const auto span = static_cast<std::uint64_t>(sums_.largest) + 1;
    const auto size = static_cast<number>(random % span);
    return negative(random) ? static_cast<number>(-size) : size;
  }

private:
  static constexpr int most_factors = 4; ///< The number of ranks whose factor in one product may differ from ±1.

  /// Returns a power of two, because a product of a few powers of two needs only one significant digit.
  static number factor(std::uint64_t random, bool gives) noexcept {
    number size{1};
    if (gives && random % 3 == 0) size = number{2};
    if constexpr (is_float<Element>)
      if (gives && random % 3 == 1) size = 0.5;
    return negative(random) ? static_cast<number>(-size) : size;
  }
  static bool negative(std::uint64_t random) noexcept { return std::is_signed_v<number> && (random >> 63U) != 0; }

  reduction op_;
  std::int64_t self_;
  bool wraps_;
  whole_range sums_;
  std::int64_t products_;
};

/// Returns a pseudo-random number that depends on \p seed, \p rank and \p index.
std::uint64_t draw(std::uint64_t seed, int rank, std::size_t index) noexcept {
  return scramble((scramble(seed) + static_cast<std::uint64_t>(rank)) ^ scramble(index));
}

template <class Element>
std::vector<std::byte> make_input(std::uint64_t seed, int rank, const input_maker<Element>& maker, value_kind kind) {
  constexpr std::size_t width = sizeof(typename Element::stored);
  std::vector<std::byte> values(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    const std::uint64_t random = draw(seed, rank, i);
    if (kind == value_kind::bits)
      std::memcpy(&values[i * width], &random, width);
    else
      store_element<Element>(maker.make(random, i), &values[i * width]);
  }
  return values;
}

/// Computes the correct results of a reduction and the allowed error of measured ones.
template <class Element>
class reducer {
public:
  using number = typename Element::number;

  reducer(reduction op, int ranks, value_kind kind) : op_{op}, ranks_{ranks}, kind_{kind} {
    int exponent = 0;
    const bool power_of_two = std::frexp(static_cast<double>(ranks), &exponent) == 0.5;
    rounds_ = is_float<Element> && op == reduction::avg && !(power_of_two && 1 - exponent >= Element::lowest_exponent);
  }

  void reduce(const std::vector<std::vector<std::byte>>& inputs, std::vector<std::byte>& results,
              std::vector<double>& slack) const {
    constexpr std::size_t width = sizeof(typename Element::stored);
    results.resize(period * width);
    if (rounds_) slack.resize(period);
    std::vector<number> factors;
    for (int rank = 0; rank < ranks_; ++rank) factors.push_back(factor_of<Element>(rank, kind_));
    for (std::size_t i = 0; i < period; ++i) {
      const auto of = [&](std::size_t rank) {
        const number value = load_element<Element>(&inputs[rank][i * width]);
        return op_ == reduction::pre_mul_sum ? wrapping_product(value, factors[rank]) : value;
      };
      number result = of(0);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) result = combine(result, of(rank));
      if constexpr (is_float<Element>)
        if (rounds_) slack[i] = allowance(inputs, i * width);
      store_element<Element>(op_ == reduction::avg ? mean(result) : result, &results[i * width]);
    }
  }

private:
  [[nodiscard]] number combine(number left, number right) const noexcept {
    switch (op_) {
      case reduction::prod: return wrapping_product(left, right);
      case reduction::min: return std::min(left, right);
      case reduction::max: return std::max(left, right);
      default: return wrapping_sum(left, right);
    }
  }
  [[nodiscard]] number mean(number sum) const noexcept {
    if constexpr (std::is_integral_v<number> && std::is_unsigned_v<number>)
      return static_cast<number>(sum / static_cast<std::uint64_t>(ranks_));
    else if constexpr (std::is_integral_v<number>)
      return static_cast<number>(sum / static_cast<std::int64_t>(ranks_));
    else
      return sum / ranks_;
  }
  /// Returns the bound that the comment of reference_values states, plus the rounding of subnormal numbers.
  [[nodiscard]] double allowance(const std::vector<std::vector<std::byte>>& inputs, std::size_t at) const noexcept {
    double sizes = 0;
    for (const auto& one : inputs) sizes += std::fabs(static_cast<double>(load_element<Element>(&one[at])));
    const double roundoff = std::ldexp(1.0, -Element::digits);
    return (ranks_ + 2) * roundoff * (sizes / ranks_ + std::ldexp(1.0, Element::lowest_exponent));
  }

  reduction op_;
  int ranks_;
  value_kind kind_;
  bool rounds_;
};

/// Returns whether \p seen differs from \p expected by more than \p slack.
template <class Number>
bool differs(Number seen, Number expected, double slack) noexcept {
  if constexpr (std::is_integral_v<Number>)
    return seen != expected;
  else
    return !(std::fabs(seen - expected) <= slack); // Written so that a NaN counts as wrong.
}

template <class Element>
std::size_t count_different(std::span<const std::byte> seen, const std::byte* expected, const double* slack) {
  if (std::memcmp(seen.data(), expected, seen.size()) == 0) return 0;
  constexpr std::size_t width = sizeof(typename Element::stored);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < seen.size(); at += width) {
    if (std::memcmp(&seen[at], expected + at, width) == 0) continue;
    const double may_be_off = slack != nullptr ? slack[at / width] : 0;
    wrong += differs(load_element<Element>(&seen[at]), load_element<Element>(expected + at), may_be_off) ? 1U : 0U;
  }
  return wrong;
}

/// Calls \p use(elements into the pattern, bytes into the range, bytes) for each stretch that does not wrap around.
template <class Use>
void for_each_stretch(std::size_t first, std::size_t range_bytes, std::size_t element_bytes, Use use) {
  std::size_t at = first % period;
  for (std::size_t done = 0; done < range_bytes;) {
    const std::size_t bytes = std::min(range_bytes - done, (period - at) * element_bytes);
    use(at, done, bytes);
    done += bytes;
    at = 0;
  }
}

} // namespace

std::uint64_t scramble(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

factor reference_factor(dtype type, int self, value_kind kind) noexcept {
  factor made;
  with_element(
      type, [&]<class Element>(Element) { store_element<Element>(factor_of<Element>(self, kind), made.value.data()); });
  return made;
}

reference_values::reference_values(dtype type, reduction op, int ranks, std::uint64_t seed, value_kind kind)
  : type_{type} {
  with_element(type, [&]<class Element>(Element) {
    for (int rank = 0; rank < ranks; ++rank)
      inputs_.push_back(make_input(seed, rank, input_maker<Element>{op, ranks, rank, kind}, kind));
    if (kind != value_kind::bits) reducer<Element>{op, ranks, kind}.reduce(inputs_, reduced_, slack_);
  });
}

const reference_values::pattern& reference_values::pattern_of(std::optional<int> from) const {
  return from ? inputs_.at(static_cast<std::size_t>(*from)) : reduced_;
}

void reference_values::fill(std::optional<int> from, std::size_t first, std::span<std::byte> to) const {
  const pattern& values = pattern_of(from);
  const std::size_t width = troupe::size_bytes(type_);
  for_each_stretch(first, to.size(), width, [&](std::size_t element, std::size_t at, std::size_t bytes) {
    std::memcpy(to.data() + at, values.data() + element * width, bytes);
  });
}

std::size_t reference_values::count_wrong(std::optional<int> from, std::size_t first,
                                          std::span<const std::byte> seen) const {
  const pattern& expected = pattern_of(from);
  const double* const slack = from || slack_.empty() ? nullptr : slack_.data();
  const std::size_t width = troupe::size_bytes(type_);
  std::size_t wrong = 0;
  with_element(type_, [&]<class Element>(Element) {
    for_each_stretch(first, seen.size(), width, [&](std::size_t element, std::size_t at, std::size_t bytes) {
      wrong += count_different<Element>(seen.subspan(at, bytes), expected.data() + element * width,
                                        slack != nullptr ? slack + element : nullptr);
    });
  });
  return wrong;
}

std::string describe_element(const std::byte* at, dtype type) {
  std::string text = with_element(type, [&]<class Element>(Element) -> std::string {
    const auto value = load_element<Element>(at);
    if constexpr (std::is_integral_v<decltype(value)>) return std::to_string(value);
    char number[32];
    std::snprintf(number, sizeof number, "%.17g", static_cast<double>(value));
    return number;
  });
  text += " (0x";
  char digits[3];
  for (std::size_t i = troupe::size_bytes(type); i-- > 0;) { // The most significant byte comes first.
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(at[i]));
    text += digits;
  }
  return text + ")";
}

} // namespace troupe::program
