/// A controller prepares an epoch with more ranks beside the serving one, and switches to it or gives it up.
#include "support/controller_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tests::planned_change_state_test {

namespace {

/// \p link answers the latest hold_wanted.
void hold(controller_scene& scene, session_id link) {
  const hold_wanted asked = scene.told<hold_wanted>(link).back();
  scene.say(link, held_notice{asked.of, asked.next});
}

/// A world of three that serves with two ranks, 11 and 12. 13 is lost.
struct small_world : controller_scene {
  explicit small_world(const std::string& can = "yes")
    : controller_scene{terms_of(3, recovery_policy::shrink)}, can_{can} {
    for (const int place : {0, 1, 2}) enter(11 + static_cast<session_id>(place), place);
    form({11, 12, 13});
    note(state.on_session_lost(13, session_end::closed, now));
    form({11, 12});
    state.can_hold_order(true);
    all.clear();
    REQUIRE(phase() == control_phase::serving);
    REQUIRE(state.current_epoch() == epoch{2});
  }

  void enter(session_id link, int place, int attempt = 0) {
    join(link, place, [&](join_request& asked) {
      asked.facts.push_back({std::string{fact_of_planned_changes}, can_});
      asked.attempt = attempt;
    });
  }
  /// 14 joins, and all three have prepared epoch \p of.
  void prepare(epoch of) {
    if (!state.has_member(14)) enter(14, 2, 1);
    say(11, id_offer{of, {}});
    for (const session_id one : {11U, 12U, 14U}) say(one, formed_report{of});
  }
  [[nodiscard]] bool serves_on() const {
    return phase() == control_phase::serving && state.current_epoch() == epoch{2} &&
           count<control_effect::close_order>() == 0;
  }

private:
  std::string can_;
};

} // namespace

TEST_CASE("a world grows to an epoch that was prepared, at a place where its order was held", "[control][planned]") {
  small_world scene;
  scene.enter(14, 2, 1);
  REQUIRE(scene.told<id_wanted>(11).size() == 1);
  CHECK(scene.told<id_wanted>(11).front().of == epoch{3});
  CHECK(scene.told<quiesce_directive>(11).empty());
  scene.say(12, id_offer{epoch{3}, {}}); // was not asked
  CHECK(scene.told<prepare_directive>(11).empty());
  scene.say(11, id_offer{epoch{3}, {}});
  REQUIRE(scene.told<prepare_directive>(14).size() == 1);
  const prepare_directive told = scene.told<prepare_directive>(14).front();
  CHECK(told.of == epoch{3});
  CHECK(told.self == rank{2});
  CHECK(told.world_size == 3);
  CHECK(told.hosts == std::vector<std::string>(3, "here"));
  for (const session_id one : {11U, 12U}) scene.say(one, formed_report{epoch{3}});
  CHECK(scene.told<hold_wanted>(11).empty());
  CHECK(scene.serves_on());
  scene.say(14, formed_report{epoch{3}});
  CHECK(scene.told<hold_wanted>(11).size() == 1);
  CHECK(scene.told<hold_wanted>(14).empty()); // serves nothing yet
  hold(scene, 11);
  CHECK(scene.count<control_effect::hold_order>() == 0);
  hold(scene, 12);
  CHECK(scene.count<control_effect::hold_order>() == 1);
  CHECK(scene.told<quiesce_directive>(11).empty());
  scene.note(scene.state.on_order_held(true, scene.now));
  REQUIRE(scene.told<quiesce_directive>(12).size() == 1);
  CHECK(scene.told<quiesce_directive>(12).front().is_planned);
  CHECK(scene.count<control_effect::close_order>() == 0); // it would refuse what waits
  for (const session_id one : {11U, 12U}) scene.say(one, drained_report{.of = epoch{2}});
  CHECK(scene.phase() == control_phase::forming);
  CHECK(scene.state.current_epoch() == epoch{3});
  CHECK(scene.told<id_wanted>(11).size() == 1); // the id is the one that was prepared with
  REQUIRE(scene.told<formation_directive>(14).size() == 1);
  CHECK(scene.told<formation_directive>(14).front().has_newcomers);
  const auto opened = std::ranges::find_if(
      scene.all, [](const auto& one) { return std::holds_alternative<control_effect::open_order>(one); });
  REQUIRE(opened != scene.all.end());
  CHECK(std::get<control_effect::open_order>(*opened).before ==
        std::vector<std::optional<rank>>{rank{0}, rank{1}, std::nullopt});
  for (const session_id one : {11U, 12U, 14U}) scene.say(one, formed_report{epoch{3}});
  CHECK(scene.phase() == control_phase::serving);
  CHECK(scene.state.event().ranks == 3);
}

