/// Worlds in virtual time, as users' tests have them.
#include "support/outcomes.hpp"

#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::virtual_world_test {

using namespace troupe::testing;
using namespace std::chrono_literals;
using troupe::tests::code_of;

namespace {

constexpr std::size_t count = 64;

virtual_options keeping_size() {
  return {.recovery = {.policy = recovery_policy::keep_size}};
}

/// What happened, in words.
std::string story_of(virtual_world& world) {
  std::string text;
  for (const virtual_event& one : world.events())
    text += std::to_string(one.at.count()) + ' ' + describe(one.event) + '\n';
  for (const rank self : world.local_ranks())
    for (const launch_record& one : world.script().launches(self))
      text += to_string(self) + ' ' + one.text + ' ' + std::to_string(one.at.time_since_epoch().count()) + '\n';
  return text;
}

} // namespace

TEST_CASE("an ask takes neither time nor a turn, and its reply comes while time passes (BLK-1)", "[testing]") {
  // [ask]
  virtual_world world{4};
  const auto values = make_ranked<float>(world, count); // rank r has r + 1
  const auto reply = world.ask(sums_of(values));
  CHECK_FALSE(reply.is_ready()); // nothing happens by itself
  world.advance(5ms);
  CHECK_THAT(reply, succeeds());
  CHECK(values_of<float>(values[0]) == std::vector<float>(count, 1 + 2 + 3 + 4));
  // [ask]
  const nanoseconds before = world.now();
  const auto second = world.barrier();
  CHECK(world.now() == before);
  CHECK_FALSE(second.is_ready());
  CHECK(code_of([&] { static_cast<void>(second.result()); }) == errc::invalid_argument);
  CHECK(second.get().epoch == epoch{1});
  CHECK(second.answered_at() >= time_point{} + before);
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("a rank that hangs is recovered from, in virtual time (TIM-1, FLT-1)", "[testing]") {
  // [hang]
  virtual_world world{4, {.recovery = {.policy = recovery_policy::keep_size}}};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{2}).operation(5).hang();

  std::vector<virtual_reply> replies;
  for (int i = 0; i < 8; ++i) {
    replies.push_back(world.ask(sums_of(values)));
    world.advance(1ms);
  }
  CHECK_THAT(replies[4], succeeds());
  CHECK_FALSE(replies[5].is_ready());
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(replies[5], has_unknown_outcome());
  CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
  // [hang]
  CHECK(world.now() > 50ms); // limits.hang
  CHECK_THAT(replies[5], !succeeds());
  CHECK(world.script().waiting().empty());
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("a world goes on without a rank, in virtual time, by every rung (FLT-1, EPO-1)", "[testing]") {
  const auto first = GENERATE(recovery_rung::form_beside, recovery_rung::abort_first, recovery_rung::shrink);
  virtual_world world{4, {.recovery = {.policy = recovery_policy::shrink, .first_rung = first}}};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{2}).operation(1).fail();
  CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
  const auto failing = world.ask(sums_of(values));
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(failing, has_unknown_outcome());
  CHECK(world.size() == 3);
  CHECK(world.status().origins == std::vector{rank{0}, rank{1}, rank{3}});
  REQUIRE(world.status().recovery);
  CHECK(world.status().recovery->back().rung == first);
  CHECK_THAT(world.ask(sums_of(values)), fails_with(errc::invalid_argument) && was_rejected()); // of four ranks
  const auto fresh = make_ranked<float>(world, count);
  CHECK_THAT(world.ask(sums_of(fresh)).get(), succeeds());
  CHECK(values_of<float>(fresh[2]) == std::vector<float>(count, 1 + 2 + 3));
  // Of epoch 1, in which there was a rank 3; and in this epoch there is none.
  CHECK_THAT(world.ask(rank{3}, {.what = barrier{}, .epoch = epoch{1}}),
             fails_with(errc::stale_epoch) && was_rejected());
  CHECK_THAT(world.ask(rank{3}, barrier{}), fails_with(errc::stale_epoch) && was_rejected());
  CHECK(code_of([&] { static_cast<void>(world.ask(rank{3}, {.what = barrier{}, .epoch = epoch{2}})); }) ==
        errc::invalid_argument);
  world.end_rank(rank{0}); // again, and to two
  REQUIRE(world.run_until_ready(epoch{3}, 1s));
  CHECK(world.status().origins == std::vector{rank{1}, rank{3}});
  const auto second = std::ranges::find_if(world.events(), [](const virtual_event& one) {
    return one.event.phase == world_phase::rebuilding && one.event.epoch == epoch{2};
  });
  REQUIRE(second != world.events().end());
  REQUIRE(second->event.report);
  CHECK(second->event.report->world_size == 3);
  CHECK(second->event.report->ranks.size() == 3);
  const auto two = make_ranked<float>(world, count);
  CHECK_THAT(world.ask(sums_of(two)).get(), succeeds());
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("where nobody can be blamed a world that may shrink keeps its size", "[testing]") {
  virtual_world world{3,
                      {.recovery = {.policy = recovery_policy::shrink, .first_rung = recovery_rung::shrink},
                       .ordering = ordering::caller}};
  const auto values = make_ranked<float>(world, count);
  auto parts = sums_of(values);
  std::get<all_reduce>(parts[1]).count -= 1; // the ranks disagree, and the communicators find out
  std::vector<virtual_reply> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(world.ask(rank{i}, parts[static_cast<std::size_t>(i)]));
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK(world.size() == 3);
  CHECK_FALSE(world.status().is_degraded());
  CHECK(world.status().recovery->back().rung == recovery_rung::form_beside);
  for (const virtual_reply& one : replies) CHECK_THAT(one, has_unknown_outcome());
}

TEST_CASE("a request out of place that a fault took can be asked again in the next epoch (ONE-2)", "[testing]") {
  virtual_world world{2, {.recovery = {.policy = recovery_policy::keep_size}}};
  // [ask_again]
  const auto inputs = make_ranked<float>(world, count); // rank r has r + 1
  const auto first = world.allocate_all(count * sizeof(float));
  world.script().on(rank{1}).operation(0).fail();
  const auto lost = world.all_reduce(inputs, first, count, dtype::f32, reduction::sum);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(lost, has_unknown_outcome());

  // The inputs are as they were. The results are new, because work of the failed epoch may still write to the first.
  const auto second = world.allocate_all(count * sizeof(float));
  const auto again = world.all_reduce(inputs, second, count, dtype::f32, reduction::sum);
  CHECK(again.get().epoch == epoch{2});
  CHECK(values_of<float>(second[rank{0}]) == std::vector<float>(count, 1 + 2));
  // [ask_again]
}

TEST_CASE("under fail_fast a world fails closed, and can be stopped", "[testing]") {
  virtual_world world{2, {.recovery = {.policy = recovery_policy::fail_fast}}};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(0).fail();
  const auto first = world.ask(sums_of(values));
  REQUIRE(world.run_until([&] { return world.status().phase == world_phase::failed; }, 1s));
  static_cast<void>(first.wait_for(1s)); // the world knows a moment earlier
  CHECK_THAT(first, fails_with(errc::communicator_failed));
  const auto later = world.ask(sums_of(values));
  CHECK_THAT(later, fails_with(errc::world_failed) && was_rejected());
  CHECK(world.stop(1s));
  CHECK(world.status().phase == world_phase::stopped);
}

TEST_CASE("ranks can be asked each by itself, in lanes", "[testing]") {
  virtual_world world{2};
  const auto values = make_ranked<float>(world, count);
  const auto parts = sums_of(values);
  const lane mine = lane::named("testing");
  const auto first = world.ask(rank{0}, {.what = parts[0], .lane = mine});
  world.advance(10ms);
  CHECK_FALSE(first.is_ready()); // its peer has not been asked
  const auto second = world.ask(rank{1}, {.what = parts[1], .lane = mine});
  CHECK_THAT(first.get(), succeeds());
  CHECK_THAT(second.get(), succeeds());
  const auto lonely = world.ask(rank{1}, {.what = parts[1], .deadline = 30ms, .lane = mine});
  world.advance(100ms);
  CHECK_THAT(lonely, fails_with(errc::deadline_exceeded) && was_rejected());
  CHECK(code_of([&] { static_cast<void>(world.ask(rank{2}, barrier{})); }) == errc::invalid_argument);
}

TEST_CASE("host memory is an operand in virtual time too", "[testing]") {
  virtual_world world{2};
  std::vector<buffer> values;
  for (int i = 0; i < 2; ++i) {
    values.push_back(world.allocate_pinned(count * sizeof(float)));
    std::ranges::fill(values.back().host_span<float>(), 3.F);
  }
  CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
  CHECK(values_of<float>(values[1]) == std::vector<float>(count, 6.F));
  const buffer on_device = world.allocate(rank{1}, count * sizeof(float));
  CHECK_THAT(world.copy(rank{1}, values[1], on_device).get(), succeeds());
  CHECK(values_of<float>(on_device) == std::vector<float>(count, 6.F));
}

TEST_CASE("the same calls give the same run, another seed another (DET-1)", "[testing]") {
  const auto play = [](std::optional<std::uint64_t> seed) {
    virtual_options options = keeping_size();
    options.seed = seed;
    virtual_world world{4, options};
    const auto values = make_ranked<float>(world, count);
    world.script().on(rank{1}).operation(3).hang();
    for (int i = 0; i < 6; ++i) {
      static_cast<void>(world.ask(sums_of(values)));
      world.advance(1ms);
    }
    REQUIRE(world.run_until_ready(epoch{2}, 1s));
    return story_of(world);
  };
  CHECK(play(std::nullopt) == play(std::nullopt));
  CHECK(play(7) == play(7));
  CHECK(play(7) != play(8));
}

TEST_CASE("a recovery holds for every schedule that a seed draws", "[testing]") {
  virtual_options options = keeping_size();
  options.seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{20}));
  virtual_world world{3, options};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{0}).operation(2).fail();
  std::vector<virtual_reply> replies;
  for (int i = 0; i < 5; ++i) replies.push_back(world.ask(sums_of(values)));
  REQUIRE(world.run_until_ready(epoch{2}, 2s));
  CHECK_THAT(world.barrier().get(), succeeds());
  for (const virtual_reply& one : replies) CHECK(one.is_ready());
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("time passes as it is told to", "[testing]") {
  virtual_world world{2};
  const nanoseconds before = world.now();
  world.advance(50ms);
  CHECK(world.now() == before + 50ms);
  CHECK_FALSE(world.run_until([] { return false; }, 7ms));
  CHECK(world.now() == before + 57ms);
  world.jump(1h);
  CHECK(world.now() == before + 57ms + 1h);
  CHECK_THAT(world.barrier().get(), succeeds()); // nothing was in flight
}

