// A lane's line is found by any thread, and is one.
#include <troupe/actors/rank/collective_state.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;

TEST_CASE("every lane has one line, whichever thread is the first to use it", "[actors][busy]") {
  const auto work = std::make_shared<admission_quota>(pending_limits{}, std::weak_ptr<poller>{});
  std::vector<lane> lanes{lane{}};
  for (int i = 0; i < 100; ++i) lanes.push_back(lane::named("lines " + std::to_string(i)));
  lane_lines lines;
  constexpr std::size_t threads = 4;
  std::vector<std::vector<pending_line*>> seen(threads);
  {
    std::vector<std::jthread> clients;
    for (auto& mine : seen)
      clients.emplace_back([&] {
        for (const lane one : lanes) mine.push_back(&lines.of(one, work));
      });
  }
  for (const auto& mine : seen) CHECK(mine == seen.front());
  CHECK(std::set<pending_line*>(seen[0].begin(), seen[0].end()).size() == lanes.size());
  CHECK(&lines.of(lanes[50], work) == seen[0][50]);
}
