/// What comes back with an epoch beside its ranks, each timed by itself. (docs/design/0032-restoration-events.md)
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::tests::restoration_test {

using namespace troupe::testing;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t count = 16;

virtual_options keeping_size() {
  return {.recovery = {.policy = recovery_policy::keep_size}};
}

/// One sum over the world's ranks, whatever they are called: memory is its device's.
capture_function sum_in(std::vector<buffer> values) {
  return [values = std::move(values)](rank_capture& one) {
    for (const buffer& mine : values)
      if (mine.where()->id() == one.where()->id()) one.launch(all_reduce{mine, mine, count});
  };
}

/// Lets the world come back from the end of a rank's actor.
void recover(virtual_world& world, rank target = rank{1}) {
  const epoch next{world.epoch().value() + 1};
  world.end_rank(target);
  REQUIRE(world.run_until_ready(next, 1s));
}

std::vector<world_event> ready_events(const virtual_world& world, epoch in) {
  std::vector<world_event> found;
  for (const virtual_event& one : world.events())
    if (one.event.phase == world_phase::ready && one.event.epoch == in) found.push_back(one.event);
  return found;
}

} // namespace

TEST_CASE("a recovery of a world that has nothing else tells of nothing else", "[testing][recovery]") {
  virtual_world world{2, keeping_size()};
  recover(world);
  CHECK(world.status().recovery);
  CHECK_FALSE(world.status().restored);
  world.advance(50ms);
  CHECK(ready_events(world, epoch{2}).size() == 1);
  CHECK_THAT(describe(world.status()), !ContainsSubstring("restoration: "));
}

TEST_CASE("each registration is timed by itself when it is made again", "[testing][recovery]") {
  virtual_world world{3, keeping_size()};
  world.register_memory(4096);
  world.register_memory(4096);
  CHECK_FALSE(world.status().restored);
  world.script().on(rank{1}).in(epoch{2}).registering(0).delay(3ms);
  world.script().on(rank{2}).in(epoch{2}).registering(1).delay(1ms);
  recover(world);
  const auto told = ready_events(world, epoch{2});
  REQUIRE(told.size() == 1); // they were back before the world was ready
  REQUIRE(told[0].restored);
  const restoration& all = *told[0].restored;
  REQUIRE(all.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(all[i].kind == restored_kind::registration);
    CHECK(all[i].number == i);
    CHECK(all[i].state == restored_state::back);
  }
  CHECK(all[0].took == 3ms);
  CHECK(all[1].took == 1ms);
  CHECK(told[0].recovery->back().took >= 4ms); // they are a part of it
  CHECK_THAT(describe(told[0]), ContainsSubstring("restoration: 2 registrations in 4.0 ms (the slowest in 3.0 ms)"));
  CHECK(world.script().waiting().empty());
}

TEST_CASE("registrations are those of the forming that succeeds", "[testing][recovery]") {
  virtual_world world{2, keeping_size()};
  world.register_memory(4096);
  world.script().on(rank{0}).in(epoch{2}).registering(0).fail();
  world.script().on(rank{1}).in(epoch{3}).registering(0).delay(2ms);
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(0).fail();
  const auto reply = world.ask(sums_of(values));
  REQUIRE(world.run_until_ready(epoch{3}, 1s));
  REQUIRE(world.status().restored);
  REQUIRE(world.status().restored->size() == 1);
  CHECK(world.status().restored->front().took == 2ms);
  CHECK(world.status().recovery->size() == 2);
  CHECK_THAT(reply, has_unknown_outcome());
}

TEST_CASE("a forming that is given up and goes on registers what its own ranks had", "[testing][recovery]") {
  virtual_world world{4, {.recovery = {.policy = recovery_policy::shrink}, .deadlines = {.form = 50ms, .abort = 50ms}}};
  world.register_memory(4096);
  world.register_memory(4096);
  world.script().on(rank{2}).forming(1).delay(1s); // longer than a forming may take
  for (int i = 0; i < 3; ++i) world.script().on(rank{i}).aborting(1).delay(2s);
  world.end_rank(rank{1});
  REQUIRE(world.run_until_ready(epoch{3}, 500ms));
  world.end_rank(rank{0});
  REQUIRE(world.run_until_ready(epoch{4}, 200ms));
  REQUIRE(world.size() == 2);
  world.advance(2s); // the forming of epoch 2 goes on, at an index that no rank has any more
  CHECK(world.script().waiting().empty());
  const auto values = make_ranked<float>(world, count);
  CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
}