TEST_CASE("a report that requests are held counts once, and for the change that asked for it",
          "[control][planned][TIM-1]") {
  small_world scene;
  scene.prepare(epoch{3});
  const auto holds = [&] { return scene.count<control_effect::hold_order>(); };
  SECTION("it comes twice") {
    for (const session_id one : {11U, 12U, 12U}) hold(scene, one);
    CHECK(holds() == 1); // a driver answers once
  }
  SECTION("it comes when that was given up, and another one has asked") {
    hold(scene, 11);
    scene.pass(8s, {11, 12, 14}); // 12 has not answered
    REQUIRE(scene.told<id_wanted>(11).back().of == epoch{4});
    scene.prepare(epoch{4});
    hold(scene, 11);
    scene.say(12, held_notice{epoch{2}, epoch{3}});
    CHECK(holds() == 0); // it may have asked all ranks since
    hold(scene, 12);
    CHECK(holds() == 1);
  }
}

TEST_CASE("a change that fails before the order is held leaves the epoch as it is, and is tried again",
          "[control][planned][TIM-1]") {
  small_world scene;
  SECTION("a process cannot form it") {
    scene.enter(14, 2, 1);
    scene.say(11, id_offer{epoch{3}, {}});
    scene.say(14, failed_report{.of = epoch{3}, .why = {.code = errc::communicator_failed, .text = "no way"}});
  }
  SECTION("no id can be made") {
    scene.enter(14, 2, 1);
    scene.say(11, failed_report{.of = epoch{3}, .why = {.code = errc::communicator_failed, .text = "no id"}});
  }
  SECTION("the communicators take too long") {
    scene.enter(14, 2, 1);
    scene.say(11, id_offer{epoch{3}, {}});
    scene.pass(scene.state.terms().form + 100ms, {11, 12, 14});
  }
  SECTION("a rank does not finish its requests to the world") {
    scene.prepare(epoch{3});
    hold(scene, 11);
    scene.pass(6s, {11, 12, 14});
  }
  SECTION("the order cannot be held") {
    scene.prepare(epoch{3});
    for (const session_id one : {11U, 12U}) hold(scene, one);
    scene.note(scene.state.on_order_held(false, scene.now));
  }
  CHECK(scene.serves_on());
  for (const session_id one : {11U, 12U, 14U}) {
    REQUIRE(scene.told<drop_directive>(one).size() == 1);
    CHECK(scene.told<drop_directive>(one).front().of == epoch{3});
  }
  // A late report of the epoch that was given up does not count for the next attempt.
  scene.pass(1s, {11, 12, 14});
  REQUIRE_FALSE(scene.told<id_wanted>(11).empty());
  CHECK(scene.told<id_wanted>(11).back().of == epoch{4});
  scene.say(11, id_offer{epoch{4}, {}});
  for (const session_id one : {11U, 12U, 14U}) scene.say(one, formed_report{epoch{3}});
  CHECK(scene.told<hold_wanted>(11).size() <= 1);
  const std::size_t before = scene.told<hold_wanted>(12).size();
  for (const session_id one : {11U, 12U, 14U}) scene.say(one, formed_report{epoch{4}});
  CHECK(scene.told<hold_wanted>(12).size() == before + 1);
}

TEST_CASE("a process that is lost before the switch costs the epoch only if it is a rank of it",
          "[control][planned][FLT-1]") {
  small_world scene;
  scene.prepare(epoch{3});
  SECTION("the new one") {
    scene.note(scene.state.on_session_lost(14, session_end::closed, scene.now));
    CHECK(scene.serves_on());
    CHECK(scene.told<drop_directive>(11).size() == 1);
    scene.pass(5s, {11, 12});
    CHECK(scene.told<id_wanted>(11).size() == 1); // nobody is there to grow with
  }
  SECTION("the new one, when the order is held: the same ranks go on in another epoch") {
    for (const session_id one : {11U, 12U}) hold(scene, one);
    scene.note(scene.state.on_order_held(true, scene.now));
    scene.note(scene.state.on_session_lost(14, session_end::closed, scene.now));
    for (const session_id one : {11U, 12U}) scene.say(one, drained_report{.of = epoch{2}});
    CHECK(scene.state.current_epoch() == epoch{4});
    scene.form({11, 12});
    CHECK(scene.phase() == control_phase::serving);
    CHECK(scene.state.event().ranks == 2);
  }
  SECTION("a rank") {
    scene.note(scene.state.on_session_lost(12, session_end::closed, scene.now));
    CHECK(scene.told<failure_directive>(11).size() == 1);
    CHECK(scene.told<drop_directive>(11).size() == 1);
    scene.form({11, 14});
    CHECK(scene.state.event().ranks == 2);
  }
}

