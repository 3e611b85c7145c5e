// The corners of the mock's arithmetic; the sweep over shapes is in mock_backend_test.cpp.
#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/small_float.hpp>

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace troupe;

namespace {

/// Combines single elements, one of each rank.
template <class T>
T combine(dtype type, reduction op, std::vector<T> of_ranks) {
  T result{};
  std::vector<reduce_part> parts;
  for (T& one : of_ranks)
    parts.push_back({reinterpret_cast<const std::byte*>(&one), reinterpret_cast<std::byte*>(&result)});
  reduce_parts(parts, 1, type, op);
  return result;
}

} // namespace

TEST_CASE("integer sums wrap", "[collectives][mock]") {
  CHECK(combine<std::uint8_t>(dtype::u8, reduction::sum, {200, 100}) == 44);
  constexpr auto most32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto most64 = std::numeric_limits<std::int64_t>::max();
  CHECK(combine<std::int32_t>(dtype::i32, reduction::sum, {most32, 1}) == std::numeric_limits<std::int32_t>::min());
  CHECK(combine<std::int64_t>(dtype::i64, reduction::sum, {most64, most64, 3}) == 1);
}

TEST_CASE("minimum and maximum give NaN wherever a rank has one", "[collectives][mock]") {
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  for (const reduction op : {reduction::min, reduction::max}) {
    CHECK(std::isnan(combine<float>(dtype::f32, op, {none, 1, 2})));
    CHECK(std::isnan(combine<float>(dtype::f32, op, {1, none, 2})));
    CHECK(std::isnan(combine<double>(dtype::f64, op, {1, 2, std::numeric_limits<double>::quiet_NaN()})));
    CHECK(std::isnan(
        bfloat16::decode(combine<std::uint16_t>(dtype::bf16, op, {bfloat16::encode(1), bfloat16::encode(none)}))));
  }
  CHECK_FALSE(std::signbit(combine<float>(dtype::f32, reduction::min, {0.0F, -0.0F})));
  constexpr float infinite = std::numeric_limits<float>::infinity();
  CHECK(combine<float>(dtype::f32, reduction::min, {infinite, -infinite, 0}) == -infinite);
}

TEST_CASE("bf16 rounds to nearest even and keeps infinities and NaNs", "[collectives][mock]") {
  CHECK(bfloat16::encode(1.0F) == 0x3F80);
  CHECK(bfloat16::encode(std::bit_cast<float>(0x3F808000U)) == 0x3F80); // half-way: to the even one below
  CHECK(bfloat16::encode(std::bit_cast<float>(0x3F818000U)) == 0x3F82); // half-way: to the even one above
  CHECK(bfloat16::encode(std::bit_cast<float>(0x3F808001U)) == 0x3F81);
  CHECK(bfloat16::encode(std::numeric_limits<float>::infinity()) == 0x7F80);
  CHECK(bfloat16::encode(std::numeric_limits<float>::max()) == 0x7F80);
  CHECK(std::isnan(
      bfloat16::decode(bfloat16::encode(std::bit_cast<float>(0x7F800001U))))); // whose payload is in the lower half
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto value = static_cast<std::uint16_t>(bits);
    if (!std::isnan(bfloat16::decode(value))) REQUIRE(bfloat16::encode(bfloat16::decode(value)) == value);
  }
}

TEST_CASE("bf16 sums are rounded once, at the end", "[collectives][mock]") {
  // Rounded after each step, 256 + 1 would stay 256 for ever.
  std::vector<std::uint16_t> of_ranks{bfloat16::encode(256)};
  for (int i = 0; i < 4; ++i) of_ranks.push_back(bfloat16::encode(1));
  CHECK(bfloat16::decode(combine(dtype::bf16, reduction::sum, of_ranks)) == 260);
}

TEST_CASE("elements may begin at any byte", "[collectives][mock]") {
  std::vector<std::byte> memory(64);
  const double left = 1.5;
  const double right = 2.25;
  std::memcpy(&memory[1], &left, sizeof left);
  std::memcpy(&memory[11], &right, sizeof right);
  const reduce_part parts[] = {{&memory[1], &memory[21]}, {&memory[11], &memory[11]}};
  reduce_parts(parts, 1, dtype::f64, reduction::sum);
  for (const std::size_t at : {21U, 11U}) {
    double result = 0;
    std::memcpy(&result, &memory[at], sizeof result);
    CHECK(result == 3.75);
  }
}

TEST_CASE("a reduction in steps gives what one at once gives, for every dtype and reduction", "[collectives]") {
  constexpr std::size_t ranks = 3, count = 7;
  for (const dtype type : all_dtypes)
    for (const reduction op : all_reductions) {
      CAPTURE(to_string(type), to_string(op));
      const std::size_t width = size_bytes(type);
      // Small whole numbers, as the dtype has them.
      std::vector<std::vector<std::byte>> elements(ranks, std::vector<std::byte>(count * width));
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < count; ++i) {
          const auto value = static_cast<float>((r * 5 + i) % 4);
          std::byte* const at = elements[r].data() + i * width;
          if (type == dtype::f64) {
            const double wide = value;
            std::memcpy(at, &wide, width);
          } else if (is_integer(type)) {
            const auto whole = static_cast<std::uint64_t>(value);
            std::memcpy(at, &whole, width);
          } else {
            narrow_elements(at, &value, 1, type);
          }
        }
      std::vector<std::byte> at_once(count * width), in_steps(count * width);
      std::vector<reduce_part> parts;
      for (const auto& one : elements) {
        reduce_part part{.send = one.data()};
        std::memcpy(part.factor.data(), elements[0].data() + 2 * width, width); // 2
        parts.push_back(part);
      }
      parts.front().recv = at_once.data();
      reduce_parts(parts, count, type, op);

      for (std::size_t r = 0; r < ranks; ++r) {
        auto mine = elements[r];
        if (changes_elements(type, op)) change_elements(mine.data(), parts[r], count, type, op, ranks);
        if (r == 0)
          in_steps = mine;
        else
          combine_elements(in_steps.data(), in_steps.data(), mine.data(), count, type, op);
      }
      finish_elements(in_steps.data(), count, type, op, ranks);
      if (op == reduction::avg && combining_dtype(type) != type) continue; // a third is rounded at each step
      CHECK(in_steps == at_once);
    }
}

TEST_CASE("narrow floats are combined as f32 and rounded once", "[collectives]") {
  // 256 + 1 + 1 is 258; rounded after each step it would be 256 in bf16.
  const std::uint16_t of_ranks[] = {bfloat16::encode(256), bfloat16::encode(1), bfloat16::encode(1)};
  CHECK(combining_dtype(dtype::bf16) == dtype::f32);
  CHECK(combining_dtype(dtype::f8e4m3) == dtype::f32);
  CHECK(combining_dtype(dtype::f64) == dtype::f64);
  CHECK(combining_dtype(dtype::i8) == dtype::i8);
  float wide[3];
  widen_elements(wide, reinterpret_cast<const std::byte*>(of_ranks), 3, dtype::bf16);
  auto* const bytes = reinterpret_cast<std::byte*>(wide);
  for (std::size_t i = 1; i < 3; ++i) combine_elements(bytes, bytes, bytes + 4 * i, 1, dtype::f32, reduction::sum);
  std::uint16_t result = 0;
  narrow_elements(reinterpret_cast<std::byte*>(&result), wide, 1, dtype::bf16);
  CHECK(result == bfloat16::encode(258));
}
