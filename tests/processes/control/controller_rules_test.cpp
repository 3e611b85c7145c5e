/// What a controller heeds and what it does not: tokens, names and pids, epochs, budgets, and who stands by.
#include "support/controller_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests {

namespace {

using Catch::Matchers::ContainsSubstring;

void as_spare(join_request& asked) {
  asked.spare = true;
}
void as_next_attempt(join_request& asked) {
  asked.attempt = 1;
}

/// A world of \p size that serves: its processes are 11, 12 and so on, in the order of their places.
controller_scene serving_scene(int size, controller_terms terms) {
  controller_scene world{std::move(terms)};
  std::vector<session_id> all;
  for (int place = 0; place < size; ++place) {
    all.push_back(11 + static_cast<session_id>(place));
    world.join(all.back(), place);
  }
  world.form(all);
  REQUIRE(world.phase() == control_phase::serving);
  return world;
}

/// What it has announced last.
control_event last_event(const controller_scene& world) {
  control_event found;
  for (const auto& one : world.all)
    if (const auto* told = std::get_if<control_effect::announce>(&one)) found = told->event;
  return found;
}

error error_of_end(const controller_scene& world) {
  REQUIRE(world.count<control_effect::end>() == 1);
  for (const auto& one : world.all)
    if (const auto* end = std::get_if<control_effect::end>(&one)) return end->why;
  return {};
}

} // namespace

TEST_CASE("a token is the whole token or none", "[control][SEC-1]") {
  controller_scene world{terms_of(8)};
  session_id link = 20;
  for (const std::string& token :
       {std::string{}, std::string{"s"}, std::string{"secre"}, std::string{"secret\0", 7}, std::string{"secretx"},
        std::string{"Secret"}, std::string{"secreT"}, std::string{"xsecret"}}) {
    CAPTURE(token);
    world.join(++link, 0, [&](join_request& asked) { asked.token = token; });
    CHECK(world.told<join_welcome>(link).empty());
    REQUIRE(world.told<join_refusal>(link).size() == 1);
    CHECK_THAT(world.told<join_refusal>(link).front().why.text, ContainsSubstring("token"));
  }
  world.join(11, 0);
  CHECK(world.told<join_welcome>(11).size() == 1);

  controller_terms open = terms_of(1);
  open.token.clear();
  controller_scene anybody{open};
  anybody.join(11, 0);
  CHECK(anybody.told<join_welcome>(11).size() == 1);
}

TEST_CASE("an exit notice is believed of the process that it names by name and pid", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.note(world.state.on_process_ended("12", 4711, "killed", world.now)); // the process before it
  CHECK(world.phase() == control_phase::serving);
  world.note(world.state.on_process_ended("11", 12, "killed", world.now));
  CHECK(world.phase() == control_phase::serving);
  world.note(world.state.on_process_ended("12", 12, "killed by signal 9", world.now));
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK_THAT(world.state.event().reason.text, ContainsSubstring("killed by signal 9"));
  CHECK(world.count<control_effect::kill_process>() == 0); // it is dead
}

TEST_CASE("losses leave the window of the budget", "[control]") {
  controller_terms terms = terms_of(2);
  terms.recovery.rebuilds = 2;
  terms.recovery.window = 10s;
  controller_scene world = serving_scene(2, terms);
  session_id last = 12;
  for (session_id next = 21; next < 27; ++next) {
    world.note(world.state.on_session_lost(last, session_end::closed, world.now));
    REQUIRE(world.phase() == control_phase::rebuilding);
    world.join(last = next, 1, as_next_attempt);
    world.form({11, last});
    REQUIRE(world.phase() == control_phase::serving);
    world.pass(6s, {11, last}); // never more than two in 10 s
  }
  for (session_id next = 31; next < 33; ++next) {
    world.note(world.state.on_session_lost(last, session_end::closed, world.now));
    if (world.phase() == control_phase::failed) return;
    world.join(last = next, 1, as_next_attempt);
    world.form({11, last});
  }
  FAIL("three losses within the window do not use up a budget of two");
}

TEST_CASE("the loss of an idle spare is no fault of the epoch", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 0, as_spare);
  REQUIRE(world.state.event().spares == 1);
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.state.current_epoch() == epoch{1});
  CHECK(world.state.event().spares == 0);
  for (const session_id one : {11U, 12U}) CHECK(world.told<failure_directive>(one).empty());
  REQUIRE(last_event(world).lost);
  CHECK(last_event(world).lost->pid == 13);
}

