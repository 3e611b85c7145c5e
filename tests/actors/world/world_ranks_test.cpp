// The numbers of a world's ranks, when ranks leave and when a controller renumbers them.
#include <troupe/actors/world/world_ranks.hpp>

#include <catch2/catch_test_macros.hpp>

#include <vector>

namespace troupe::tests::world_ranks_test {

namespace {

using numbers = std::vector<rank>;

numbers origins_of(const std::vector<lost_rank>& lost) {
  numbers found;
  for (const lost_rank& one : lost) found.push_back(one.origin);
  return found;
}

} // namespace

TEST_CASE("ranks that remain are numbered anew in their order, and known by their first numbers", "[actors][world]") {
  world_ranks all{5, {rank{0}, rank{1}, rank{2}, rank{3}, rank{4}}};
  all.lose({rank{1}, rank{3}}, epoch{1});
  CHECK(all.world_size() == 3);
  CHECK(all.local() == numbers{rank{0}, rank{1}, rank{2}});
  CHECK(all.origins() == numbers{rank{0}, rank{2}, rank{4}});
  all.lose({rank{1}}, epoch{4}); // once rank 2
  CHECK(all.local_count() == 2);
  CHECK(all.origins() == numbers{rank{0}, rank{4}});
  CHECK(origins_of(all.lost()) == numbers{rank{1}, rank{3}, rank{2}});
  CHECK(all.lost().front().last_in == epoch{1});
  CHECK(all.lost().back().last_in == epoch{4});
  CHECK(all.began_with() == 5);
}

TEST_CASE("a rank that its controller renumbers keeps the number of the first epoch", "[actors][world]") {
  world_ranks all{1, {rank{0}}};
  all.renumber(4, rank{2}, true);
  CHECK(all.world_size() == 4);
  CHECK(all.local() == numbers{rank{2}});
  CHECK(all.origins() == numbers{rank{2}});
  all.renumber(3, rank{1}, false);
  CHECK(all.world_size() == 3);
  CHECK(all.local() == numbers{rank{1}});
  CHECK(all.origins() == numbers{rank{2}});
  CHECK(all.began_with() == 1);
}

} // namespace troupe::tests::world_ranks_test
