// The maintenance of a world, by itself: turns, holds, steps and suspensions.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/world_maintenance.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace troupe::tests::world_maintenance_test {

namespace {

struct maintenance_scene : part_scene {
  /// Returns a piece of work that notes its steps and its end in `seen`.
  [[nodiscard]] maintenance work(std::string name, bool restores = false) {
    return {.name = name,
            .restores = restores,
            .step = [this, name](rank_pipeline& one) { seen.push_back(name + " at " + to_string(one.self())); },
            .done = [this, name](const error& why) { seen.push_back(name + (why ? " failed" : " done")); }};
  }
  /// All ranks have done the step: the executor would pass the state's effects on.
  void end_step() {
    for (int i = 0; i < 2; ++i) carry(state.on_maintained(epoch{1}, {}));
    part.end_step();
  }
  void carry(const world_effects& more) { effects.insert(effects.end(), more.begin(), more.end()); }

  world_maintenance part{context()};
  std::vector<std::string> seen;
};

using strings = std::vector<std::string>;

} // namespace

TEST_CASE("maintenance holds the ranks from its turn until a turn behind its work", "[actors][executor][ORD-3]") {
  maintenance_scene one;
  one.part.ask(one.work("work"));
  REQUIRE(one.order->turns.size() == 1);
  CHECK(one.order->turns[0].terms.name == "work");
  CHECK(one.order->turns[0].terms.deadline == one.plan.deadlines.drain + one.plan.deadlines.form);
  CHECK_FALSE(one.is_held()); // until the others have asked
  one.decide_turn();
  CHECK(one.is_held()); // before the executor knows
  auto granted = one.take<maintenance_turn>();
  CHECK_FALSE(granted.refusal);
  one.part.on_turn(granted);
  CHECK(one.has_effect<world_effect::maintain>());
  one.part.run();
  CHECK(one.ran == strings{"work"});
  CHECK(one.seen == strings{"work at 0", "work at 1"});
  one.end_step();
  CHECK(one.seen.back() == "work done");
  REQUIRE(one.order->turns.size() == 1);
  CHECK(one.is_held());
  one.decide_turn();
  CHECK(one.take<maintenance_over>().epoch == epoch{1});
  CHECK_FALSE(one.is_held());
}

TEST_CASE("the steps of one piece of maintenance share a turn", "[actors][executor]") {
  maintenance_scene one;
  one.part.ask(std::deque<maintenance>{one.work("first"), one.work("second")});
  one.decide_turn();
  auto granted = one.take<maintenance_turn>();
  one.part.on_turn(granted);
  one.part.run();
  one.end_step();
  CHECK(one.order->turns.empty());
  CHECK(one.is_held());
  one.part.run();
  one.end_step();
  CHECK(one.order->turns.size() == 1);
  CHECK(one.seen == strings{"first at 0", "first at 1", "first done", "second at 0", "second at 1", "second done"});
}

TEST_CASE("a split hears which worlds its turn has opened", "[actors][executor]") {
  maintenance_scene one;
  std::vector<opened_world> opened;
  maintenance split = one.work("the split");
  split.split = {{.name = "all", .members = {rank{0}, rank{1}}}};
  split.granted = [&opened](std::vector<opened_world> all) { opened = std::move(all); };
  one.part.ask(std::move(split));
  REQUIRE(one.order->turns[0].terms.split.size() == 1);
  one.decide_turn({}, {{.number = 5}});
  auto granted = one.take<maintenance_turn>();
  one.part.on_turn(granted);
  REQUIRE(opened.size() == 1);
  CHECK(opened[0].number == 5);
}

TEST_CASE("maintenance whose turn is refused is answered, and holds nothing", "[actors][executor][ONE-1]") {
  maintenance_scene one;
  one.part.ask(one.work("work"));
  one.decide_turn({.code = errc::deadline_exceeded});
  CHECK_FALSE(one.is_held());
  auto refused = one.take<maintenance_turn>();
  one.part.on_turn(refused);
  CHECK(one.seen == strings{"work failed"});
  CHECK_FALSE(one.has_effect<world_effect::maintain>());
  one.carry(one.state.on_stop());
  CHECK(one.has_effect<world_effect::drain>()); // the stop does not wait for it
}

TEST_CASE("maintenance that is dropped is answered once, wherever it is", "[actors][executor][ONE-1]") {
  maintenance_scene one;
  const error why{.code = errc::rebuilding};
  one.part.ask(one.work("work"));
  SECTION("before its turn") {
    one.part.drop(why);
    CHECK(one.seen == strings{"work failed"});
    one.decide_turn();
    auto late = one.take<maintenance_turn>();
    one.part.on_turn(late);
  }
  SECTION("when the executor does not know yet that the ranks hold") {
    one.decide_turn();
    one.part.drop(why);
    CHECK(one.is_held());
    auto granted = one.take<maintenance_turn>();
    one.part.on_turn(granted);
  }
  SECTION("when it is due") {
    one.decide_turn();
    auto granted = one.take<maintenance_turn>();
    one.part.on_turn(granted);
    one.part.drop(why);
  }
  CHECK(one.seen == strings{"work failed"});
  CHECK_FALSE(one.is_held());
}

