/// Faults and recoveries, counted from a world's events.

#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/runtime/metrics/world_history.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <memory>
#include <vector>

namespace troupe::tests::world_history_test {

namespace {

using namespace std::chrono_literals;

world_event in_phase(world_phase phase, int formed_in, errc reason = errc::none) {
  world_event event;
  event.phase = phase;
  event.epoch = epoch{static_cast<epoch::value_type>(formed_in)};
  event.reason.code = reason;
  return event;
}

std::uint64_t faults(const history_reading& of, errc code) {
  return of.faults[static_cast<std::size_t>(code)];
}

} // namespace

TEST_CASE("a fault is counted once, by its code", "[runtime][metrics]") {
  world_history counted;
  counted.hear(in_phase(world_phase::ready, 1));
  counted.hear(in_phase(world_phase::rebuilding, 1, errc::communicator_failed));
  counted.hear(in_phase(world_phase::rebuilding, 1, errc::communicator_failed)); // again, as with a report
  counted.hear(in_phase(world_phase::forming, 2, errc::communicator_failed));
  counted.hear(in_phase(world_phase::rebuilding, 2, errc::deadline_exceeded));
  counted.hear(in_phase(world_phase::failed, 2, errc::device_failed));
  counted.hear(in_phase(world_phase::stopped, 2, errc::device_failed));
  const history_reading seen = counted.read();
  CHECK(faults(seen, errc::communicator_failed) == 1);
  CHECK(faults(seen, errc::deadline_exceeded) == 1);
  CHECK(faults(seen, errc::device_failed) == 1);
  CHECK(faults(seen, errc::none) == 0);
}

TEST_CASE("each try to come back is counted once, by its rung and outcome", "[runtime][metrics]") {
  world_history counted;
  world_event back = in_phase(world_phase::ready, 3);
  back.recovery = std::make_shared<const std::vector<recovery_try>>(std::vector<recovery_try>{
      {.rung = recovery_rung::form_beside, .took = 70s, .failure = {.code = errc::communicator_failed}},
      {.rung = recovery_rung::abort_first, .took = 3ms, .failure = {}}});
  counted.hear(in_phase(world_phase::rebuilding, 2, errc::communicator_failed));
  counted.hear(back);
  counted.hear(back); // what came back with it, told of later
  const history_reading seen = counted.read();
  const rung_times& failed = seen.did_not[static_cast<std::size_t>(recovery_rung::form_beside)];
  CHECK(failed.tries == 1);
  CHECK(failed.took == 70s);
  for (const std::uint64_t within : failed.within) CHECK(within == 0); // longer than any bound
  const rung_times& worked = seen.came_back[static_cast<std::size_t>(recovery_rung::abort_first)];
  CHECK(worked.tries == 1);
  CHECK(worked.within[2] == 1); // at most 4 ms
}

TEST_CASE("reports of stragglers are counted", "[runtime][metrics]") {
  world_history counted;
  world_event late = in_phase(world_phase::ready, 1);
  late.straggling = std::make_shared<const absence_report>();
  counted.hear(late);
  counted.hear(in_phase(world_phase::ready, 1));
  counted.hear(late);
  CHECK(counted.read().straggling == 2);
}

} // namespace troupe::tests::world_history_test
