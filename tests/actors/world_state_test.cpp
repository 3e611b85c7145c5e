/// The world's decisions, without CAF: which phases follow which, and what is to be done at each step.

#include <troupe/actors/world_state.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests {

namespace {

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};

template <class Effect>
bool has(const world_effects& effects) {
  for (const auto& one : effects)
    if (std::holds_alternative<Effect>(one)) return true;
  return false;
}

/// Position of an effect, to compare the order of two.
template <class Effect>
std::size_t at(const world_effects& effects) {
  for (std::size_t i = 0; i < effects.size(); ++i)
    if (std::holds_alternative<Effect>(effects[i])) return i;
  FAIL("the effect is missing");
  return 0;
}

world_state two_ranks() {
  return {2, {rank{0}, rank{1}}};
}

world_state ready_world() {
  world_state world = two_ranks();
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  return world;
}

world_request barriers(const world_state& world) {
  return {{barrier{}, barrier{}}, world.current_epoch()};
}

} // namespace

TEST_CASE("a world is ready when its last rank has formed", "[actors]") {
  world_state world = two_ranks();
  CHECK(has<world_effect::form>(world.begin()));
  CHECK(world.current_epoch() == epoch{1});
  CHECK(world.on_formed(epoch{1}, {}).empty());
  CHECK(world.event().phase == world_phase::forming);
  const auto effects = world.on_formed(epoch{1}, {});
  CHECK(at<world_effect::adopt>(effects) < at<world_effect::announce>(effects));
  CHECK(world.event().phase == world_phase::ready);
}

TEST_CASE("a rank that cannot form fails the world and aborts the others", "[actors]") {
  world_state world = two_ranks();
  static_cast<void>(world.begin());
  const auto effects = world.on_formed(epoch{1}, some_fault);
  CHECK(has<world_effect::abort>(effects));
  CHECK(world.event().phase == world_phase::failed);
  CHECK(world.event().reason.text == "a fault");
  CHECK(world.on_formed(epoch{1}, {}).empty());
}

TEST_CASE("a fault closes the gates and sets the mark before it aborts", "[actors]") {
  world_state world = ready_world();
  const auto effects = world.on_fault(epoch{1}, some_fault);
  CHECK(at<world_effect::close_gates>(effects) < at<world_effect::fail>(effects));
  CHECK(at<world_effect::fail>(effects) < at<world_effect::abort>(effects));
  CHECK(world.admission().objection_to(barriers(world)).code == errc::world_failed);
  CHECK(world.on_fault(epoch{1}, some_fault).empty());
}

TEST_CASE("reports of another epoch are fenced out (EPO-1)", "[actors]") {
  world_state world = ready_world();
  CHECK(world.on_fault(epoch{0}, some_fault).empty());
  CHECK(world.on_formed(epoch{2}, some_fault).empty());
  CHECK(world.on_released(epoch{2}, {}).empty());
  CHECK(world.event().phase == world_phase::ready);
  world_request stale = barriers(world);
  stale.epoch = epoch{0};
  CHECK(world.admission().objection_to(stale).code == errc::stale_epoch);
}

TEST_CASE("a stop drains, then releases, then leaves", "[actors]") {
  world_state world = ready_world();
  CHECK(has<world_effect::close_gates>(world.on_stop()));
  CHECK(world.on_stop().empty());
  CHECK(world.admission().objection_to(barriers(world)).code == errc::stopping);
  CHECK(world.on_drained(epoch{1}, {}).empty()); // not before every gate is closed
  CHECK(world.on_closed(epoch{1}).empty());
  CHECK(has<world_effect::drain>(world.on_closed(epoch{1})));
  CHECK(world.on_drained(epoch{1}, {}).empty());
  CHECK(has<world_effect::release>(world.on_drained(epoch{1}, {})));
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
  CHECK(world.event().phase == world_phase::stopped);
}

TEST_CASE("a stop that cannot drain aborts, and still ends", "[actors]") {
  world_state world = ready_world();
  static_cast<void>(world.on_stop());
  static_cast<void>(world.on_closed(epoch{1}));
  static_cast<void>(world.on_closed(epoch{1}));
  static_cast<void>(world.on_drained(epoch{1}, {}));
  CHECK(has<world_effect::abort>(world.on_drained(epoch{1}, some_fault)));
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, some_fault)));
}

TEST_CASE("a failed world stops when its aborts are over, whichever comes first", "[actors]") {
  world_state world = ready_world();
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  SECTION("the stop comes first") {
    CHECK(world.on_stop().empty());
    static_cast<void>(world.on_released(epoch{1}, {}));
    CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
  }
  SECTION("the aborts end first") {
    static_cast<void>(world.on_released(epoch{1}, {}));
    CHECK(world.on_released(epoch{1}, {}).empty());
    CHECK(has<world_effect::leave>(world.on_stop()));
  }
}

TEST_CASE("a stop while forming aborts what has begun", "[actors]") {
  world_state world = two_ranks();
  static_cast<void>(world.begin());
  CHECK(has<world_effect::abort>(world.on_stop()));
  static_cast<void>(world.on_released(epoch{1}, {}));
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
}

TEST_CASE("requests are judged before they are sent to any rank (ORD-2)", "[actors]") {
  world_state world = ready_world();
  world_request asked = barriers(world);
  CHECK(world.admission().objection_to(asked).code == errc::none);
  asked.parts.pop_back();
  CHECK(world.admission().objection_to(asked).code == errc::invalid_argument);
  asked.parts.emplace_back(all_reduce{});
  CHECK(world.admission().objection_to(asked).code == errc::mismatch);

  world_state part{4, {rank{2}}};
  static_cast<void>(part.begin());
  static_cast<void>(part.on_formed(epoch{1}, {}));
  CHECK(part.admission().objection_to(barriers(part)).code == errc::unsupported);
}

} // namespace troupe::tests