TEST_CASE("reports about an epoch that is over change nothing (EPO-1)", "[control][EPO-1]") {
  controller_scene world = serving_scene(2, terms_of(2));
  const epoch old = world.state.current_epoch();
  world.say(12, failed_report{old, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(100ms, {11, 12});
  REQUIRE(world.phase() == control_phase::forming);
  const epoch present = world.state.current_epoch();
  CHECK_FALSE(world.state.rank_of(11, old));
  CHECK(world.state.rank_of(11, present) == rank{0});

  const std::size_t directives = world.told<formation_directive>(12).size();
  world.say(11, id_offer{old, {}});
  world.say(12, id_offer{present, {}}); // not rank 0
  CHECK(world.told<formation_directive>(12).size() == directives);
  for (const session_id one : {11U, 12U}) world.say(one, formed_report{present}); // it has no name yet
  CHECK(world.phase() == control_phase::forming);
  world.say(11, id_offer{present, {}});
  CHECK(world.told<formation_directive>(12).size() == directives + 1);
  world.say(11, id_offer{present, {}}); // twice
  CHECK(world.told<formation_directive>(12).size() == directives + 1);

  for (const session_id one : {11U, 12U}) world.say(one, formed_report{old});
  CHECK(world.phase() == control_phase::forming);
  for (const session_id one : {11U, 12U}) world.say(one, drained_report{present});
  CHECK(world.phase() == control_phase::forming);
  for (const session_id one : {11U, 12U}) world.say(one, formed_report{present});
  CHECK(world.phase() == control_phase::serving);
  world.say(12, failed_report{old, {.code = errc::communicator_failed, .text = "late"}, {}});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("a spare takes its own place before another", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 0, as_spare);
  world.join(14, 1, as_spare);
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  REQUIRE(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(14, world.state.current_epoch()) == rank{1});
  CHECK_FALSE(world.state.rank_of(13, world.state.current_epoch()));
}

TEST_CASE("a world does not shrink below its smallest size", "[control]") {
  controller_terms terms = terms_of(3, recovery_policy::shrink);
  terms.recovery.smallest = 2;
  controller_scene world = serving_scene(3, terms);
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  REQUIRE(world.phase() == control_phase::forming);
  world.form({11, 12});
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  CHECK(world.phase() == control_phase::rebuilding);
  world.join(14, 1, as_next_attempt);
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("after a rank's own fault the next epoch waits until a loss would be known", "[control]") {
  controller_terms terms = terms_of(2);
  terms.settle = 50ms;
  controller_scene world = serving_scene(2, terms);
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(40ms, {11, 12});
  CHECK(world.phase() == control_phase::rebuilding);
  world.pass(20ms, {11, 12});
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("a rank's own fault leaves what was in flight with an unknown outcome", "[control][ONE-2]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .effect = effect::rejected}, {}});
  REQUIRE(world.told<failure_directive>(11).size() == 1);
  CHECK(world.told<failure_directive>(11).front().why.effect == effect::unknown_outcome);
  CHECK(world.told<failure_directive>(11).front().why.epoch == epoch{1});
  CHECK(world.told<failure_directive>(11).front().why.rank == rank{1});
}

TEST_CASE("every message of a process counts as a sign of life", "[control]") {
  controller_terms terms = terms_of(1);
  controller_scene world = serving_scene(1, terms);
  world.pass(3 * terms.suspicion, {11});
  CHECK(world.phase() == control_phase::serving);
  world.pass(terms.suspicion + 1s, {});
  CHECK(world.phase() == control_phase::rebuilding);
}

TEST_CASE("how long an outage was is told with the epoch that ends it, and once", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  CHECK_FALSE(last_event(world).since_detection);
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(200ms, {11, 12});
  world.form({11, 12});
  REQUIRE(last_event(world).phase == control_phase::serving);
  CHECK(last_event(world).since_detection == 200ms);
  CHECK_THAT(last_event(world).reason.text, ContainsSubstring("it hangs"));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.pass(100ms, {11});
  world.join(13, 1, as_next_attempt);
  world.form({11, 13});
  CHECK(last_event(world).since_detection == 100ms);
}

TEST_CASE("an epoch has newcomers where somebody was not part of the one before", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(100ms, {11, 12});
  world.form({11, 12});
  CHECK_FALSE(world.told<formation_directive>(11).back().has_newcomers);
  CHECK_THAT(world.told<formation_directive>(11).back().reason.text, ContainsSubstring("it hangs"));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.join(13, 1, as_next_attempt);
  world.form({11, 13});
  CHECK(world.told<formation_directive>(11).back().has_newcomers);
}

TEST_CASE("a process that is fenced is told so until its connection ends", "[control][EPO-1]") {
  controller_scene world = serving_scene(2, terms_of(2, recovery_policy::shrink));
  world.note(world.state.on_process_ended("12", 12, "it is said to have ended", world.now));
  const std::size_t told = world.told<fence_notice>(12).size();
  world.say(12, heartbeat{});
  CHECK(world.told<fence_notice>(12).size() == told + 1);
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.say(12, heartbeat{}); // by a connection that is not there any more
  CHECK(world.told<fence_notice>(12).size() == told + 1);
  world.say(99, heartbeat{}); // nobody
  CHECK(world.told<fence_notice>(99).empty());
}

TEST_CASE("a lost connection or silence lets the process be killed, its own end or leave does not", "[control]") {
  controller_scene world = serving_scene(3, terms_of(3, recovery_policy::shrink));
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  REQUIRE(world.count<control_effect::kill_process>() == 1);
  for (const auto& one : world.all)
    if (const auto* kill = std::get_if<control_effect::kill_process>(&one)) CHECK(kill->who.pid == 13);
  world.form({11, 12});
  world.say(12, leave_notice{{.code = errc::internal, .text = "it gives up"}});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.count<control_effect::kill_process>() == 1);
}

TEST_CASE("the common order is closed before ranks hear of a fault (ORD-1)", "[control][ORD-1]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.all.clear();
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  REQUIRE(world.told<failure_directive>(11).size() == 1);
  CHECK(world.closed_before<failure_directive>());
}

TEST_CASE("a rank that leaves while an epoch forms fails it, one that serves begins the end", "[control]") {
  controller_scene forming{terms_of(2)};
  forming.join(11, 0);
  forming.join(12, 1);
  REQUIRE(forming.phase() == control_phase::forming);
  forming.say(12, leave_notice{});
  CHECK(forming.told<failure_directive>(11).size() == 1);
  CHECK(forming.phase() == control_phase::rebuilding);

  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 1, as_spare);
  world.join(14, 1, as_spare);
  world.say(13, leave_notice{});
  CHECK(world.phase() == control_phase::serving);
  CHECK(world.told<stop_directive>(13).size() == 1); // it has been heard, and may go
  world.say(12, leave_notice{});
  CHECK(world.phase() == control_phase::finishing);
  world.note(world.state.on_session_lost(14, session_end::closed, world.now)); // who stands by is not waited for
  CHECK(world.phase() == control_phase::finishing);
  world.join(15, 1, as_next_attempt);
  REQUIRE(world.told<join_refusal>(15).size() == 1);
  CHECK(world.told<join_refusal>(15).front().why.code == errc::stopping);
  world.say(11, leave_notice{});
  CHECK_FALSE(error_of_end(world));
}

TEST_CASE("spares are sent home when the last rank has left", "[control]") {
  controller_scene world = serving_scene(1, terms_of(1));
  world.join(13, 0, as_spare);
  world.say(11, leave_notice{});
  CHECK(world.told<stop_directive>(13).size() == 1);
  CHECK_FALSE(error_of_end(world));
}

TEST_CASE("under the policy fail_fast a loss or a fault while others finish ends the world with its reason",
          "[control]") {
  const bool is_loss = GENERATE(true, false);
  controller_scene world = serving_scene(3, terms_of(3, recovery_policy::fail_fast));
  world.say(11, leave_notice{});
  REQUIRE(world.phase() == control_phase::finishing);
  if (is_loss)
    world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  else
    world.say(12, failed_report{epoch{1}, {.code = errc::device_failed, .text = "a GPU fell off"}, {}});
  CHECK(world.phase() == control_phase::failed);
  REQUIRE(world.told<stop_directive>(13).size() == 1);
  CHECK(world.told<stop_directive>(13).front().why);
  if (is_loss) CHECK(world.told<failure_directive>(13).size() == 1);
  world.join(14, 0, as_next_attempt);
  REQUIRE(world.told<join_refusal>(14).size() == 1);
  CHECK(world.told<join_refusal>(14).front().why.code == errc::world_failed);
  for (const session_id one : {12U, 13U}) world.say(one, leave_notice{});
  CHECK(error_of_end(world));
}

TEST_CASE("a world is told to stop once, and ends when all have left", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.note(world.state.on_stop(world.now));
  world.note(world.state.on_stop(world.now));
  world.pass(2min, {11, 12});
  CHECK(world.phase() == control_phase::stopping);
  CHECK(world.state.current_epoch() == epoch{1});
  for (const session_id one : {11U, 12U}) CHECK(world.told<stop_directive>(one).size() == 1);
  CHECK(world.count<control_effect::end>() == 0);
  world.join(13, 0, as_spare);
  REQUIRE(world.told<join_refusal>(13).size() == 1);
  world.say(11, leave_notice{});
  CHECK(world.count<control_effect::end>() == 0);
  world.note(world.state.on_session_lost(12, session_end::closed, world.now)); // it may have gone without a word
  CHECK_FALSE(error_of_end(world));

  controller_scene empty{terms_of(2)};
  empty.note(empty.state.on_stop(empty.now));
  CHECK(empty.count<control_effect::end>() == 1);
}

TEST_CASE("the time to gather begins with the first who joins, and anew with each loss", "[control]") {
  controller_terms terms = terms_of(2);
  terms.gather = 60s;
  controller_scene world{terms};
  world.pass(50s, {});
  world.join(11, 0);
  world.pass(50s, {11});
  CHECK(world.phase() == control_phase::gathering);
  world.join(12, 1);
  world.form({11, 12});
  world.pass(100s, {11, 12});
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.pass(50s, {11});
  CHECK(world.phase() == control_phase::rebuilding);
  world.pass(11s, {11});
  CHECK(world.phase() == control_phase::failed);
}

TEST_CASE("the time to form begins anew when the id has come", "[control][TIM-1]") {
  controller_terms terms = terms_of(2);
  terms.form = 10s;
  controller_scene world{terms};
  world.join(11, 0);
  world.join(12, 1);
  world.pass(9s, {11, 12});
  world.say(11, id_offer{epoch{1}, {}});
  world.pass(9s, {11, 12});
  CHECK(world.state.current_epoch() == epoch{1});
  CHECK(world.phase() == control_phase::forming);
  world.pass(2s, {11, 12});
  CHECK(world.state.current_epoch() != epoch{1});
}

TEST_CASE("a place is asked for once each time that it is lost", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.pass(5s, {11});
  CHECK(world.count<control_effect::request_process>() == 1);
  world.join(13, 1);
  world.form({11, 13});
  REQUIRE(world.phase() == control_phase::serving);
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  world.pass(5s, {11});
  CHECK(world.count<control_effect::request_process>() == 2);
}

TEST_CASE("ranks that do not come to rest in time fail their epoch", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2, recovery_policy::shrink));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.form({11});
  world.join(13, 1, as_next_attempt);
  REQUIRE(world.phase() == control_phase::quiescing);
  world.pass(29s, {11, 13});
  CHECK(world.phase() == control_phase::quiescing);
  world.pass(2s, {11, 13});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.told<failure_directive>(11).size() == 2);
}

