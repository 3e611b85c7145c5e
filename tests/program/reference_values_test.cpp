// The check must find what is wrong, and nothing else: values are judged against the mock's arithmetic and against
// planted faults.
#include <troupe/program/bench/frame/reference_values.hpp>

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/small_float.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

using namespace troupe;
using program::reference_values;
using program::value_kind;

namespace {

using bytes = std::vector<std::byte>;

bytes input(const reference_values& values, int rank, std::size_t first, std::size_t count, dtype type) {
  bytes made(count * size_bytes(type));
  values.fill(rank, first, made);
  return made;
}

/// By the mock's arithmetic, \p ranks in any order.
bytes reduced(const reference_values& values, const std::vector<int>& ranks, std::size_t count, dtype type,
              reduction op, value_kind kind) {
  std::vector<bytes> data;
  for (const int rank : ranks) data.push_back(input(values, rank, 0, count, type));
  std::vector<reduce_part> parts;
  for (std::size_t i = 0; i < data.size(); ++i)
    parts.push_back({data[i].data(), data[i].data(), program::reference_factor(type, ranks[i], kind).value});
  reduce_parts(parts, count, type, op);
  return data.front();
}

} // namespace

TEST_CASE("a right result is found right for every dtype, reduction and world size, in any order of ranks", "[bench]") {
  const dtype type = GENERATE(from_range(all_dtypes));
  const reduction op = GENERATE(from_range(all_reductions));
  const value_kind kind = GENERATE(value_kind::exact, value_kind::full);
  const int ranks = GENERATE(1, 2, 3, 8, 17, 64);
  CAPTURE(to_string(type), to_string(op), ranks, kind == value_kind::full);
  const reference_values values{type, op, ranks, 1, kind};
  constexpr std::size_t count = 331;
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  CHECK(values.count_wrong({}, 0, reduced(values, order, count, type, op, kind)) == 0);
  std::ranges::reverse(order);
  CHECK(values.count_wrong({}, 0, reduced(values, order, count, type, op, kind)) == 0);
}

TEST_CASE("only the mean of floats over three ranks is allowed to be off, and not by much", "[bench]") {
  const dtype type = GENERATE(dtype::f32, dtype::f16, dtype::i32);
  const int ranks = GENERATE(3, 4);
  CAPTURE(to_string(type), ranks);
  const reference_values values{type, reduction::avg, ranks, 1, value_kind::exact};
  constexpr std::size_t count = 1000;
  bytes result(count * size_bytes(type));
  values.fill({}, 0, result);
  const auto changed = [&](unsigned by) {
    bytes seen = result;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte& lowest = seen[i * size_bytes(type)];
      lowest = static_cast<std::byte>(std::to_integer<unsigned>(lowest) ^ by);
    }
    return values.count_wrong({}, 0, seen);
  };
  if (ranks == 3 && type != dtype::i32)
    CHECK(changed(1) < 20); // where all inputs are 0, hardly anything may be off
  else
    CHECK(changed(1) > count * 9 / 10);
  CHECK(changed(0x40) > count * 9 / 10);
}

TEST_CASE("integers of the kind `full` wrap and take their whole range, those of `exact` do not wrap", "[bench]") {
  const reduction op = GENERATE(from_range(all_reductions));
  CAPTURE(to_string(op));
  constexpr std::size_t count = 4096;
  const auto largest = [&](value_kind kind) {
    const reference_values values{dtype::u64, op, 3, 5, kind};
    std::vector<std::uint64_t> seen(count);
    values.fill(1, 0, std::as_writable_bytes(std::span{seen}));
    return *std::ranges::max_element(seen);
  };
  CHECK(largest(value_kind::full) > std::uint64_t{1} << 63U);
  CHECK(largest(value_kind::exact) < std::uint64_t{1} << 31U);
}

TEST_CASE("elements that are only moved may have any bytes, and are compared bit by bit", "[bench]") {
  const reference_values values{dtype::f8e4m3, reduction::sum, 2, 5, value_kind::bits};
  constexpr std::size_t count = 4096;
  bytes seen = input(values, 1, 0, count, dtype::f8e4m3);
  CHECK(std::ranges::count(seen, std::byte{0x7F}) > 0); // a NaN
  CHECK(values.count_wrong(1, 0, seen) == 0);
  CHECK(values.count_wrong(0, 0, seen) > count * 9 / 10);
}

