/// What a controller decides about who is in its world.
#include "support/controller_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tests {

TEST_CASE("a world forms when all its processes have come, in the order of their places", "[control]") {
  controller_scene world{terms_of(3)};
  world.join(11, 2);
  world.join(12, 0);
  CHECK(world.phase() == control_phase::gathering);
  world.join(13, 1);
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.told<id_wanted>(12).size() == 1);
  CHECK(world.told<formation_directive>(11).empty());
  world.say(12, id_offer{epoch{1}, {}});
  REQUIRE(world.told<formation_directive>(11).size() == 1);
  CHECK(world.told<formation_directive>(11).front().self == rank{2});
  CHECK(world.told<formation_directive>(12).front().self == rank{0});
  CHECK(world.told<formation_directive>(13).front().world_size == 3);
  world.say(11, formed_report{epoch{1}});
  world.say(12, formed_report{epoch{1}});
  CHECK(world.phase() == control_phase::forming);
  world.say(12, formed_report{epoch{1}}); // twice is not one more
  CHECK(world.phase() == control_phase::forming);
  world.say(13, formed_report{epoch{1}});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("a process that does not fit is refused with both sides' values", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  const auto refused = [&](session_id link) {
    const auto told = world.told<join_refusal>(link);
    return told.size() == 1 && world.told<join_welcome>(link).empty() ? told.front().why.text : std::string{};
  };
  world.join(21, 0);
  CHECK(refused(21).find("pid 11") != std::string::npos);
  CHECK(refused(21).find("pid 21") != std::string::npos);
  world.join(22, 1, [](join_request& asked) { asked.token = "guess"; });
  CHECK(refused(22).find("token") != std::string::npos);
  CHECK(refused(22).find("secret") == std::string::npos);
  CHECK(refused(22).find("guess") == std::string::npos);
  world.join(23, 1, [](join_request& asked) { asked.facts = {{"troupe", "2"}}; });
  CHECK(refused(23).find("'2'") != std::string::npos);
  CHECK(refused(23).find("'1'") != std::string::npos);
  world.join(24, 1, [](join_request& asked) { asked.facts.push_back({"fusion", "off"}); });
  CHECK(refused(24).find("fusion is 'off'") != std::string::npos);
  world.join(26, 5);
  CHECK(refused(26).find("rank 5") != std::string::npos);
  world.join(27, 1, [](join_request& asked) { asked.wall_clock_ns = nanoseconds{2min}.count(); });
  CHECK(refused(27).find("120000 ms") != std::string::npos);
  world.join(28, 1, [](join_request& asked) {
    asked.local_device = 3;
    asked.device_count = 2;
  });
  CHECK(refused(28).find("device 3") != std::string::npos);
  CHECK(world.phase() == control_phase::gathering);
  world.join(29, 1);
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("two ranks of a world cannot share a GPU", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0, [](join_request& asked) { asked.who.gpu = "0000:1b:00.0"; });
  world.join(12, 1, [](join_request& asked) { asked.who.gpu = "0000:1b:00.0"; });
  REQUIRE(world.told<join_refusal>(12).size() == 1);
  CHECK(world.told<join_refusal>(12).front().why.text.find("1b:00.0") != std::string::npos);
  world.join(13, 1, [](join_request& asked) {
    asked.who.gpu = "0000:1b:00.0";
    asked.who.host = "there";
  });
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("a lost process is followed by a spare at once", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(13, 1, [](join_request& asked) { asked.spare = true; });
  world.form({11, 12});
  REQUIRE(world.phase() == control_phase::serving);
  CHECK(world.state.event().spares == 1);

  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{2});
  REQUIRE(world.told<failure_directive>(11).size() == 1);
  CHECK(world.told<failure_directive>(11).front().why.rank == rank{1});
  CHECK(world.told<failure_directive>(11).front().why.effect == effect::unknown_outcome);
  CHECK(world.count<control_effect::kill_process>() == 1);
  world.form({11, 13});
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.told<formation_directive>(13).front().self == rank{1});
  CHECK(world.told<formation_directive>(13).front().has_newcomers);
}

TEST_CASE("a spare takes no place while its GPU is a rank's", "[control]") {
  controller_scene world{terms_of(2)};
  const auto on = [](const char* gpu, bool spare = false) {
    return [gpu, spare](join_request& asked) {
      asked.who.gpu = gpu;
      asked.spare = spare;
    };
  };
  world.join(11, 0, on("a"));
  world.join(12, 1, on("b"));
  world.join(13, 0, on("a", true));
  world.form({11, 12});
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::rebuilding); // the spare shares a GPU with rank 0
  world.join(14, 1, on("b", true));
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(14, epoch{2}) == rank{1});
  CHECK(world.state.event().spares == 1);
}

