#include "support/outcomes.hpp"

#include <troupe/program/bench/bench.hpp>

#include <catch2/catch_test_macros.hpp>

#include <limits>

using namespace troupe;
using program::sizes_between;
using tests::error_of;

TEST_CASE("sizes go by a factor or by a step, and end at the largest", "[bench]") {
  using sizes = std::vector<std::size_t>;
  CHECK(sizes_between(8, 128, {.factor = 4}) == sizes{8, 32, 128});
  CHECK(sizes_between(8, 127, {.factor = 4}) == sizes{8, 32});
  CHECK(sizes_between(8, 8, {.factor = 2}) == sizes{8});
  CHECK(sizes_between(100, 130, {.bytes = 10}) == sizes{100, 110, 120, 130});
  CHECK(sizes_between(100, 135, {.bytes = 20}) == sizes{100, 120});
}

TEST_CASE("sizes up to the largest number do not wrap around", "[bench]") {
  constexpr auto largest = std::numeric_limits<std::size_t>::max();
  CHECK(sizes_between(8, largest, {.factor = 1024}).size() == 7);
  CHECK(sizes_between(largest - 5, largest, {.bytes = 3}).size() == 2);
}

TEST_CASE("sizes that make no table are refused with the reason", "[bench]") {
  const auto refused = [](std::size_t begin, std::size_t end, program::size_step step) {
    return error_of([&] { static_cast<void>(sizes_between(begin, end, step)); }).code == errc::invalid_argument;
  };
  CHECK(refused(7, 8, {}));
  CHECK(refused(16, 8, {}));
  CHECK(refused(8, 16, {.factor = 1}));
  CHECK(refused(8, 1U << 20U, {.bytes = 1}));
}