TEST_CASE("a world is quiesced for more ranks where a change cannot be prepared, or has failed four times",
          "[control][planned]") {
  SECTION("its processes cannot") {
    small_world scene{"no"};
    scene.enter(14, 2, 1);
    CHECK(scene.told<quiesce_directive>(11).size() == 1);
    CHECK_FALSE(scene.told<quiesce_directive>(11).front().is_planned);
  }
  SECTION("its order cannot be held") {
    small_world scene;
    scene.state.can_hold_order(false);
    scene.enter(14, 2, 1);
    CHECK(scene.told<quiesce_directive>(11).size() == 1);
  }
  SECTION("it has failed") {
    small_world scene;
    scene.enter(14, 2, 1);
    for (int i = 0; i < 4; ++i) {
      REQUIRE(scene.told<id_wanted>(11).size() == static_cast<std::size_t>(i) + 1);
      CHECK(scene.told<quiesce_directive>(11).empty());
      scene.say(14,
                failed_report{.of = scene.told<id_wanted>(11).back().of, .why = {.code = errc::communicator_failed}});
      scene.pass(5s, {11, 12, 14});
    }
    CHECK(scene.told<id_wanted>(11).size() == 4);
    REQUIRE(scene.told<quiesce_directive>(11).size() == 1);
    CHECK_FALSE(scene.told<quiesce_directive>(11).front().is_planned);
  }
}

TEST_CASE("a world that stops gives a change up", "[control][planned]") {
  small_world scene;
  scene.prepare(epoch{3});
  scene.note(scene.state.on_stop(scene.now));
  CHECK(scene.phase() == control_phase::stopping);
  for (const session_id one : {11U, 12U, 14U}) CHECK(scene.told<drop_directive>(one).size() == 1);
}

namespace {

/// Asks for a change. Its number is \p id.
void ask(controller_scene& scene, change_id id, const rank_change& what, std::optional<session_id> asker = {}) {
  scene.note(scene.state.on_change_asked(id, asker, what, scene.now));
}

/// Lets the rank of \p place leave. The number of the change is that of the place.
void leave(controller_scene& scene, int place, bool renumbers) {
  ask(scene, static_cast<change_id>(place), {.kind = rank_change_kind::leave, .place = place, .renumbers = renumbers});
}

/// What control_effect::changed has answered for the change \p id.
std::vector<errc> answers_for(const controller_scene& scene, change_id id) {
  std::vector<errc> found;
  for (const auto& one : scene.all)
    if (const auto* done = std::get_if<control_effect::changed>(&one); done != nullptr && done->which == id)
      found.push_back(done->why.code);
  return found;
}

/// Does all that epoch \p of needs after it was prepared by \p next, up to its forming. \p now: the present ranks.
void switch_to(controller_scene& scene, epoch of, const std::vector<session_id>& now,
               const std::vector<session_id>& next) {
  const epoch last = scene.state.current_epoch();
  scene.say(next.front(), id_offer{of, {}});
  for (const session_id one : next) scene.say(one, formed_report{of});
  for (const session_id one : now) hold(scene, one);
  scene.note(scene.state.on_order_held(true, scene.now));
  for (const session_id one : now) scene.say(one, drained_report{.of = last});
  REQUIRE(scene.state.current_epoch() == of);
  for (const session_id one : next) scene.say(one, formed_report{of});
  REQUIRE(scene.phase() == control_phase::serving);
}

} // namespace

TEST_CASE("a rank that is asked to leave does so at the switch to an epoch without it, and is told to end",
          "[control][planned]") {
  small_world scene;
  leave(scene, 1, false);
  CHECK(answers_for(scene, 1).empty());
  REQUIRE(scene.told<id_wanted>(11).empty()); // one rank would remain, which has no order to go on in
  REQUIRE(scene.told<quiesce_directive>(11).size() == 1);
  for (const session_id one : {11U, 12U}) scene.say(one, drained_report{.of = epoch{2}});
  CHECK(scene.told<stop_directive>(12).size() == 1);
  CHECK(answers_for(scene, 1) == std::vector{errc::none});
  scene.say(11, formed_report{epoch{3}});
  CHECK(scene.state.event().ranks == 1);
}

