/// Matches of a lane are removed in any order, and what is left is removed at the end.
#include <troupe/collectives/order/lane_table.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace troupe::tests {

TEST_CASE("matches of a lane are removed in any order, and the rest at the end", "[collectives][sequencing]") {
  std::vector<std::uint64_t> order{0, 1, 2, 3, 4, 5};
  do {
    for (std::size_t removed = 0; removed <= order.size(); ++removed) {
      node_pool<collective_match> pool;
      lane_table table{1, {}, 2, *std::pmr::get_default_resource()};
      std::vector<collective_match*> all;
      for (std::uint64_t i = 0; i < order.size(); ++i) all.push_back(&table.match_at(i, pool));
      for (std::size_t i = 0; i < removed; ++i) table.forget(*all[order[i]], pool);
      // The place of what was removed first is free again.
      for (std::uint64_t i = 0; i < removed; ++i)
        REQUIRE(table.match_at(order.size() + i, pool).index == order.size() + i);
      table.forget_all(pool);
      REQUIRE(std::ranges::all_of(all, &collective_match::over));
    }
  } while (std::ranges::next_permutation(order).found && order[0] < 3);
}

} // namespace troupe::tests