TEST_CASE("all who are in a world hear that its controller lives", "[control]") {
  controller_scene world = serving_scene(1, terms_of(1));
  world.join(13, 0, as_spare);
  world.pass(1s, {11, 13});
  CHECK(world.told<lease_grant>(11).size() >= 3); // the answers to its own heartbeats
  CHECK(world.told<heartbeat>(13).size() >= 3);
  CHECK(world.told<heartbeat>(13).size() <= 5);
}

TEST_CASE("an epoch that serves is not renumbered by what a newcomer says", "[control][EPO-1]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 0, [](join_request& asked) {
    asked.spare = true;
    asked.last_epoch = epoch{99};
  });
  CHECK(world.state.current_epoch() == epoch{1});
  CHECK(world.state.rank_of(11, epoch{1}) == rank{0});
}

TEST_CASE("the policy fail_fast ends a world with its first loss, and forgives faults", "[control]") {
  controller_scene faulty = serving_scene(2, terms_of(2, recovery_policy::fail_fast));
  faulty.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  CHECK(faulty.phase() == control_phase::rebuilding);
  controller_scene bereft = serving_scene(2, terms_of(2, recovery_policy::fail_fast));
  bereft.note(bereft.state.on_session_lost(12, session_end::closed, bereft.now));
  CHECK(bereft.phase() == control_phase::failed);
}

