#include <troupe/device/per_rank.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace troupe {

namespace {

error refusal_of_missing_rank(const per_rank<int>& values, rank self) {
  try {
    static_cast<void>(values.at(self));
  } catch (const exception& failure) {
    return failure.why();
  }
  return {};
}

} // namespace

TEST_CASE("values per rank are found by rank, from the first rank on", "[device]") {
  const per_rank<int> from_zero{10, 11, 12};
  CHECK(from_zero[rank{2}] == 12);
  CHECK(from_zero.ranks() == std::vector{rank{0}, rank{1}, rank{2}});

  per_rank<int> from_three{std::vector{30, 40}, rank{3}};
  CHECK(from_three.size() == 2);
  CHECK(from_three[rank{3}] == 30);
  from_three[rank{4}] = 41;
  CHECK(from_three.at(rank{4}) == 41);
  CHECK(from_three.ranks() == std::vector{rank{3}, rank{4}});
  CHECK(from_three != per_rank<int>{30, 41}); // of other ranks
}

TEST_CASE("a rank without a value is refused with the ranks that have one", "[device]") {
  const per_rank<int> values{std::vector{30, 40}, rank{3}};
  for (const int absent : {-1, 0, 2, 5}) {
    CAPTURE(absent);
    CHECK_FALSE(values.contains(rank{absent}));
    const error why = refusal_of_missing_rank(values, rank{absent});
    CHECK(why.code == errc::invalid_argument);
    CHECK_THAT(why.text, Catch::Matchers::ContainsSubstring("the ranks are 3 to 4"));
  }
  CHECK(refusal_of_missing_rank({}, rank{0}).code == errc::invalid_argument);
  CHECK(per_rank<int>{}.ranks().empty());
}

TEST_CASE("values per rank are made by a function of the rank", "[device]") {
  const std::vector ranks{rank{2}, rank{3}};
  const per_rank doubled{ranks, [](rank self) { return 2 * self.value(); }};
  CHECK(doubled == per_rank<int>{std::vector{4, 6}, rank{2}});
  CHECK(doubled.ranks() == ranks);
  CHECK(per_rank{std::vector<rank>{}, [](rank) { return 1; }}.empty());

  const std::vector with_gap{rank{0}, rank{2}};
  CHECK_THROWS_AS((per_rank{with_gap, [](rank) { return 1; }}), exception);
}

TEST_CASE("values per rank are a contiguous range in rank order, and convert from and to vectors", "[device]") {
  const per_rank<int> values = std::vector{5, 6, 7};
  const std::span<const int> seen = values;
  CHECK(std::ranges::equal(seen, std::vector{5, 6, 7}));
  const std::vector<int>& same = values;
  CHECK(same.data() == values.data());
  CHECK(values.front() == 5);
  CHECK(values.back() == 7);
  const std::vector<int> taken = per_rank<int>{1, 2};
  CHECK(taken == std::vector{1, 2});
}

} // namespace troupe