TEST_CASE("without a spare a world waits for another process, or goes on smaller and grows back", "[control]") {
  controller_scene waiting{terms_of(3)};
  for (const int place : {0, 1, 2}) waiting.join(11 + static_cast<session_id>(place), place);
  waiting.form({11, 12, 13});
  waiting.note(waiting.state.on_process_ended("12", 12, "killed by signal 9", waiting.now));
  CHECK(waiting.phase() == control_phase::rebuilding);
  waiting.join(14, 1, [](join_request& asked) { asked.attempt = 1; });
  CHECK(waiting.phase() == control_phase::forming);

  controller_scene shrinking{terms_of(3, recovery_policy::shrink)};
  for (const int place : {0, 1, 2}) shrinking.join(11 + static_cast<session_id>(place), place);
  shrinking.form({11, 12, 13});
  shrinking.note(shrinking.state.on_session_lost(12, session_end::closed, shrinking.now));
  REQUIRE(shrinking.phase() == control_phase::forming);
  shrinking.form({11, 13});
  CHECK(shrinking.phase() == control_phase::serving);
  CHECK(shrinking.state.rank_of(13, epoch{2}) == rank{1});
  CHECK(shrinking.told<formation_directive>(13).back().world_size == 2);

  shrinking.join(14, 1, [](join_request& asked) { asked.attempt = 1; });
  REQUIRE(shrinking.phase() == control_phase::quiescing);
  CHECK(shrinking.told<quiesce_directive>(11).size() == 1);
  CHECK(shrinking.told<failure_directive>(11).size() == 1); // of the loss alone
  shrinking.say(11, drained_report{epoch{2}});
  shrinking.say(13, drained_report{epoch{2}});
  REQUIRE(shrinking.phase() == control_phase::forming);
  shrinking.form({11, 13, 14});
  CHECK(shrinking.phase() == control_phase::serving);
  CHECK(shrinking.state.rank_of(13, epoch{3}) == rank{2});
}

TEST_CASE("silence is suspected, and who speaks again is fenced", "[control]") {
  controller_scene world{terms_of(2, recovery_policy::shrink)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.pass(9900ms, {11});
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.told<lease_grant>(11).size() >= 30); // it says that it is alive, too
  world.pass(200ms, {11});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.count<control_effect::kill_process>() == 1);
  const std::size_t before = world.told<fence_notice>(12).size();
  world.say(12, formed_report{epoch{2}});
  CHECK(world.told<fence_notice>(12).size() == before + 1);
  CHECK(world.phase() == control_phase::forming); // what it says does not count
}

TEST_CASE("a controller that was asleep loses nobody whom it could not hear", "[control]") {
  for (const auto pause : {1500ms, 2500ms, 10'000ms, 30'000ms}) {
    controller_scene world{terms_of(2, recovery_policy::shrink)};
    world.join(11, 0);
    world.join(12, 1);
    world.form({11, 12});
    world.pass(1s, {11, 12});
    world.now += pause;
    world.pass(5s, {}); // what they have said meanwhile has not been read yet
    CHECK(world.phase() == control_phase::serving);
    world.pass(9s, {11});
    CHECK(world.count<control_effect::kill_process>() == 1); // of them, one has been silent since
    CHECK(world.phase() == control_phase::forming);
  }
}

