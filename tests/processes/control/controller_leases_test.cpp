/// Whom a controller waits for before a new epoch may serve (MEM-1).
#include "support/controller_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

constexpr nanoseconds lease = 9s;                   // nine tenths of the suspicion time
constexpr nanoseconds waited = lease + lease / 100; // with the bound for clocks that run apart

/// A world of three that serves since 2 s, and may shrink.
controller_scene serving_scene() {
  controller_scene world{terms_of(3, recovery_policy::shrink)};
  for (const int place : {0, 1, 2}) world.join(11 + static_cast<session_id>(place), place);
  world.form({11, 12, 13});
  world.pass(2s, {11, 12, 13});
  REQUIRE(world.phase() == control_phase::serving);
  world.all.clear();
  return world;
}

/// Returns how long the world waits until it forms, at most a minute.
nanoseconds time_to_form(controller_scene& world, const std::vector<session_id>& alive) {
  const boot_time began = world.now;
  while (world.phase() != control_phase::forming && world.now - began < 1min) world.pass(20ms, alive);
  return world.now - began;
}

/// The process named \p name joins a controller that was started again. It was in epoch \p last, as all of \p ranks.
void return_to(controller_scene& world, session_id link, int name, const std::vector<int>& ranks = {0, 1, 2},
               nanoseconds last_lease = lease, epoch last = epoch{7}) {
  world.join(link, name, [&](join_request& asked) {
    asked.who.name = std::to_string(name);
    asked.last_epoch = last;
    for (const int one : ranks) asked.last_ranks.push_back(std::to_string(one));
    asked.last_lease = last_lease;
  });
}

/// A process joins that a process manager has started again under the name of one that had ended.
void replace(controller_scene& world, session_id link, int name, int attempt = 1) {
  world.join(link, name, [&](join_request& asked) {
    asked.who.name = std::to_string(name);
    asked.attempt = attempt;
  });
}

} // namespace

TEST_CASE("a rank's heartbeat renews its lease, and names itself in the answer (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  CHECK(world.told<join_welcome>(11)[0].grants_leases);
  world.join(12, 1);
  world.join(13, 0, [](join_request& asked) { asked.spare = true; });
  world.say(11, heartbeat{1});
  CHECK(world.told<lease_grant>(11).empty()); // there is nothing to serve before the epoch forms
  world.say(*world.state.session_of(rank{0}), id_offer{epoch{1}, {}});
  REQUIRE(world.told<lease_grant>(11).size() == 1); // behind the directive to form
  CHECK(world.told<lease_grant>(11)[0].number == 1);
  CHECK(world.told<lease_grant>(12)[0].number == 0); // it has sent no heartbeat yet
  for (const session_id one : {11U, 12U}) world.say(one, formed_report{epoch{1}});
  world.say(12, heartbeat{8});
  REQUIRE(world.told<lease_grant>(12).size() == 2);
  const lease_grant granted = world.told<lease_grant>(12)[1];
  CHECK(granted.of == epoch{1});
  CHECK(granted.number == 8);
  CHECK(granted.length == lease);
  world.say(13, heartbeat{5});
  CHECK(world.told<lease_grant>(13).empty()); // a spare serves nothing
}

TEST_CASE("a rank that is answered is sent no heartbeat beside that", "[control][lease]") {
  controller_scene world = serving_scene();
  for (int i = 0; i < 40; ++i) {
    if (i % 10 == 0) world.say(12, heartbeat{1});
    world.pass(20ms, {});
  }
  CHECK(world.told<heartbeat>(11).size() >= 2);
  CHECK(world.told<heartbeat>(12).empty());
}

TEST_CASE("a loss that nothing proves is waited for until the lease has ended (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world = serving_scene();
  world.note(world.state.on_session_lost(12, session_end::broken, world.now));
  CHECK(world.phase() == control_phase::rebuilding);
  const nanoseconds took = time_to_form(world, {11, 13});
  CHECK(took > waited - 20ms); // since the latest grant
  CHECK(took <= waited + 20ms);
  CHECK(world.state.event().ranks == 2);
}

TEST_CASE("a loss that is proven is not waited for", "[control][lease][MEM-1]") {
  enum class proof : std::uint8_t { closed, ended, seen, joined_again, left, poisoned };
  const proof by =
      GENERATE(proof::closed, proof::ended, proof::seen, proof::joined_again, proof::left, proof::poisoned);
  controller_scene world = serving_scene();
  switch (by) {
    case proof::closed: world.note(world.state.on_session_lost(12, session_end::closed, world.now)); break;
    case proof::ended: world.note(world.state.on_process_ended("12", 12, "killed", world.now)); break;
    case proof::seen: world.note(world.state.on_rank_failed(12, epoch{1}, {.code = errc::rank_lost}, world.now)); break;
    case proof::joined_again:
      world.join(22, 1, [](join_request& asked) {
        asked.who.name = "12";
        asked.who.pid = 12;
      });
      break;
    case proof::left: world.say(12, leave_notice{{.code = errc::world_failed, .text = "it gives up"}}); break;
    case proof::poisoned: world.say(12, failed_report{epoch{1}, {.code = errc::process_poisoned}, {}}); break;
  }
  CHECK(time_to_form(world, {11, 13}) == 0ns);
}

