// Grids of ranks, and groups of them.
#include "support/outcomes.hpp"

#include <troupe/collectives/operation/rank_group.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests::mesh_shape_test {

using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;

namespace {

std::string refusal(std::vector<mesh_axis> axes) {
  return error_of([&] { static_cast<void>(mesh_shape{std::move(axes)}); }).text;
}

std::vector<int> values_of(const rank_group& group) {
  std::vector<int> values;
  for (const rank one : group.members) values.push_back(one.value());
  return values;
}

} // namespace

TEST_CASE("ranks fill a mesh in row-major order", "[collectives]") {
  const mesh_shape shape{{{"pp", 2}, {"dp", 3}, {"tp", 4}}};
  CHECK(shape.size() == 24);
  CHECK(to_string(shape) == "{pp: 2, dp: 3, tp: 4}");
  CHECK(shape.coordinates_of(rank{0}) == std::vector{0, 0, 0});
  CHECK(shape.coordinates_of(rank{1}) == std::vector{0, 0, 1});
  CHECK(shape.coordinates_of(rank{23}) == std::vector{1, 2, 3});
  for (int r = 0; r < 24; ++r) CHECK(shape.rank_at(shape.coordinates_of(rank{r})) == rank{r});
}

TEST_CASE("groups along axes hold each rank once and are named by the others' places", "[collectives]") {
  const mesh_shape shape{{{"dp", 2}, {"tp", 2}}};
  const auto along_tp = shape.groups_along(std::vector<std::string>{"tp"});
  REQUIRE(along_tp.size() == 2);
  CHECK(along_tp[0].name == "tp[dp=0]");
  CHECK(values_of(along_tp[0]) == std::vector{0, 1});
  CHECK(values_of(along_tp[1]) == std::vector{2, 3});
  const auto along_dp = shape.groups_along(std::vector<std::string>{"dp"});
  CHECK(values_of(along_dp[1]) == std::vector{1, 3});
  const auto along_both = shape.groups_along(std::vector<std::string>{"tp", "dp"});
  REQUIRE(along_both.size() == 1);
  CHECK(along_both[0].name == "dp+tp");
  CHECK(values_of(along_both[0]) == std::vector{0, 1, 2, 3});
}

TEST_CASE("a mesh that makes no sense is refused", "[collectives]") {
  CHECK_THAT(refusal({}), ContainsSubstring("at least one axis"));
  CHECK_THAT(refusal({{"", 2}}), ContainsSubstring("no name"));
  CHECK_THAT(refusal({{"tp", 2}, {"tp", 2}}), ContainsSubstring("two axes called tp"));
  CHECK_THAT(refusal({{"tp", 0}}), ContainsSubstring("size 0"));
  CHECK_THAT(refusal({{"a", 1 << 20}, {"b", 1 << 20}}), ContainsSubstring("can count"));
  const mesh_shape shape{{{"tp", 2}}};
  const auto text_of = [](auto&& call) { return error_of(call).text; };
  CHECK_THAT(text_of([&] { static_cast<void>(shape.coordinates_of(rank{2})); }), ContainsSubstring("rank 2"));
  CHECK_THAT(text_of([&] { static_cast<void>(shape.rank_at(std::vector{0, 0})); }), ContainsSubstring("1 coordinates"));
  CHECK_THAT(text_of([&] { static_cast<void>(shape.rank_at(std::vector{2})); }),
             ContainsSubstring("axis tp of size 2"));
  CHECK_THAT(text_of([&] { static_cast<void>(shape.groups_along(std::vector<std::string>{"x"})); }),
             ContainsSubstring("no axis x"));
  CHECK_THAT(text_of([&] {
               static_cast<void>(shape.groups_along(std::vector<std::string>{"tp", "tp"}));
             }),
             ContainsSubstring("twice"));
}

TEST_CASE("overlapping groups are split off in as many rounds as they need", "[collectives]") {
  const std::vector<rank_group> groups{{"a", {rank{0}, rank{1}}}, {"b", {rank{2}}}, {"c", {rank{1}, rank{2}}}};
  CHECK(disjoint_rounds(groups, 3) == std::vector<std::vector<std::size_t>>{{0, 1}, {2}});
}

} // namespace troupe::tests::mesh_shape_test