TEST_CASE("many short pauses do not hide that a process is silent", "[control]") {
  controller_scene world{terms_of(2, recovery_policy::shrink)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  for (int i = 0; i < 100 && world.phase() == control_phase::serving; ++i) {
    world.now += 1s;
    world.pass(20ms, {11});
  }
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("deadlines of forming and gathering leave out the time in which the controller was asleep", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.pass(50s, {11});
  world.now += 30s;
  world.pass(5s, {11});
  CHECK(world.phase() == control_phase::gathering);
  world.pass(10s, {11});
  CHECK(world.phase() == control_phase::failed);
}

TEST_CASE("a deadline that begins right after a pause is not extended by it", "[control][TIM-1]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.now += 1h; // what has arrived meanwhile is handled before the next tick
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  world.join(12, 1);
  world.pass(55s, {12});
  CHECK(world.phase() == control_phase::gathering);
  world.pass(10s, {12});
  CHECK(world.phase() == control_phase::failed);
}

TEST_CASE("a spare that has stood by for many epochs is a newcomer to the one that it joins", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(13, 1, [](join_request& asked) { asked.spare = true; });
  for (std::uint64_t i = 1; i < 4; ++i) {
    world.form({11, 12});
    world.say(11, failed_report{epoch{i}, {.code = errc::communicator_failed, .text = "it hangs"}, {rank{0}}});
    world.pass(100ms, {11, 12, 13});
  }
  world.form({11, 12});
  CHECK_FALSE(world.told<formation_directive>(11).back().has_newcomers);
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.form({11, 13});
  CHECK(world.told<formation_directive>(11).back().has_newcomers);
}

TEST_CASE("a process that is new to an epoch that never served is as new to the next", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.join(13, 1, [](join_request& asked) { asked.attempt = 1; });
  world.say(11, id_offer{epoch{2}, {}});
  world.say(11, failed_report{epoch{2}, {.code = errc::communicator_failed, .text = "it hangs"}, {rank{0}}});
  world.pass(100ms, {11, 13});
  world.form({11, 13});
  REQUIRE(world.phase() == control_phase::serving);
  CHECK(world.state.current_epoch() == epoch{3});
  CHECK(world.told<formation_directive>(11).back().has_newcomers);
}

TEST_CASE("a rank's own fault lets the same processes form again, after a moment", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.say(11, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(world.told<failure_directive>(12).size() == 1);
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  CHECK(world.told<failure_directive>(12).size() == 1);
  world.pass(100ms, {11, 12});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{2});
}

TEST_CASE("a process that is poisoned is lost to its world", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(13, 0, [](join_request& asked) { asked.spare = true; });
  world.form({11, 12});
  world.say(12, failed_report{epoch{1}, {.code = errc::process_poisoned, .text = "illegal address"}, {}});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.told<failure_directive>(11).front().why.rank == rank{1});
  CHECK(world.state.rank_of(13, epoch{2}) == rank{1});
}

TEST_CASE("losses are bounded by a budget, and then the world ends and says why", "[control]") {
  controller_terms terms = terms_of(2);
  terms.recovery.rebuilds = 3;
  controller_scene world{terms};
  world.join(11, 0);
  world.join(12, 1);
  session_id last = 12;
  for (int i = 0; i < 3; ++i) {
    world.form({11, last});
    REQUIRE(world.phase() == control_phase::serving);
    world.note(world.state.on_session_lost(last, session_end::closed, world.now));
    REQUIRE(world.phase() == control_phase::rebuilding);
    last = 20 + static_cast<session_id>(i);
    world.join(last, 1, [](join_request& asked) { asked.attempt = 1; });
  }
  world.form({11, last});
  world.note(world.state.on_session_lost(last, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::failed);
  REQUIRE(world.told<stop_directive>(11).size() == 1);
  CHECK(world.told<stop_directive>(11).front().why.text.find("3 rebuilds") != std::string::npos);
}

TEST_CASE("phases that take too long end: gathering, forming, quiescing", "[control]") {
  controller_scene gathering{terms_of(2)};
  gathering.join(11, 0);
  gathering.pass(61s, {11});
  CHECK(gathering.phase() == control_phase::failed);
  REQUIRE(gathering.told<stop_directive>(11).size() == 1);
  CHECK(gathering.told<stop_directive>(11).front().why.text.find("place 1") != std::string::npos);

  controller_scene forming{terms_of(2)};
  forming.join(11, 0);
  forming.join(12, 1);
  forming.say(11, id_offer{epoch{1}, {}});
  forming.say(11, formed_report{epoch{1}});
  forming.pass(61s, {11, 12});
  CHECK(forming.state.current_epoch() == epoch{2}); // once more
}

TEST_CASE("the time to gather begins anew with the first who joins after all were lost", "[control]") {
  controller_scene world{terms_of(3)};
  for (const int place : {0, 1, 2}) world.join(11 + static_cast<session_id>(place), place);
  world.form({11, 12, 13});
  REQUIRE(world.phase() == control_phase::serving);
  for (session_id one = 11; one <= 13; ++one)
    world.note(world.state.on_session_lost(one, session_end::closed, world.now));
  world.pass(100s, {}); // longer than the time to gather
  REQUIRE(world.phase() == control_phase::rebuilding);
  world.join(21, 0);
  world.pass(50s, {21});
  CHECK(world.phase() == control_phase::rebuilding);
  world.join(22, 1);
  SECTION("all join in time") {
    world.pass(9s, {21, 22});
    world.join(23, 2);
    world.form({21, 22, 23});
    CHECK(world.phase() == control_phase::serving);
  }
  SECTION("one does not: who joins later does not prolong the time") {
    world.pass(9s, {21, 22});
    CHECK(world.phase() == control_phase::rebuilding);
    world.pass(2s, {21, 22});
    CHECK(world.phase() == control_phase::failed);
  }
}

TEST_CASE("processes that join and are lost again and again do not postpone the end of gathering without limit",
          "[control][TIM-1]") {
  const auto rebuilds = GENERATE(std::size_t{0}, std::size_t{10});
  controller_terms terms = terms_of(2);
  terms.recovery.rebuilds = rebuilds;
  controller_scene world{terms};
  session_id last = 20;
  SECTION("the connection of each ends before the next joins") {
    const auto join_in_vain = [&](nanoseconds alive) {
      world.join(++last, 0);
      world.pass(alive, {last});
      world.note(world.state.on_session_lost(last, session_end::closed, world.now));
    };
    SECTION("within the window") {
      for (int i = 0; i < 11; ++i) join_in_vain(50s);
      REQUIRE(world.phase() == control_phase::gathering);
      world.join(++last, 0);
      REQUIRE(world.phase() == control_phase::failed);
      REQUIRE(world.told<join_refusal>(last).size() == 1);
      CHECK(world.told<join_refusal>(last).front().why.text.find("lost 11 times within 600s") != std::string::npos);
      CHECK(world.count<control_effect::end>() == 1);
    }
    SECTION("further apart") {
      for (int i = 0; i < 30; ++i) {
        join_in_vain(20s);
        world.pass(50s, {});
      }
      CHECK(world.phase() == control_phase::gathering);
    }
  }
  SECTION("one process joins through other connections") {
    const auto same = [](join_request& asked) { asked.who = {.name = "the same", .host = "here", .pid = 1}; };
    for (int i = 0; i < 11; ++i) {
      world.join(++last, 0, same);
      world.pass(50s, {last});
    }
    REQUIRE(world.phase() == control_phase::gathering);
    world.join(++last, 0, same);
    CHECK(world.phase() == control_phase::failed);
    CHECK(world.told<join_welcome>(last).empty());
  }
}

TEST_CASE("attempts to gather are counted anew when an epoch has begun", "[control]") {
  controller_scene world{terms_of(2)};
  session_id last = 20;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) {
      world.join(++last, 0);
      world.note(world.state.on_session_lost(last, session_end::closed, world.now));
    }
    world.join(11, 0);
    world.join(12, 1);
    world.form({11, 12});
    REQUIRE(world.phase() == control_phase::serving);
    for (const session_id one : {session_id{11}, session_id{12}})
      world.note(world.state.on_session_lost(one, session_end::closed, world.now));
    REQUIRE(world.phase() == control_phase::rebuilding);
  }
}

