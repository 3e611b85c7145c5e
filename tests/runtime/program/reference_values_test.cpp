// The check must find what is wrong, and nothing else: values are judged against the mock's arithmetic and against
// planted faults.
#include <reference_values.hpp>

#include <troupe/collectives/mock/mock_reduce.hpp>
#include <troupe/collectives/mock/small_float.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

using namespace troupe;
using program::reference_values;

namespace {

using bytes = std::vector<std::byte>;

bytes input(const reference_values& values, int rank, std::size_t first, std::size_t count, dtype type) {
  bytes made(count * size_bytes(type));
  values.fill(rank, first, made);
  return made;
}

bytes reduced(const std::vector<bytes>& inputs, std::size_t count, dtype type, reduction op) {
  std::vector<bytes> results = inputs;
  std::vector<reduce_part> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) parts.push_back({inputs[i].data(), results[i].data()});
  reduce_parts(parts, count, type, op);
  return results.front();
}

} // namespace

TEST_CASE("a right result is found right for every dtype, reduction and world size, in any order of ranks", "[bench]") {
  const dtype type = GENERATE(from_range(all_dtypes));
  const reduction op = GENERATE(reduction::sum, reduction::min, reduction::max);
  const int ranks = GENERATE(1, 2, 3, 8, 64);
  CAPTURE(to_string(type), to_string(op), ranks);
  const reference_values values{type, op, ranks, 1};
  constexpr std::size_t count = 1001;
  std::vector<bytes> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input(values, rank, 0, count, type));
  CHECK(values.count_wrong({}, 0, reduced(inputs, count, type, op)) == 0);
  std::ranges::reverse(inputs);
  CHECK(values.count_wrong({}, 0, reduced(inputs, count, type, op)) == 0);
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
