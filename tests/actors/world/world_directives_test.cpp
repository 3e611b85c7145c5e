/// What a world does that a controller directs, and how pieces of maintenance follow each other, without CAF.
#include <troupe/actors/world/world_state.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <variant>

namespace troupe::tests::world_directives_test {

namespace {

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};

template <class Effect>
bool has(const world_effects& effects) {
  return std::ranges::any_of(effects, [](const auto& one) { return std::holds_alternative<Effect>(one); });
}
template <class Effect>
const Effect& the(const world_effects& effects) {
  for (const auto& one : effects)
    if (const auto* found = std::get_if<Effect>(&one)) return *found;
  FAIL("the effect is missing");
  throw;
}
template <class Message>
bool tells(const world_effects& effects) {
  return std::ranges::any_of(effects, [](const auto& one) {
    const auto* const told = std::get_if<world_effect::tell>(&one);
    return told != nullptr && std::holds_alternative<Message>(told->what);
  });
}

world_state ready_world(recovery_policy policy = recovery_policy::fail_fast) {
  world_state world{2, {rank{0}, rank{1}}, recovery_terms{.policy = policy}};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  return world;
}

formation_directive formation_of(epoch of) {
  return {.of = of, .self = rank{1}, .world_size = 2};
}
world_state guided_world() {
  world_state world{2, {rank{0}}, std::nullopt};
  static_cast<void>(world.begin());
  return world;
}
world_state serving_guided_world() {
  world_state world = guided_world();
  static_cast<void>(world.on_formation(formation_of(epoch{1})));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  REQUIRE(world.event().phase == world_phase::ready);
  return world;
}

} // namespace

TEST_CASE("pieces of maintenance are done one after the other, and a stop waits for all", "[actors]") {
  world_state world = ready_world();
  CHECK(world.on_maintained(epoch{1}, {}).empty()); // nothing is due
  world.on_maintenance_asked();
  world.on_maintenance_asked();
  CHECK(world.on_stop().empty());
  CHECK(world.maintenance_objection(epoch{1}).code == errc::stopping);
  CHECK(has<world_effect::maintain>(world.on_maintenance_due()));
  CHECK(world.on_maintenance_due().empty()); // after the first
  CHECK(world.on_maintained(epoch{2}, {}).empty());
  CHECK(world.on_maintained(epoch{1}, {}).empty());
  CHECK(has<world_effect::maintained>(world.on_maintained(epoch{1}, {})));
  CHECK(has<world_effect::maintain>(world.continue_maintenance())); // another step of the first
  CHECK(world.on_maintained(epoch{1}, {}).empty());
  CHECK(has<world_effect::maintained>(world.on_maintained(epoch{1}, {})));
  CHECK(has<world_effect::maintain>(world.on_maintenance_over())); // the second
  CHECK(world.on_maintained(epoch{1}, {}).empty());
  CHECK(has<world_effect::maintained>(world.on_maintained(epoch{1}, {})));
  CHECK(has<world_effect::drain>(world.on_maintenance_over()));
  CHECK(world.event().phase == world_phase::stopping);
  CHECK(world.on_maintenance_over().empty());
}