TEST_CASE("a process that asks for a taken place stands by, and one that names no place gets a free one", "[control]") {
  controller_scene world{terms_of(3)};
  world.join(11, 0);
  world.join(12, 0, as_next_attempt);
  CHECK(world.told<join_welcome>(12).size() == 1);
  CHECK(world.state.event().spares == 1);
  world.join(13, 2);
  world.join(14, 0, [](join_request& asked) { asked.place.reset(); });
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.rank_of(14, epoch{1}) == rank{1});
  world.join(15, 0, [](join_request& asked) { asked.place.reset(); });
  REQUIRE(world.told<join_refusal>(15).size() == 1);
  world.join(16, 0, [](join_request& asked) { asked.place = -1; });
  CHECK(world.told<join_refusal>(16).size() == 1);
  world.join(17, 0, [](join_request& asked) { asked.place = 3; });
  CHECK(world.told<join_refusal>(17).size() == 1);
}

TEST_CASE("a rank that cannot form for a reason of its own does not use up the rebuilds within a second", "[control]") {
  controller_terms terms = terms_of(2);
  terms.recovery.rebuilds = 10;
  controller_scene world = serving_scene(2, terms);
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.join(13, 1, as_next_attempt);
  for (int i = 0; i < 9; ++i) {
    REQUIRE(world.phase() == control_phase::forming);
    const epoch of = world.state.current_epoch();
    world.say(11, failed_report{of, {.code = errc::unsupported, .text = "no descriptor is left"}, {}}); // for the id
    CHECK(world.phase() == control_phase::rebuilding);                                                  // at once
    REQUIRE(world.told<failure_directive>(13).back().of == of);
    CHECK_THAT(world.told<failure_directive>(13).back().why.text, ContainsSubstring("no descriptor is left"));
    const auto before = world.now;
    while (world.phase() == control_phase::rebuilding) world.pass(20ms, {11, 13});
    CHECK(world.now - before >= 50ms * (1 << std::min(i, 7)));
    CHECK(world.now - before <= 50ms * (1 << std::min(i, 7)) + 40ms);
  }
  world.form({11, 13});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("a process that no place is left for is told the variable that makes it a spare", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 0, [](join_request& asked) { asked.place.reset(); });
  REQUIRE(world.told<join_refusal>(13).size() == 1);
  // configuration_test.cpp tests that a process reads this variable.
  CHECK_THAT(world.told<join_refusal>(13).front().why.text, ContainsSubstring("as a spare (TROUPE_SPARE=1)"));
  world.join(14, 0, [](join_request& asked) {
    asked.place.reset();
    asked.spare = true;
  });
  CHECK(world.told<join_welcome>(14).size() == 1);
}

