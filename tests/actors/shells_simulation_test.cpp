/// The real actors under a scheduler that the seed turns, in virtual time.
#include "simulation/simulated_shells.hpp"

#include <troupe/runtime/simulation/shortening.hpp>
#include <troupe/runtime/simulation/simulation.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

namespace troupe::tests {

namespace {

using namespace simulation;
using namespace std::chrono_literals;

constexpr std::uint64_t seed_count = 600;

std::string text_of(const simulation_result& result) {
  std::string text;
  for (const std::string& one : result.findings) text += one + "\n";
  return text;
}

/// One request to all and then one in a lane, every \p pause.
scenario steady(nanoseconds pause, std::size_t count) {
  scenario made = draw_scenario(1, 3, {});
  made.recovery.policy = recovery_policy::keep_size;
  made.requests.clear();
  made.lanes = 1;
  made.stops_busy = false;
  for (std::size_t i = 0; i < count; ++i)
    made.requests.push_back({.number = i,
                             .lane = i % 2 == 0 ? std::nullopt : std::optional<std::size_t>{0},
                             .at = 50ms + static_cast<int>(i) * pause,
                             .jitter = 1us,
                             .what = operation_kind::all_reduce,
                             .count = 3,
                             .deadline = 300ms});
  made.length = 50ms + static_cast<int>(count) * pause;
  return made;
}

} // namespace

TEST_CASE("whichever actor dies, with whatever in its mailbox, every living client has one reply to each request and "
          "nobody is left (ONE-1, ONE-2, ORD-1, EPO-1, BUF-1, BLK-1, TIM-1)",
          "[simulation][shells]") {
  std::map<fault_kind, std::size_t> faults;
  for (std::uint64_t seed = 1; seed <= seed_count; ++seed) {
    const simulation_result result =
        simulate_shells(draw_scenario(seed, 2 + static_cast<int>(seed % 3), shell_fault_kinds()));
    INFO("seed " << seed << ":\n" << text_of(result));
    REQUIRE(result.found.is_good());
    REQUIRE(result.requests > 0);
    for (const auto& [kind, count] : result.faults) faults[kind] += count;
  }
  for (const fault_kind one : shell_fault_kinds()) {
    INFO(to_string(one));
    CHECK(faults[one] > 0);
  }
}

TEST_CASE("the same seed gives the actors the same turns (DET-1)", "[simulation][shells]") {
  std::set<std::string> traces;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scenario one = draw_scenario(seed, 4, shell_fault_kinds());
    const std::string trace = simulate_shells(one, true).trace;
    REQUIRE(trace == simulate_shells(one, true).trace);
    REQUIRE(trace.find("turn of actor") != std::string::npos);
    traces.insert(trace);
  }
  CHECK(traces.size() == 20);
}

} // namespace troupe::tests