TEST_CASE("maintenance that is refused or dropped is not waited for", "[actors]") {
  world_state world = ready_world(recovery_policy::keep_size);
  SECTION("refused") {
    world.on_maintenance_asked();
    world.on_maintenance_asked();
    CHECK(world.on_maintenance_refused().empty()); // no stop waits for it
    CHECK(has<world_effect::maintain>(world.on_maintenance_due()));
    CHECK(world.on_maintenance_refused().empty()); // the other is due already
    CHECK(world.on_stop().empty());
    CHECK(has<world_effect::drain>(world.on_maintenance_over()));
  }
  SECTION("refused while a stop waits") {
    world.on_maintenance_asked();
    CHECK(world.on_stop().empty());
    CHECK(has<world_effect::drain>(world.on_maintenance_refused()));
  }
  SECTION("dropped by a fault") {
    world.on_maintenance_asked();
    static_cast<void>(world.on_maintenance_due());
    const auto fault = world.on_fault(epoch{1}, some_fault);
    CHECK(the<world_effect::drop_maintenance>(fault).reason.code == errc::rebuilding);
    CHECK(world.on_maintained(epoch{1}, {}).empty());
    CHECK(world.on_maintenance_over().empty());
    CHECK(world.maintenance_objection(epoch{1}).code == errc::rebuilding);
    static_cast<void>(world.on_rebuild_due(epoch{1}));
    static_cast<void>(world.on_formed(epoch{2}, {}));
    static_cast<void>(world.on_formed(epoch{2}, {}));
    CHECK_FALSE(has<world_effect::drop_maintenance>(world.on_fault(epoch{2}, some_fault))); // there is none
  }
  SECTION("failed at a rank") {
    world.on_maintenance_asked();
    static_cast<void>(world.on_maintenance_due());
    const auto fault = world.on_maintained(epoch{1}, some_fault);
    CHECK(has<world_effect::retire>(fault));
    CHECK(world.event().reason.text == "a fault");
  }
}

TEST_CASE("maintenance is for the present epoch of a world that serves", "[actors][EPO-1]") {
  world_state world = ready_world();
  CHECK_FALSE(world.maintenance_objection(epoch{1}));
  CHECK_FALSE(world.maintenance_objection(epoch{}));
  CHECK(world.maintenance_objection(epoch{2}).code == errc::stale_epoch);
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  CHECK(world.maintenance_objection(epoch{1}).code == errc::world_failed);
}

TEST_CASE("a guided world forms when it is told to, in each epoch once", "[actors][EPO-1]") {
  world_state world = guided_world();
  CHECK(world.current_epoch() == epoch{});
  CHECK(world.on_failure({epoch{1}, some_fault}).empty());
  CHECK(world.on_quiesce({.of = epoch{}, .why = some_fault}).empty());
  const auto first = world.on_formation(formation_of(epoch{3}));
  CHECK(the<world_effect::announce>(first).event.phase == world_phase::forming);
  CHECK(the<world_effect::announce>(first).event.epoch == epoch{3});
  CHECK(the<world_effect::form>(first).directive->of == epoch{3});
  CHECK_FALSE(has<world_effect::retire>(first)); // there was none
  CHECK(world.event().local_ranks == std::vector{rank{1}});
  CHECK(world.event().origins == std::vector{rank{1}});
  CHECK(world.on_formation(formation_of(epoch{3})).empty());
  CHECK(world.on_formation(formation_of(epoch{2})).empty());
  const auto formed = world.on_formed(epoch{3}, {});
  CHECK(tells<formed_report>(formed));
  CHECK_FALSE(has<world_effect::abort_retired>(formed));
  CHECK_FALSE(world.event().recovery);
  CHECK(world.on_failure({epoch{2}, some_fault}).empty());
  CHECK(world.event().phase == world_phase::ready);
  // The directive to form again may be the first that it hears of a failure.
  formation_directive again = formation_of(epoch{4});
  again.reason = some_fault;
  again.self = rank{0};
  const auto next = world.on_formation(again);
  CHECK(the<world_effect::close_gates>(next).reason.code == errc::rebuilding);
  CHECK(has<world_effect::retire>(next));
  CHECK(has<world_effect::form>(next));
  CHECK(world.event().origins == std::vector{rank{1}}); // of the first epoch
  CHECK(has<world_effect::adopt>(world.on_formed(epoch{4}, {})));
  REQUIRE(world.event().recovery);
  CHECK(world.event().recovery->size() == 1);
}