TEST_CASE("ranks leave and come as planned, and keep their numbers", "[control][planned]") {
  small_world scene;
  scene.enter(14, 2, 1);
  switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
  scene.all.clear();
  SECTION("the last one") {
    leave(scene, 2, false);
    REQUIRE(scene.told<id_wanted>(11).size() == 1);
    switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
    CHECK(scene.told<prepare_directive>(14).empty());
    CHECK(scene.told<hold_wanted>(14).size() == 1); // its requests end, too
    CHECK(scene.told<formation_directive>(14).empty());
    REQUIRE(scene.told<stop_directive>(14).size() == 1);
    CHECK(scene.told<stop_directive>(14).front().why.code == errc::stopping);
    CHECK(answers_for(scene, 2) == std::vector{errc::none});
    scene.say(14, leave_notice{});
    scene.note(scene.state.on_session_lost(14, session_end::closed, scene.now)); // it has ended, and its lease with it
    scene.pass(2s, {11, 12});
    CHECK(scene.phase() == control_phase::serving);
    CHECK(scene.told<id_wanted>(11).size() == 1); // it does not take its own place again
    scene.enter(15, 2, 2);
    CHECK(scene.told<id_wanted>(11).size() == 2);
  }
  SECTION("and the next change waits for no lease of one that has ended its epoch, whose end nobody has seen") {
    scene.pass(250ms, {11, 12, 14}); // all have leases
    leave(scene, 2, false);
    switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
    scene.note(scene.state.on_session_lost(14, session_end::broken, scene.now));
    scene.all.clear();
    scene.enter(15, 2, 2);
    CHECK(scene.told<id_wanted>(11).size() == 1);
  }
  SECTION("one that is replaced by a process that stands by") {
    scene.join(20, 0, [](join_request& asked) {
      asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
      asked.spare = true;
    });
    leave(scene, 0, false);
    REQUIRE(scene.told<id_wanted>(20).size() == 1);
    switch_to(scene, epoch{4}, {11, 12, 14}, {20, 12, 14});
    CHECK(scene.state.rank_of(20, epoch{4}) == rank{0});
    CHECK(scene.state.rank_of(12, epoch{4}) == rank{1});
    CHECK(scene.state.rank_of(14, epoch{4}) == rank{2});
    CHECK(scene.told<stop_directive>(11).size() == 1);
  }
  SECTION("not one in front of others, unless that is allowed") {
    leave(scene, 0, false);
    CHECK(answers_for(scene, 0) == std::vector{errc::invalid_argument});
    leave(scene, 7, true);
    CHECK(answers_for(scene, 7) == std::vector{errc::invalid_argument});
    CHECK(scene.told<id_wanted>(12).empty());
    leave(scene, 0, true);
    switch_to(scene, epoch{4}, {11, 12, 14}, {12, 14});
    CHECK(scene.state.rank_of(14, epoch{4}) == rank{1});
  }
  SECTION("not after a fault that came first: it stays") {
    leave(scene, 2, false);
    scene.note(scene.state.on_session_lost(12, session_end::closed, scene.now));
    CHECK(answers_for(scene, 2) == std::vector{errc::communicator_failed});
    scene.form({11, 14});
    CHECK(scene.state.event().ranks == 2);
    CHECK(scene.state.rank_of(14, scene.state.current_epoch()) == rank{1});
  }
  SECTION("and one that ends before its turn has left with the fault") {
    leave(scene, 2, false);
    scene.note(scene.state.on_session_lost(14, session_end::closed, scene.now));
    CHECK(answers_for(scene, 2) == std::vector{errc::none});
  }
}

TEST_CASE("a change that is asked for while an order service is to hold the order waits for that one",
          "[control][planned]") {
  small_world scene;
  scene.prepare(epoch{3});
  for (const session_id one : {11U, 12U}) scene.say(one, held_notice{epoch{2}, epoch{3}});
  REQUIRE(scene.state.waits_for_order());
  scene.all.clear();
  scene.note(scene.state.on_change_asked(1, 12, {.kind = rank_change_kind::leave, .renumbers = true}, scene.now));
  CHECK(scene.told<drop_directive>(11).empty());
  const bool is_held = GENERATE(true, false);
  scene.note(scene.state.on_order_held(is_held, scene.now));
  if (is_held) {
    for (const session_id one : {11U, 12U}) scene.say(one, drained_report{.of = epoch{2}});
    scene.form({11, 12, 14});
    REQUIRE(scene.state.current_epoch() == epoch{3});
  } else {
    CHECK(scene.told<drop_directive>(11).size() == 1);
    scene.pass(20ms, {11, 12, 14});
  }
  for (const auto& one : scene.all)
    if (const auto* const answered = std::get_if<control_effect::changed>(&one)) FAIL_CHECK(to_string(answered->why));
  const world_processes all = scene.state.processes();
  CHECK(std::ranges::count_if(all, [](const auto& one) { return one.is_leaving; }) == 1);
}

TEST_CASE("a rank that is asked to leave while the world switches leaves with the next change", "[control][planned]") {
  small_world scene;
  scene.enter(14, 2, 1);
  scene.say(11, id_offer{epoch{3}, {}});
  for (const session_id one : {11, 12, 14}) scene.say(one, formed_report{epoch{3}});
  for (const session_id one : {11, 12}) hold(scene, one);
  scene.note(scene.state.on_order_held(true, scene.now));
  REQUIRE(scene.phase() == control_phase::quiescing);
  leave(scene, 2, false);
  ask(scene, 7, {.kind = rank_change_kind::drain, .host = "elsewhere"});
  CHECK(answers_for(scene, 2).empty());
  SECTION("which begins when the epoch serves") {
    for (const session_id one : {11, 12}) scene.say(one, drained_report{.of = epoch{2}});
    ask(scene, 1, {.kind = rank_change_kind::leave, .place = 0});
    for (const session_id one : {11, 12, 14}) scene.say(one, formed_report{epoch{3}});
    CHECK(answers_for(scene, 7) == std::vector{errc::invalid_argument});
    CHECK(answers_for(scene, 1) == std::vector{errc::invalid_argument}); // rank 1 would become rank 0
    CHECK(answers_for(scene, 2).empty());
    REQUIRE(scene.told<id_wanted>(11).size() == 2);
    switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
    CHECK(answers_for(scene, 2) == std::vector{errc::none});
    CHECK(scene.told<stop_directive>(14).size() == 1);
  }
  SECTION("and stays if the switch fails") {
    scene.note(scene.state.on_session_lost(12, session_end::closed, scene.now));
    CHECK(answers_for(scene, 2) == std::vector{errc::communicator_failed});
    CHECK(answers_for(scene, 7) == std::vector{errc::communicator_failed});
    scene.form({11, 14});
    CHECK(scene.state.rank_of(14, scene.state.current_epoch()) == rank{1});
  }
}

