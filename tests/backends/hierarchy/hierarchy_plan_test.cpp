// Plans of composed operations: right on vectors, the same choice on all ranks, and composed where it is promised.
#include "support/played_hierarchy.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace troupe::tests::hierarchy_plan_test {

using troupe::tests::case_choice;
using troupe::tests::make_case;
using troupe::tests::play;

namespace {

constexpr std::size_t kind_count = 10; ///< all_reduce to reduce_scatter_v; and then a barrier.
constexpr std::size_t barrier_kind = 13;

const std::vector<int>& some_nodes(std::size_t which) {
  static const std::vector<std::vector<int>> all{
      {0, 0, 1, 1},       {0, 0, 1, 1, 1},    {0, 1, 1, 1, 1}, {0, 1, 0, 1},    {0, 1, 1, 0, 1},
      {0, 1, 2, 0, 1, 2}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 2},    {2, 2, 1, 0, 0}, {0, 0, 1, 1, 2, 2, 3, 3}};
  return all.at(which);
}

operation of_kind(std::size_t kind, std::size_t count) {
  return make_case({.kind = kind, .ranks = 4, .count = count, .counts = {count, count, count, count}}, 0).asked.front();
}

std::optional<hierarchy_plan> plan_of(const operation& what, std::vector<int> nodes, hierarchy_terms terms,
                                      int of = 0) {
  return compose(what, node_map{nodes}, rank{of}, terms);
}

} // namespace

TEST_CASE(
    "a composed operation has the result of a flat one, for every kind, node map, length, root, place and scratch size",
    "[collectives][hierarchy]") {
  const std::size_t nodes_index = GENERATE(0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U);
  const std::size_t kind = GENERATE(0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 13U);
  const bool in_place = GENERATE(false, true);
  const std::size_t count = GENERATE(0U, 1U, 3U, 8U, 29U);
  const std::size_t room = GENERATE(11U, 40U, 4096U);
  const node_map nodes{some_nodes(nodes_index)};
  const hierarchy_terms terms{.mode = hierarchy_mode::always, .scratch_bytes = room * sizeof(double)};
  for (const reduction op : all_reductions) {
    if (op != reduction::sum && kind != 0 && kind != 1 && kind != 4 && kind != 9) continue;
    for (std::size_t root = 0; root < nodes.size(); ++root) {
      if (root > 0 && kind != 1 && kind != 2 && kind != 6 && kind != 7) continue;
      case_choice choice{.kind = kind,
                         .ranks = nodes.size(),
                         .count = count,
                         .root = root,
                         .op = op,
                         .in_place = in_place,
                         .gap = count % 2};
      if (kind == 8 || kind == 9)
        for (std::size_t r = 0; r < nodes.size(); ++r) choice.counts.push_back(r % 3 == 1 ? 0 : count + r);
      const auto one = make_case(choice, room);
      for (const bool backwards : {false, true}) {
        const auto seen = play(one, nodes, terms, backwards);
        CAPTURE(nodes_index, kind, in_place, count, room, static_cast<int>(op), root, backwards);
        CHECK(seen.fault.empty());
        if (!seen.fault.empty()) FAIL(seen.fault);
      }
    }
  }
}

TEST_CASE("every operation with elements is composed under mode always where nodes are even and in rank order",
          "[collectives][hierarchy]") {
  for (std::size_t kind = 0; kind < kind_count; ++kind) {
    CAPTURE(kind);
    CHECK(plan_of(of_kind(kind, 5), {0, 0, 1, 1}, {.mode = hierarchy_mode::always}));
    CHECK_FALSE(plan_of(of_kind(kind, 0), {0, 0, 1, 1}, {.mode = hierarchy_mode::always}));
    CHECK_FALSE(plan_of(of_kind(kind, 5), {0, 0, 1, 1}, {.mode = hierarchy_mode::never}));
  }
  CHECK(plan_of(of_kind(barrier_kind, 0), {0, 0, 1, 1}, {.mode = hierarchy_mode::always}));
}