TEST_CASE("plans come back after the world, each timed by itself, and one event tells of all", "[testing][recovery]") {
  // [restored]
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  const auto first = world.capture(sum_in(values));
  const auto second = world.capture(sum_in(values));
  world.script().on(rank{1}).in(epoch{2}).operation(0).delay(2ms); // the first plan, captured again
  recover(world);
  REQUIRE(world.status().restored);
  CHECK(world.status().restored->front().state == restored_state::under_way);
  world.advance(10ms);
  const restoration& all = *world.status().restored;
  CHECK(all[0].number == first->number());
  CHECK(all[0].took == 2ms);
  CHECK(all[1].took == 0ms); // nothing takes time here that no script delays
  // [restored]
  REQUIRE(all.size() == 2);
  CHECK(all[1].number == second->number());
  for (const restored_part& one : all) {
    CHECK(one.kind == restored_kind::plan);
    CHECK(one.state == restored_state::back);
  }
  const auto told = ready_events(world, epoch{2});
  REQUIRE(told.size() == 2);
  CHECK(sum_of(*told[0].restored, restored_kind::plan).under_way == 2);
  CHECK(sum_of(*told[1].restored, restored_kind::plan).back == 2);
  CHECK_THAT(describe(told[0]), ContainsSubstring("restoration: 2 plans under way"));
  CHECK_THAT(describe(told[1]), ContainsSubstring("2 plans in 2.0 ms (the slowest in 2.0 ms)"));
  CHECK_THAT(world.replay(first).get(), succeeds());
  CHECK_THAT(world.replay(second).get(), succeeds());
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("a plan that nobody has any more is not missed", "[testing][recovery]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  auto gone = world.capture(sum_in(values));
  gone = nullptr;
  recover(world);
  CHECK_FALSE(world.status().restored);
}

TEST_CASE("a plan that cannot be captured again is told of with its reason", "[testing][recovery]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  const auto calls = std::make_shared<int>(0);
  const auto once = world.capture([values, calls, sum = sum_in(values)](rank_capture& one) {
    if (++*calls > 2) throw std::runtime_error{"not again"};
    sum(one);
  });
  const auto sound = world.capture(sum_in(values));
  recover(world);
  world.advance(20ms);
  REQUIRE(world.status().restored);
  const restored_sum plans = sum_of(*world.status().restored, restored_kind::plan);
  CHECK(plans.back == 1);
  CHECK(plans.lost == 1);
  CHECK(plans.under_way == 0);
  const restored_part& lost = world.status().restored->front();
  CHECK(lost.number == once->number());
  CHECK(lost.state == restored_state::lost);
  CHECK(lost.failure.code == errc::cancelled);
  CHECK_THAT(describe(world.status()),
             ContainsSubstring("1 plan in 0.0 ms, 1 plan not (cancelled: ") && ContainsSubstring("not again"));
  CHECK_THAT(world.replay(sound).get(), succeeds());
}

TEST_CASE("restored objects are reported anew for each epoch, after a shrink too", "[testing][recovery]") {
  virtual_world world{3, {.recovery = {.policy = recovery_policy::shrink}}};
  world.register_memory(4096);
  const auto values = make_ranked<float>(world, count);
  const auto by_function = world.capture(sum_in(values));
  const auto by_requests = world.capture(plan_steps{sums_of(values)});
  world.script().on(rank{0}).in(epoch{2}).registering(0).delay(1ms);
  recover(world);
  world.advance(20ms);
  REQUIRE(world.size() == 2);
  REQUIRE(world.status().restored);
  const restoration all = *world.status().restored;
  CHECK(sum_of(all, restored_kind::registration).took == 1ms);
  REQUIRE(all.size() == 3);
  CHECK(all[1].number == by_function->number());
  CHECK(all[1].state == restored_state::back);
  CHECK(all[2].number == by_requests->number());
  CHECK(all[2].state == restored_state::lost); // of three ranks
  recover(world, rank{0});
  REQUIRE(world.size() == 1);
  REQUIRE(world.status().restored);
  CHECK(sum_of(*world.status().restored, restored_kind::registration).took == 0ms);
  CHECK(sum_of(*world.status().restored, restored_kind::registration).back == 1);
}

TEST_CASE("the same recovery gives the same times, for any seed (DET-1)", "[testing][recovery][DET-1]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto play = [seed] {
      virtual_options options = keeping_size();
      options.seed = seed;
      virtual_world world{2, options};
      world.register_memory(4096);
      const auto values = make_ranked<float>(world, count);
      const auto plan = world.capture(sum_in(values));
      recover(world);
      static_cast<void>(
          world.run_until([&] { return sum_of(*world.status().restored, restored_kind::plan).under_way == 0; }, 1s));
      const restored_sum plans = sum_of(*world.status().restored, restored_kind::plan);
      CHECK(plans.back == 1);
      return std::vector{plans.took, sum_of(*world.status().restored, restored_kind::registration).took};
    };
    CHECK(play() == play());
  }
}

TEST_CASE("restored objects are described by kind, with their times", "[recovery]") {
  const error why{.code = errc::out_of_memory, .text = "full"};
  CHECK(describe(restoration{}).empty());
  const restoration all{
      {.kind = restored_kind::registration, .state = restored_state::back, .took = 1'250us},
      {.kind = restored_kind::plan, .number = 7, .state = restored_state::back, .took = 300us},
      {.kind = restored_kind::plan, .number = 8, .state = restored_state::back, .took = 500us},
      {.kind = restored_kind::plan, .number = 9, .state = restored_state::lost, .failure = why},
      {.kind = restored_kind::sub_world, .name = "left", .state = restored_state::back, .took = 40ms}};
  CHECK(describe(all) == "1 registration in 1.2 ms, 2 plans in 0.8 ms (the slowest in 0.5 ms), 1 plan not "
                         "(out_of_memory: full), sub-world left in 40.0 ms");
  CHECK(describe(restoration{
            {.kind = restored_kind::sub_world, .name = "right", .state = restored_state::lost, .failure = why}}) ==
        "sub-world right not (out_of_memory: full)");
  CHECK(to_string(restored_state::under_way) == "under way");
  CHECK(to_string(restored_state::back) == "back");
  CHECK(to_string(restored_state::lost) == "lost");
}

} // namespace troupe::tests::restoration_test
