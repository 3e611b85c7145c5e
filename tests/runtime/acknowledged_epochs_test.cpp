/// Requests to single ranks after a rebuild: ranks may differ in which requests they saw succeed, so that nothing is
/// paired before their clients have acknowledged the new epoch.
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/testing/catch2.hpp>
#include <troupe/testing/mock_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <variant>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using namespace troupe::testing;
using Catch::Matchers::ContainsSubstring;

constexpr std::size_t acknowledged_count = 16;
const lane steps = lane::named("steps");

bool was_launched_in(const fault_script& script, rank self, epoch when) {
  return std::ranges::any_of(script.launches(self), [&](const launch_record& one) { return one.epoch == when; });
}

error error_in(const virtual_reply& reply) {
  const outcome result = reply.result();
  const error* const failure = troupe::failure_of(result);
  return failure == nullptr ? error{} : *failure;
}

} // namespace

TEST_CASE(
    "where one rank saw a request succeed and another did not, nothing is paired after the rebuild (CUT-1, EPO-1)",
    "[runtime][epochs]") {
  const auto kept_by = GENERATE(ordering::agreed, ordering::caller);
  virtual_world world{2, {.ordering = kept_by}};
  const auto values = make_ranked<float>(world, acknowledged_count);
  const auto parts = sums_of(values);
  world.script().on(rank{0}).operation(0).delay(20ms);
  const auto succeeded = world.ask(rank{0}, {.what = parts[0], .lane = steps});
  const auto unknown = world.ask(rank{1}, {.what = parts[1], .deadline = 5ms, .lane = steps});
  CHECK_THAT(succeeded.get(), succeeds());
  CHECK_THAT(unknown, fails_with(errc::deadline_exceeded) && has_unknown_outcome());
  world.end_rank(rank{1});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));

  // Rank 0's client goes on with the next request, rank 1's repeats the one before: both have one shape.
  const auto next = world.ask(rank{0}, {.what = parts[0], .lane = steps});
  const auto repeated = world.ask(rank{1}, {.what = parts[1], .lane = steps});
  world.advance(10ms);
  for (const auto& one : {next, repeated}) {
    REQUIRE(one.is_ready());
    CHECK_THAT(one, fails_with(errc::stale_epoch) && was_rejected());
    CHECK_THAT(error_in(one).text, ContainsSubstring("the world has been formed again: it is in epoch 2") &&
                                       ContainsSubstring("acknowledge() of the rank's lane"));
  }
  for (const rank self : world.local_ranks()) CHECK_FALSE(was_launched_in(world.script(), self, epoch{2}));
  CHECK(values_of<float>(values[0]) == std::vector<float>(acknowledged_count, 1 + 2)); // summed once

  std::vector<virtual_reply> agreed;
  for (int r = 0; r < 2; ++r)
    agreed.push_back(
        world.ask(rank{r}, {.what = parts[static_cast<std::size_t>(r)], .epoch = epoch{2}, .lane = steps}));
  for (const auto& one : agreed) CHECK_THAT(one.get(), succeeds());
  // All ranks at once are at one place by construction: what names no epoch is for the present one.
  CHECK_THAT(world.ask(world_request{.parts = parts}).get(), succeeds());
  CHECK_THAT(world.copy(rank{0}, values[0], world.allocate(rank{0}, values[0].size_bytes())).get(), succeeds());
}

TEST_CASE("a lane refuses requests after a rebuild until its owner has acknowledged the epoch (CUT-1, EPO-1)",
          "[runtime][epochs]") {
  configuration settings = testing::mock_settings(2);
  settings.limits.launch = settings.limits.hang = 20min; // longer than a window of rebuilds that nobody named was once
  mock_world w{settings};
  w.script().on(rank{0}).operation(0).delay(1h);
  const auto values = w.make_ranked(acknowledged_count);
  const auto parts = sums_of(values);
  std::vector<rank_lane> lanes;
  for (int r = 0; r < 2; ++r) lanes.emplace_back(w.world(), rank{r}, steps);
  auto succeeded = lanes[0].ask(parts[0]);
  auto unknown = lanes[1].ask(parts[1], {.deadline = 1s});
  const error lost = failure_of(std::move(unknown));
  CHECK(lost.code == errc::deadline_exceeded);
  CHECK(lost.effect == effect::unknown_outcome);
  w.script().release();
  CHECK_THAT(succeeded, succeeds());
  caf::anon_send_exit(collective_of(w.world(), rank{1}), caf::exit_reason::kill);
  REQUIRE(w.world().wait_ready(epoch{1}, 60s).phase == world_phase::ready);

  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(lanes[r].acknowledged() == epoch{});
    const error refused = failure_of(lanes[r].ask(parts[r]));
    CHECK(refused.code == errc::stale_epoch);
    CHECK(refused.effect == effect::rejected);
    CHECK(refused.epoch == epoch{2});
    CHECK_THAT(refused.text, ContainsSubstring("acknowledge() of the rank's lane"));
    CHECK_FALSE(was_launched_in(w.script(), rank{static_cast<int>(r)}, epoch{2}));
  }
  rank_lane made_later{w.world(), rank{0}, lane::named("made later")};
  CHECK(failure_of(made_later.ask(barrier{})).code == errc::stale_epoch);
  CHECK(failure_of(w.world().ask(rank{0}, barrier{})).code == errc::stale_epoch);

  lanes[0].acknowledge(epoch{2});
  auto first = lanes[0].ask(parts[0]); // its peer's owner has not decided yet
  CHECK(failure_of(lanes[1].ask(parts[1])).code == errc::stale_epoch);
  lanes[1].acknowledge(epoch{2});
  auto second = lanes[1].ask(parts[1]);
  CHECK_THAT(first, succeeds());
  CHECK_THAT(second, succeeds());
  CHECK(lanes[1].acknowledged() == epoch{2});

  // A late wish to take back a request of the epoch before does not meet the one at its place in this.
  auto pending = lanes[0].ask(parts[0]);
  compat::post(collective_of(w.world(), rank{0}), cancel_request{steps, 1, epoch{1}});
  compat::post(collective_of(w.world(), rank{0}), cancel_request{steps, 1});
  CHECK(pending.wait_for(0s) == std::future_status::timeout);
  lanes[0].cancel(1);
  CHECK_THAT(pending, fails_with(errc::cancelled));
}

} // namespace troupe::tests
