/// Worlds in virtual time.
#include <troupe/device/error.hpp>
#include <troupe/runtime/simulation/simulation.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <set>
#include <string>

namespace troupe::tests {

namespace {

using namespace simulation;

const std::vector<fault_kind> all{all_fault_kinds.begin(), all_fault_kinds.end()};

void check_seeds(std::uint64_t first, std::uint64_t last, int ranks) {
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const simulation_result result = simulate(draw_scenario(seed, ranks, all));
    INFO("seed " << seed << ": " << (result.findings.empty() ? "" : result.findings.front()));
    REQUIRE(result.found.is_good());
    REQUIRE(result.requests > 0);
  }
}

} // namespace

TEST_CASE("whatever goes wrong, every request is answered once and as promised (ONE-1, ORD-1, EPO-1, TIM-1)",
          "[simulation]") {
  check_seeds(100'001, 100'100, 4);
  check_seeds(200'001, 200'030, 2);
  check_seeds(300'001, 300'003, 64);
}

TEST_CASE("the same seed gives the same trace, byte for byte, and another seed another (DET-1)", "[simulation]") {
  std::set<std::string> traces;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scenario one = draw_scenario(seed, 4, all);
    const std::string trace = simulate(one, true).trace;
    REQUIRE(trace == simulate(one, true).trace);
    REQUIRE(trace.find("is forming (epoch 1") != std::string::npos);
    traces.insert(trace);
  }
  CHECK(traces.size() == 20);
}

TEST_CASE("a world that has a fault comes back in the simulation too, and what is asked then is done", "[simulation]") {
  scenario one = draw_scenario(1, 4, {});
  one.recovery.policy = recovery_policy::keep_size;
  one.requests.clear();
  for (std::size_t i = 0; i < 2; ++i)
    one.requests.push_back({.number = i,
                            .at = std::chrono::milliseconds{100 + 400 * static_cast<int>(i)},
                            .what = operation_kind::all_reduce,
                            .count = 3,
                            .deadline = std::chrono::milliseconds{300}});
  one.length = std::chrono::seconds{1};
  one.stops_busy = false;
  one.faults = {{.number = 0, .kind = fault_kind::withheld, .where = rank{2}}};
  const simulation_result result = simulate(one, true);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  INFO(result.trace);
  CHECK(result.trace.find("answer r0 (all_reduce, all ranks) deadline_exceeded") != std::string::npos);
  CHECK(result.trace.find("answer r1 (all_reduce, all ranks) done") != std::string::npos);
}

TEST_CASE("kinds of faults are named, and others refused with the choices", "[simulation]") {
  CHECK(parse_fault_kinds("withheld,jump") == std::vector{fault_kind::withheld, fault_kind::jump});
  CHECK(parse_fault_kinds("all").size() == all_fault_kinds.size());
  CHECK(parse_fault_kinds("none").empty());
  CHECK_THROWS_WITH(parse_fault_kinds("fire"), Catch::Matchers::ContainsSubstring("choose of all, none, withheld"));
}

} // namespace troupe::tests