TEST_CASE("an element is written as a number and as its bits", "[bench]") {
  const auto text = []<class T>(T value, dtype type) {
    return program::describe_element(reinterpret_cast<const std::byte*>(&value), type);
  };
  CHECK(text(std::int8_t{-2}, dtype::i8) == "-2 (0xfe)");
  CHECK(text(~std::uint64_t{0}, dtype::u64) == "18446744073709551615 (0xffffffffffffffff)");
  CHECK(text(1.5F, dtype::f32) == "1.5 (0x3fc00000)");
  CHECK(text(std::uint8_t{0x7F}, dtype::f8e4m3) == "nan (0x7f)");
  CHECK(text(std::uint16_t{0x3C00}, dtype::f16) == "1 (0x3c00)");
}

TEST_CASE("one wrong element in a million is found, wherever it is", "[bench]") {
  const dtype type = GENERATE(from_range(all_dtypes));
  constexpr std::size_t count = 1'000'000;
  const std::size_t at = GENERATE(std::size_t{0}, std::size_t{16'381}, std::size_t{500'001}, count - 1);
  CAPTURE(to_string(type), at);
  const reference_values values{type, reduction::sum, 2, 7};
  bytes seen = input(values, 1, 0, count, type);
  CHECK(values.count_wrong(1, 0, seen) == 0);
  seen[at * size_bytes(type) + size_bytes(type) - 1] ^= std::byte{0x10};
  CHECK(values.count_wrong(1, 0, seen) == 1);
}

TEST_CASE("a result in the wrong place, of another rank or of another seed is wrong nearly everywhere", "[bench]") {
  const dtype type = GENERATE(from_range(all_dtypes));
  CAPTURE(to_string(type));
  constexpr std::size_t count = 4096;
  const reference_values values{type, reduction::sum, 4, 3};
  const bytes seen = input(values, 1, 0, count, type);
  // An 8-bit float has as few as five values here.
  const auto mostly = [](std::size_t wrong) { return wrong > count * 3 / 4; };
  CHECK(mostly(values.count_wrong(2, 0, seen)));
  CHECK(mostly(values.count_wrong({}, 0, seen)));
  for (std::size_t shift = 1; shift <= 1U << 24U; shift *= 2) CHECK(mostly(values.count_wrong(1, shift, seen)));
  const reference_values other{type, reduction::sum, 4, 4};
  CHECK(mostly(other.count_wrong(1, 0, seen)));
}

TEST_CASE("a range is the same made at once or in pieces", "[bench]") {
  const reference_values values{dtype::i32, reduction::sum, 2, 5};
  const bytes whole = input(values, 0, 0, 40'000, dtype::i32);
  bytes pieces;
  for (std::size_t first = 0; first < 40'000; first += 12'500) {
    const bytes piece = input(values, 0, first, std::min<std::size_t>(12'500, 40'000 - first), dtype::i32);
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  CHECK(whole == pieces);
}

TEST_CASE("a NaN is wrong, and a zero is right with either sign", "[bench]") {
  const reference_values values{dtype::f32, reduction::sum, 1, 1};
  std::vector<float> seen(16'381);
  values.fill(0, 0, std::as_writable_bytes(std::span{seen}));
  const auto wrong = [&] { return values.count_wrong({}, 0, std::as_bytes(std::span{seen})); };
  CHECK(wrong() == 0);
  seen[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(wrong() == 1);

  const reference_values small{dtype::bf16, reduction::max, 64, 1}; // whole numbers from −4 to 4
  std::vector<std::uint16_t> bits(100);
  small.fill(0, 0, std::as_writable_bytes(std::span{bits}));
  const auto zero = std::ranges::find(bits, 0);
  REQUIRE(zero != bits.end());
  *zero = 0x8000;
  CHECK(small.count_wrong(0, 0, std::as_bytes(std::span{bits})) == 0);
}

TEST_CASE("a sum over more ranks than bf16 has whole numbers is still exact in any order", "[bench]") {
  constexpr int ranks = 1000;
  constexpr std::size_t count = 1000;
  const reference_values values{dtype::bf16, reduction::sum, ranks, 9};
  // Rounded after every step, as a ring may, and not once at the end.
  std::vector<float> sums(count);
  for (int rank = ranks - 1; rank >= 0; --rank) {
    std::vector<std::uint16_t> bits(count);
    values.fill(rank, 0, std::as_writable_bytes(std::span{bits}));
    for (std::size_t i = 0; i < count; ++i)
      sums[i] = bfloat16::decode(bfloat16::encode(sums[i] + bfloat16::decode(bits[i])));
    std::vector<std::uint16_t> seen(count);
    std::ranges::transform(sums, seen.begin(), bfloat16::encode);
    const std::size_t wrong = values.count_wrong({}, 0, std::as_bytes(std::span{seen}));
    if (rank == 0) CHECK(wrong == 0);
    if (rank == ranks / 2) CHECK(wrong > count / 2); // half of the ranks are missing
  }
}