TEST_CASE("a rank that is lost or has a fault after all have drained ends what they hold",
          "[control][planned][FLT-1][CUT-1]") {
  small_world scene;
  scene.enter(14, 2, 1);
  switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
  leave(scene, 2, false);
  scene.say(14, heartbeat{});
  switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
  scene.all.clear();
  scene.enter(15, 2, 2);
  scene.say(11, id_offer{epoch{5}, {}});
  for (const session_id one : {11, 12, 15}) scene.say(one, formed_report{epoch{5}});
  for (const session_id one : {11, 12}) hold(scene, one);
  scene.note(scene.state.on_order_held(true, scene.now));
  // One that has left does not concern the change, but the next epoch begins only when it has come back: the controller
  // was paused, and the connection has ended meanwhile.
  scene.now += 1min;
  scene.note(scene.state.on_session_lost(14, session_end::closed, scene.now));
  CHECK(scene.told<drop_directive>(11).empty());
  for (const session_id one : {11, 12}) scene.say(one, drained_report{.of = epoch{4}});
  REQUIRE(scene.phase() == control_phase::rebuilding);
  SECTION("nothing happens, and they go on in the epoch that was prepared") {
    scene.join(24, 2, [](join_request& asked) {
      asked.who = {.name = "14", .host = "here", .pid = 14};
      asked.attempt = 1;
      asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
    });
    REQUIRE(scene.told<formation_directive>(11).size() == 1);
    CHECK(scene.told<formation_directive>(11).front().of == epoch{5});
    CHECK(scene.told<failure_directive>(11).empty());
  }
  SECTION("one is lost") {
    scene.note(scene.state.on_session_lost(12, session_end::closed, scene.now));
    REQUIRE(scene.told<failure_directive>(11).size() == 1);
    CHECK(scene.told<failure_directive>(11).front().of == epoch{4});
    CHECK(scene.state.event().reason.code == errc::communicator_failed);
  }
  SECTION("one has a fault") {
    scene.say(12, failed_report{.of = epoch{4}, .why = {.code = errc::device_failed, .text = "a fault"}});
    REQUIRE(scene.told<failure_directive>(11).size() == 1);
    CHECK(scene.state.event().reason.text == "a fault");
  }
}

TEST_CASE("a rank that remains alone because a new process is lost at the switch refuses what it holds",
          "[control][planned][CUT-1]") {
  small_world scene;
  scene.enter(14, 2, 1);
  leave(scene, 1, true);
  REQUIRE_FALSE(scene.told<id_wanted>(11).empty());
  const epoch next = scene.told<id_wanted>(11).back().of;
  scene.say(11, id_offer{next, {}});
  for (const session_id one : {11, 14}) scene.say(one, formed_report{next});
  for (const session_id one : {11, 12}) hold(scene, one);
  scene.note(scene.state.on_order_held(true, scene.now));
  scene.note(scene.state.on_session_lost(14, session_end::closed, scene.now));
  for (const session_id one : {11, 12}) scene.say(one, drained_report{.of = epoch{2}});
  REQUIRE(scene.told<formation_directive>(11).size() == 1);
  CHECK(scene.told<formation_directive>(11).front().world_size == 1);
  REQUIRE(scene.told<failure_directive>(11).size() == 1);
  CHECK(scene.told<failure_directive>(11).front().of == scene.state.current_epoch());
  const auto opened = std::ranges::find_if(
      scene.all, [](const auto& one) { return std::holds_alternative<control_effect::open_order>(one); });
  REQUIRE(opened != scene.all.end());
  CHECK(std::get<control_effect::open_order>(*opened).before.empty());
}

TEST_CASE("a controller that is started again uses no number of an epoch that was prepared",
          "[control][planned][EPO-1]") {
  controller_scene scene{terms_of(2)};
  for (const int place : {0, 1})
    scene.join(11 + static_cast<session_id>(place), place, [&](join_request& asked) {
      asked.last_epoch = epoch{2};
      asked.last_ranks = {"11", "12"};
      asked.prepared = epoch{place == 0 ? 5U : 0U};
    });
  REQUIRE(scene.phase() == control_phase::forming);
  CHECK(scene.state.current_epoch() == epoch{6});
}