TEST_CASE("a virtual world tells its events, and when they came", "[testing]") {
  virtual_world world{2};
  REQUIRE(world.stop(1s));
  std::vector<world_phase> phases;
  for (const virtual_event& one : world.events()) phases.push_back(one.event.phase);
  CHECK(phases.front() == world_phase::forming);
  CHECK(phases[1] == world_phase::ready);
  CHECK(phases.back() == world_phase::stopped);
  CHECK_THAT(world.barrier(), was_rejected());
}

TEST_CASE("a world whose actor of a rank is killed has another one in its next epoch", "[testing]") {
  virtual_world world{2, keeping_size()};
  const auto pending = world.ask(rank{0}, barrier{});
  world.end_rank(rank{1});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK(pending.is_ready());
  const auto first = world.ask(rank{0}, {.what = barrier{}, .epoch = epoch{2}});
  const auto second = world.ask(rank{1}, {.what = barrier{}, .epoch = epoch{2}});
  CHECK_THAT(first.get(), succeeds());
  CHECK_THAT(second.get(), succeeds());
}

TEST_CASE("a virtual world that does not form says why", "[testing]") {
  virtual_options options;
  options.script = std::make_shared<fault_script>();
  options.script->on(rank{1}).forming(0).fail(errc::device_failed);
  virtual_world world{2, options};
  CHECK(world.status().phase == world_phase::failed);
  CHECK(world.status().reason.rank == rank{1});
}

