/// The world's decisions, without CAF: which phases follow which, and what is to be done at each step.

#include <troupe/actors/world/request_gate.hpp>
#include <troupe/actors/world/world_state.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tests::world_state_test {

namespace {

using namespace std::chrono_literals;

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};

template <class Effect>
bool has(const world_effects& effects) {
  return std::ranges::any_of(effects, [](const auto& one) { return std::holds_alternative<Effect>(one); });
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
  return {2, {rank{0}, rank{1}}, recovery_terms{.policy = recovery_policy::fail_fast}};
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

TEST_CASE("a refusal after a fault does not state the effect of the fault (ONE-2)", "[actors]") {
  const auto policy = GENERATE(recovery_policy::fail_fast, recovery_policy::keep_size);
  world_state world{1, {rank{0}}, recovery_terms{.policy = policy}};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_fault(epoch{1}, with_unknown_outcome(some_fault)));
  const error refusal = world.admission().refusal;
  CHECK(refusal.effect == effect::rejected);
  CHECK(to_string(refusal).find("a fault") != std::string::npos);
  CHECK(to_string(refusal).find("may have run") == std::string::npos);
}

TEST_CASE("reports of another epoch are fenced out (EPO-1)", "[actors]") {
  world_state world = ready_world();
  CHECK(world.on_fault(epoch{0}, some_fault).empty());
  CHECK(world.on_formed(epoch{2}, some_fault).empty());
  CHECK(world.on_released(epoch{2}, {}).empty());
  CHECK(world.event().phase == world_phase::ready);
  world_request stale = barriers(world);
  stale.epoch = epoch{2};
  CHECK(world.admission().objection_to(stale).code == errc::stale_epoch);
  stale.epoch = epoch{}; // for the present one
  CHECK_FALSE(world.admission().objection_to(stale));
}

TEST_CASE("a stop drains, then releases, then leaves", "[actors]") {
  world_state world = ready_world();
  CHECK(world.on_drained(epoch{1}, {}).empty());
  const auto stop = world.on_stop();
  REQUIRE(has<world_effect::drain>(stop));
  CHECK(at<world_effect::close_gates>(stop) < at<world_effect::drain>(stop)); // not before every gate is closed
  CHECK(world.on_stop().empty());
  CHECK(world.admission().objection_to(barriers(world)).code == errc::stopping);
  CHECK(world.on_drained(epoch{1}, {}).empty());
  CHECK(has<world_effect::release>(world.on_drained(epoch{1}, {})));
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
  CHECK(world.event().phase == world_phase::stopped);
}