TEST_CASE("processes that have done their work are let go one by one", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.say(11, leave_notice{});
  CHECK(world.phase() == control_phase::finishing);
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  CHECK(world.told<failure_directive>(12).empty());
  CHECK(world.count<control_effect::end>() == 0);
  world.say(12, leave_notice{});
  REQUIRE(world.count<control_effect::end>() == 1);
  for (const auto& one : world.all)
    if (const auto* end = std::get_if<control_effect::end>(&one)) CHECK_FALSE(end->why);
}

TEST_CASE("a rank whose work is done while the world rebuilds is replaced by a spare, or asked for once", "[control]") {
  const bool has_spare = GENERATE(false, true);
  controller_scene world{terms_of(3)};
  for (const int place : {0, 1, 2}) world.join(11 + static_cast<session_id>(place), place);
  world.form({11, 12, 13});
  if (has_spare) world.join(21, 0, [](join_request& asked) { asked.spare = true; });
  const auto wanted = [&] {
    std::vector<int> places;
    for (const auto& one : world.all)
      if (const auto* want = std::get_if<control_effect::request_process>(&one)) places.push_back(want->place);
    return places;
  };
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  world.say(11, leave_notice{});
  CHECK(world.count<control_effect::end>() == 0);
  world.pass(1s, {12, 21});
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(wanted() == (has_spare ? std::vector{0} : std::vector{0, 2})); // the spare has taken the lost one's
}

TEST_CASE("a world has ended well when all ranks have left while it rebuilds, and newcomers are told so", "[control]") {
  controller_scene world{terms_of(3)};
  for (const int place : {0, 1, 2}) world.join(11 + static_cast<session_id>(place), place);
  world.form({11, 12, 13});
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  world.say(11, leave_notice{});
  world.join(23, 2, [](join_request& asked) { asked.attempt = 1; });
  CHECK(world.phase() == control_phase::rebuilding);
  world.say(12, leave_notice{});
  CHECK(world.phase() == control_phase::finishing);
  CHECK(std::ranges::any_of(world.all, [](const auto& one) {
    const auto* const told = std::get_if<control_effect::announce>(&one);
    return told != nullptr && told->event.phase == control_phase::finishing;
  }));
  REQUIRE(world.told<stop_directive>(23).size() == 1);
  CHECK(world.told<stop_directive>(23).front().why.code == errc::stopping);
  REQUIRE(world.count<control_effect::end>() == 1);
  for (const auto& one : world.all)
    if (const auto* end = std::get_if<control_effect::end>(&one)) CHECK_FALSE(end->why);
}

TEST_CASE("a world has ended well when all ranks have left while newcomers form with them, and newcomers are told so",
          "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.say(11, leave_notice{});
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  world.say(12, failed_report{.of = epoch{1}, .why = {.code = errc::communicator_failed}}); // it sees the other's end
  world.join(21, 0, [](join_request& asked) { asked.attempt = 1; });
  world.pass(1s, {12, 21});
  REQUIRE(world.phase() == control_phase::forming);
  world.say(12, leave_notice{}); // else the newcomers would begin the work anew
  CHECK(world.phase() == control_phase::finishing);
  CHECK(world.told<stop_directive>(21).size() == 1);
  CHECK(world.count<control_effect::end>() == 1);
  CHECK(world.told<fence_notice>(12).empty());
}