TEST_CASE("worlds of one node, and of nodes of one rank, are left alone", "[collectives][hierarchy]") {
  all_reduce large;
  large.count = 1U << 20U;
  large.type = dtype::f64;
  for (const auto mode : {hierarchy_mode::automatic, hierarchy_mode::always}) {
    CHECK(plan_of(large, {0, 0, 1, 1}, {.mode = mode}));
    for (const std::vector<int>& nodes : {std::vector<int>{0, 0, 0, 0}, std::vector<int>{0, 1, 2, 3}})
      CHECK_FALSE(plan_of(large, nodes, {.mode = mode}));
  }
}

TEST_CASE("automatically, what gains by size is composed from the least size on, where two nodes have several ranks",
          "[collectives][hierarchy]") {
  const hierarchy_terms terms{.min_bytes = 800}; // 100 elements
  CHECK(plan_of(of_kind(0, 100), {0, 0, 1, 1}, terms));
  CHECK_FALSE(plan_of(of_kind(0, 99), {0, 0, 1, 1}, terms));
  CHECK(plan_of(of_kind(3, 25), {0, 0, 1, 1}, terms)); // four parts
  CHECK_FALSE(plan_of(of_kind(3, 24), {0, 0, 1, 1}, terms));
  CHECK(plan_of(of_kind(9, 25), {0, 0, 1, 1}, terms));
  CHECK_FALSE(plan_of(of_kind(0, 100), {0, 1, 1, 1}, terms)); // one node has several
  for (const std::size_t kind : {5U, 6U, 7U, 13U}) CHECK_FALSE(plan_of(of_kind(kind, 1000), {0, 0, 1, 1}, terms));
}

TEST_CASE("an average of integers is left to all ranks' communicator, that of floats is not",
          "[collectives][hierarchy]") {
  all_reduce mean;
  mean.count = 10;
  mean.op = reduction::avg;
  mean.type = dtype::i32;
  CHECK_FALSE(plan_of(mean, {0, 0, 1, 1}, {.mode = hierarchy_mode::always}));
  mean.type = dtype::bf16;
  CHECK(plan_of(mean, {0, 0, 1, 1}, {.mode = hierarchy_mode::always}));
}

TEST_CASE("an all_reduce is a reduce_scatter inside, an all_reduce across and an all_gather inside",
          "[collectives][hierarchy]") {
  const auto plan = plan_of(of_kind(0, 7), {0, 0, 1, 1}, {.mode = hierarchy_mode::always}, 1);
  REQUIRE(plan);
  REQUIRE(plan->phases.size() == 3);
  CHECK_FALSE(plan->uses_scratch);
  CHECK(describe(plan->phases[0].steps.at(0).what) == "reduce_scatter of 3 f64, sum");
  CHECK(plan->phases[1].level == hierarchy_level::across);
  REQUIRE(plan->phases[1].steps.size() == 1);
  CHECK(describe(plan->phases[1].steps[0].what) == "all_reduce of 4 f64, sum"); // its share and the rest
  CHECK(describe(plan->phases[2].steps.at(0).what) == "all_gather of 3 f64");
}

TEST_CASE("traffic between uneven nodes goes through one rank of each", "[collectives][hierarchy]") {
  for (int r = 0; r < 5; ++r) {
    const auto plan = plan_of(of_kind(0, 7), {0, 0, 1, 1, 1}, {.mode = hierarchy_mode::always}, r);
    REQUIRE(plan);
    CHECK(plan->phases.at(1).steps.empty() == (r != 0 && r != 2));
  }
}

TEST_CASE("plans run together where they have the same levels and use no scratch", "[collectives][hierarchy]") {
  const hierarchy_terms terms{.mode = hierarchy_mode::always};
  const auto sum = plan_of(of_kind(0, 7), {0, 0, 1, 1}, terms), sent = plan_of(of_kind(2, 3), {0, 0, 1, 1}, terms),
             gathered = plan_of(of_kind(3, 3), {0, 0, 1, 1}, terms),
             reduced = plan_of(of_kind(1, 3), {0, 0, 1, 1}, terms);
  CHECK(can_run_together(*sum, *sent));
  CHECK_FALSE(can_run_together(*sum, *gathered)); // across first
  CHECK_FALSE(can_run_together(*reduced, *reduced));
}

} // namespace troupe::tests::hierarchy_plan_test
