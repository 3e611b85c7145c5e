/// The real actors under a scheduler that the seed turns, in virtual time.
#include "simulation/simulated_shells.hpp"

#include <troupe/testing/simulation/simulation.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace troupe::tests::shells_simulation_test {

namespace {

using namespace simulation;
using namespace std::chrono_literals;

constexpr std::uint64_t seed_count = 600;

/// 1, or what the environment says.
std::uint64_t first_seed() {
  const char* const given = std::getenv("TROUPE_FIRST_SEED"); // NOLINT(concurrency-mt-unsafe): nobody sets it
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

/// What is wrong with a run of \p failing, and as little of it as is needed for that.
std::string tell(const scenario& failing) {
  std::string text = "seed " + std::to_string(failing.seed) + ", " + std::to_string(failing.ranks) + " ranks:\n";
  for (const std::string& one : simulate_shells(failing).findings) text += "  " + one + "\n";
  const scenario few = shorten(failing, [](const scenario& one) { return !simulate_shells(one).found.is_good(); });
  text += "shown by requests";
  for (const planned_request& one : few.requests) text += " r" + std::to_string(one.number);
  text += " and faults";
  for (const planned_fault& one : few.faults)
    text += " f" + std::to_string(one.number) + " (" + std::string{to_string(one.kind)} + ")";
  return text + "\n" + simulate_shells(few, true).trace;
}

/// One after the other, each by three clients of one lane or by the world's, every 20 ms from 50 ms on.
scenario steady_requests(std::size_t count) {
  scenario made{.seed = 7, .ranks = 3, .lanes = 1, .length = 50ms + static_cast<int>(count) * 20ms};
  for (std::size_t i = 0; i < count; ++i)
    made.requests.push_back({.number = i,
                             .lane = i % 2 == 0 ? std::optional<std::size_t>{} : std::optional<std::size_t>{0},
                             .at = 50ms + static_cast<int>(i) * 20ms,
                             .jitter = 1us,
                             .what = operation_kind::all_reduce,
                             .count = 3,
                             .deadline = 300ms});
  return made;
}

std::size_t count_in(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

} // namespace

TEST_CASE("whichever actor dies, with whatever in its mailbox, every living client has one reply to each request and "
          "nobody is left (ONE-1, ONE-2, ORD-1, EPO-1, BUF-1, BLK-1, BLK-2, TIM-1)",
          "[simulation][shells]") {
  std::map<fault_kind, std::size_t> faults;
  for (std::uint64_t seed = first_seed(), end = seed + seed_count; seed < end; ++seed) {
    const scenario one = draw_scenario(seed, 2 + static_cast<int>(seed % 3), shell_fault_kinds());
    const simulation_result result = simulate_shells(one);
    if (!result.found.is_good()) FAIL(tell(one));
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

TEST_CASE("a world that is let alone answers its clients' actors with results, and nobody is left",
          "[simulation][shells]") {
  const simulation_result result = simulate_shells(steady_requests(6), true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.requests == 3 + 3 * 3);
  CHECK(count_in(result.trace, " done\n") == result.requests);
}

TEST_CASE("a world that nobody has a handle to any more ends, and its ranks refuse what comes (ONE-1)",
          "[simulation][shells]") {
  scenario one = steady_requests(8);
  one.faults = {{.number = 0, .kind = fault_kind::dropped_world, .at = 100ms}};
  for (one.seed = 1; one.seed <= 10; ++one.seed) {
    const simulation_result result = simulate_shells(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(count_in(result.trace, "all ranks) done\n") == 2);
    CHECK(count_in(result.trace, " abandoned") + count_in(result.trace, "the world has stopped (rank") >= 5);
    CHECK(result.trace.find("is stopped") < result.trace.find('\n', result.trace.find(" stop\n") + 1));
  }
}

TEST_CASE("a world whose actor is killed answers everything at once, and its ranks end with it (ONE-1, TIM-1)",
          "[simulation][shells]") {
  scenario one = steady_requests(8);
  one.faults = {{.number = 0, .kind = fault_kind::withheld, .at = 60ms, .where = rank{1}},
                {.number = 1, .kind = fault_kind::killed_world, .at = 80ms}};
  const simulation_result result = simulate_shells(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.trace.find("the world's actor was ended by an exit message") != std::string::npos);
  CHECK(count_in(result.trace, "all ranks) done\n") == 1);
}

TEST_CASE("a world that has lost a rank's actor comes back with another (FLT-1)", "[simulation][shells]") {
  scenario one = steady_requests(8);
  one.recovery = {.policy = recovery_policy::keep_size, .rebuilds = 3, .window = 10s, .backoff = 1ms};
  one.faults = {{.number = 0, .kind = fault_kind::ended_actor, .at = 100ms, .where = rank{1}}};
  const simulation_result result = simulate_shells(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  CHECK(result.trace.find("the collective actor of rank 1 has ended") != std::string::npos);
  CHECK(result.trace.find("answer r7") != std::string::npos);
}

TEST_CASE("a client that dies is alone in that: peers are told, and others go on (ONE-1)", "[simulation][shells]") {
  scenario one = steady_requests(8);
  one.requests[1].jitter = 10ms; // some have asked and wait when it dies
  one.faults = {{.number = 0, .kind = fault_kind::ended_client, .at = 75ms, .where = rank{1}}};
  std::size_t told = 0;
  for (one.seed = 1; one.seed <= 30; ++one.seed) {
    const simulation_result result = simulate_shells(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(result.last_epoch == 1);
    CHECK(count_in(result.trace, "all ranks) done\n") == 4);
    CHECK(count_in(result.trace, "is failed") + count_in(result.trace, "rebuil") == 0);
    const std::string its = "r1 (all_reduce, lane 0, rank ";
    if (count_in(result.trace, "ask " + its + "1") == 0) continue; // nobody can know of it
    told += count_in(result.trace, "answer " + its + "0) cancelled") +
            count_in(result.trace, "answer " + its + "2) cancelled");
    CHECK(count_in(result.trace, "answer " + its + "0) deadline") +
              count_in(result.trace, "answer " + its + "2) deadline") ==
          0);
  }
  CHECK(told > 10);
}

} // namespace troupe::tests::shells_simulation_test