TEST_CASE("a death while others finish is rebuilt with spares and newcomers, unless the policy is fail_fast",
          "[control]") {
  const auto policy = GENERATE(recovery_policy::keep_size, recovery_policy::fail_fast);
  controller_scene world{terms_of(3, policy)};
  for (const int place : {0, 1, 2}) world.join(11 + static_cast<session_id>(place), place);
  world.form({11, 12, 13});
  world.join(21, 1, [](join_request& asked) { asked.spare = true; });
  world.say(11, leave_notice{});
  REQUIRE(world.phase() == control_phase::finishing);
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  if (policy == recovery_policy::fail_fast) {
    CHECK(world.phase() == control_phase::failed);
    return;
  }
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(world.told<failure_directive>(13).size() == 1);
  world.pass(100ms, {13, 21});
  CHECK(world.count<control_effect::request_process>() == 1); // the spare has one of the two places
  world.join(31, 0, [](join_request& asked) { asked.attempt = 1; });
  CHECK(world.phase() == control_phase::forming);
  world.form({13, 21, 31});
  CHECK(world.phase() == control_phase::serving);
  // The last rank that dies while others have finished leaves nobody to rebuild for.
  world.say(21, leave_notice{});
  world.say(31, leave_notice{});
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::failed);
}

TEST_CASE("a fault that a rank reports while others finish is rebuilt", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  world.say(11, leave_notice{});
  world.say(12, failed_report{.of = epoch{1}, .why = {.code = errc::deadline_exceeded}});
  CHECK(world.phase() == control_phase::rebuilding);
}

// Else a request could be released to one rank and withdrawn at another, and the first would wait for its peers.
TEST_CASE("the common order is closed before ranks are told to come to rest or to end (ORD-1)", "[control]") {
  controller_scene ending{terms_of(2)};
  for (const int place : {0, 1}) ending.join(11 + static_cast<session_id>(place), place);
  ending.form({11, 12});
  ending.all.clear();
  ending.note(ending.state.on_stop(ending.now));
  REQUIRE(ending.told<stop_directive>(12).size() == 1);
  CHECK(ending.closed_before<stop_directive>());

  controller_scene growing{terms_of(2, recovery_policy::shrink)};
  for (const int place : {0, 1}) growing.join(11 + static_cast<session_id>(place), place);
  growing.form({11, 12});
  growing.note(growing.state.on_session_lost(12, session_end::closed, growing.now));
  growing.form({11});
  growing.all.clear();
  growing.join(13, 1, [](join_request& asked) { asked.attempt = 1; });
  REQUIRE(growing.told<quiesce_directive>(11).size() == 1);
  CHECK(growing.closed_before<quiesce_directive>());
}

// Else the end of a process that has left would look like a loss.
TEST_CASE("the order is told of a rank that leaves or is lost, before its process is", "[control][EPO-1]") {
  controller_scene world{terms_of(3)};
  for (const int place : {0, 1, 2}) world.join(11 + static_cast<session_id>(place), place);
  world.form({11, 12, 13});
  world.all.clear();
  world.say(12, leave_notice{});
  REQUIRE(world.count<control_effect::leave_order>() == 1);
  const auto& left = std::get<control_effect::leave_order>(world.all.front());
  CHECK(left.of == epoch{1});
  CHECK(left.self == rank{1});
  CHECK(world.told<stop_directive>(12).size() == 1);
  CHECK(world.count<control_effect::close_order>() == 0);

  world.note(world.state.on_rank_failed(13, epoch{1}, {.code = errc::rank_lost, .text = "it has ended"}, world.now));
  CHECK(world.count<control_effect::leave_order>() == 2);
  CHECK(world.count<control_effect::kill_process>() == 1);
  CHECK(world.told<fence_notice>(13).size() == 1);
  REQUIRE(world.told<failure_directive>(11).size() == 1);
  CHECK(world.told<failure_directive>(11).front().why.rank == rank{2});
  CHECK(world.told<failure_directive>(11).front().why.text.find("it has ended") != std::string::npos);
  world.all.clear();
  world.note(world.state.on_rank_failed(13, epoch{1}, {.code = errc::rank_lost, .text = "again"}, world.now));
  CHECK(world.all.empty());
}

TEST_CASE("a controller that is started again waits for ranks of an epoch of which a process that stood by tells",
          "[control][CUT-1][EPO-1]") {
  controller_scene world{terms_of(2)};
  for (const int place : {0, 1})
    world.join(13 + static_cast<session_id>(place), place, [&](join_request& asked) {
      asked.attempt = 1;
      asked.prepared = epoch{place == 0 ? 4U : 0U};
    });
  REQUIRE(world.phase() == control_phase::gathering); // all places are taken
  SECTION("one returns") {
    world.join(12, 0, [](join_request& asked) {
      asked.spare = true;
      asked.last_epoch = epoch{4};
      asked.last_ranks = {"12", "14"};
    });
    world.pass(20s, {12, 13, 14}); // the other one may serve under its lease
  }
  SECTION("none does in time") {
    world.pass(world.state.terms().gather + 1s, {13, 14});
  }
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{5});
  world.form({13, 14});
  world.join(15, 0, [](join_request& asked) { asked.spare = true; });
  CHECK(world.told<join_welcome>(15).front().latest == epoch{5});
}