TEST_CASE("a process of fewer than the controller waits for is refused, while it waits", "[control]") {
  controller_scene world{terms_of(5)};
  world.join(11, 0, [](join_request& asked) { asked.world_size = 4; });
  REQUIRE(world.told<join_refusal>(11).size() == 1);
  CHECK_THAT(world.told<join_refusal>(11).front().why.text, ContainsSubstring("one of 4 processes"));
  CHECK_THAT(world.told<join_refusal>(11).front().why.text, ContainsSubstring("waits for 5"));
  world.join(11, 0, [](join_request& asked) { asked.world_size = 1; });
  CHECK(world.told<join_refusal>(11).size() == 2);
  for (int place = 0; place < 5; ++place) // six were started, one of them as a spare
    world.join(12 + static_cast<session_id>(place), place, [](join_request& asked) { asked.world_size = 6; });
  CHECK(world.phase() == control_phase::forming);
}

TEST_CASE("an event of a controller is told in words", "[control]") {
  control_event event{.phase = control_phase::serving, .epoch = epoch{3}, .ranks = 2, .world_size = 3};
  CHECK(describe(event) == "world serving in epoch 3 with 2 of 3 ranks");
  event.ring_ranks = 1;
  event.spares = 1;
  event.lost = process_identity{.name = "1", .host = "here", .pid = 5};
  event.since_detection = 1500ms;
  event.reason = {.code = errc::rank_lost, .text = "it died"};
  CHECK(describe(event) == "world serving in epoch 3 with 2 of 3 ranks, 1 through shared memory, 1 standing by; lost: "
                           "process 1 (pid 5 on here); 1500 ms after the fault was known; because of " +
                               to_string(event.reason));
}

TEST_CASE("places that nobody has taken in time are named", "[control]") {
  const int came = GENERATE(1, 2);
  controller_terms terms = terms_of(3);
  terms.gather = 5s;
  controller_scene world{terms};
  std::vector<session_id> all;
  for (int i = 0; i < came; ++i) {
    all.push_back(static_cast<session_id>(11 + i));
    world.join(all.back(), i);
  }
  world.pass(6s, all);
  REQUIRE(world.phase() == control_phase::failed);
  const std::string missing = came == 1 ? "those of places 1, 2 have not joined" : "that of place 2 has not joined";
  CHECK_THAT(world.state.event().reason.text, ContainsSubstring("needs 3 processes, and " + missing));
}

TEST_CASE("a deadline that begins with an end after a pause is not extended by the pause", "[control][TIM-1]") {
  controller_terms terms = terms_of(2);
  terms.gather = 20s;
  controller_scene world = serving_scene(2, terms);
  world.now += 1h;
  SECTION("a connection ends") {
    world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  }
  SECTION("rings fail") {
    world.note(world.state.on_rank_failed(12, epoch{1}, {.code = errc::rank_lost, .text = "its rings"}, world.now));
  }
  SECTION("the launcher says so") {
    world.note(world.state.on_process_ended("12", 12, "it died", world.now));
  }
  SECTION("another takes its place") {
    world.join(13, 1, [](join_request& asked) { asked.who.pid = 12, asked.who.name = "12"; });
    world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  }
  REQUIRE(world.phase() == control_phase::rebuilding);
  world.pass(19s, {11});
  CHECK(world.phase() == control_phase::rebuilding);
  world.pass(2s, {11});
  CHECK(world.phase() == control_phase::failed);
}

