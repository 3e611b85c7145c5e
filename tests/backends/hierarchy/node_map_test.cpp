// Which ranks share a node, and what follows from it.
#include "support/outcomes.hpp"

#include <troupe/backends/hierarchy/hierarchy_plan.hpp>
#include <troupe/backends/hierarchy/node_map.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>

using namespace troupe;
using troupe::tests::code_of;

TEST_CASE("nodes are numbered by their first ranks, and ranks by their places in their node",
          "[collectives][hierarchy]") {
  const std::array<std::string, 5> hosts{"b", "a", "b", "c", "a"};
  const node_map nodes = node_map::of_hosts(hosts);
  CHECK(nodes.size() == 5);
  CHECK(nodes.node_count() == 3);
  CHECK(nodes.members(0) == std::vector<std::size_t>{0, 2});
  CHECK(nodes.members(1) == std::vector<std::size_t>{1, 4});
  CHECK(nodes.node_of(3) == 2);
  CHECK(nodes.index_of(4) == 1);
  CHECK_FALSE(nodes.is_even());
  CHECK_FALSE(nodes.is_in_rank_order());
  CHECK(nodes.shared_node_count() == 2);
  CHECK(nodes.describe() == "2, 2, 1");
}

TEST_CASE("sizes in rank order make a map in rank order", "[collectives][hierarchy]") {
  const std::array<std::size_t, 2> sizes{2, 3};
  const node_map nodes = node_map::of_sizes(sizes);
  CHECK(nodes.members(1) == std::vector<std::size_t>{2, 3, 4});
  CHECK(nodes.is_in_rank_order());
  CHECK(nodes.largest() == 3);
  CHECK(nodes.smallest() == 2);
  const std::array<int, 4> names{9, 9, 4, 4};
  CHECK(node_map{names}.is_even());
  CHECK(node_map{names}.is_in_rank_order());
}

TEST_CASE("a map without some ranks numbers the others anew, and forgets nodes that are empty",
          "[collectives][hierarchy]") {
  const std::array<std::size_t, 3> sizes{2, 1, 2};
  const std::array lost{rank{0}, rank{2}};
  const node_map left = node_map::of_sizes(sizes).without(lost);
  const std::array<std::size_t, 2> wanted{1, 2};
  CHECK(left == node_map::of_sizes(wanted));
}

TEST_CASE("a map needs ranks, and each node one", "[collectives][hierarchy]") {
  const std::array<std::size_t, 2> hollow{2, 0};
  CHECK(code_of([&] { static_cast<void>(node_map::of_sizes(hollow)); }) == errc::invalid_argument);
  CHECK(code_of([] { static_cast<void>(node_map::of_sizes({})); }) == errc::invalid_argument);
  CHECK(code_of([] { static_cast<void>(node_map::of_hosts({})); }) == errc::invalid_argument);
}

TEST_CASE("modes of hierarchies are read as they are written", "[collectives][hierarchy]") {
  for (const auto mode : {hierarchy_mode::automatic, hierarchy_mode::always, hierarchy_mode::never})
    CHECK(parse_hierarchy_mode(to_string(mode)) == mode);
  CHECK(code_of([] { static_cast<void>(parse_hierarchy_mode("sometimes")); }) == errc::invalid_argument);
}