TEST_CASE("a controller that only replaced processes have joined waits until ranks can have returned",
          "[control][CUT-1][MEM-1]") {
  const controller_terms terms = terms_of(2);
  controller_scene world{terms};
  const bool is_each_replaced = GENERATE(true, false);
  world.join(13, 0, [](join_request& asked) { asked.attempt = 1; });
  world.join(14, 1, [&](join_request& asked) { asked.attempt = is_each_replaced ? 2 : 0; });
  if (!is_each_replaced) { // no world can have served: one of its places never had another process
    CHECK(world.phase() == control_phase::forming);
    return;
  }
  world.pass(terms.suspicion, {13, 14});
  REQUIRE(world.phase() == control_phase::gathering);
  SECTION("a spare that had taken a place notices the loss of its controller, and returns") {
    world.join(12, 0, [](join_request& asked) {
      asked.spare = true;
      asked.last_epoch = epoch{4};
      asked.last_ranks = {"12"};
    });
    CHECK(world.phase() == control_phase::forming);
    CHECK(world.state.current_epoch() == epoch{5});
  }
  SECTION("none does") {
    world.pass(3 * terms.heartbeat, {13, 14});
    CHECK(world.phase() == control_phase::forming);
    CHECK(world.state.current_epoch() == epoch{1});
  }
}

TEST_CASE("a controller that starts anew goes on from the latest epoch of those who join again", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.join(12, 1, [](join_request& asked) { asked.last_epoch = epoch{6}; });
  CHECK(world.state.current_epoch() == epoch{8});
  CHECK(world.phase() == control_phase::forming);
}

namespace {

/// The commits of one lane that a process knows.
told_commits told_of(std::uint64_t of, std::uint64_t seen, std::uint64_t number) {
  return {.of = epoch{of}, .lanes = {{.where = lane::named("control/steps"), .seen = seen, .number = number}}};
}
/// Returns what the order of the latest epoch was told.
told_commits told_to_order(const controller_scene& world) {
  told_commits last;
  for (const auto& one : world.all)
    if (const auto* opened = std::get_if<control_effect::open_order>(&one)) last = opened->told;
  return last;
}

} // namespace