TEST_CASE("a stop is announced, and a process that leaves before the first epoch does not end the world", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.say(11, leave_notice{});
  CHECK(world.phase() == control_phase::gathering);
  CHECK(world.count<control_effect::end>() == 0);
  world.join(12, 0);
  world.note(world.state.on_stop(world.now));
  CHECK(last_event(world).phase == control_phase::stopping);
  CHECK(last_event(world).reason.code == errc::stopping);
}

TEST_CASE("reports of a spare about an epoch that forms change nothing", "[control][EPO-1]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  world.join(13, 1, as_spare);
  world.say(11, id_offer{epoch{1}, {}});
  world.say(13, failed_report{epoch{1}, {.code = errc::device_failed, .text = "not its own"}});
  world.say(13, formed_report{epoch{1}});
  CHECK(world.phase() == control_phase::forming);
  CHECK(world.state.current_epoch() == epoch{1});
  world.form({11, 12});
  world.say(13, failed_report{epoch{1}, {.code = errc::device_failed, .text = "not its own"}});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("a process must have every setting that the world has, and a GPU of its own also when it comes again",
          "[control]") {
  controller_scene world{terms_of(3)};
  world.join(11, 0, [](join_request& asked) { asked.who.gpu = "a"; });
  world.join(12, 1, [](join_request& asked) { asked.facts.clear(); });
  REQUIRE(world.told<join_refusal>(12).size() == 1);
  CHECK_THAT(world.told<join_refusal>(12)[0].why.text, ContainsSubstring("troupe is nothing in process 12"));
  world.join(13, 1, [](join_request& asked) {
    asked.who.gpu = "a";
    as_next_attempt(asked);
  });
  REQUIRE(world.told<join_refusal>(13).size() == 1);
  CHECK_THAT(world.told<join_refusal>(13)[0].why.text, ContainsSubstring("cannot share a GPU"));
  CHECK(last_event(world).ranks == 0);
}

TEST_CASE("an epoch has newcomers also where the newcomer's connection is the first of all", "[control]") {
  controller_scene world = serving_scene(3, terms_of(3));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  world.join(5, 1, as_next_attempt);
  world.form({5, 11, 13});
  CHECK(world.told<formation_directive>(11).back().has_newcomers);
  CHECK_FALSE(world.told<formation_directive>(13).front().hosts.empty());
}

TEST_CASE("an epoch that comes to rest is announced, and fails if a rank leaves meanwhile", "[control]") {
  controller_scene world = serving_scene(3, terms_of(3, recovery_policy::shrink));
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  world.form({11, 12});
  world.join(14, 2, as_next_attempt);
  REQUIRE(world.phase() == control_phase::quiescing);
  CHECK(last_event(world).phase == control_phase::quiescing);
  CHECK(last_event(world).reason.code == errc::rebuilding);
  CHECK(last_event(world).reason.epoch == epoch{2});
  world.say(14, drained_report{epoch{2}}); // it is no rank
  CHECK(world.phase() == control_phase::quiescing);
  const std::size_t told = world.told<failure_directive>(11).size();
  SECTION("a rank leaves") {
    world.say(12, leave_notice{});
    REQUIRE(world.told<failure_directive>(11).size() == told + 1);
    CHECK(world.told<failure_directive>(11).back().why.code == errc::stopping);
    CHECK(world.told<failure_directive>(11).back().why.rank == rank{1});
  }
  SECTION("the newcomer leaves") {
    world.say(14, leave_notice{});
    CHECK(world.told<failure_directive>(11).size() == told);
    CHECK(world.phase() == control_phase::quiescing);
  }
  SECTION("all come to rest") {
    world.say(11, drained_report{epoch{1}}); // of an epoch that is over
    world.say(12, drained_report{epoch{2}});
    CHECK(world.phase() == control_phase::quiescing);
    world.say(11, drained_report{epoch{2}});
    CHECK(world.phase() == control_phase::forming);
    CHECK(world.told<failure_directive>(11).size() == told);
  }
}

TEST_CASE("a newcomer that leaves a world of which all ranks were lost does not end it", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  for (const session_id one : {11U, 12U}) world.note(world.state.on_session_lost(one, session_end::closed, world.now));
  world.join(13, 0, as_next_attempt);
  world.say(13, leave_notice{});
  CHECK(world.phase() == control_phase::rebuilding); // nobody has done its work
  CHECK(world.count<control_effect::end>() == 0);
}

TEST_CASE("a rank that cannot form because of another one names it", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.join(12, 1);
  const auto fail = [&](error why, std::vector<rank> blamed) {
    world.say(12, failed_report{world.state.current_epoch(), std::move(why), std::move(blamed)});
    const error told = world.told<failure_directive>(11).back().why;
    world.pass(1s, {11, 12});
    return told.rank;
  };
  CHECK(fail({.code = errc::device_failed, .rank = rank{0}}, {}) == rank{0});
  CHECK(fail({.code = errc::device_failed}, {}) == rank{1});
  CHECK_FALSE(fail({.code = errc::device_failed}, {rank{0}}));
}

TEST_CASE("a rank's failure that the controller observes ends the epoch, and is no sign of life of its process",
          "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  const auto fail = [&](session_id which, epoch of) {
    world.note(world.state.on_rank_failed(which, of, {.code = errc::internal, .text = "unreadable"}, world.now));
  };
  fail(12, epoch{0});
  fail(99, epoch{1});
  CHECK(world.phase() == control_phase::serving);
  world.pass(9s, {11});
  world.silent.insert(12);
  fail(12, epoch{1});
  CHECK(world.phase() == control_phase::rebuilding);
  REQUIRE(world.told<failure_directive>(11).size() == 1);
  CHECK(world.told<failure_directive>(11).front().why.rank == rank{1});
  world.pass(2s, {11});
  CHECK_FALSE(world.state.has_member(12));
}