TEST_CASE("a rank does not leave if too few would remain", "[control][planned]") {
  controller_scene scene{terms_of(2)};
  for (const int place : {0, 1}) scene.join(11 + static_cast<session_id>(place), place);
  leave(scene, 1, true); // it does not serve yet
  scene.form({11, 12});
  leave(scene, 1, true);
  CHECK(answers_for(scene, 1) == std::vector{errc::rebuilding, errc::invalid_argument});
  CHECK(scene.phase() == control_phase::serving);
}

namespace {

/// A process on another host than those of small_world, which stands by if it is a \p spare.
void enter_elsewhere(controller_scene& scene, session_id link, int place, bool spare) {
  scene.join(link, place, [&](join_request& asked) {
    asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
    asked.who.host = "there";
    asked.spare = spare;
    asked.attempt = 1;
  });
}

/// A process that has left ends, and its lease with it.
void end(controller_scene& scene, session_id link) {
  scene.say(link, leave_notice{});
  scene.note(scene.state.on_session_lost(link, session_end::closed, scene.now));
}

} // namespace

TEST_CASE("all processes of a host leave at once if the world can go on without them, spares included",
          "[control][planned]") {
  small_world scene;
  enter_elsewhere(scene, 14, 2, false);
  switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
  scene.all.clear();
  const rank_change drain{.kind = rank_change_kind::drain, .host = "there"};
  SECTION("its rank, which is the last one, and its spare") {
    enter_elsewhere(scene, 15, 0, true);
    ask(scene, 50, drain);
    CHECK(scene.told<stop_directive>(15).empty()); // the change may still fail
    CHECK(answers_for(scene, 50).empty());
    switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
    CHECK(answers_for(scene, 50) == std::vector{errc::none});
    for (const session_id one : {14U, 15U}) CHECK(scene.told<stop_directive>(one).size() == 1);
    CHECK(scene.state.processes().front().self == rank{0});
  }
  SECTION("its spare alone: no epoch follows") {
    ask(scene, 50, {.kind = rank_change_kind::leave, .place = 2});
    switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
    end(scene, 14);
    enter_elsewhere(scene, 15, 1, true); // takes the free place
    switch_to(scene, epoch{5}, {11, 12}, {11, 12, 15});
    enter_elsewhere(scene, 16, 1, true);
    scene.all.clear();
    scene.join(17, 0, [](join_request& asked) {
      asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
      asked.spare = true;
      asked.who.host = "yonder";
    });
    ask(scene, 51, {.kind = rank_change_kind::drain, .host = "yonder"});
    CHECK(answers_for(scene, 51) == std::vector{errc::none});
    CHECK(scene.told<stop_directive>(17).size() == 1);
    CHECK(scene.told<id_wanted>(11).empty());
  }
  SECTION("its rank, which leaves already, and its spare: the host is free when the rank has left") {
    ask(scene, 50, {.kind = rank_change_kind::leave, .place = 2});
    enter_elsewhere(scene, 15, 0, true);
    ask(scene, 51, drain);
    CHECK(answers_for(scene, 51).empty());
    ask(scene, 52, drain); // all leave already
    CHECK(answers_for(scene, 52) == std::vector{errc::invalid_argument});
    switch_to(scene, epoch{5}, {11, 12, 14}, {11, 12});
    for (const change_id id : {50, 51}) CHECK(answers_for(scene, id) == std::vector{errc::none});
  }
  SECTION("no such host") {
    ask(scene, 50, {.kind = rank_change_kind::drain, .host = "nowhere"});
    CHECK(answers_for(scene, 50) == std::vector{errc::invalid_argument});
  }
  SECTION("ranks behind its own would get other numbers") {
    ask(scene, 50, {.kind = rank_change_kind::drain, .host = "here"});
    CHECK(answers_for(scene, 50) == std::vector{errc::invalid_argument});
    CHECK(scene.told<id_wanted>(11).empty());
    ask(scene, 51, {.kind = rank_change_kind::drain, .host = "here", .renumbers = true});
    CHECK(answers_for(scene, 51).empty());
  }
  SECTION("no rank would remain") {
    ask(scene, 50, drain);
    switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
    end(scene, 14);
    enter_elsewhere(scene, 15, 0, true);
    switch_to(scene, epoch{5}, {11, 12}, {11, 12, 15});
    ask(scene, 51, {.kind = rank_change_kind::leave, .place = 2});
    switch_to(scene, epoch{6}, {11, 12, 15}, {11, 12});
    end(scene, 15);
    ask(scene, 52, {.kind = rank_change_kind::drain, .host = "here", .renumbers = true});
    CHECK(answers_for(scene, 52) == std::vector{errc::invalid_argument});
    CHECK(scene.phase() == control_phase::serving);
  }
}