TEST_CASE("an epoch forms when its ranks have reported the commits that they know (CUT-1)", "[control]") {
  controller_scene world{terms_of(2)};
  world.silent = {12};
  world.join(11, 0, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.join(12, 1, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  REQUIRE(world.told<commits_wanted>(12).size() == 1);
  world.say(11, id_offer{epoch{8}, {}});
  world.say(12, commits_report{epoch{7}, told_of(6, 9, 1)}); // of an earlier forming
  world.say(12, commits_report{epoch{8}, told_of(8, 9, 2)}); // forged: the epoch has not formed
  CHECK(world.told<formation_directive>(11).empty());
  world.say(12, commits_report{epoch{8}, told_of(7, 1, 5)});
  CHECK(world.told<formation_directive>(11).size() == 1);
  CHECK(world.told<formation_directive>(12).size() == 1);
}

TEST_CASE("a process that has just joined has no vote on the last commit (CUT-1)", "[control]") {
  controller_scene world{terms_of(3)};
  world.known[11] = told_of(7, 2, 20);
  world.known[12] = told_of(7, 3, 30);
  world.join(13, 2);
  world.join(11, 0, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.join(12, 1, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.form({11, 12, 13});
  const told_commits known = told_to_order(world);
  CHECK(known.of == epoch{7});
  CHECK(known.has_survivors);
  REQUIRE(known.lanes.size() == 1);
  CHECK(known.lanes.front().number == 20);
}

TEST_CASE("a process's reports are known after its end, and that it has ended (CUT-1)", "[control]") {
  controller_scene world{terms_of(2)};
  world.known[11] = told_of(7, 2, 20);
  world.join(11, 0, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.join(12, 1);
  REQUIRE(world.phase() == control_phase::forming);
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  world.join(13, 0);
  REQUIRE(world.phase() == control_phase::forming);
  world.form({12, 13});
  const told_commits known = told_to_order(world);
  CHECK(known.of == epoch{7});
  CHECK_FALSE(known.has_survivors);
  REQUIRE(known.lanes.size() == 1);
  CHECK(known.lanes.front().number == 20);
}

TEST_CASE("each epoch waits until its ranks have reported their commits anew (CUT-1)", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.form({11, 12});
  REQUIRE(world.phase() == control_phase::serving);
  world.silent = {12};
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(100ms, {11, 12});
  REQUIRE(world.phase() == control_phase::forming);
  world.say(11, id_offer{epoch{2}, {}});
  CHECK(world.told<formation_directive>(11).size() == 1);
  world.say(12, commits_report{epoch{2}, told_of(1, 1, 5)});
  CHECK(world.told<formation_directive>(11).size() == 2);
  CHECK(told_to_order(world).of == epoch{1});
}

TEST_CASE("a process's reports are known after it has left (CUT-1)", "[control]") {
  controller_scene world{terms_of(2)};
  world.known[11] = told_of(7, 2, 20);
  world.join(11, 0, [](join_request& asked) { asked.last_epoch = epoch{7}; });
  world.join(12, 1);
  world.form({11, 12});
  world.say(12, failed_report{epoch{8}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  REQUIRE(world.phase() == control_phase::rebuilding);
  world.say(11, leave_notice{});
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  REQUIRE(world.phase() == control_phase::rebuilding);
  world.pass(100ms, {12});
  world.join(13, 0);
  REQUIRE(world.phase() == control_phase::forming);
  world.form({12, 13});
  const told_commits known = told_to_order(world);
  CHECK(known.of == epoch{7});
  CHECK_FALSE(known.has_survivors);
  REQUIRE(known.lanes.size() == 1);
  CHECK(known.lanes.front().number == 20);
}

TEST_CASE("a new controller says that commits are lost with a process that leaves before it has reported them (CUT-1)",
          "[control]") {
  controller_scene world{terms_of(2)};
  world.silent = {11};
  std::size_t known_lanes = 0;
  const auto later = [](join_request& asked) { asked.last_epoch = epoch{7}; };
  SECTION("while the epoch forms") {
    world.join(12, 1);
    world.join(11, 0, later);
    REQUIRE(world.told<commits_wanted>(11).size() == 1);
    world.say(11, leave_notice{{.code = errc::stopping, .text = "its client has stopped it"}});
  }
  SECTION("while the world gathers") {
    world.join(11, 0, later);
    world.note(world.state.on_session_lost(11, session_end::closed, world.now));
    world.join(12, 1);
  }
  SECTION("though an earlier epoch is known") {
    world.known[12] = told_of(6, 1, 5);
    known_lanes = 1;
    world.join(12, 1, [](join_request& asked) { asked.last_epoch = epoch{6}; });
    world.join(11, 0, later);
    world.say(11, leave_notice{});
  }
  world.join(13, 0);
  REQUIRE(world.phase() == control_phase::forming);
  world.form({12, 13});
  const told_commits known = told_to_order(world);
  CHECK(known.of == epoch{7});
  CHECK(world.state.current_epoch() > epoch{7});
  CHECK_FALSE(known.has_survivors);
  CHECK(known.lanes.size() == known_lanes);
  // Those of the new epoch know its commits.
  const epoch formed = world.state.current_epoch();
  world.known[12] = world.known[13] = told_of(formed.value(), 1, 9);
  world.say(12, failed_report{formed, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(100ms, {12, 13});
  world.form({12, 13});
  CHECK(told_to_order(world).of == formed);
  CHECK(told_to_order(world).has_survivors);
}

TEST_CASE("a process that knows later epochs than a new controller forms the next one with the others", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  REQUIRE(world.state.current_epoch() == epoch{1});
  world.join(13, 1, [](join_request& asked) {
    asked.last_epoch = epoch{7};
    asked.spare = true;
  });
  world.form({11, 12});
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  CHECK(world.state.current_epoch() == epoch{8});
  CHECK(world.state.rank_of(13, epoch{8}) == rank{1});
}

namespace {

/// One message of each kind.
std::vector<process_message> every_message(epoch of) {
  std::vector<process_message> all{join_request{},
                                   heartbeat{},
                                   id_offer{of, {}},
                                   commits_report{of, {.of = epoch{1}}},
                                   formed_report{of},
                                   failed_report{of, {.code = errc::process_poisoned, .text = "a stranger's"}, {}},
                                   drained_report{of},
                                   order_batch{of, "bytes"},
                                   leave_notice{{.code = errc::internal, .text = "a stranger's"}},
                                   attach_request{},
                                   serving_report{of, {rank{0}}, {}},
                                   gate_notice{},
                                   held_notice{of, of.next()},
                                   gate_closed{},
                                   change_request{},
                                   order_held_report{of, of.next(), true}};
  for (std::size_t i = 0; i < std::variant_size_v<process_message>; ++i)
    REQUIRE(std::ranges::count(all, i, &process_message::index) == 1);
  all.emplace_back(leave_notice{});
  all.emplace_back(failed_report{of, {.code = errc::communicator_failed, .text = "a stranger's"}, {rank{0}}});
  return all;
}

/// What a controller knows of its world, as far as it can be seen.
std::string seen_of(const controller_state& state, const std::vector<session_id>& members) {
  std::string text = describe(state.event());
  for (const session_id one : members) {
    text += state.has_member(one) ? " in" : " out";
    if (const auto self = state.rank_of(one, state.current_epoch())) text += std::to_string(self->value());
  }
  return text;
}

/// Whether nobody but \p stranger is told anything, and nothing else is done.
bool only_answers(const control_effects& effects, session_id stranger) {
  return std::ranges::all_of(effects, [&](const auto& one) {
    const auto* sent = std::get_if<control_effect::send>(&one);
    const auto* closed = std::get_if<control_effect::close_session>(&one);
    return (sent != nullptr && sent->to == stranger) || (closed != nullptr && closed->which == stranger);
  });
}

/// Worlds in each phase that strangers may meet, with the links of their processes.
controller_scene world_in(control_phase phase) {
  controller_scene world{terms_of(2, recovery_policy::shrink)};
  if (phase == control_phase::gathering) {
    world.join(11, 0);
    return world;
  }
  world.join(11, 0);
  world.join(12, 1);
  if (phase == control_phase::forming) return world;
  world.form({11, 12});
  if (phase == control_phase::quiescing || phase == control_phase::rebuilding) {
    world.say(12, leave_notice{{.code = errc::internal, .text = "it goes"}});
    if (phase == control_phase::rebuilding) return world; // forming without it
    world.form({11});
    world.join(12, 1);
  }
  if (phase == control_phase::finishing) world.say(12, leave_notice{});
  if (phase == control_phase::stopping) world.note(world.state.on_stop(world.now));
  return world;
}

} // namespace

TEST_CASE("SEC-2: no message of a process that has not been admitted changes anything", "[control]") {
  for (const auto phase :
       {control_phase::gathering, control_phase::forming, control_phase::serving, control_phase::quiescing,
        control_phase::rebuilding, control_phase::finishing, control_phase::stopping}) {
    controller_scene world = world_in(phase);
    const std::string before = seen_of(world.state, {11, 12});
    INFO(before);
    for (const process_message& one : every_message(world.state.current_epoch()))
      for (const session_id stranger : {session_id{0}, session_id{99}, session_id{~0ULL}}) {
        CHECK(only_answers(world.state.on_message(stranger, one, world.now), stranger));
        CHECK(seen_of(world.state, {11, 12}) == before);
      }
    CHECK(only_answers(world.state.on_session_lost(99, session_end::closed, world.now), 99));
    CHECK(seen_of(world.state, {11, 12}) == before);
  }
}

TEST_CASE("SEC-2: the session of a lost process says nothing any more", "[control]") {
  controller_scene world = world_in(control_phase::rebuilding); // 12 is lost
  world.form({11});
  REQUIRE(world.phase() == control_phase::serving);
  const std::string before = seen_of(world.state, {11, 12});
  for (const process_message& one : every_message(world.state.current_epoch())) {
    CHECK(only_answers(world.state.on_message(12, one, world.now), 12));
    CHECK(seen_of(world.state, {11, 12}) == before);
  }
}

TEST_CASE("SEC-2: a request to join that is refused changes nothing, whomever it names", "[control]") {
  for (const auto phase : {control_phase::gathering, control_phase::forming, control_phase::serving,
                           control_phase::quiescing, control_phase::rebuilding}) {
    controller_scene world = world_in(phase);
    const std::string before = seen_of(world.state, {11, 12});
    INFO(before);
    const auto refused = [&](const std::function<void(join_request&)>& change) {
      for (const bool spare : {false, true})
        for (const int attempt : {0, 1})
          for (const std::optional<int> place : {std::optional<int>{}, std::optional<int>{0}, std::optional<int>{1}})
            for (const std::int64_t whom : {11, 12, 99}) {
              join_request asked{.token = "secret",
                                 .who = {.name = std::to_string(whom), .host = "here", .pid = whom},
                                 .facts = {{"troupe", "1"}},
                                 .place = place,
                                 .spare = spare,
                                 .attempt = attempt,
                                 .device_count = 8,
                                 .last_epoch = epoch{1'000}};
              change(asked);
              const auto effects = world.state.on_join(99, asked, world.now, 0);
              CHECK(only_answers(effects, 99));
              CHECK(effects.size() == 2);
              CHECK_FALSE(world.state.has_member(99));
              CHECK(seen_of(world.state, {11, 12}) == before);
            }
    };
    for (const char* const token : {"", "s", "secre", "guess!", "secret ", "secretsecret"})
      refused([&](join_request& asked) { asked.token = token; });
    refused([](join_request& asked) { asked.facts = {{"troupe", "2"}}; });
    refused([](join_request& asked) { asked.wall_clock_ns = nanoseconds{1h}.count(); });
    refused([](join_request& asked) { asked.local_device = 8; });
    refused([](join_request& asked) { asked.place = 2; });
  }
}

TEST_CASE("SEC-2: a stranger that comes first does not decide what the others must have alike", "[control]") {
  controller_scene world{terms_of(1)};
  world.join(99, 0, [](join_request& asked) {
    asked.token = "guess";
    asked.facts = {{"troupe", "of a stranger"}};
  });
  world.join(11, 0);
  CHECK(world.told<join_welcome>(11).size() == 1);
}

TEST_CASE("a process that joins anew takes its own place and GPU again", "[control]") {
  controller_scene world{terms_of(2)};
  const auto on_gpu = [](join_request& asked) {
    asked.who.pid = 1;
    asked.who.name = "the same";
    asked.who.gpu = "0000:01:00.0";
  };
  world.join(11, 0, on_gpu);
  world.join(12, 1);
  world.form({11, 12});
  world.join(13, 0, on_gpu);
  CHECK(world.told<join_welcome>(13).size() == 1);
  CHECK(world.told<fence_notice>(11).size() == 1);
  CHECK_FALSE(world.state.has_member(11));
}

} // namespace troupe::tests