TEST_CASE("a guided world that is to come to rest reports when it has, and forms beside what it had", "[actors]") {
  world_state world = serving_guided_world();
  const error larger{.code = errc::rebuilding, .text = "more ranks have come"};
  CHECK(world.on_quiesce({.of = epoch{2}, .why = larger}).empty());
  world.on_maintenance_asked();
  const auto rest = world.on_quiesce({.of = epoch{1}, .why = larger});
  CHECK(the<world_effect::close_gates>(rest).reason.text == larger.text);
  CHECK(the<world_effect::announce>(rest).event.phase == world_phase::rebuilding);
  CHECK(the<world_effect::announce>(rest).event.reason.text == larger.text);
  CHECK(has<world_effect::drop_maintenance>(rest));
  CHECK(has<world_effect::drain>(rest));
  CHECK(world.on_quiesce({.of = epoch{1}, .why = larger}).empty());
  CHECK(world.on_drained(epoch{2}, {}).empty());
  SECTION("it comes to rest") {
    const auto quiet = world.on_drained(epoch{1}, {});
    CHECK(has<world_effect::fail>(quiet));
    CHECK(has<world_effect::retire>(quiet));
    CHECK(tells<drained_report>(quiet));
    CHECK(world.on_failure({epoch{1}, some_fault}).empty()); // it waits for the next order already
    CHECK(has<world_effect::form>(world.on_formation(formation_of(epoch{2}))));
    CHECK(has<world_effect::abort_retired>(world.on_formed(epoch{2}, {})));
    CHECK(world.event().phase == world_phase::ready);
    CHECK_FALSE(world.event().reason);
    CHECK(world.on_released(epoch{1}, {}).empty());
  }
  SECTION("it cannot") {
    const auto failed = world.on_drained(epoch{1}, some_fault);
    CHECK(tells<failed_report>(failed));
    CHECK(has<world_effect::abort_retired>(failed));
    CHECK(world.event().phase == world_phase::rebuilding);
  }
  SECTION("a peer fails meanwhile") {
    CHECK(has<world_effect::retire>(world.on_failure({epoch{1}, some_fault})));
    CHECK(world.event().reason.text == "a fault");
    CHECK(world.on_drained(epoch{1}, {}).empty());
  }
  SECTION("it is stopped meanwhile") {
    CHECK(the<world_effect::announce>(world.on_stop()).event.phase == world_phase::stopping);
    CHECK_FALSE(world.event().reason);
    CHECK(world.on_formation(formation_of(epoch{2})).empty());
    CHECK(has<world_effect::release>(world.on_drained(epoch{1}, {})));
    const auto left = world.on_released(epoch{1}, {});
    CHECK(tells<leave_notice>(left));
    CHECK(has<world_effect::leave>(left));
  }
  SECTION("it is dismissed meanwhile") {
    CHECK(has<world_effect::abort>(world.on_dismissed(some_fault)));
    CHECK(world.event().phase == world_phase::failed);
  }
}

TEST_CASE("a guided world that is dismissed heeds no further order", "[actors]") {
  world_state world = guided_world();
  SECTION("before its first epoch") {
    const auto end = world.on_dismissed(some_fault);
    CHECK_FALSE(has<world_effect::abort>(end));
    CHECK_FALSE(has<world_effect::abort_retired>(end));
    CHECK(world.event().phase == world_phase::failed);
    CHECK(has<world_effect::leave>(world.on_stop()));
    CHECK(world.event().phase == world_phase::stopped);
  }
  SECTION("while it serves") {
    static_cast<void>(world.on_formation(formation_of(epoch{1})));
    static_cast<void>(world.on_formed(epoch{1}, {}));
    CHECK(has<world_effect::abort>(world.on_dismissed(some_fault)));
    CHECK(world.on_released(epoch{1}, {}).empty());
    CHECK(has<world_effect::leave>(world.on_stop()));
  }
  SECTION("while it stops, which ends it anyway") {
    static_cast<void>(world.on_formation(formation_of(epoch{1})));
    static_cast<void>(world.on_formed(epoch{1}, {}));
    static_cast<void>(world.on_stop());
    static_cast<void>(world.on_drained(epoch{1}, {}));
    CHECK(world.on_dismissed(some_fault).empty());
    CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
  }
  CHECK(world.on_dismissed(some_fault).empty());
  CHECK(world.on_formation(formation_of(epoch{5})).empty());
  CHECK(world.on_failure({world.current_epoch(), some_fault}).empty());
  CHECK(world.event().phase == world_phase::stopped);
}

} // namespace troupe::tests::world_directives_test
