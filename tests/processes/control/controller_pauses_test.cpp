/// Processes that took a pause of their controller for its loss: they connect again, and are not lost.
#include "support/controller_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace troupe::tests {

namespace {

constexpr session_id spare_link = 19;

/// A world of two that serves, with a spare, whose controller continues after a pause of 15 s.
controller_scene resumed_scene(recovery_policy policy, session_id fallen) {
  controller_scene world{terms_of(2, policy)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(spare_link, 1, [](join_request& asked) { asked.spare = true; });
  world.form({11, 12});
  world.pass(1s, {11, 12, spare_link});
  REQUIRE(world.phase() == control_phase::serving);
  world.all.clear();
  world.now += 15s;
  world.note(world.state.on_session_lost(fallen, session_end::closed, world.now));
  return world;
}

/// The process that was connected through \p before connects through \p link.
void join_again(controller_scene& world, session_id link, session_id before, int place, bool spare = false) {
  world.join(link, place, [&](join_request& asked) {
    asked.who.name = std::to_string(before);
    asked.who.pid = static_cast<std::int64_t>(before);
    asked.spare = spare;
  });
}

} // namespace

TEST_CASE("processes that took the controller's pause for its loss keep their lives and places", "[control]") {
  const recovery_policy policy =
      GENERATE(recovery_policy::keep_size, recovery_policy::shrink, recovery_policy::fail_fast);
  controller_scene world = resumed_scene(policy, 11);
  CHECK(world.phase() == control_phase::rebuilding);
  REQUIRE(world.told<failure_directive>(12).size() == 1);
  CHECK(world.told<failure_directive>(12)[0].why.text ==
        "the connection to process 11 (pid 11 on here) has ended while the controller did not run");
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.note(world.state.on_session_lost(spare_link, session_end::closed, world.now));
  world.pass(1s, {});
  join_again(world, 29, spare_link, 1, true); // it does not take the place of one that comes back
  join_again(world, 22, 12, 1);
  CHECK(world.phase() == control_phase::rebuilding);
  join_again(world, 21, 11, 0);
  REQUIRE(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{2});
  CHECK(world.state.rank_of(21, epoch{2}) == rank{0});
  CHECK(world.state.rank_of(22, epoch{2}) == rank{1});
  world.form({21, 22});
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.count<control_effect::kill_process>() == 0);
  CHECK(world.count<control_effect::request_process>() == 0);
}

TEST_CASE("a process that does not come back after the controller's pause is killed as one that is silent",
          "[control]") {
  controller_scene world = resumed_scene(recovery_policy::shrink, 12);
  world.pass(9700ms, {11, spare_link});
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(world.count<control_effect::kill_process>() == 0);
  world.pass(400ms, {11, spare_link});
  CHECK(world.count<control_effect::kill_process>() == 1);
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(spare_link, epoch{2}) == rank{1});
  world.form({11, spare_link});

  // From now on the end of a connection is the end of its process.
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  CHECK(world.count<control_effect::kill_process>() == 2);
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("under the policy fail_fast a process that does not come back after the controller's pause ends the world",
          "[control]") {
  controller_scene world = resumed_scene(recovery_policy::fail_fast, 12);
  world.pass(10'100ms, {11, spare_link});
  CHECK(world.phase() == control_phase::failed);
}

TEST_CASE("the end of a process that was expected back is believed at once", "[control]") {
  controller_scene world = resumed_scene(recovery_policy::keep_size, 12);
  world.note(world.state.on_process_ended("12", 12, "it was killed", world.now));
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(spare_link, epoch{2}) == rank{1});
  CHECK(world.count<control_effect::kill_process>() == 0);
}

TEST_CASE("another process may take the place of one that was expected back, which is then killed", "[control]") {
  controller_scene world = resumed_scene(recovery_policy::shrink, 12);
  world.join(13, 1);
  CHECK(world.told<join_welcome>(13).size() == 1);
  CHECK(world.count<control_effect::kill_process>() == 1);
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(13, epoch{2}) == rank{1});
}

TEST_CASE("a process that joins again before its connection has ended keeps its place", "[control]") {
  controller_scene world{terms_of(2, recovery_policy::shrink)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(spare_link, 1, [](join_request& asked) { asked.spare = true; });
  world.form({11, 12});
  join_again(world, 22, 12, 1);
  REQUIRE(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{2});
  CHECK(world.state.rank_of(22, epoch{2}) == rank{1});
  CHECK_FALSE(world.state.rank_of(spare_link, epoch{2}));
  CHECK(world.told<fence_notice>(12).size() == 1);
}

TEST_CASE("under the policy fail_fast another process that takes the place of one that was expected back is refused, "
          "because the world has ended",
          "[control]") {
  controller_scene world = resumed_scene(recovery_policy::fail_fast, 12);
  world.join(13, 1);
  CHECK(world.phase() == control_phase::failed);
  CHECK(world.told<join_welcome>(13).empty());
  REQUIRE(world.told<join_refusal>(13).size() == 1);
  CHECK(world.told<join_refusal>(13).front().why.code == errc::world_failed);
  for (const session_id one : {session_id{11}, spare_link}) {
    CHECK(world.told<stop_directive>(one).size() == 1);
    CHECK(world.count<control_effect::end>() == 0);
    world.say(one, leave_notice{});
  }
  CHECK(world.count<control_effect::end>() == 1);
}

TEST_CASE("after a pause too short for anybody to doubt the controller the end of a connection is believed",
          "[control]") {
  for (const auto pause : {4'900ms, 5'500ms}) { // processes take silence of 10 s for the loss of the controller
    CAPTURE(pause.count());
    controller_scene world{terms_of(2)};
    world.join(11, 0);
    world.join(12, 1);
    world.form({11, 12});
    world.pass(1s, {11, 12});
    world.now += pause;
    world.note(world.state.on_tick(world.now));
    world.note(world.state.on_session_lost(12, session_end::closed, world.now));
    CHECK(world.count<control_effect::kill_process>() == (pause < 5s ? 1 : 0));
    CHECK(world.told<failure_directive>(11).size() == 1);
  }
}

} // namespace troupe::tests
