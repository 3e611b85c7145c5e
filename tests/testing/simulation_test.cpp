/// Worlds in virtual time.
#include <troupe/device/error.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/simulation/change_ledger.hpp>
#include <troupe/testing/simulation/simulation.hpp>
#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

using namespace simulation;

const std::vector<fault_kind> all{all_fault_kinds.begin(), all_fault_kinds.end()};

const std::vector<fault_kind> all_of_processes{process_fault_kinds.begin(), process_fault_kinds.end()};

using draw_function = std::function<scenario(std::uint64_t seed)>;

draw_function drawing(int ranks) {
  return [ranks](std::uint64_t seed) { return draw_scenario(seed, ranks, all); };
}

draw_function drawing_processes(int ranks) {
  return [ranks](std::uint64_t seed) { return draw_process_scenario(seed, ranks, all_of_processes); };
}

/// Keeps the first report of a leak.
class leak_reports {
public:
  leak_reports() {
    on_leak([this](const error& why) {
      if (why.code != errc::deadline_exceeded && !first_)
        first_ = why; // else a call that a fault lets outlast its world
    });
  }
  leak_reports(const leak_reports&) = delete;
  leak_reports& operator=(const leak_reports&) = delete;
  ~leak_reports() { on_leak({}); }
  [[nodiscard]] const error& first() const noexcept { return first_; }

private:
  error first_;
};

void check_seeds(std::uint64_t first, std::uint64_t last, const draw_function& draw) {
  const leak_reports leaked;
  std::size_t requests = 0; // a world that has a fault at once may get none
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const simulation_result result = simulate(draw(seed));
    INFO("seed " << seed << ": " << (result.findings.empty() ? "" : result.findings.front()));
    REQUIRE(result.found.is_good());
    REQUIRE(to_string(leaked.first()) == to_string(error{}));
    requests += result.requests;
  }
  REQUIRE(requests > 10 * (last - first));
}

} // namespace

TEST_CASE("under any faults, every request is answered once and as promised (ONE-1, ORD-1, EPO-1, TIM-1)",
          "[simulation]") {
  check_seeds(100'001, 100'100, drawing(4));
  check_seeds(200'001, 200'030, drawing(2));
  check_seeds(300'001, 300'003, drawing(64));
  // A capture of an earlier epoch ends after a replay was asked for, and before the rank has captured the plan again.
  check_seeds(1'795'648'747'835, 1'795'648'747'835, drawing(4));
}

TEST_CASE("processes are killed, stopped and cut off, and every promise is kept (ONE-1, ORD-3, EPO-1, TIM-1, CUT-1)",
          "[simulation]") {
  check_seeds(400'001, 400'150, drawing_processes(3));
  check_seeds(500'001, 500'100, drawing_processes(2));
  check_seeds(600'001, 600'050, drawing_processes(8));
  check_seeds(700'001, 700'060, drawing_processes(4)); // on two hosts, each of which may have an order service
  check_seeds(800'001, 800'030, [](std::uint64_t seed) { return draw_process_scenario(seed, 8, all_of_processes, 3); });
  // A process is killed while its world is about to start a sub-world.
  check_seeds(9'500'602, 9'500'602, drawing_processes(3));
  // A rank joins a controller that was started again, ends and is replaced, while its only peer is cut off.
  check_seeds(9'087'062, 9'087'062, drawing_processes(4));
}

TEST_CASE("processes leave and join as planned, also beside faults, and every promise is kept (ONE-1, ORD-1, CUT-1)",
          "[simulation][planned]") {
  const auto drawing = [](int ranks, const std::vector<fault_kind>& kinds) -> draw_function {
    return [ranks, &kinds](std::uint64_t seed) { return draw_changing_scenario(seed, ranks, kinds); };
  };
  const std::vector<fault_kind> none;
  check_seeds(900'001, 900'100, drawing(4, none)); // nothing that fits the next epoch is refused
  check_seeds(910'001, 910'040, drawing(3, none));
  check_seeds(920'001, 920'060, drawing(4, all_of_processes));
  // A spare has taken a place and lives, and a controller that is started again is joined by replaced processes alone.
  check_seeds(7'005'010, 7'005'010, drawing(4, all_of_processes));
  check_seeds(7'012'579, 7'012'579, drawing(4, all_of_processes));
  // A process is to be started in a place whose former process has not ended yet.
  check_seeds(7'000'666, 7'000'666, drawing(4, all_of_processes));
  // A single rank asks what the ranks before it were refused.
  check_seeds(7'002'264, 7'002'264, drawing(4, all_of_processes));
  // Ranks of a former epoch that were stopped are ready in that when the next serves already.
  check_seeds(8'003'249, 8'003'249, drawing(4, all_of_processes));
  // A controller that is started again gives an epoch the number of one that never formed.
  check_seeds(8'013'734, 8'013'734, drawing(4, all_of_processes));
  // A drain that allows other numbers ends the spare that another change needs to keep them.
  check_seeds(8'012'464, 8'012'464,
              [](std::uint64_t seed) { return draw_changing_scenario(seed, 8, all_of_processes, 3); });
  // A rank was away for an epoch, whose requests wait for it.
  check_seeds(7'017'715, 7'017'715, drawing(4, all_of_processes));
  check_seeds(7'018'889, 7'018'889, drawing(4, all_of_processes));
  // Messages to a stopped controller, which is then killed, must not reach the next one.
  check_seeds(9'217'791, 9'217'791, drawing(4, all_of_processes));
  // A process that stood by goes on on its host and stops before it has handled what it was to prepare.
  check_seeds(9'204'487, 9'204'487, drawing(4, all_of_processes));
  std::size_t changed = 0;
  for (std::uint64_t seed = 900'001; seed <= 900'010; ++seed)
    changed += simulate(draw_changing_scenario(seed, 4, none)).last_epoch > 1 ? 1 : 0;
  CHECK(changed > 5);
}