TEST_CASE("a host whose ranks must be replaced is drained only if processes elsewhere stand by", "[control][planned]") {
  controller_scene scene{terms_of(3)}; // keeps its size
  for (const int place : {0, 1})
    scene.join(11 + static_cast<session_id>(place), place, [](join_request& asked) {
      asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
    });
  enter_elsewhere(scene, 14, 2, false);
  scene.form({11, 12, 14});
  scene.state.can_hold_order(true);
  scene.all.clear();
  const rank_change drain{.kind = rank_change_kind::drain, .host = "there"};
  enter_elsewhere(scene, 15, 2, true);
  ask(scene, 50, drain); // the spare is on the same host
  CHECK(answers_for(scene, 50) == std::vector{errc::invalid_argument});
  CHECK(scene.told<stop_directive>(15).empty());
  scene.join(16, 0, [](join_request& asked) {
    asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
    asked.spare = true;
  });
  ask(scene, 51, drain);
  CHECK(answers_for(scene, 51).empty());
  switch_to(scene, epoch{2}, {11, 12, 14}, {11, 12, 16});
  CHECK(answers_for(scene, 51) == std::vector{errc::none});
  CHECK(scene.state.rank_of(16, epoch{2}) == rank{2});
}

TEST_CASE("a process that was to take the place of a rank stands by again if that rank stays", "[control][planned]") {
  small_world scene;
  scene.enter(14, 2, 1);
  switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
  SECTION("one that stood by") {
    enter_elsewhere(scene, 15, 1, true);
    ask(scene, 50, {.kind = rank_change_kind::leave, .place = 1});
  }
  SECTION("one that joins meanwhile") {
    ask(scene, 50, {.kind = rank_change_kind::leave, .place = 1, .renumbers = true});
    scene.enter(15, 1, 1);
  }
  scene.say(14, failed_report{.of = epoch{3}, .why = {.code = errc::communicator_failed, .text = "it broke"}});
  CHECK(answers_for(scene, 50) == std::vector{errc::communicator_failed});
  scene.now += terms_of(3).settle;
  scene.note(scene.state.on_tick(scene.now));
  REQUIRE(scene.phase() == control_phase::forming);
  const epoch next = scene.state.current_epoch();
  CHECK(scene.state.rank_of(12, next) == rank{1});
  CHECK(scene.state.rank_of(15, next) == std::nullopt);
  const auto all = scene.state.processes();
  CHECK(std::ranges::count_if(all, [](const world_process& one) { return one.place == 1; }) == 1);
}

TEST_CASE(
    "a rank that leaves stays if the process that was to take its place is lost, and other numbers are not allowed",
    "[control][planned]") {
  small_world scene;
  scene.enter(14, 2, 1);
  switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
  enter_elsewhere(scene, 15, 1, true);
  const auto lose = [&] { scene.note(scene.state.on_session_lost(15, session_end::closed, scene.now)); };
  SECTION("while the communicators form") {
    leave(scene, 1, false);
    lose();
    scene.pass(2s, {11, 12, 14});
    CHECK(scene.state.current_epoch() == epoch{3});
  }
  SECTION("when the order is held: the same ranks go on in another epoch") {
    leave(scene, 1, false);
    scene.say(11, id_offer{epoch{4}, {}});
    for (const session_id one : {11, 15, 14}) scene.say(one, formed_report{epoch{4}});
    for (const session_id one : {11, 12, 14}) hold(scene, one);
    scene.note(scene.state.on_order_held(true, scene.now));
    lose();
    for (const session_id one : {11, 12, 14}) scene.say(one, drained_report{.of = epoch{3}});
    CHECK(scene.state.current_epoch() == epoch{5});
    scene.form({11, 12, 14});
  }
  SECTION("but not if they are allowed") {
    leave(scene, 1, true);
    lose();
    CHECK(answers_for(scene, 1).empty());
    scene.pass(2s, {11, 12, 14});
    switch_to(scene, epoch{5}, {11, 12, 14}, {11, 14});
    CHECK(answers_for(scene, 1) == std::vector{errc::none});
    CHECK(scene.state.rank_of(14, epoch{5}) == rank{1});
    return;
  }
  CHECK(scene.phase() == control_phase::serving);
  CHECK(answers_for(scene, 1) == std::vector{errc::invalid_argument});
  CHECK(scene.told<failure_directive>(11).empty());
  CHECK(scene.state.rank_of(12, scene.state.current_epoch()) == rank{1});
  CHECK(scene.state.rank_of(14, scene.state.current_epoch()) == rank{2});
}

namespace {

/// A world of two that serves with 11 and 12, which are to leave. 21 and 22 are to take their places.
struct replaced_world : controller_scene {
  replaced_world() : controller_scene{terms_of(2, recovery_policy::shrink)} {
    for (const int place : {0, 1})
      join(11 + static_cast<session_id>(place), place, [](join_request& asked) {
        asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
      });
    form({11, 12});
    state.can_hold_order(true);
    for (const int place : {0, 1}) enter_elsewhere(*this, 21 + static_cast<session_id>(place), place, true);
    for (const int place : {0, 1}) leave(*this, place, false);
    REQUIRE(told<id_wanted>(21).size() == 2);
  }
  void lose(session_id link) { note(state.on_session_lost(link, session_end::closed, now)); }
};

} // namespace