TEST_CASE("data that a process sends is a sign of life, and an ended session is told that it has ended",
          "[control][EPO-1]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.pass(9s, {11});
  world.note(world.state.on_sign_of_life(12, world.now));
  world.pass(9s, {11});
  CHECK(world.state.has_member(12));
  world.pass(2s, {11});
  CHECK_FALSE(world.state.has_member(12));
  const auto notices = world.told<fence_notice>(12).size();
  world.note(world.state.on_sign_of_life(12, world.now));
  CHECK(world.told<fence_notice>(12).size() == notices + 1);
  CHECK(world.state.on_sign_of_life(99, world.now).empty());
}

TEST_CASE("a connection of nobody has no rank, and a rank of an epoch that is over has none", "[control][EPO-1]") {
  controller_scene world = serving_scene(2, terms_of(2));
  CHECK(world.state.rank_of(12, epoch{1}) == rank{1});
  CHECK_FALSE(world.state.rank_of(12, epoch{2}));
  CHECK_FALSE(world.state.rank_of(99, epoch{1}));
  CHECK(world.state.session_of(rank{1}) == session_id{12});
  CHECK_FALSE(world.state.session_of(rank{2}));
}

TEST_CASE("the holders of ranks are named in each event, without those that stand by", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 0, as_spare);
  CHECK(last_event(world).holders == std::vector<std::string>{"11", "12"});
  CHECK(last_event(world).spares == 1);
}

TEST_CASE("clocks that differ too much are told in milliseconds", "[control]") {
  controller_terms terms = terms_of(1);
  terms.clock_skew = 60s;
  for (const auto skew : {60s, 61s, -60s, -61s}) {
    CAPTURE(skew.count());
    controller_scene world{terms};
    world.join(11, 0, [&](join_request& asked) { asked.wall_clock_ns = std::chrono::nanoseconds{skew}.count(); });
    const bool is_much = skew > 60s || skew < -60s;
    REQUIRE(world.told<join_refusal>(11).size() == (is_much ? 1 : 0));
    if (!is_much) continue;
    const std::string why = world.told<join_refusal>(11)[0].why.text;
    CHECK_THAT(why, ContainsSubstring("the clock of here says " + std::to_string(skew.count() * 1000) +
                                      " ms since 1970 and the controller's 0 ms, which are 61000 ms apart, and the "
                                      "limit is 60000 ms"));
  }
}

TEST_CASE("a process that was lost before the first epoch does not decide what the others must have alike",
          "[control]") {
  controller_scene world{terms_of(2)};
  const auto with = [](const char* version) {
    return [version](join_request& asked) { asked.facts = {{"troupe", version}}; };
  };
  world.join(11, 0, with("0"));
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  world.join(12, 0, with("1"));
  CHECK(world.told<join_welcome>(12).size() == 1);
  CHECK(world.state.agreed_value("troupe") == "1");
  world.join(13, 1, with("0"));
  CHECK(world.told<join_refusal>(13).size() == 1);
  world.join(14, 1, with("1"));
  world.form({12, 14});
  REQUIRE(world.phase() == control_phase::serving);
  for (const session_id one : {12U, 14U}) world.note(world.state.on_session_lost(one, session_end::closed, world.now));
  world.join(15, 1, with("0")); // what has served stays
  CHECK(world.told<join_refusal>(15).size() == 1);
}

TEST_CASE("a world that gathers requests no processes", "[control]") {
  controller_scene world{terms_of(2)};
  world.join(11, 0);
  world.pass(5s, {11});
  CHECK(world.count<control_effect::request_process>() == 0);
}