TEST_CASE("a controller that stands by takes over by a store, and every promise is kept (ONE-1, ORD-3, EPO-1, MEM-1)",
          "[simulation][takeover]") {
  check_seeds(930'001, 930'060, [](std::uint64_t seed) { return draw_standby_scenario(seed, 4, all_of_processes); });
  // An order service believes that it serves an epoch which was opened without it; one is killed with its controller.
  for (const std::uint64_t seed : {6'003'592, 6'014'215})
    check_seeds(seed, seed, [](std::uint64_t one) { return draw_standby_scenario(one, 4, all_of_processes); });
  check_seeds(940'001, 940'015, [](std::uint64_t seed) { return draw_standby_scenario(seed, 8, all_of_processes, 3); });
  const simulation_result first = simulate(draw_standby_scenario(930'001, 4, all_of_processes), true);
  CHECK(first.trace == simulate(draw_standby_scenario(930'001, 4, all_of_processes), true).trace);
}

namespace {

/// Fails with the first finding of a thousand seeds. tools/check-mutations plants one fault of tests/mutations at a
/// time. It names the finding that it expects in TROUPE_SOUGHT_FINDING, because a fault may show as something else
/// first.
void seek_findings(const draw_function& draw) {
  const char* const wanted = std::getenv("TROUPE_SOUGHT_FINDING"); // NOLINT(concurrency-mt-unsafe)
  const std::string_view sought = wanted == nullptr ? "" : wanted;
#ifdef __SANITIZE_ADDRESS__
  constexpr std::uint64_t most_seeds = 100;
#else
  constexpr std::uint64_t most_seeds = 1000;
#endif
  for (std::uint64_t seed = 1; seed <= most_seeds; ++seed) {
    const scenario one = draw(seed);
    const auto findings = simulate(one).findings;
    const auto found =
        std::ranges::find_if(findings, [&](const std::string& text) { return text.find(sought) != std::string::npos; });
    if (found == findings.end()) continue;
    const scenario few = shorten(one);
    const bool is_short = few.requests.size() <= std::min<std::size_t>(10, one.requests.size()) &&
                          few.faults.size() <= 3 && !simulate(few).found.is_good();
    FAIL("seed " << seed << ": " << *found << "\nits schedule is " << (is_short ? "short" : "long") << ": "
                 << few.requests.size() << " requests, " << few.faults.size() << " faults");
  }
}

} // namespace

TEST_CASE("simulated worlds of a thousand seeds keep every promise", "[simulation]") {
  seek_findings(drawing(4));
}

TEST_CASE("simulated worlds over processes of a thousand seeds keep every promise", "[simulation]") {
  seek_findings(drawing_processes(3));
}

TEST_CASE("the same seed gives the same trace, byte for byte, and another seed another (DET-1)", "[simulation]") {
  std::set<std::string> traces;
  const bool over_processes = GENERATE(false, true);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const scenario one = (over_processes ? drawing_processes(4) : drawing(4))(seed);
    const std::string trace = simulate(one, true).trace;
    REQUIRE(trace == simulate(one, true).trace);
    REQUIRE(trace.find("is forming (epoch ") != std::string::npos);
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

namespace {

/// Nothing goes wrong by itself; what is asked comes every 50 ms, from 50 ms on.
scenario steady_scenario() {
  scenario made = draw_scenario(1, 4, {});
  made.recovery = {.policy = recovery_policy::keep_size, .rebuilds = 3, .window = std::chrono::seconds{10}};
  made.requests.clear();
  made.length = std::chrono::seconds{1};
  made.stops_busy = false;
  return made;
}

planned_request asked_next(const scenario& of, operation_kind what) {
  return {.number = of.requests.size(),
          .at = std::chrono::milliseconds{50} * static_cast<int>(of.requests.size() + 1),
          .jitter = std::chrono::microseconds{1},
          .what = what,
          .count = 3,
          .deadline = std::chrono::milliseconds{300}};
}

/// Adds the capture of a plan to a scenario without requests, and its replays: by the world, or by all ranks in a lane.
void ask_plan(scenario& to, int replays, bool of_requests, bool in_lane) {
  to.requests.push_back(asked_next(to, operation_kind::capture));
  to.requests.back().of_requests = of_requests;
  for (int i = 0; i < replays; ++i) {
    to.requests.push_back(asked_next(to, operation_kind::replay));
    to.requests.back().source = 0;
    if (in_lane) to.requests.back().lane = to.lanes;
  }
}

std::size_t count_in(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

} // namespace

TEST_CASE("transfers and copies come out right in the simulation, whoever is asked", "[simulation]") {
  scenario one = steady_scenario();
  for (const auto what : {operation_kind::exchange, operation_kind::transfer, operation_kind::copy})
    for (const bool in_lane : {false, true}) {
      planned_request next = asked_next(one, what);
      next.root = rank{3};
      if (in_lane) next.lane = 0;
      one.requests.push_back(next);
    }
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.requests == 3 + 4 + 2 + 4); // of a transfer two ranks are asked
  CHECK(count_in(result.trace, " done\n") == result.requests);
}

TEST_CASE("registered memory serves after a recovery in the simulation too (EPO-1)", "[simulation]") {
  scenario one = steady_scenario();
  one.requests.push_back(asked_next(one, operation_kind::registration));
  for (int i = 0; i < 6; ++i) {
    one.requests.push_back(asked_next(one, operation_kind::all_gather));
    one.requests.back().source = 0;
    one.requests.back().gives_back = true;
  }
  one.faults = {{.number = 0, .kind = fault_kind::withheld, .at = std::chrono::milliseconds{175}, .where = rank{2}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  CHECK(result.on_registered == 6);
  CHECK(count_in(result.trace, "registers rank 1 epoch 2") == 1);
  CHECK(result.trace.find("answer r6 (all_gather, all ranks) done") != std::string::npos);
}

TEST_CASE("a plan is replayed after a recovery in the simulation too, and one of requests where nobody left",
          "[simulation][plans]") {
  const bool of_requests = GENERATE(false, true);
  const bool in_lane = GENERATE(false, true);
  scenario one = steady_scenario();
  ask_plan(one, 6, of_requests, in_lane);
  // Between two replays, so that none is left in flight by it.
  one.faults = {{.number = 0, .kind = fault_kind::ended_actor, .at = std::chrono::milliseconds{175}, .where = rank{2}}};
  for (one.seed = 1; one.seed <= 10; ++one.seed) {
    const simulation_result result = simulate(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(result.last_epoch == 2);
    CHECK(count_in(result.trace, "capture rank 1 epoch 2: r0") == 1);
    CHECK(count_in(result.trace, " done\n") == 1 + 6 * (in_lane ? 4U : 1U));
  }
}

TEST_CASE("a killed process is replaced in the simulation, and its successor takes part", "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace();
  for (int i = 0; i < 8; ++i) {
    one.requests.push_back(asked_next(one, operation_kind::all_reduce));
    one.requests.back().lane = 0;
  }
  one.faults = {
      {.number = 0, .kind = fault_kind::killed_process, .at = std::chrono::milliseconds{175}, .where = rank{2}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  CHECK(count_in(result.trace, "lane simulated 0: 3 complete") == 4);
  CHECK(result.trace.find("answer r7 (all_reduce, lane 0, rank 2) done") != std::string::npos);
}

TEST_CASE("a plan over processes is replayed after a recovery in the simulation, by ranks, a newcomer and a driver",
          "[simulation][plans]") {
  const bool of_requests = GENERATE(false, true);
  const bool in_lane = GENERATE(false, true);
  scenario one = steady_scenario();
  one.processes.emplace();
  ask_plan(one, 8, of_requests, in_lane);
  one.faults = {
      {.number = 0, .kind = fault_kind::killed_process, .at = std::chrono::milliseconds{175}, .where = rank{2}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  CHECK(count_in(result.trace, "capture rank 2 epoch 2: r0") == 1); // by the process that has joined
  CHECK(count_in(result.trace, "capture rank 1 epoch 2: r0") == 1);
  CHECK(count_in(result.trace, in_lane ? "answer r8 (replay, lane " : "answer r8 (replay, all ranks) done") ==
        (in_lane ? 4U : 1U));
  CHECK(count_in(result.trace, " done\n") >= 5 + 5 * (in_lane ? 4U : 1U));
}

TEST_CASE("a process that is killed before it has joined is replaced in the simulation, though it is asked for once",
          "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace().replaces_wanted = true;
  for (int i = 0; i < 8; ++i) {
    one.requests.push_back(asked_next(one, operation_kind::all_reduce));
    one.requests.back().lane = 0;
  }
  const auto kill = [&](int at_ms) {
    one.faults.push_back({.number = one.faults.size(),
                          .kind = fault_kind::killed_process,
                          .at = std::chrono::milliseconds{at_ms},
                          .where = rank{2}});
  };
  int unseen = 0;
  for (int later = 185; later < 230; ++later) {
    one.faults.clear();
    kill(175);
    kill(later);
    const simulation_result result = simulate(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(result.trace.find("answer r7 (all_reduce, lane 0, rank 2) done") != std::string::npos);
    if (result.trace.find("process 3001 is killed") != std::string::npos && result.last_epoch == 2) ++unseen;
  }
  CHECK(unseen > 0);
}

TEST_CASE("a lost controller is replaced in the simulation, and the next one knows the last commit (CUT-1)",
          "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace().orphans = orphan_policy::rejoin;
  for (std::uint64_t i = 0; i < 16; ++i) {
    one.requests.push_back(asked_next(one, i % 2 == 0 ? operation_kind::all_reduce : operation_kind::barrier));
    one.requests.back().lane = 0;
    if (i % 2 == 1) one.requests.back().commit = i;
  }
  one.faults = {
      {.number = 0, .kind = fault_kind::lost_controller, .at = std::chrono::milliseconds{175}, .where = rank{0}},
      // When the world forms again: the epoch after the controller's first one is the first that serves.
      {.number = 1, .kind = fault_kind::failed_init, .at = std::chrono::milliseconds{180}, .where = rank{1}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 3);
  CHECK(result.trace.find("another controller starts") != std::string::npos);
  CHECK(count_in(result.trace, "lane simulated 0: 0 complete, commit 1") == 4);
  CHECK(result.trace.find("answer r15 (barrier, lane 0, rank 2) done") != std::string::npos);
  one.processes->orphans = orphan_policy::leave;
  const simulation_result over = simulate(one, true);
  CHECK(over.found.is_good());
  CHECK(over.last_epoch == 1);
  CHECK(over.trace.find("another controller starts") == std::string::npos);
}

TEST_CASE("a world that has failed is over in the simulation, though its controller is lost later and replaced",
          "[simulation]") {
  scenario one = draw_process_scenario(3'060'585, 4, all_of_processes);
  std::erase_if(one.requests, [](const planned_request& each) { return each.number != 31; });
  std::erase_if(one.faults, [](const planned_fault& each) { return each.number != 1 && each.number != 3; });
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.trace.find("controller: world failed in epoch 1") != std::string::npos);
  CHECK(result.trace.find("another controller starts") != std::string::npos);
}

namespace {

/// Adds a sub-world of ranks 2 and 0, and \p count commits in it.
void ask_sub_world(scenario& to, std::size_t count) {
  to.splits.push_back(
      {.number = to.splits.size(), .members = {rank{2}, rank{0}}, .jitter = std::chrono::microseconds{100}});
  for (std::size_t i = 0; i < count; ++i) {
    planned_request one = asked_next(to, i % 2 == 0 ? operation_kind::all_reduce : operation_kind::barrier);
    one.lane = 0;
    one.split = to.splits.back().number;
    if (i % 2 == 1) one.commit = i;
    to.requests.push_back(one);
  }
}

} // namespace

TEST_CASE("a sub-world over processes comes back in the simulation, and a newcomer takes part in it (CUT-1)",
          "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace();
  ask_sub_world(one, 8);
  one.faults = {
      {.number = 0, .kind = fault_kind::killed_process, .at = std::chrono::milliseconds{225}, .where = rank{2}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  CHECK(result.requests == 14); // the one at 250 ms comes while the world forms again, and is not made
  CHECK(count_in(result.trace, " done\n") == 14);
  CHECK(count_in(result.trace, "sub-world 'split 0' world of 2 is ready (epoch 2") == 2);
}

TEST_CASE("a sub-world that all its ranks have stopped is split off anew in the simulation (CUT-1)", "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace();
  ask_sub_world(one, 8);
  one.splits.front().stops_at = std::chrono::milliseconds{225};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 1);
  CHECK(count_in(result.trace, " done\n") == 16);
  CHECK(count_in(result.trace, "sub-world 'split 0' world of 2 is ready (epoch 1") == 4);
}

TEST_CASE("a sub-world that a process has stopped while it waited for a newcomer goes on in the simulation (CUT-1)",
          "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace();
  ask_sub_world(one, 8);
  one.splits.front().stops_at = std::chrono::milliseconds{290};
  one.faults = {
      {.number = 0, .kind = fault_kind::killed_process, .at = std::chrono::milliseconds{225}, .where = rank{2}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 2);
  CHECK(count_in(result.trace, "process 1000 sub-world 'split 0' world of 2 is stopped (epoch 1") == 1);
  CHECK(count_in(result.trace, "process 3001 sub-world 'split 0' world of 2 is ready (epoch 2, 1 ranks here); lane "
                               "simulated 0: 4 complete, commit 3") == 1);
}

TEST_CASE("a sub-world ends in the simulation when the world changes its size, though that is restored (CUT-1)",
          "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace();
  one.recovery.policy = recovery_policy::shrink;
  one.recovery.backoff = {}; // the world shrinks before a process has replaced the lost one
  ask_sub_world(one, 8);
  for (std::size_t i = 4; i < 8; ++i) one.requests[i].at += std::chrono::milliseconds{400};
  for (const int where : {2, 0})
    one.faults.push_back({.number = one.faults.size(),
                          .kind = fault_kind::killed_process,
                          .at = std::chrono::milliseconds{225 + 100 * static_cast<int>(one.faults.size())},
                          .where = rank{where}});
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 5);
  CHECK(count_in(result.trace, " done\n") == 16);
  CHECK(count_in(result.trace, "sub-world 'split 0' world of 2 is ready (epoch 5, 1 ranks here)\n") == 2);
}

TEST_CASE(
    "a sub-world begins anew in the simulation if its process is replaced while another service orders it (CUT-1)",
    "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace().has_services = true;
  one.length = std::chrono::seconds{2};
  ask_sub_world(one, 8);
  one.splits.front().members = {rank{1}};
  const auto strike = [&](fault_kind kind, int at_ms, int where, int span_ms = 0) {
    one.faults.push_back({.number = one.faults.size(),
                          .kind = kind,
                          .at = std::chrono::milliseconds{at_ms},
                          .where = rank{where},
                          .span = std::chrono::milliseconds{span_ms}});
  };
  SECTION("of the host, which was away") {
    strike(fault_kind::killed_service, 20, 0); // so the controller orders the first requests
    for (std::size_t i = 0; i < 4; ++i) one.requests[i].at += std::chrono::milliseconds{150};
    for (std::size_t i = 4; i < 8; ++i) one.requests[i].at += std::chrono::milliseconds{1400};
    strike(fault_kind::killed_process, 1500, 1);
    const simulation_result result = simulate(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(result.last_epoch == 3);
    CHECK(count_in(result.trace, "process 2001 sub-world 'split 0' world of 1 is ready (epoch 3, 1 ranks here)\n") ==
          1);
  }
  SECTION("but not if the same one does") {
    for (std::size_t i = 4; i < 8; ++i) one.requests[i].at += std::chrono::milliseconds{i < 6 ? 150 : 400};
    strike(fault_kind::cut_link, 225, 0);
    strike(fault_kind::killed_process, 500, 1);
    const simulation_result result = simulate(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(count_in(result.trace,
                   "process 2001 sub-world 'split 0' world of 1 is ready (epoch 3, 1 ranks here); lane "
                   "simulated 0: 0 complete, commit 3; every process that knew the last commits is lost") == 1);
  }
  SECTION("nor if the same one has connected again meanwhile") {
    for (std::size_t i = 4; i < 8; ++i) one.requests[i].at += std::chrono::milliseconds{i < 6 ? 150 : 800};
    one.processes->orphans = orphan_policy::rejoin;
    one.recovery.rebuilds = 10;
    strike(fault_kind::cut_link, 225, 0);
    strike(fault_kind::stopped_controller, 500, 0, 300); // the service takes it for lost
    strike(fault_kind::killed_process, 700, 1);
    const simulation_result result = simulate(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(count_in(result.trace, "lane simulated 0: 0 complete, commit 3; every process that knew the last commits is "
                                 "lost") == 1);
  }
}

namespace {

/// Judges events that have told processes 1, 2 and so on, each of which ends after its event, commits of one lane.
verdict judge_told(const std::vector<simulation_ledger::told_event>& events, std::uint64_t living = 0) {
  const scenario none = [] {
    scenario made = steady_scenario();
    made.lanes = 1;
    return made;
  }();
  trace log{false};
  simulated_memory memory{none, {}};
  simulation_ledger ledger{none, memory, log};
  for (const simulation_ledger::told_event& one : events) {
    ledger.told(one);
    if (one.process != living) ledger.ended(one.process);
  }
  return ledger.judge();
}

} // namespace

TEST_CASE("the simulation counts the epochs without a fault as controllers begin them, whatever their numbers (EPO-1)",
          "[simulation][planned]") {
  const scenario none = steady_scenario();
  trace log{false};
  simulated_memory memory{none, {}};
  simulation_ledger ledger{none, memory, log};
  ledger.began(epoch{1}, {}, false);
  ledger.began(epoch{3}, {}, true); // by a controller that is lost then
  CHECK(ledger.unbroken_since(epoch{3}) == epoch{1});
  ledger.began(epoch{2}, {}, false);
  ledger.began(epoch{3}, {}, true);
  CHECK(ledger.unbroken_since(epoch{3}) == epoch{2});
}

TEST_CASE("the simulation allows a world to begin anew beside a process that is away for long, and no other (CUT-1)",
          "[simulation]") {
  const scenario none = steady_scenario();
  trace log{false};
  simulated_memory memory{none, {}};
  simulation_ledger ledger{none, memory, log};
  for (const std::uint64_t one : {1U, 2U, 3U}) ledger.told({.process = one, .in = epoch{3}, .at = {}, .commits = {}});
  ledger.ended(1);
  ledger.forms_again(epoch{4}, {});
  CHECK(ledger.findings().empty());
  ledger.forms_again(epoch{1}, {2, 3});
  CHECK(ledger.findings().empty());
  ledger.forms_again(epoch{1}, {2});
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("the simulation allows a sub-world to begin anew only if nobody can know of the one before (CUT-1)",
          "[simulation]") {
  const time_point now = steady_now();
  using told = simulation_ledger::told_event;
  const told first{.of = 1, .process = 1, .in = epoch{1}, .at = now, .commits = {std::nullopt}, .has_points = false};
  const told known{.of = 1, .process = 1, .in = epoch{2}, .at = now, .commits = {4}, .order_moves = 1};
  const told anew{.of = 1,
                  .process = 2,
                  .in = epoch{3},
                  .at = time_point::max(),
                  .commits = {std::nullopt},
                  .has_points = false,
                  .order_moves = 2};
  told later{.of = 1, .process = 2, .in = epoch{4}, .at = time_point::max(), .commits = {1}, .order_moves = 2};
  CHECK(judge_told({first, known, anew, later}).is_good());
  SECTION("its processes live") {
    CHECK(judge_told({first, known, anew}, 1).wrong == 1);
  }
  SECTION("the service that orders it knows") {
    told kept = anew;
    kept.order_moves = known.order_moves;
    CHECK(judge_told({first, known, kept}).wrong == 1);
  }
  SECTION("the event has points, and does not say that commits are lost") {
    told silent = anew;
    silent.has_points = true;
    CHECK(judge_told({first, known, silent}).wrong == 1);
    silent.has_survivors = false;
    CHECK(judge_told({first, known, silent}).is_good());
  }
  SECTION("it is the whole world") {
    std::vector<told> events{first, known, anew};
    for (told& one : events) one.of = 0;
    CHECK(judge_told(events).wrong == 1);
  }
  SECTION("it forgets what was committed since") {
    later.in = epoch{5};
    later.commits = {std::nullopt};
    later.has_points = false;
    CHECK(
        judge_told({first,
                    known,
                    anew,
                    {.of = 1, .process = 2, .in = epoch{4}, .at = time_point::max(), .commits = {1}, .order_moves = 2},
                    later})
            .wrong == 1);
  }
}

namespace {

/// The findings about planned changes of a run in which \p happened, with \p faults.
std::vector<std::string> find_in_changes(const std::function<void(change_ledger& every)>& happened,
                                         std::vector<planned_fault> faults = {}, bool has_standby = false) {
  scenario one = steady_scenario();
  one.processes.emplace().plans_changes = true;
  one.processes->has_standby = has_standby;
  one.faults = std::move(faults);
  trace log{false};
  simulated_memory memory{one, {}};
  simulation_ledger ledger{one, memory, log};
  change_ledger changes{one, ledger};
  happened(changes);
  return ledger.findings();
}

/// Processes of places 0 to 2 and pids 10 to 12, those of \p ranks with numbers in that order.
world_processes with_ranks(const std::vector<int>& ranks) {
  world_processes every;
  for (int place = 0; place < 3; ++place) {
    const auto found = std::ranges::find(ranks, place);
    every.push_back({.name = std::to_string(place), .host = "h", .pid = 10 + place, .place = place});
    if (found != ranks.end()) every.back().self = rank{static_cast<int>(found - ranks.begin())};
  }
  return every;
}

/// Lets the ranks of \p from report all that a switch from epoch 1 to epoch 2 with the ranks \p to needs.
void report_switch(change_ledger& to, const std::vector<int>& from, const std::vector<int>& next) {
  for (const int one : from) {
    to.hears(static_cast<std::uint64_t>(10 + one), held_notice{epoch{1}, epoch{2}});
    to.hears(static_cast<std::uint64_t>(10 + one), drained_report{epoch{1}, 0});
  }
  for (const int one : next) to.hears(static_cast<std::uint64_t>(10 + one), formed_report{epoch{2}});
}

} // namespace

TEST_CASE("the simulation finds planned changes that nobody has asked for, and those that begin too early (ONE-2)",
          "[simulation][planned]") {
  const world_processes every = with_ranks({0, 1, 2}), first_left = with_ranks({1, 2}), last_left = with_ranks({0, 1});
  const auto leave = [](int place, bool renumbers) {
    return rank_change{.kind = rank_change_kind::leave, .place = place, .renumbers = renumbers};
  };
  const auto change = [&](const world_processes& after, const std::vector<int>& next, const auto& asked) {
    return find_in_changes([&](change_ledger& to) {
      to.begins(1, epoch{1}, false, every);
      to.serves();
      asked(to);
      to.stops();
      report_switch(to, {0, 1, 2}, next);
      to.begins(1, epoch{2}, true, after);
    });
  };
  CHECK(change(last_left, {0, 1}, [&](auto& to) { std::ignore = to.asked(leave(2, false), 0, every); }).empty());
  CHECK(change(first_left, {1, 2}, [&](auto& to) { std::ignore = to.asked(leave(0, true), 0, every); }).empty());
  CHECK(change(last_left, {0, 1}, [](auto&) {}).size() == 1); // nobody asks
  CHECK(change(last_left, {0, 1}, [&](auto& to) { std::ignore = to.asked(leave(1, true), 0, every); }).size() == 1);
  CHECK(change(first_left, {1, 2}, [&](auto& to) { std::ignore = to.asked(leave(0, false), 0, every); }).size() == 2);
  CHECK(change(last_left, {0}, [&](auto& to) { std::ignore = to.asked(leave(2, false), 0, every); }).size() == 1);
  CHECK(change(last_left, {0, 1}, [&](auto& to) {
          to.answered(to.asked(leave(2, false), 0, every), {.code = errc::busy}, every, true); // refused
        }).size() == 1);
  CHECK(change(last_left, {0, 1}, [&](auto& to) {
          to.answered(to.asked(leave(2, false), 0, every), {}, every, true); // too early
        }).size() == 2);
}

TEST_CASE("the simulation finds changes that are given up or refused without a fault, and numbers that are used twice",
          "[simulation][planned]") {
  const world_processes every = with_ranks({0, 1, 2});
  const error lost{.code = errc::stopping, .effect = effect::unknown_outcome};
  const auto lose = [&](change_ledger& to) {
    to.begins(1, epoch{1}, false, every);
    to.serves();
    to.answered(to.asked({.kind = rank_change_kind::leave, .place = 1}, 0, every), lost, {}, true);
    to.answered(to.asked({.kind = rank_change_kind::join, .place = 1}, 0, every), {.code = errc::deadline_exceeded}, {},
                true);
    to.given_up({.code = errc::busy}); // a rank may have withdrawn a request
    to.given_up(lost);
    to.quiesces(every, true);
  };
  CHECK(find_in_changes(lose).size() == 4);
  CHECK(find_in_changes(lose, {{.kind = fault_kind::cut_link}}).empty());
  const auto tell = [&](change_ledger& to) {
    const unique_id one{}, other{.bytes = {std::byte{1}}};
    to.told(10, epoch{2}, one, every);
    to.told(11, epoch{2}, one, every);
    to.told(12, epoch{3}, other, every);
    to.told(12, epoch{2}, other, {every.back()}); // the controller hears none of the others
    to.told(12, epoch{4}, other, every);
    to.begins(2, epoch{4}, false, {every.front()}); // 12 joins this controller afterwards
    to.told(10, epoch{4}, one, every);
    to.told(10, epoch{3}, one, every);
  };
  CHECK(find_in_changes(tell).size() == 1);
  const auto miss = [&](change_ledger& to) {
    to.begins(1, epoch{1}, false, every);
    std::ignore = to.asked({.kind = rank_change_kind::leave, .place = 1}, 0, every);
    to.misses(every); // only a lost controller knows that epoch
    for (const world_process& one : every) to.directed(static_cast<std::uint64_t>(one.pid), epoch{1});
    to.misses({every.front()});
    to.misses(every);
  };
  CHECK(find_in_changes(miss).size() == 1);
}

TEST_CASE("the simulation counts a process for a change once a controller with a store has welcomed it",
          "[simulation][planned]") {
  const bool has_standby = GENERATE(false, true), is_welcome = GENERATE(false, true);
  const auto quiesce = [&](change_ledger& to) {
    const world_processes both = with_ranks({0, 1});
    to.begins(1, epoch{1}, false, {both[0], both[1]});
    to.serves();
    world_processes now = both; // the last one has joined
    now[1].is_leaving = true;
    if (is_welcome) to.welcomes(static_cast<std::uint64_t>(now[2].pid));
    to.quiesces(now, true);
  };
  // Without a store nothing comes between a decision and what is said of it.
  CHECK(find_in_changes(quiesce, {}, has_standby).size() == (is_welcome || !has_standby ? 1 : 0));
}

TEST_CASE("changes by all who may ask, at once and in vain, and faults at each of their steps are drawn",
          "[simulation][planned]") {
  std::set<change_asker> askers;
  std::set<change_step> steps;
  std::size_t drains = 0, in_vain = 0, at_once = 0, spares = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const scenario one = draw_changing_scenario(seed, 4, all_of_processes);
    spares += one.processes->spares > 0 ? 1 : 0;
    for (const planned_departure& each : one.departures) {
      askers.insert(each.by);
      drains += each.is_drain ? 1 : 0;
      in_vain += each.is_in_vain ? 1 : 0;
      at_once += each.span == nanoseconds{0} ? 1 : 0;
    }
    for (const planned_fault& each : one.faults)
      if (each.during) steps.insert(*each.during);
  }
  CHECK(askers.size() == 4);
  CHECK(steps.size() == 3);
  for (const std::size_t count : {drains, in_vain, at_once, spares}) CHECK(count > 10);
}

TEST_CASE(
    "an order service that is killed serves its host again in the simulation, in the first epoch after it was found",
    "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace().has_services = true;
  one.length = std::chrono::seconds{2};
  for (int i = 0; i < 3; ++i) {
    one.requests.push_back(asked_next(one, operation_kind::all_reduce));
    one.requests.back().lane = 0;
  }
  one.requests[1].at = std::chrono::milliseconds{800};
  one.requests[2].at = std::chrono::milliseconds{1800};
  const auto kill = [&](fault_kind kind, int at_ms, int where) {
    one.faults.push_back(
        {.number = one.faults.size(), .kind = kind, .at = std::chrono::milliseconds{at_ms}, .where = rank{where}});
  };
  kill(fault_kind::killed_service, 175, 1);
  kill(fault_kind::killed_process, 1500, 3);
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.last_epoch == 3);
  CHECK(count_in(result.trace, " done\n") == 12);
  CHECK(count_in(result.trace, "serves 2 ranks in epoch 1") == 2);
  CHECK(count_in(result.trace, "service 700000 serves 2 ranks in epoch 2") == 0);
  CHECK(count_in(result.trace, "service 700001 serves 2 ranks in epoch 2") == 0);
  CHECK(count_in(result.trace, "service 700001 serves 2 ranks in epoch 3") == 1);
}

namespace {

/// Adds \p count agrees of all ranks in lane 0.
void ask_agrees(scenario& to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    to.requests.push_back(asked_next(to, operation_kind::agree));
    to.requests.back().lane = 0;
  }
}

} // namespace

TEST_CASE("the order services of two hosts pass the values of agrees on in the simulation (ORD-1, ORD-2)",
          "[simulation][agree]") {
  scenario one = steady_scenario();
  one.processes.emplace().has_services = true;
  ask_agrees(one, 12); // by all rules
  one.requests[5].objecting = rank{3};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(count_in(result.trace, "serves 2 ranks in epoch 1") == 2);
  CHECK(count_in(result.trace, "answer r5 (agree, lane 0, rank ") == 4);
  CHECK(count_in(result.trace, "bytes to an agree, and the limit is") == 4);
  CHECK(count_in(result.trace, " done at position ") == 44);
  CHECK(count_in(result.trace, " done at position 10\n") == 4); // what is refused is no operation
}

TEST_CASE("a world that has shrunk to one process agrees in the simulation, and counts on (CUT-1)",
          "[simulation][agree][CUT-1]") {
  scenario one = steady_scenario();
  one.ranks = 2;
  one.recovery.policy = recovery_policy::shrink;
  one.recovery.smallest = 1;
  one.processes.emplace();
  ask_agrees(one, 8);
  one.requests[3].at = std::chrono::milliseconds{185}; // before the other process is back
  one.faults = {
      {.number = 0, .kind = fault_kind::killed_process, .at = std::chrono::milliseconds{175}, .where = rank{1}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(count_in(result.trace, "world of 1 is ready") == 1);
  CHECK(count_in(result.trace, "answer r3 (agree, lane 0, rank 0) done at position 3\n") == 1);
}

TEST_CASE("sub-worlds and order services are drawn for worlds over processes", "[simulation]") {
  std::size_t with_splits = 0, with_services = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const scenario one = draw_process_scenario(seed, 3, all_of_processes);
    with_splits += one.splits.empty() ? 0 : 1;
    with_services += one.processes->has_services ? 1 : 0;
    std::set<std::size_t> numbers;
    for (const planned_request& request : one.requests) CHECK(numbers.insert(request.number).second);
  }
  CHECK(with_splits > 20);
  CHECK(with_services > 20);
}

TEST_CASE("a process whose connection is read slowly takes part again in the simulation (TIM-1)", "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace().orphans = orphan_policy::rejoin;
  for (int i = 0; i < 16; ++i) {
    one.requests.push_back(asked_next(one, operation_kind::all_reduce));
    one.requests.back().lane = 0;
  }
  one.faults = {{.number = 0,
                 .kind = fault_kind::slow_reader,
                 .at = std::chrono::milliseconds{175},
                 .where = rank{2},
                 .span = std::chrono::milliseconds{200}}};
  const simulation_result result = simulate(one, true);
  INFO(result.trace);
  CHECK(result.found.is_good());
  CHECK(result.trace.find("answer r15 (all_reduce, lane 0, rank 2) done") != std::string::npos);
  CHECK(result.trace.find("the world serves") != std::string::npos);
}

TEST_CASE("the launcher starts a killed process again in the simulation, and not too often (FLT-1)", "[simulation]") {
  scenario one = steady_scenario();
  one.processes.emplace();
  one.recovery.rebuilds = 1; // a place has five processes in place of its first one
  const auto kill = [&](int at_ms) {
    one.faults.push_back({.number = one.faults.size(),
                          .kind = fault_kind::killed_process,
                          .at = std::chrono::milliseconds{at_ms},
                          .where = rank{2}});
  };
  kill(175);
  const simulation_result once = simulate(one, true);
  INFO(once.trace);
  CHECK(once.found.is_good());
  CHECK(once.last_epoch == 2);
  CHECK(count_in(once.trace,
                 "launcher: process 2 (pid 3000) was ended by signal 9 (SIGKILL) and is started again (1 of "
                 "5") == 1);
  CHECK(count_in(once.trace, "the job ends with status 0") == 1);
  kill(400); // the world may not rebuild once more
  const simulation_result twice = simulate(one, true);
  INFO(twice.trace);
  CHECK(twice.found.is_good());
  CHECK(count_in(twice.trace, "the job ends with status 1") == 1);
}

TEST_CASE("a machine that was suspended serves again in the simulation, whatever its clocks say", "[simulation]") {
  const bool is_of_controller = GENERATE(false, true);
  scenario one = steady_scenario();
  one.processes.emplace().orphans = orphan_policy::rejoin;
  one.length = std::chrono::seconds{2};
  for (int i = 0; i < 30; ++i) {
    one.requests.push_back(asked_next(one, operation_kind::all_reduce));
    one.requests.back().lane = 0;
  }
  one.faults = {{.number = 0,
                 .kind = is_of_controller ? fault_kind::stopped_controller : fault_kind::suspended_host,
                 .at = std::chrono::milliseconds{310},
                 .where = rank{2},
                 .span = std::chrono::milliseconds{500},
                 .stops_clock = true},
                {.number = 1, .kind = fault_kind::drift, .drift_ppm = 4'900}};
  for (one.seed = 1; one.seed <= 10; ++one.seed) {
    const simulation_result result = simulate(one, true);
    INFO(result.trace);
    CHECK(result.found.is_good());
    CHECK(result.trace.find("answer r29 (all_reduce, lane 0, rank 2) done") != std::string::npos);
  }
}

TEST_CASE("one-shot kernels are drawn for worlds of one process, in different sizes", "[simulation]") {
  std::set<std::size_t> drawn;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    drawn.insert(draw_scenario(seed, 3, {}).one_shot_bytes);
    CHECK(draw_process_scenario(seed, 3, {}).one_shot_bytes == 0);
  }
  CHECK(drawn == std::set<std::size_t>{0, 8, 64, std::size_t{1} << 20U});
}

TEST_CASE("every kind of request is drawn", "[simulation]") {
  std::set<operation_kind> drawn;
  for (std::uint64_t seed = 1; seed <= 100; ++seed)
    for (const planned_request& request : draw_scenario(seed, 4, all).requests) drawn.insert(request.what);
  CHECK(drawn.size() == operation_kind_count);
}

TEST_CASE("kinds of faults are named, and others refused with the choices", "[simulation]") {
  CHECK(parse_fault_kinds("withheld,jump") == std::vector{fault_kind::withheld, fault_kind::jump});
  CHECK(parse_fault_kinds("all").size() == all_fault_kinds.size());
  CHECK(parse_fault_kinds("none").empty());
  CHECK(parse_fault_kinds("all", process_fault_kinds) == all_of_processes);
  CHECK_THROWS_WITH(parse_fault_kinds("killed-process"), Catch::Matchers::ContainsSubstring("choose from"));
  CHECK_THROWS_WITH(parse_fault_kinds("fire"), Catch::Matchers::ContainsSubstring("choose from all, none, withheld"));
}

} // namespace troupe::tests