TEST_CASE("ranks that all leave stay if the processes that were to take their places are lost",
          "[control][planned][FLT-1]") {
  replaced_world scene;
  scene.lose(22);
  REQUIRE(scene.phase() == control_phase::quiescing); // one rank would remain
  scene.lose(21);
  for (const session_id one : {11, 12}) scene.say(one, drained_report{.of = epoch{1}});
  for (const change_id id : {0, 1}) CHECK(answers_for(scene, id) == std::vector{errc::invalid_argument});
  REQUIRE(scene.phase() == control_phase::forming);
  scene.form({11, 12});
  CHECK(scene.phase() == control_phase::serving);
  CHECK(scene.state.event().ranks == 2);
}

TEST_CASE("a world goes on when all ranks that have served left as planned, and the next epoch fails",
          "[control][planned][FLT-1]") {
  replaced_world scene;
  const epoch next = scene.told<id_wanted>(21).back().of;
  scene.say(21, id_offer{next, {}});
  for (const session_id one : {21, 22}) scene.say(one, formed_report{next});
  for (const session_id one : {11, 12}) hold(scene, one);
  scene.note(scene.state.on_order_held(true, scene.now));
  for (const session_id one : {11, 12}) scene.say(one, drained_report{.of = epoch{1}});
  REQUIRE(scene.state.current_epoch() == next);
  for (const change_id id : {0, 1}) CHECK(answers_for(scene, id) == std::vector{errc::none});
  scene.say(21, failed_report{.of = next, .why = {.code = errc::communicator_failed, .text = "it broke"}});
  for (const session_id one : {11, 12}) end(scene, one);
  CHECK(scene.phase() == control_phase::rebuilding);
  scene.pass(1s, {21, 22});
  scene.form({21, 22});
  CHECK(scene.phase() == control_phase::serving);
  CHECK(scene.state.event().ranks == 2);
}

TEST_CASE("a process leaves by its own request, and one that stands by or is unknown cannot", "[control][planned]") {
  small_world scene;
  scene.enter(14, 2, 1);
  switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
  scene.all.clear();
  const rank_change leaving{.kind = rank_change_kind::leave};
  ask(scene, 50, leaving, 99);
  ask(scene, 51, leaving);
  for (const change_id id : {50, 51}) CHECK(answers_for(scene, id) == std::vector{errc::invalid_argument});
  ask(scene, 52, leaving, 14);
  ask(scene, 53, leaving, 14); // it leaves already
  CHECK(answers_for(scene, 53) == std::vector{errc::invalid_argument});
  switch_to(scene, epoch{4}, {11, 12, 14}, {11, 12});
  CHECK(answers_for(scene, 52) == std::vector{errc::none});
  // The process has the answer before it is told to end.
  const auto index_of = [&](auto which) { return std::ranges::find_if(scene.all, which) - scene.all.begin(); };
  CHECK(index_of([](const auto& one) {
          const auto* done = std::get_if<control_effect::changed>(&one);
          return done != nullptr && done->which == 52;
        }) < index_of([](const auto& one) {
          const auto* sent = std::get_if<control_effect::send>(&one);
          return sent != nullptr && sent->to == 14 && std::holds_alternative<stop_directive>(sent->what);
        }));
}

TEST_CASE("a process that is asked for is wanted of the launcher, and the answer comes when it serves",
          "[control][planned][TIM-1]") {
  small_world scene;
  const rank_change joining{.kind = rank_change_kind::join, .place = 2};
  ask(scene, 50, {.kind = rank_change_kind::join, .place = 1});
  ask(scene, 51, {.kind = rank_change_kind::join, .place = 3});
  for (const change_id id : {50, 51}) CHECK(answers_for(scene, id) == std::vector{errc::invalid_argument});
  CHECK(scene.count<control_effect::request_process>() == 0);
  ask(scene, 52, joining);
  CHECK(scene.count<control_effect::request_process>() == 1);
  SECTION("it comes") {
    scene.enter(14, 2, 1);
    CHECK(answers_for(scene, 52).empty());
    switch_to(scene, epoch{3}, {11, 12}, {11, 12, 14});
    CHECK(answers_for(scene, 52) == std::vector{errc::none});
    ask(scene, 53, {.kind = rank_change_kind::join});
    CHECK(answers_for(scene, 53) == std::vector{errc::invalid_argument}); // no place is free
  }
  SECTION("it does not come in time") {
    scene.pass(scene.state.terms().gather + 1s, {11, 12});
    CHECK(answers_for(scene, 52) == std::vector{errc::deadline_exceeded});
  }
  SECTION("the world stops") {
    scene.note(scene.state.on_stop(scene.now));
    CHECK(answers_for(scene, 52) == std::vector{errc::stopping});
  }
}

} // namespace troupe::tests::planned_change_state_test