TEST_CASE("that a rank had done its work in an earlier epoch does not end a later one", "[control]") {
  controller_scene world = serving_scene(3, terms_of(3));
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  world.say(11, leave_notice{});
  world.note(world.state.on_session_lost(11, session_end::closed, world.now));
  world.join(21, 0, as_next_attempt);
  world.join(22, 2, as_next_attempt);
  world.form({21, 12, 22});
  REQUIRE(world.phase() == control_phase::serving);
  for (const session_id one : {12U, 21U, 22U})
    world.note(world.state.on_session_lost(one, session_end::closed, world.now));
  world.join(31, 0, as_next_attempt);
  world.say(31, leave_notice{});
  CHECK(world.phase() == control_phase::rebuilding);
  CHECK(world.count<control_effect::end>() == 0);
}

TEST_CASE("an operation that hung in an epoch that is over does not fail the next one", "[control][EPO-1]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.say(12, failed_report{epoch{1}, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
  world.pass(100ms, {11, 12});
  world.say(12, failed_report{epoch{1}, {.code = errc::deadline_exceeded, .text = "late"}, {}});
  CHECK(world.phase() == control_phase::forming);
  world.form({11, 12});
  world.say(12, failed_report{epoch{1}, {.code = errc::deadline_exceeded, .text = "late"}, {}});
  CHECK(world.phase() == control_phase::serving);
  world.say(12, failed_report{epoch{3}, {.code = errc::deadline_exceeded, .text = "early"}, {}});
  CHECK(world.phase() == control_phase::serving);
  world.join(13, 0, as_spare);
  world.say(13, failed_report{epoch{2}, {.code = errc::deadline_exceeded, .text = "a spare's"}, {}});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("a world that has failed is not stopped any more, and keeps its reason", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2, recovery_policy::fail_fast));
  world.note(world.state.on_session_lost(12, session_end::closed, world.now));
  REQUIRE(world.phase() == control_phase::failed);
  const error why = world.state.event().reason;
  world.all.clear();
  world.note(world.state.on_stop(world.now));
  CHECK(world.all.empty());
  CHECK(world.phase() == control_phase::failed);
  CHECK(world.state.event().reason.text == why.text);
  world.say(11, leave_notice{});
  CHECK(error_of_end(world).text == why.text);
}

TEST_CASE("a spare that leaves has no place in the order that it could give up", "[control]") {
  controller_scene world = serving_scene(2, terms_of(2));
  world.join(13, 0, as_spare);
  world.say(13, leave_notice{});
  CHECK(world.count<control_effect::leave_order>() == 0);
  CHECK(world.told<stop_directive>(13).size() == 1);
  world.join(14, 0, as_spare);
  world.note(world.state.on_session_lost(14, session_end::closed, world.now));
  CHECK(world.count<control_effect::leave_order>() == 0);
}

TEST_CASE("a process that names no place has that of the only rank", "[control]") {
  for (const int size : {1, 2}) {
    controller_scene world{terms_of(size)};
    world.join(11, 0, [](join_request& asked) { asked.place.reset(); });
    CHECK(world.told<join_welcome>(11).size() == 1);
    if (size == 1) CHECK(world.state.rank_of(11, epoch{1}) == rank{0});
    world.join(12, size);
    REQUIRE(world.told<join_refusal>(12).size() == 1);
    CHECK_THAT(world.told<join_refusal>(12)[0].why.text,
               ContainsSubstring("asks for rank " + std::to_string(size) + " in a world of " + std::to_string(size) +
                                 ": start it with one of 0 to " + std::to_string(size - 1)));
  }
}

TEST_CASE("a fault at the end of the window of another still counts with it", "[control]") {
  const auto apart = GENERATE(10'000ms, 10'020ms);
  controller_terms terms = terms_of(2);
  terms.recovery.rebuilds = 1;
  terms.recovery.window = 10s;
  controller_scene world = serving_scene(2, terms);
  const auto fail = [&] {
    world.say(12, failed_report{world.state.current_epoch(), {.code = errc::communicator_failed, .text = "it hangs"}});
  };
  fail();
  REQUIRE(world.phase() == control_phase::rebuilding);
  world.pass(100ms, {11, 12});
  world.form({11, 12});
  world.pass(apart - 100ms, {11, 12});
  REQUIRE(world.phase() == control_phase::serving);
  fail();
  CHECK(world.phase() == (apart == 10s ? control_phase::failed : control_phase::rebuilding));
  if (apart == 10s)
    CHECK_THAT(world.state.event().reason.text, ContainsSubstring("it hangs; given up after 1 rebuilds within 10s"));
}

} // namespace troupe::tests