TEST_CASE("buffers may outlive their virtual world; until they end there is no other on the thread", "[testing]") {
  std::vector<buffer> values;
  {
    virtual_world world{2};
    values = make_ranked<float>(world, count);
    CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
  }
  CHECK(values_of<float>(values[0]) == std::vector<float>(count, 3.F));
  CHECK(code_of([] { virtual_world another{2}; }) == errc::invalid_argument);
  values.clear();
  virtual_world another{2};
  CHECK(another.status().phase == world_phase::ready);
}

TEST_CASE("a second virtual world, and one of no ranks, are refused; other threads have their own", "[testing]") {
  virtual_world world{2};
  CHECK(code_of([] { virtual_world another{2}; }) == errc::invalid_argument);
  CHECK(code_of([] { virtual_world none{0}; }) == errc::invalid_argument);
  bool served = false;
  std::jthread{[&] {
    virtual_world other{2};
    served = std::holds_alternative<completion>(outcome{other.barrier().get()});
  }}.join();
  CHECK(served);
}

TEST_CASE("a world that is dropped while it hangs ends", "[testing]") {
  std::vector<virtual_reply> replies;
  {
    virtual_world world{2, keeping_size()};
    const auto values = make_ranked<float>(world, count);
    world.script().on(rank{0}).operation(0).hang();
    world.script().on(rank{1}).forming(1).hang();
    replies.push_back(world.ask(sums_of(values)));
    world.advance(60ms); // it is forming again
    CHECK(world.status().phase != world_phase::ready);
  }
  CHECK_THAT(replies[0], has_unknown_outcome());
}

} // namespace troupe::tests::virtual_world_test