TEST_CASE("a world that stops leaves what the turn of a repeated split has opened, and one whose epoch ends does not",
          "[actors][executor][splits][ONE-1]") {
  maintenance_scene one;
  const bool stops = GENERATE(false, true);
  one.part.ask(one.work("the split", true));
  if (stops)
    one.carry(one.state.on_stop());
  else
    one.part.drop({.code = errc::rebuilding}); // its sub-worlds come back in the next epoch
  one.decide_turn({}, {{.number = 5}, {.number = 7}});
  auto granted = one.take<maintenance_turn>();
  one.part.on_turn(granted);
  using declined = std::vector<std::pair<std::uint64_t, errc>>;
  CHECK(one.order->declined == (stops ? declined{{5, errc::stopping}, {7, errc::stopping}} : declined{}));
}

TEST_CASE("a turn of an earlier epoch changes nothing (EPO-1)", "[actors][executor]") {
  maintenance_scene one;
  one.part.ask(one.work("work"));
  maintenance_turn late{.epoch = epoch{0}, .number = 1, .refusal = {}};
  one.part.on_turn(late);
  CHECK(one.effects.empty());
  CHECK(one.seen.empty());
}

TEST_CASE("a restoration waits for its turn without limit, and no stop waits for it", "[actors][executor]") {
  maintenance_scene one;
  one.part.ask(one.work("memory", true));
  CHECK(one.order->turns[0].terms.deadline == nanoseconds::max());
  SECTION("its turn comes after the stop") {
    one.carry(one.state.on_stop());
    CHECK(one.has_effect<world_effect::drain>());
    one.decide_turn();
    auto granted = one.take<maintenance_turn>();
    one.part.on_turn(granted);
    CHECK(one.seen == strings{"memory failed"});
    CHECK_FALSE(one.is_held());
  }
  SECTION("its epoch fails") {
    one.part.drop_restorations();
    one.part.drop({.code = errc::rebuilding});
    CHECK(one.seen.empty()); // the next epoch asks anew
  }
  SECTION("its turn comes") {
    one.decide_turn();
    auto granted = one.take<maintenance_turn>();
    one.part.on_turn(granted);
    CHECK(one.has_effect<world_effect::maintain>());
    one.carry(one.state.on_stop());
    CHECK_FALSE(one.has_effect<world_effect::drain>()); // the ranks work on it
  }
}

TEST_CASE("a suspension holds the ranks between its two halves", "[actors][executor]") {
  maintenance_scene one;
  auto [promise, answer] = make_value_promise<suspension_reply>();
  one.part.suspend({}, promise);
  one.decide_turn();
  auto granted = one.take<maintenance_turn>();
  one.part.on_turn(granted);
  one.part.run();
  CHECK_FALSE(one.part.is_suspended());
  one.end_step();
  CHECK(one.part.is_suspended());
  CHECK(one.announced == 1);
  CHECK(answer.get().bytes == std::vector<std::size_t>{100, 101});
  one.part.run();
  CHECK(one.ran == strings{"the suspension"}); // until it is to end
  CHECK(one.is_held());
  auto [again, refused] = make_value_promise<suspension_reply>();
  one.part.suspend({}, again);
  CHECK(one.failure_of(refused).code == errc::invalid_argument);

  auto [first, resumed] = make_value_promise<resumption_reply>();
  one.part.resume(first);
  CHECK(one.ran == strings{"the suspension", "the resumption"});
  one.part.end_suspension();
  CHECK(one.ran.size() == 2); // it has begun
  one.end_step();
  CHECK_FALSE(one.part.is_suspended());
  CHECK(one.announced == 2);
  CHECK_FALSE(one.failure_of(resumed));
  CHECK(one.log->count("resume") == 2);
}

TEST_CASE("a suspension that is dropped ends with its reason for all that wait", "[actors][executor][ONE-1]") {
  maintenance_scene one;
  auto [promise, answer] = make_value_promise<suspension_reply>();
  one.part.suspend({}, promise);
  auto [waiting, resumed] = make_value_promise<resumption_reply>();
  one.part.resume(waiting);
  one.part.drop({.code = errc::rebuilding});
  CHECK(one.failure_of(answer).code == errc::rebuilding);
  CHECK(one.failure_of(resumed).code == errc::rebuilding);
  CHECK_FALSE(one.part.is_suspended());
  auto [none, nothing] = make_value_promise<resumption_reply>();
  one.part.resume(none);
  CHECK_FALSE(one.failure_of(nothing)); // there is nothing to resume
}

} // namespace troupe::tests::world_maintenance_test