TEST_CASE("a stop that cannot drain aborts, and still ends", "[actors]") {
  world_state world = ready_world();
  static_cast<void>(world.on_stop());
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

namespace {

world_state rebuilding_world() {
  world_state world{2, {rank{0}, rank{1}}, recovery_terms{.policy = recovery_policy::keep_size}};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  return world;
}

} // namespace

TEST_CASE("a world that keeps its size forms beside what failed, and aborts that afterwards", "[actors]") {
  world_state world = rebuilding_world();
  const auto fault = world.on_fault(epoch{1}, some_fault);
  CHECK(at<world_effect::close_gates>(fault) < at<world_effect::fail>(fault));
  CHECK(at<world_effect::fail>(fault) < at<world_effect::retire>(fault));
  CHECK(at<world_effect::retire>(fault) < at<world_effect::rebuild_after>(fault));
  CHECK_FALSE(has<world_effect::abort_retired>(fault));
  CHECK(world.event().phase == world_phase::rebuilding);
  CHECK(world.event().reason.text == "a fault");
  CHECK(world.admission().objection_to(barriers(world)).code == errc::rebuilding);
  CHECK(world.on_fault(epoch{1}, some_fault).empty());
  CHECK(world.on_rebuild_due(epoch{0}).empty());
  CHECK(has<world_effect::form>(world.on_rebuild_due(epoch{1})));
  CHECK(world.current_epoch() == epoch{2});
  CHECK(world.on_formed(epoch{1}, {}).empty()); // too late
  CHECK(world.on_formed(epoch{2}, {}).empty());
  const auto ready = world.on_formed(epoch{2}, {});
  CHECK(at<world_effect::announce>(ready) < at<world_effect::abort_retired>(ready));
  CHECK(world.event().phase == world_phase::ready);
  CHECK_FALSE(world.event().reason);
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(world.on_released(epoch{1}, some_fault).empty());
  CHECK_FALSE(world.admission().objection_to(barriers(world)));
}

TEST_CASE("an epoch that fails while it forms is formed again when all of it has been aborted", "[actors]") {
  world_state world = rebuilding_world();
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  static_cast<void>(world.on_rebuild_due(epoch{1}));
  const auto again = world.on_formed(epoch{2}, some_fault);
  CHECK(has<world_effect::abort_retired>(again));
  CHECK_FALSE(has<world_effect::rebuild_after>(again));
  CHECK(world.on_formed(epoch{2}, {}).empty());
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(world.on_released(epoch{2}, {}).empty());
  CHECK(has<world_effect::rebuild_after>(world.on_released(epoch{2}, {})));
  CHECK(has<world_effect::form>(world.on_rebuild_due(epoch{2})));
  static_cast<void>(world.on_formed(epoch{3}, {}));
  CHECK_FALSE(has<world_effect::abort_retired>(world.on_formed(epoch{3}, {})));
  CHECK(world.event().phase == world_phase::ready);
}

TEST_CASE("each failed epoch is aborted, also while the one before is", "[actors]") {
  world_state world = rebuilding_world();
  for (std::uint64_t now = 1; now <= 2; ++now) {
    static_cast<void>(world.on_fault(epoch{now}, some_fault));
    static_cast<void>(world.on_rebuild_due(epoch{now}));
    static_cast<void>(world.on_formed(epoch{now + 1}, {}));
    CHECK(has<world_effect::abort_retired>(world.on_formed(epoch{now + 1}, {})));
  }
}

TEST_CASE("a world past its budget fails closed and leaves when all epochs are released", "[actors]") {
  world_state world{2, {rank{0}, rank{1}}, recovery_terms{.policy = recovery_policy::keep_size, .rebuilds = 1}};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  static_cast<void>(world.on_rebuild_due(epoch{1}));
  const auto last = world.on_formed(epoch{2}, some_fault);
  CHECK(has<world_effect::abort>(last));
  CHECK(has<world_effect::abort_retired>(last));
  CHECK(world.event().phase == world_phase::failed);
  CHECK(world.on_stop().empty());
  CHECK(world.on_released(epoch{2}, {}).empty());
  CHECK(world.on_released(epoch{1}, {}).empty());
  CHECK(world.on_released(epoch{2}, {}).empty()); // all of this epoch's
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
}

TEST_CASE("a stop ends a world between two epochs", "[actors]") {
  world_state world = rebuilding_world();
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  SECTION("before the next begins") {
    CHECK(has<world_effect::abort_retired>(world.on_stop()));
    CHECK(world.on_rebuild_due(epoch{1}).empty());
    CHECK(world.on_released(epoch{1}, {}).empty());
    CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
  }
  SECTION("while the next forms") {
    static_cast<void>(world.on_rebuild_due(epoch{1}));
    const auto stop = world.on_stop();
    CHECK(has<world_effect::abort>(stop));
    CHECK(has<world_effect::abort_retired>(stop));
    for (const epoch one : {epoch{1}, epoch{1}, epoch{2}}) CHECK(world.on_released(one, {}).empty());
    CHECK(has<world_effect::leave>(world.on_released(epoch{2}, {})));
  }
  CHECK(world.event().phase == world_phase::stopped);
  CHECK(world.event().reason.code == errc::stopping); // and not the fault before
}

TEST_CASE("a guided world says to its controller that it leaves before it says that it has stopped", "[actors]") {
  world_state world{2, {rank{0}}, std::nullopt};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formation({.of = epoch{1}, .self = rank{1}, .world_size = 2}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  static_cast<void>(world.on_stop());
  static_cast<void>(world.on_drained(epoch{1}, {}));
  // Whoever waits for the announcement may end the process, which would then count as lost.
  const auto end = world.on_released(epoch{1}, {});
  CHECK(at<world_effect::tell>(end) < at<world_effect::announce>(end));
  CHECK(world.event().phase == world_phase::stopped);
}

namespace {

template <class Effect>
const Effect& the(const world_effects& effects) {
  return std::get<Effect>(effects[at<Effect>(effects)]);
}

} // namespace

TEST_CASE("a guided world asks its controller what hangs before it fails (FLT-1)", "[actors]") {
  const error late{.code = errc::deadline_exceeded, .text = "too late", .rank = rank{1}};
  const error judged{.code = errc::deadline_exceeded, .text = "rank 0 has not launched it", .rank = rank{0}};
  world_state world{2, {rank{0}}, std::nullopt};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formation({.of = epoch{1}, .self = rank{1}, .world_size = 2}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  const auto asked = world.on_fault(epoch{1}, late);
  REQUIRE(asked.size() == 1);
  CHECK(std::get<failed_report>(the<world_effect::tell>(asked).what).why.text == "too late");
  CHECK(world.event().phase == world_phase::ready);
  CHECK(world.on_fault(epoch{1}, late).empty()); // once
  SECTION("the verdict is the reason") {
    const auto failed = world.on_failure({epoch{1}, judged});
    CHECK(has<world_effect::abort_retired>(failed));
    CHECK_FALSE(has<world_effect::tell>(failed));
    CHECK(world.event().reason.text == judged.text);
    static_cast<void>(world.on_formation({.of = epoch{2}, .self = rank{1}, .world_size = 2}));
    static_cast<void>(world.on_formed(epoch{2}, {}));
    CHECK(world.on_fault(epoch{2}, late).size() == 1); // each epoch has its own
  }
  SECTION("another fault does not wait") {
    CHECK(has<world_effect::abort_retired>(world.on_fault(epoch{1}, {.code = errc::device_failed})));
  }
  SECTION("a stop does not wait") {
    CHECK(has<world_effect::abort>(world.on_stop()));
    CHECK(world.event().reason.code == errc::stopping);
  }
}

TEST_CASE("a world that is dismissed between two epochs refuses with its failure, and its sub-worlds end", "[actors]") {
  const error dismissed{.code = errc::world_failed, .text = "the world's controller has given up"};
  world_state world{2, {rank{0}}, std::nullopt};
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formation({.of = epoch{1}, .self = rank{1}, .world_size = 2}));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  const auto lost = world.on_failure({epoch{1}, some_fault});
  CHECK(the<world_effect::close_gates>(lost).reason.code == errc::rebuilding);
  REQUIRE(world.event().phase == world_phase::rebuilding);
  const auto end = world.on_dismissed(dismissed);
  CHECK(at<world_effect::close_gates>(end) < at<world_effect::fail>(end));
  CHECK(at<world_effect::fail>(end) < at<world_effect::announce>(end));
  const error& refusal = the<world_effect::close_gates>(end).reason;
  CHECK(refusal.code == errc::world_failed);
  CHECK(refusal.text.find(dismissed.text) != std::string::npos);
  CHECK(the<world_effect::fail>(end).reason.text == dismissed.text);
  CHECK(the<world_effect::announce>(end).event.phase == world_phase::failed);
  CHECK(the<world_effect::announce>(end).event.reason.text == dismissed.text);
  CHECK_FALSE(has<world_effect::abort>(end)); // only retired pipelines exist, whose abort has begun
  CHECK(world.on_dismissed(dismissed).empty());
  CHECK(world.on_stop().empty());
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
}

namespace {

world_state shrinking_world(recovery_rung first = recovery_rung::form_beside) {
  world_state world{3,
                    {rank{0}, rank{1}, rank{2}},
                    recovery_terms{.policy = recovery_policy::shrink, .rebuilds = 5, .first_rung = first}};
  static_cast<void>(world.begin());
  for (int i = 0; i < 3; ++i) static_cast<void>(world.on_formed(epoch{1}, {}));
  return world;
}

} // namespace

TEST_CASE("a world that shrinks numbers its ranks anew, and says which they were (FLT-1, EPO-1)", "[actors]") {
  world_state world = shrinking_world();
  CHECK(world.event().origins == std::vector{rank{0}, rank{1}, rank{2}});
  CHECK_FALSE(world.event().is_degraded());
  const auto fault = world.on_fault(epoch{1}, some_fault, {rank{1}});
  CHECK(at<world_effect::retire>(fault) < at<world_effect::lose>(fault));
  CHECK(at<world_effect::lose>(fault) < at<world_effect::rebuild_after>(fault));
  CHECK(the<world_effect::announce>(fault).event.world_size == 3); // the epoch that has failed
  const auto& lost = the<world_effect::lose>(fault);
  CHECK(lost.ranks == std::vector{rank{1}});
  CHECK(lost.reason.code == errc::rank_lost);
  CHECK(lost.reason.epoch == epoch{2});
  CHECK(lost.reason.text.find("continues with 2 ranks from epoch 2 on") != std::string::npos);
  static_cast<void>(world.on_rebuild_due(epoch{1}));
  CHECK(world.on_formed(epoch{2}, {}).empty());
  static_cast<void>(world.on_formed(epoch{2}, {}));
  const world_event ready = world.event();
  CHECK(ready.phase == world_phase::ready);
  CHECK(ready.world_size == 2);
  CHECK(ready.local_ranks == std::vector{rank{0}, rank{1}});
  CHECK(ready.origins == std::vector{rank{0}, rank{2}});
  CHECK(ready.is_degraded());
  CHECK(describe(ready).find("degraded: it began with 3, and rank 1 left it after epoch 1; back by form_beside in") !=
        std::string::npos);
  for (int i = 0; i < 3; ++i) CHECK(world.on_released(epoch{1}, {}).empty());
  world_request old_size{{barrier{}, barrier{}, barrier{}}, epoch{2}};
  const error refused = world.admission().objection_to(old_size);
  CHECK(refused.code == errc::invalid_argument);
  CHECK(refused.text.find("has 2 ranks, no longer the 3") != std::string::npos);
  CHECK_FALSE(world.admission().objection_to({{barrier{}, barrier{}}, epoch{2}}));

  SECTION("and shrinks again") {
    static_cast<void>(world.on_fault(epoch{2}, some_fault, {rank{0}}));
    static_cast<void>(world.on_rebuild_due(epoch{2}));
    static_cast<void>(world.on_formed(epoch{3}, {}));
    CHECK(world.event().phase == world_phase::ready);
    CHECK(world.event().origins == std::vector{rank{2}});
    REQUIRE(world.event().lost.size() == 2);
    CHECK(world.event().lost[1].origin == rank{0});
    CHECK(world.event().lost[1].last_in == epoch{2});
    CHECK_FALSE(world.on_fault(epoch{3}, some_fault, {rank{0}}).empty());
    CHECK(world.event().phase == world_phase::failed);
  }
  SECTION("and ends as it is") {
    static_cast<void>(world.on_stop());
    for (int i = 0; i < 2; ++i) static_cast<void>(world.on_drained(epoch{2}, {}));
    CHECK(world.on_released(epoch{2}, {}).empty());
    CHECK(has<world_effect::leave>(world.on_released(epoch{2}, {})));
  }
}

TEST_CASE("each rung that is tried is told with its time and why it was not the last", "[actors]") {
  world_state world = shrinking_world(recovery_rung::shrink);
  static_cast<void>(world.on_fault(epoch{1}, some_fault, {rank{0}}));
  const auto begun = world.on_rebuild_due(epoch{1});
  CHECK(the<world_effect::form>(begun).how == recovery_rung::shrink);
  CHECK(the<world_effect::form>(begun).without == std::vector{rank{0}});
  SECTION("it is ready") {
    for (int i = 0; i < 2; ++i) static_cast<void>(world.on_formed(epoch{2}, {}));
    REQUIRE(world.event().recovery);
    REQUIRE(world.event().recovery->size() == 1);
    CHECK(world.event().recovery->front().rung == recovery_rung::shrink);
    CHECK_FALSE(world.event().recovery->front().failure);
  }
  SECTION("it cannot be had at once") {
    world.fell_back({.code = errc::unsupported, .text = "no such thing"});
    for (int i = 0; i < 2; ++i) static_cast<void>(world.on_formed(epoch{2}, {}));
    REQUIRE(world.event().recovery->size() == 2);
    CHECK(world.event().recovery->front().failure.code == errc::unsupported);
    CHECK(world.event().recovery->back().rung == recovery_rung::form_beside);
    CHECK(describe(world.event()).find("not by shrink in ") != std::string::npos);
  }
  SECTION("it fails later") {
    const auto again = world.on_formed(epoch{2}, some_fault);
    CHECK_FALSE(has<world_effect::lose>(again));
    CHECK_FALSE(has<world_effect::abort_retired>(again)); // beside, once more
    static_cast<void>(world.on_rebuild_due(epoch{2}));
    for (int i = 0; i < 2; ++i) static_cast<void>(world.on_formed(epoch{3}, {}));
    REQUIRE(world.event().recovery->size() == 2);
    CHECK(world.event().recovery->front().failure.text == "a fault");
    CHECK(world.event().origins == std::vector{rank{1}, rank{2}});
  }
}

namespace {

/// A guided world of one local rank, which is rank 1 of 2.
world_state guided_world() {
  return {2, {rank{0}}, std::nullopt};
}
formation_directive formation_of(epoch of, int world_size = 2) {
  return {.of = of, .self = rank{1}, .world_size = world_size};
}
world_state guided_ready_world() {
  world_state world = guided_world();
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formation(formation_of(epoch{1})));
  static_cast<void>(world.on_formed(epoch{1}, {}));
  REQUIRE(world.event().phase == world_phase::ready);
  return world;
}
const quiesce_directive grows{.of = epoch{1}, .why = {.code = errc::rebuilding, .text = "it grows"}};

/// The reason that it gives its controller when it leaves.
error reason_to_leave(const world_effects& end) {
  return std::get<leave_notice>(the<world_effect::tell>(end).what).why;
}

} // namespace

TEST_CASE("a guided world does what its controller directs, and forms the first time like any other", "[actors]") {
  world_state world = guided_world();
  CHECK_FALSE(has<world_effect::form>(world.begin()));
  CHECK(world.on_formed(epoch{0}, {}).empty());
  const auto first = world.on_formation(formation_of(epoch{4}));
  CHECK(world.current_epoch() == epoch{4});
  CHECK_FALSE(has<world_effect::retire>(first));
  CHECK(the<world_effect::form>(first).how == recovery_rung::abort_first);
  CHECK(the<world_effect::form>(first).directive->of == epoch{4});
  CHECK(world.event().origins == std::vector{rank{1}});
  CHECK(world.event().local_ranks == std::vector{rank{1}});
  CHECK(world.is_forming());
  const auto ready = world.on_formed(epoch{4}, {});
  CHECK(std::get<formed_report>(the<world_effect::tell>(ready).what).of == epoch{4});
  CHECK_FALSE(world.event().recovery);
  CHECK(world.on_formation(formation_of(epoch{4})).empty()); // it is there already
  CHECK(world.on_formation(formation_of(epoch{3})).empty());
  CHECK(world.event().phase == world_phase::ready);

  // The report of a failure was lost: the order of the next epoch ends this one.
  formation_directive next = formation_of(epoch{5}, 3);
  next.reason = some_fault;
  const auto again = world.on_formation(next);
  CHECK(at<world_effect::retire>(again) < at<world_effect::abort_retired>(again));
  CHECK(at<world_effect::abort_retired>(again) < at<world_effect::form>(again));
  CHECK(the<world_effect::fail>(again).reason.text == "a fault");
  CHECK(the<world_effect::form>(again).how == recovery_rung::form_beside);
  CHECK(world.event().world_size == 3);
  CHECK(world.event().origins == std::vector{rank{1}});
}

TEST_CASE("a guided world comes to rest, and forms beside what it aborts afterwards", "[actors]") {
  world_state world = guided_ready_world();
  CHECK(world.on_quiesce({.of = epoch{2}, .why = grows.why}).empty());
  const auto resting = world.on_quiesce(grows);
  CHECK(at<world_effect::close_gates>(resting) < at<world_effect::announce>(resting));
  CHECK(at<world_effect::announce>(resting) < at<world_effect::drain>(resting));
  CHECK(the<world_effect::close_gates>(resting).reason.text == "it grows");
  CHECK(world.event().phase == world_phase::rebuilding);
  CHECK(world.event().reason.text == "it grows");
  CHECK(world.on_quiesce(grows).empty()); // once
  CHECK(world.on_drained(epoch{2}, {}).empty());
  const auto quiet = world.on_drained(epoch{1}, {});
  CHECK(at<world_effect::fail>(quiet) < at<world_effect::retire>(quiet));
  CHECK(the<world_effect::fail>(quiet).reason.text == "it grows");
  CHECK(std::get<drained_report>(the<world_effect::tell>(quiet).what).of == epoch{1});
  CHECK_FALSE(has<world_effect::abort_retired>(quiet));
  const auto forming = world.on_formation(formation_of(epoch{2}, 3));
  CHECK_FALSE(has<world_effect::retire>(forming));
  CHECK(the<world_effect::form>(forming).how == recovery_rung::form_beside);
  CHECK(has<world_effect::abort_retired>(world.on_formed(epoch{2}, {})));
  REQUIRE(world.event().recovery);
  CHECK(world.event().recovery->size() == 1);
  static_cast<void>(world.on_stop());
  static_cast<void>(world.on_drained(epoch{2}, {}));
  CHECK(world.on_released(epoch{2}, {}).empty()); // the abort of the first epoch goes on
  CHECK(has<world_effect::leave>(world.on_released(epoch{1}, {})));
}

TEST_CASE("a guided world that changes as planned closes no gate, and its clients need not acknowledge the epoch",
          "[actors][planned][CUT-1]") {
  world_state world = guided_ready_world();
  CHECK(world.unbroken_since() == epoch{1});
  quiesce_directive planned = grows;
  planned.is_planned = true;
  const auto resting = world.on_quiesce(planned);
  CHECK_FALSE(has<world_effect::close_gates>(resting));
  CHECK_FALSE(has<world_effect::announce>(resting));
  CHECK(has<world_effect::drain>(resting));
  CHECK(world.is_held());
  SECTION("unless the next epoch fails before this process is directed to form it") {
    static_cast<void>(world.on_drained(epoch{1}, {}));
    CHECK(has<world_effect::end_hold>(world.on_failure({epoch{3}, some_fault})));
    CHECK_FALSE(world.is_held());
    static_cast<void>(world.on_formation(formation_of(epoch{4}, 3)));
    CHECK_FALSE(the<world_effect::adopt>(world.on_formed(epoch{4}, {})).continues);
    CHECK(world.unbroken_since() == epoch{4});
  }
  SECTION("and goes on in the next epoch") {
    const auto quiet = world.on_drained(epoch{1}, {});
    CHECK_FALSE(has<world_effect::fail>(quiet)); // it would refuse what is held
    CHECK(at<world_effect::retire>(quiet) < at<world_effect::tell>(quiet));
    const auto forming = world.on_formation(formation_of(epoch{3}, 3));
    CHECK_FALSE(has<world_effect::announce>(forming));
    const auto ready = world.on_formed(epoch{3}, {});
    CHECK(the<world_effect::adopt>(ready).continues);
    CHECK(at<world_effect::adopt>(ready) < at<world_effect::abort_retired>(ready));
    CHECK_FALSE(world.is_held());
    CHECK(world.unbroken_since() == epoch{1});
    CHECK(world.admission().since == epoch{1});
    // After a fault they must.
    static_cast<void>(world.on_failure({epoch{3}, some_fault}));
    static_cast<void>(world.on_formation(formation_of(epoch{4}, 3)));
    CHECK_FALSE(the<world_effect::adopt>(world.on_formed(epoch{4}, {})).continues);
    CHECK(world.unbroken_since() == epoch{4});
  }
  SECTION("or fails before it is drained") {
    const auto failed = world.on_failure({epoch{1}, some_fault});
    CHECK(has<world_effect::close_gates>(failed));
    CHECK(has<world_effect::fail>(failed));
  }
  SECTION("or fails when it is drained") {
    static_cast<void>(world.on_drained(epoch{1}, {}));
    const auto failed = world.on_failure({epoch{1}, some_fault});
    CHECK(at<world_effect::close_gates>(failed) < at<world_effect::end_hold>(failed));
    CHECK(at<world_effect::end_hold>(failed) < at<world_effect::announce>(failed));
    CHECK(world.event().reason.text == "a fault");
    CHECK(world.on_failure({epoch{1}, some_fault}).empty()); // once
  }
  SECTION("or has a fault when it is drained, with which the next epoch fails") {
    static_cast<void>(world.on_drained(epoch{1}, {}));
    CHECK(world.on_fault(epoch{1}, some_fault).empty());
    const auto failed = world.on_formation(formation_of(epoch{3}, 3));
    CHECK_FALSE(has<world_effect::form>(failed));
    CHECK(at<world_effect::close_gates>(failed) < at<world_effect::end_hold>(failed));
    CHECK(world.event().reason.text == "a fault");
    const auto told = std::get<failed_report>(the<world_effect::tell>(failed).what);
    CHECK(told.of == epoch{3});
    CHECK(told.why.text == "a fault");
    CHECK(world.on_failure({epoch{3}, some_fault}).empty());
    static_cast<void>(world.on_formation(formation_of(epoch{4}, 3)));
    CHECK_FALSE(the<world_effect::adopt>(world.on_formed(epoch{4}, {})).continues);
    CHECK(world.unbroken_since() == epoch{4});
    // It is forgotten with the change.
    planned.of = epoch{4};
    static_cast<void>(world.on_quiesce(planned));
    static_cast<void>(world.on_drained(epoch{4}, {}));
    CHECK(has<world_effect::form>(world.on_formation(formation_of(epoch{5}, 3))));
    static_cast<void>(world.on_formed(epoch{5}, {}));
  }
  SECTION("or cannot form") {
    static_cast<void>(world.on_drained(epoch{1}, {}));
    static_cast<void>(world.on_formation(formation_of(epoch{3}, 3)));
    const auto failed = world.on_formed(epoch{3}, some_fault);
    CHECK(has<world_effect::close_gates>(failed));
    CHECK(has<world_effect::fail>(failed));
  }
  SECTION("or stops while it is drained") {
    const auto stopped = world.on_stop();
    CHECK(at<world_effect::close_gates>(stopped) < at<world_effect::end_hold>(stopped));
    CHECK(world.event().phase == world_phase::stopping);
  }
  SECTION("or stops when it is drained") {
    static_cast<void>(world.on_drained(epoch{1}, {}));
    const auto stopped = world.on_stop();
    CHECK(has<world_effect::end_hold>(stopped));
    CHECK(has<world_effect::abort_retired>(stopped));
  }
  SECTION("or is dismissed") {
    static_cast<void>(world.on_drained(epoch{1}, {}));
    CHECK(has<world_effect::close_gates>(world.on_dismissed(some_fault)));
  }
  CHECK_FALSE(world.is_held());
}

TEST_CASE("a guided world that comes to rest can fail, stop and be dismissed", "[actors]") {
  world_state world = guided_ready_world();
  static_cast<void>(world.on_quiesce(grows));
  SECTION("it cannot drain") {
    const auto failed = world.on_drained(epoch{1}, some_fault);
    CHECK(std::get<failed_report>(the<world_effect::tell>(failed).what).why.text == "a fault");
    CHECK(has<world_effect::abort_retired>(failed));
    CHECK(world.on_drained(epoch{1}, {}).empty());
  }
  SECTION("a fault") {
    CHECK(has<world_effect::abort_retired>(world.on_fault(epoch{1}, some_fault)));
    CHECK(world.event().reason.text == "a fault");
  }
  SECTION("its controller says that it has failed") {
    CHECK(world.on_failure({epoch{2}, some_fault}).empty());
    CHECK(has<world_effect::abort_retired>(world.on_failure({epoch{1}, some_fault})));
    CHECK(world.on_failure({epoch{1}, some_fault}).empty());
  }
  SECTION("it stops") {
    const auto stop = world.on_stop();
    CHECK(the<world_effect::announce>(stop).event.phase == world_phase::stopping);
    CHECK_FALSE(the<world_effect::announce>(stop).event.reason);
    CHECK_FALSE(has<world_effect::drain>(stop)); // it does so already
    CHECK(world.on_formation(formation_of(epoch{2})).empty());
    CHECK(has<world_effect::release>(world.on_drained(epoch{1}, {})));
    CHECK_FALSE(reason_to_leave(world.on_released(epoch{1}, {})));
  }
  SECTION("it is dismissed") {
    CHECK(has<world_effect::abort>(world.on_dismissed(some_fault)));
    CHECK(world.event().phase == world_phase::failed);
    static_cast<void>(world.on_released(epoch{1}, {}));
    CHECK(reason_to_leave(world.on_stop()).text == "a fault");
  }
}

TEST_CASE("a guided world that fails reports it, and who is to blame", "[actors]") {
  world_state world = guided_world();
  static_cast<void>(world.begin());
  static_cast<void>(world.on_formation(formation_of(epoch{1})));
  const auto failed = world.on_formed(epoch{1}, some_fault, {rank{0}});
  const auto report = std::get<failed_report>(the<world_effect::tell>(failed).what);
  CHECK(report.of == epoch{1});
  CHECK(report.why.text == "a fault");
  CHECK(report.blamed == std::vector{rank{0}});
  CHECK_FALSE(has<world_effect::rebuild_after>(failed)); // its controller decides when
  CHECK(at<world_effect::abort_retired>(failed) < at<world_effect::tell>(failed));
  CHECK(world.on_rebuild_due(epoch{0}).empty());
  static_cast<void>(world.on_formation(formation_of(epoch{2})));
  CHECK_FALSE(has<world_effect::abort_retired>(world.on_formed(epoch{2}, {})));
  CHECK_FALSE(world.event().recovery); // it has not served before
  const auto asked = world.on_fault(epoch{2}, some_fault, {rank{0}});
  CHECK(std::get<failed_report>(the<world_effect::tell>(asked).what).blamed == std::vector{rank{0}});
}

TEST_CASE("a guided world that is stopped or dismissed before its first epoch ends", "[actors]") {
  world_state world = guided_world();
  static_cast<void>(world.begin());
  SECTION("stopped") {
    const auto end = world.on_stop();
    CHECK(has<world_effect::leave>(end));
    CHECK_FALSE(reason_to_leave(end));
    CHECK_FALSE(world.event().reason);
    CHECK(world.on_formation(formation_of(epoch{1})).empty());
  }
  SECTION("dismissed") {
    const auto end = world.on_dismissed(some_fault);
    CHECK_FALSE(has<world_effect::abort>(end));
    CHECK_FALSE(has<world_effect::abort_retired>(end));
    CHECK(world.event().phase == world_phase::failed);
    CHECK(world.on_formation(formation_of(epoch{1})).empty());
    CHECK(reason_to_leave(world.on_stop()).text == "a fault");
    CHECK(world.on_dismissed(some_fault).empty());
  }
  CHECK(world.event().phase == world_phase::stopped);
}

TEST_CASE("a guided world that is dismissed while it serves aborts, and one that stops fails with what it hears",
          "[actors]") {
  world_state world = guided_ready_world();
  SECTION("dismissed") {
    CHECK(has<world_effect::abort>(world.on_dismissed(some_fault)));
    CHECK(world.on_dismissed(some_fault).empty());
  }
  SECTION("the controller reports a failure while it drains") {
    static_cast<void>(world.on_stop());
    CHECK(world.on_failure({epoch{1}, some_fault}).empty()); // it does not serve any more
    CHECK(has<world_effect::abort>(world.on_fault(epoch{1}, some_fault)));
  }
  SECTION("the controller reports a failure while maintenance delays the stop") {
    world.on_maintenance_asked();
    CHECK(world.on_stop().empty());
    CHECK(has<world_effect::abort>(world.on_failure({epoch{1}, some_fault})));
  }
  CHECK(world.event().phase == world_phase::failed);
}

TEST_CASE("a world says why it was stopped before it could serve again", "[actors]") {
  world_state rebuilt = rebuilding_world();
  static_cast<void>(rebuilt.on_fault(epoch{1}, some_fault));
  static_cast<void>(rebuilt.on_stop());
  CHECK(rebuilt.event().phase == world_phase::failed);
  CHECK(rebuilt.event().reason.text.starts_with("the world was stopped while it was rebuilt after "));
  CHECK(rebuilt.event().reason.text.find("a fault") != std::string::npos);
  world_state forming = two_ranks();
  static_cast<void>(forming.begin());
  static_cast<void>(forming.on_stop());
  CHECK(forming.event().reason.code == errc::stopping);
  CHECK(forming.event().reason.text == "the world was stopped while it was forming");
  world_state unjudged = guided_ready_world();
  static_cast<void>(unjudged.on_fault(epoch{1}, some_fault));
  static_cast<void>(unjudged.on_stop());
  CHECK(unjudged.event().reason.text.starts_with("the world was stopped after "));
  CHECK(unjudged.event().reason.text.find("a fault") != std::string::npos);
}

TEST_CASE("a stop that waits for the abort of an epoch does not wait for its delay", "[actors]") {
  world_state world = rebuilding_world();
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  static_cast<void>(world.on_rebuild_due(epoch{1}));
  static_cast<void>(world.on_formed(epoch{2}, some_fault)); // now both epochs are aborted first
  static_cast<void>(world.on_stop());
  for (const epoch one : {epoch{1}, epoch{1}, epoch{2}}) CHECK(world.on_released(one, {}).empty());
  const auto end = world.on_released(epoch{2}, {});
  CHECK_FALSE(has<world_effect::rebuild_after>(end));
  CHECK(has<world_effect::leave>(end));
}

TEST_CASE("the times of all tries of a recovery are told", "[actors]") {
  const auto time = std::make_shared<manual_clock>();
  world_state world{1, {rank{0}}, recovery_terms{.policy = recovery_policy::keep_size}, time};
  static_cast<void>(world.begin());
  time->advance(1s);
  static_cast<void>(world.on_formed(epoch{1}, {}));
  CHECK_FALSE(world.event().recovery); // it was the first forming
  time->advance(1s);
  static_cast<void>(world.on_fault(epoch{1}, some_fault));
  CHECK_FALSE(world.event().recovery);
  time->advance(5ms);
  static_cast<void>(world.on_rebuild_due(epoch{1}));
  time->advance(7ms);
  static_cast<void>(world.on_formed(epoch{2}, some_fault));
  time->advance(20ms);
  static_cast<void>(world.on_released(epoch{1}, {}));
  static_cast<void>(world.on_released(epoch{2}, {}));
  static_cast<void>(world.on_rebuild_due(epoch{2}));
  static_cast<void>(world.on_formed(epoch{3}, {}));
  const auto tries = world.event().recovery;
  REQUIRE(tries);
  REQUIRE(tries->size() == 2);
  CHECK(tries->front().took == 12ms);
  CHECK(tries->front().failure.text == "a fault");
  CHECK(tries->back().took == 20ms);
  CHECK_FALSE(tries->back().failure);
  CHECK(tries->back().rung == recovery_rung::abort_first);

  // The same under a controller.
  world_state guided{2, {rank{0}}, std::nullopt, time};
  static_cast<void>(guided.begin());
  static_cast<void>(guided.on_formation(formation_of(epoch{1})));
  static_cast<void>(guided.on_formed(epoch{1}, {}));
  static_cast<void>(guided.on_failure({epoch{1}, some_fault}));
  time->advance(3ms);
  static_cast<void>(guided.on_formation(formation_of(epoch{2})));
  static_cast<void>(guided.on_failure({epoch{2}, some_fault}));
  time->advance(4ms);
  static_cast<void>(guided.on_formation(formation_of(epoch{3})));
  static_cast<void>(guided.on_formed(epoch{3}, {}));
  REQUIRE(guided.event().recovery);
  REQUIRE(guided.event().recovery->size() == 2);
  CHECK(guided.event().recovery->front().took == 3ms);
  CHECK(guided.event().recovery->back().took == 4ms);
}

TEST_CASE("pieces of maintenance are done one at a time, and a stop waits for them", "[actors]") {
  world_state world = ready_world();
  CHECK(world.on_maintained(epoch{1}, {}).empty()); // nothing is due
  CHECK(world.on_maintenance_over().empty());
  world.on_maintenance_asked();
  world.on_maintenance_asked();
  CHECK(has<world_effect::maintain>(world.on_maintenance_due()));
  CHECK(world.on_maintenance_due().empty()); // its turn comes
  CHECK(world.on_stop().empty());
  CHECK(world.maintenance_objection(epoch{}).code == errc::stopping);
  CHECK_FALSE(world.admission().refusal);
  CHECK(world.on_maintained(epoch{2}, {}).empty());
  CHECK(world.on_maintained(epoch{1}, {}).empty());
  CHECK(has<world_effect::maintained>(world.on_maintained(epoch{1}, {})));
  CHECK(has<world_effect::maintain>(world.continue_maintenance())); // another step of the same piece
  CHECK(world.on_maintained(epoch{1}, {}).empty());
  CHECK(has<world_effect::maintained>(world.on_maintained(epoch{1}, {})));
  const auto second = world.on_maintenance_over();
  CHECK(has<world_effect::maintain>(second));
  CHECK_FALSE(has<world_effect::drain>(second));
  CHECK(has<world_effect::drain>(world.on_maintenance_over()));
  CHECK(world.event().phase == world_phase::stopping);
  CHECK(world.on_maintained(epoch{1}, {}).empty());
}

TEST_CASE("maintenance that is refused delays a stop no longer, and what is due goes on", "[actors]") {
  world_state world = ready_world();
  CHECK_FALSE(world.maintenance_objection(epoch{1}));
  CHECK_FALSE(world.maintenance_objection(epoch{}));
  CHECK(world.maintenance_objection(epoch{2}).code == errc::stale_epoch);
  world.on_maintenance_asked();
  CHECK(world.on_maintenance_refused().empty()); // it serves
  world.on_maintenance_asked();
  world.on_maintenance_asked();
  CHECK(has<world_effect::maintain>(world.on_maintenance_due()));
  CHECK(world.on_stop().empty());
  CHECK(world.on_maintenance_refused().empty());
  CHECK(world.on_maintenance_refused().empty()); // the one that is due is not refused
  CHECK(has<world_effect::drain>(world.on_maintenance_over()));
}

TEST_CASE("maintenance that fails is a fault, and a fault drops all of it", "[actors]") {
  world_state world = rebuilding_world();
  CHECK_FALSE(has<world_effect::drop_maintenance>(rebuilding_world().on_fault(epoch{1}, some_fault)));
  world.on_maintenance_asked();
  world.on_maintenance_asked();
  static_cast<void>(world.on_maintenance_due());
  const auto failed = world.on_maintained(epoch{1}, some_fault);
  CHECK(the<world_effect::drop_maintenance>(failed).reason.code == errc::rebuilding);
  CHECK(world.event().phase == world_phase::rebuilding);
  CHECK(world.maintenance_objection(epoch{}).code == errc::rebuilding);
  CHECK(world.on_maintained(epoch{1}, {}).empty());
  CHECK(world.on_maintenance_over().empty());
  static_cast<void>(world.on_rebuild_due(epoch{1}));
  CHECK(world.maintenance_objection(epoch{}).code == errc::rebuilding); // it has served before
  for (int i = 0; i < 2; ++i) static_cast<void>(world.on_formed(epoch{2}, {}));
  CHECK(has<world_effect::drain>(world.on_stop())); // nothing is left to wait for

  world_state last = ready_world();
  last.on_maintenance_asked();
  CHECK(the<world_effect::drop_maintenance>(last.on_fault(epoch{1}, some_fault)).reason.code == errc::world_failed);
  world_state resting = guided_ready_world();
  resting.on_maintenance_asked();
  CHECK(the<world_effect::drop_maintenance>(resting.on_quiesce(grows)).reason.text == "it grows");
}

TEST_CASE("a world that has not formed yet says so, and one that stops refuses what it is asked", "[actors]") {
  world_state world = two_ranks();
  static_cast<void>(world.begin());
  CHECK(world.admission().refusal.code == errc::world_failed);
  CHECK(world.admission().refusal.text == "the world is still forming: wait until it is ready");
  CHECK(world.admission().local_count == 2);
  CHECK(world.admission().world_size == 2);
  CHECK(world.admission().epoch == epoch{1});
  for (int i = 0; i < 2; ++i) static_cast<void>(world.on_formed(epoch{1}, {}));
  CHECK(world.on_released(epoch{1}, {}).empty()); // nothing is being released
  static_cast<void>(world.on_stop());
  CHECK(world.on_fault(epoch{2}, some_fault).empty());
  for (int i = 0; i < 2; ++i) static_cast<void>(world.on_drained(epoch{1}, {}));
  CHECK(world.on_fault(epoch{1}, some_fault).empty()); // its communicators are being released
  CHECK(world.on_drained(epoch{1}, {}).empty());
  CHECK(world.event().phase == world_phase::stopping);
}

} // namespace troupe::tests::world_state_test