TEST_CASE("a process of the same name, host and process id proves nothing about another one",
          "[control][lease][MEM-1]") {
  controller_scene world = serving_scene();
  const bool was_noticed = GENERATE(false, true);
  if (was_noticed) world.note(world.state.on_session_lost(12, session_end::broken, world.now));
  world.join(22, 1, [](join_request& asked) { // the first process of another container
    asked.who.name = "12";
    asked.who.pid = 12;
    asked.who.life = 7;
  });
  CHECK(world.phase() == control_phase::rebuilding);
  const nanoseconds took = time_to_form(world, {11, 13, 22});
  CHECK(took > waited - 20ms);
  CHECK(took <= waited + 20ms);
  CHECK(world.state.event().ranks == 3);
}

TEST_CASE("a controller forgets the processes that it has lost", "[control][lease]") {
  controller_scene world = serving_scene();
  session_id next = 12;
  for (int round = 0; round < 5; ++round) {
    const session_id before = std::exchange(next, static_cast<session_id>(20 + round));
    world.note(world.state.on_session_lost(before, session_end::broken, world.now));
    CHECK(world.state.records_of_others() == 1); // its lease
    world.join(next, 1, [](join_request& asked) { asked.attempt = 1; });
    static_cast<void>(time_to_form(world, {11, 13, next}));
    REQUIRE(world.phase() == control_phase::forming);
    world.form({11, 13, next});
    world.pass(500ms, {11, 13, next});
    CHECK(world.state.records_of_others() == 0);
  }
}

TEST_CASE("a controller that has formed an epoch forgets who has returned to it", "[control][lease]") {
  controller_scene world{terms_of(3)};
  for (const int place : {0, 1}) return_to(world, 11 + static_cast<session_id>(place), place);
  replace(world, 13, 2);
  CHECK(world.state.records_of_others() == 3);
  static_cast<void>(time_to_form(world, {11, 12, 13}));
  REQUIRE(world.phase() == control_phase::forming);
  CHECK(world.state.records_of_others() == 0);
}

TEST_CASE("the proof of a loss ends the wait for its lease (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world = serving_scene();
  world.note(world.state.on_session_lost(12, session_end::broken, world.now));
  world.pass(1s, {11, 13});
  CHECK(world.phase() == control_phase::rebuilding);
  world.note(world.state.on_process_ended("12", 99, "killed", world.now)); // another process of that name
  CHECK(world.phase() == control_phase::rebuilding);
  world.note(world.state.on_process_ended("12", 12, "killed", world.now));
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("a process that has done its work serves until it has closed its connection (MEM-1)",
          "[control][lease][MEM-1]") {
  controller_scene world = serving_scene();
  world.say(12, leave_notice{});
  world.note(world.state.on_process_ended("13", 13, "killed", world.now));
  world.join(32, 1, [](join_request& asked) { asked.attempt = 1; });
  world.join(33, 2, [](join_request& asked) { asked.attempt = 1; });
  world.pass(1s, {11, 32, 33});
  CHECK(world.phase() == control_phase::rebuilding);
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("a process that is silent is waited for no longer than the suspicion time", "[control][lease]") {
  controller_scene world = serving_scene();
  const nanoseconds took = time_to_form(world, {11, 13});
  CHECK(took > 10s - 250ms);
  CHECK(took <= 10s + 100ms);
}

TEST_CASE("a replacement does not serve beside the process that it replaces (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world = serving_scene();
  world.note(world.state.on_session_lost(12, session_end::broken, world.now));
  world.join(32, 1, [](join_request& asked) { asked.attempt = 1; });
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(time_to_form(world, {11, 13, 32}) > waited - 20ms);
  CHECK(world.state.event().ranks == 3);
}

TEST_CASE("a process that is left out of an epoch has said that its earlier ones have ended (MEM-1)",
          "[control][lease][MEM-1]") {
  const bool answers = GENERATE(true, false);
  controller_scene world = serving_scene();
  world.join(14, 1, [](join_request& asked) { asked.spare = true; });
  const auto fail_between = [&](epoch of) {
    for (const session_id one : {11U, 12U, 13U}) {
      const auto self = world.state.rank_of(one, of);
      if (!self) continue;
      if (one == 13)
        world.say(one, formed_report{of});
      else
        world.say(one, failed_report{of,
                                     {.code = errc::communicator_failed, .text = "no way"},
                                     {*world.state.rank_of(one == 11 ? 12 : 11, of)}});
    }
  };
  world.say(11, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it broke"}});
  for (const epoch of : {epoch{2}, epoch{3}}) {
    world.pass(200ms, {11, 12, 13, 14});
    REQUIRE(world.state.current_epoch() == of);
    world.say(*world.state.session_of(rank{0}), id_offer{of, {}});
    if (of == epoch{3} && !answers) world.silent.insert(12); // it is stopped, or cut off
    fail_between(of);
  }
  world.pass(200ms, {11, 13, 14});
  REQUIRE(world.state.current_epoch() == epoch{4});
  REQUIRE_FALSE(world.state.rank_of(12, epoch{4})); // the spare takes its place
  world.all.clear();
  world.say(*world.state.session_of(rank{0}), id_offer{epoch{4}, {}});
  CHECK(world.told<formation_directive>(11).empty() != answers);
  if (answers) return;
  world.pass(waited - 1s, {11, 12, 13, 14}); // its heartbeats renew nothing
  CHECK(world.told<formation_directive>(11).empty());
  world.pass(1s, {11, 12, 13, 14});
  CHECK(world.told<formation_directive>(11).size() == 1);
}

TEST_CASE("a controller that was started again waits for leases that a former one may have granted (MEM-1)",
          "[control][lease][MEM-1]") {
  const nanoseconds granted = GENERATE(nanoseconds{9s}, nanoseconds{20s}); // the former one's may have been longer
  controller_scene world{terms_of(3)};
  world.pass(1s, {});
  return_to(world, 21, 0, {0, 1, 2}, granted);
  return_to(world, 22, 1, {0, 1, 2}, granted);
  world.join(23, 2);
  CHECK(world.phase() == control_phase::gathering);
  const nanoseconds took = time_to_form(world, {21, 22, 23});
  CHECK(took > granted + granted / 100 - 1s - 20ms);
  CHECK(took <= granted + granted / 100 - 1s + 40ms);
  CHECK(world.state.current_epoch() == epoch{8});
}

TEST_CASE("a controller to which all former ranks come back waits for no lease", "[control][lease]") {
  controller_scene world{terms_of(3)};
  for (const int place : {0, 1, 2}) return_to(world, 21 + static_cast<session_id>(place), place);
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("a controller to which all ranks of a smaller world come back does not wait for places that were free",
          "[control][lease][planned]") {
  const bool shrinks = GENERATE(true, false);
  controller_scene world{terms_of(4, shrinks ? recovery_policy::shrink : recovery_policy::keep_size)};
  return_to(world, 21, 0, {0, 1, 3});
  return_to(world, 22, 1, {0, 1, 3});
  world.pass(lease + lease / 100 + 40ms, {21, 22});
  CHECK(world.phase() == control_phase::gathering); // one of its ranks is missing
  return_to(world, 24, 3, {0, 1, 3});
  const nanoseconds took = time_to_form(world, {21, 22, 24});
  CHECK((took <= 20ms) == shrinks);
  if (shrinks) CHECK(world.state.event().ranks == 3);
}

TEST_CASE("a controller to which all ranks of a smaller world come back waits for leases of a later one (MEM-1)",
          "[control][lease][planned][MEM-1]") {
  controller_scene world{terms_of(4, recovery_policy::shrink)};
  for (const int place : {0, 1, 2}) return_to(world, 21 + static_cast<session_id>(place), place);
  CHECK(time_to_form(world, {21, 22, 23}) > lease - 20ms);
}

TEST_CASE("a controller that is started again gives a place to a rank that once stood by",
          "[control][lease][planned]") {
  controller_scene world{terms_of(2, recovery_policy::shrink)};
  world.join(21, 0, [](join_request& asked) {
    asked.spare = true; // as it was started
    asked.last_epoch = epoch{3};
    asked.last_ranks = {"21"};
    asked.last_lease = lease;
  });
  world.join(22, 1, [](join_request& asked) { asked.spare = true; });
  CHECK(time_to_form(world, {21, 22}) <= lease + lease / 100 + 40ms);
  CHECK(world.state.current_epoch() == epoch{4});
  CHECK(world.state.event().ranks == 2);
}

TEST_CASE("a controller that is started again goes on in time without a rank that was lost with the former one",
          "[control][lease]") {
  const recovery_policy policy =
      GENERATE(recovery_policy::keep_size, recovery_policy::shrink, recovery_policy::fail_fast);
  const bool has_spare = GENERATE(true, false);
  controller_scene world{terms_of(3, policy)};
  return_to(world, 21, 1);
  return_to(world, 22, 2);
  if (has_spare) world.join(23, 0, [](join_request& asked) { asked.spare = true; });
  const std::vector<session_id> alive{21, 22, 23};
  CHECK(time_to_form(world, alive) > 59s); // the rank may come back
  world.pass(1s, alive);
  const bool goes_on = policy == recovery_policy::shrink || (policy == recovery_policy::keep_size && has_spare);
  CHECK(world.phase() == (goes_on ? control_phase::forming : control_phase::failed));
  if (goes_on) CHECK(world.state.event().ranks == (has_spare ? 3 : 2));
}

TEST_CASE("a controller without proof about the others needs more than half of the former ranks (MEM-1)",
          "[control][lease][MEM-1]") {
  const bool is_replaced = GENERATE(false, true); // the manager has started another process in the place of one
  controller_scene world{terms_of(3)};
  return_to(world, 21, 0);
  replace(world, 22, 1, is_replaced ? 1 : 0);
  world.join(23, 2);
  const nanoseconds took = time_to_form(world, {21, 22, 23});
  CHECK((took < 10s) == is_replaced);
  if (is_replaced) return;
  world.pass(10s, {21, 22, 23});
  REQUIRE(world.phase() == control_phase::failed);
  CHECK(world.state.event().reason.text.find("more than half") != std::string::npos);
}

TEST_CASE("processes that follow each other in one place count as one former rank (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world{terms_of(3)};
  const auto end = [&](session_id one) {
    world.note(world.state.on_session_lost(one, session_end::closed, world.now));
  };
  const bool is_replaced_before = GENERATE(false, true);
  if (is_replaced_before) {
    replace(world, 21, 0);
    end(21);
  }
  return_to(world, 22, 0);
  end(22);
  replace(world, 23, 0, 2);
  world.join(24, 1);
  world.join(25, 2);
  CHECK(time_to_form(world, {23, 24, 25}) >= 59s);
}

TEST_CASE("half of the former ranks are not more than half (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world{terms_of(2)};
  return_to(world, 21, 0, {0, 1});
  world.join(22, 1);
  CHECK(time_to_form(world, {21, 22}) >= 59s);
}

TEST_CASE("ranks whose processes have the same name are not known by it (MEM-1)", "[control][lease][MEM-1]") {
  controller_scene world{terms_of(4, recovery_policy::shrink)};
  for (const int name : {0, 1}) return_to(world, 21 + static_cast<session_id>(name), name, {0, 1, 0, 1});
  CHECK(time_to_form(world, {21, 22}) >= 59s);
}

TEST_CASE("processes that were no ranks of the latest epoch prove nothing about its ranks (MEM-1)",
          "[control][lease][MEM-1]") {
  controller_scene world{terms_of(4, recovery_policy::shrink)};
  return_to(world, 21, 0, {0, 1, 2}); // rank 3 had been lost
  SECTION("they know an earlier epoch alone") {
    for (const int name : {1, 3})
      return_to(world, 22 + static_cast<session_id>(name), name, {0, 1, 2, 3}, lease, epoch{5});
    const bool joins_again = GENERATE(false, true); // after this controller has told it of the latest epoch
    if (joins_again)
      world.join(31, 1, [](join_request& asked) {
        asked.who = {.name = "1", .host = "here", .pid = 23};
        asked.last_epoch = asked.begun = epoch{5};
        asked.prepared = epoch{7};
      });
    world.pass(61s, {21, joins_again ? 31U : 23U, 25});
    CHECK(world.phase() == control_phase::failed);
  }
  SECTION("they follow processes that had ended before") {
    replace(world, 25, 3);
    world.pass(61s, {21, 25});
    CHECK(world.phase() == control_phase::failed);
  }
  SECTION("but those are who have heard that it begins") {
    for (const int name : {1, 2})
      world.join(22 + static_cast<session_id>(name), name, [&](join_request& asked) {
        asked.who.name = std::to_string(name);
        asked.last_epoch = epoch{5};
        asked.begun = epoch{7};
      });
    CHECK(time_to_form(world, {21, 23, 24}) <= lease + lease / 100 + 40ms);
  }
  SECTION("and spares that had places, and were replaced") {
    world.join(24, 2, [](join_request& asked) {
      asked.who.name = "2";
      asked.spare = true;
      asked.attempt = 1;
    });
    world.pass(61s, {21, 24}); // 1 may come back
    CHECK(world.phase() == control_phase::forming);
  }
}

} // namespace troupe::tests
