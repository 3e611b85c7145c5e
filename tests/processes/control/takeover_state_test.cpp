/// A controller's decisions when it takes a world over from another one (docs/design/0119-controller-store.md).
#include "support/controller_scene.hpp"

#include <troupe/processes/store/leader_claim.hpp>
#include <troupe/processes/store/memory_store.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

namespace troupe::tests::takeover_state_test {

namespace {

constexpr nanoseconds lease = 9s;                   // nine tenths of the suspicion time
constexpr nanoseconds waited = lease + lease / 100; // with the bound for clocks that run apart

controller_terms terms_with_successors(int size, recovery_policy policy = recovery_policy::shrink) {
  controller_terms terms = terms_of(size, policy);
  terms.has_successors = true;
  return terms;
}

std::vector<control_record> decisions_of(const controller_scene& world) {
  std::vector<control_record> found;
  for (const auto& one : world.all)
    if (const auto* decided = std::get_if<control_effect::decide>(&one)) found.push_back(decided->what);
  return found;
}

/// A world of \p size that serves in epoch 1, and whose leases outlast their connections.
controller_scene serving_scene(int size = 3) {
  controller_scene world{terms_with_successors(size)};
  world.note(world.state.take_over(std::nullopt, world.now));
  std::vector<session_id> all;
  for (int place = 0; place < size; ++place) all.push_back(11 + 2 * static_cast<session_id>(place));
  for (int place = 0; place < size; ++place) world.join(all[static_cast<std::size_t>(place)], place);
  world.form(all);
  world.state.note_outlasting(epoch{1}, true);
  world.pass(2s, all);
  REQUIRE(world.phase() == control_phase::serving);
  return world;
}

/// Another controller of that world, which was elected a second later.
controller_scene successor_of(const controller_scene& former) {
  controller_scene next{terms_with_successors(former.state.terms().world_size)};
  next.now = former.now + 1s;
  next.note(next.state.take_over(decisions_of(former).back(), next.now));
  return next;
}

/// The process of \p place joins again, as the one that it was.
void come_back(controller_scene& world, session_id link, int place, epoch kept) {
  const session_id before = 11 + 2 * static_cast<session_id>(place);
  world.join(link, place, [&](join_request& asked) {
    asked.who = {.name = std::to_string(before), .host = "here", .pid = static_cast<std::int64_t>(before)};
    asked.last_epoch = epoch{1};
    asked.last_ranks = {"11", "13", "15"};
    asked.last_lease = lease;
    asked.kept = kept;
  });
}

nanoseconds time_to_form(controller_scene& world, const std::vector<session_id>& alive) {
  const boot_time began = world.now;
  while (world.phase() != control_phase::forming && world.now - began < 1min) world.pass(20ms, alive);
  return world.now - began;
}

} // namespace

TEST_CASE("a decision is written before the effects that follow from it", "[control][takeover]") {
  controller_scene world{terms_with_successors(2)};
  world.note(world.state.take_over(std::nullopt, world.now));
  REQUIRE(decisions_of(world).size() == 1); // its own incarnation, and the longest lease before any is granted
  CHECK(decisions_of(world)[0].incarnation == 1);
  CHECK(decisions_of(world)[0].longest_lease == lease);
  world.join(11, 0);
  world.all.clear();
  world.join(13, 1);
  bool is_decided = false;
  for (const auto& one : world.all) {
    if (const auto* decided = std::get_if<control_effect::decide>(&one)) {
      is_decided = true;
      CHECK(decided->what.of == epoch{1});
      REQUIRE(decided->what.ranks.size() == 2);
      CHECK(decided->what.ranks[1].who.name == "13");
      CHECK(decided->what.ranks[1].place == 1);
      CHECK(decided->what.longest_lease == lease);
    }
    const auto* sent = std::get_if<control_effect::send>(&one);
    const bool follows =
        sent && (std::holds_alternative<id_wanted>(sent->what) || std::holds_alternative<commits_wanted>(sent->what));
    if (follows) CHECK(is_decided);
  }
  CHECK(is_decided);
}

TEST_CASE("the number of an epoch is written before a process is told to prepare it (EPO-1)",
          "[control][takeover][planned][EPO-1]") {
  controller_scene world{terms_with_successors(3)};
  world.note(world.state.take_over(std::nullopt, world.now));
  const auto enter = [&](session_id link, int place) {
    world.join(link, place, [&](join_request& asked) {
      asked.facts.push_back({std::string{fact_of_planned_changes}, "yes"});
    });
  };
  for (const int place : {0, 1, 2}) enter(11 + 2 * static_cast<session_id>(place), place);
  world.form({11, 13, 15});
  world.state.can_hold_order(true);
  world.all.clear();
  world.note(world.state.on_change_asked(1, 15, {.kind = rank_change_kind::leave}, world.now));
  REQUIRE(decisions_of(world).size() == 1);
  CHECK(decisions_of(world)[0].of == epoch{1});
  CHECK(decisions_of(world)[0].latest == epoch{2});
  const auto is_first = std::holds_alternative<control_effect::decide>(world.all.front());
  CHECK(is_first);
  REQUIRE(world.told<id_wanted>(11).size() == 1);
  CHECK(world.told<id_wanted>(11)[0].of == epoch{2});
  controller_scene next = successor_of(world);
  for (const int place : {0, 1, 2}) come_back(next, 21 + 2 * static_cast<session_id>(place), place, {});
  CHECK(next.state.current_epoch() == epoch{3});
}

TEST_CASE("without successors nothing is written", "[control][takeover]") {
  controller_scene world{terms_of(1)};
  world.join(11, 0);
  world.form({11});
  world.note(world.state.on_stop(world.now));
  CHECK(decisions_of(world).empty());
}

TEST_CASE("a successor takes over an epoch that serves, if all its ranks return to it", "[control][takeover][MEM-1]") {
  const controller_scene former = serving_scene();
  controller_scene next = successor_of(former);
  CHECK(decisions_of(next).back().incarnation == 2);
  CHECK(decisions_of(next).back().ranks.size() == 3);
  CHECK(next.phase() == control_phase::serving);
  std::ptrdiff_t away = 3;
  for (const int place : {2, 0, 1}) {
    CHECK(std::ranges::count_if(next.state.processes(), &world_process::is_away) == away--);
    const auto link = 21 + 2 * static_cast<session_id>(place);
    come_back(next, link, place, epoch{1});
    REQUIRE(next.told<join_welcome>(link).size() == 1);
    CHECK(next.told<join_welcome>(link)[0].has_successors);
    REQUIRE(next.told<lease_grant>(link).size() == 1);
    CHECK(next.told<lease_grant>(link)[0].of == epoch{1});
    CHECK(next.told<lease_grant>(link)[0].number == 0);
    CHECK(next.state.rank_of(link, epoch{1}) == rank{place});
  }
  next.pass(1min, {21, 23, 25});
  CHECK(next.phase() == control_phase::serving);
  CHECK(next.state.current_epoch() == epoch{1});
  for (const session_id link : {21U, 23U, 25U}) {
    CHECK(next.told<failure_directive>(link).empty());
    CHECK(next.told<commits_wanted>(link).empty());
  }
}

TEST_CASE("a rank that does not return to a successor is waited for until its lease has ended (MEM-1)",
          "[control][takeover][MEM-1]") {
  controller_scene next = successor_of(serving_scene());
  come_back(next, 21, 0, epoch{1});
  come_back(next, 23, 1, epoch{1});
  const nanoseconds took = time_to_form(next, {21, 23});
  CHECK(took > waited);
  CHECK(took <= next.state.terms().suspicion + 60ms);
  CHECK(next.state.current_epoch() == epoch{2});
  CHECK(next.told<failure_directive>(21).size() == 1);
}

TEST_CASE("a rank that returns without its epoch ends that, and all form the next at once", "[control][takeover]") {
  controller_scene next = successor_of(serving_scene());
  come_back(next, 21, 0, epoch{1});
  come_back(next, 23, 1, epoch{0});
  REQUIRE(next.told<failure_directive>(21).size() == 1);
  CHECK(next.phase() == control_phase::rebuilding); // it waits for the third
  come_back(next, 25, 2, epoch{1});
  REQUIRE(next.told<failure_directive>(25).size() == 1); // it does not go on alone
  CHECK(next.told<failure_directive>(25)[0].of == epoch{1});
  CHECK(time_to_form(next, {21, 23, 25}) <= 100ms);
  CHECK(next.state.current_epoch() == epoch{2});
  CHECK(decisions_of(next).back().of == epoch{2});
}

TEST_CASE("an epoch that was decided and had not formed is followed by the next, without a wait",
          "[control][takeover]") {
  controller_scene former{terms_with_successors(3)};
  former.note(former.state.take_over(std::nullopt, former.now));
  for (const int place : {0, 1, 2}) former.join(11 + 2 * static_cast<session_id>(place), place);
  REQUIRE(former.phase() == control_phase::forming);
  controller_scene next = successor_of(former);
  for (const int place : {0, 1, 2}) come_back(next, 21 + 2 * static_cast<session_id>(place), place, epoch{0});
  CHECK(time_to_form(next, {21, 23, 25}) <= 100ms);
  CHECK(next.state.current_epoch() == epoch{2});
}

TEST_CASE("a process that is no rank of the latest epoch may still serve an earlier one, and is waited for (MEM-1)",
          "[control][takeover][MEM-1]") {
  controller_scene former = serving_scene();
  // The third is lost, and nothing proves its end: its lease is waited for, then the others are decided on.
  former.state.note_outlasting(epoch{1}, false);
  former.note(former.state.on_session_lost(15, session_end::broken, former.now));
  former.note(former.state.on_stop(former.now)); // writes what it knows
  control_record record = decisions_of(former).back();
  REQUIRE(record.others.size() == 3);
  record.is_over = false;
  record.of = epoch{2};
  record.ranks.clear();
  controller_scene next{terms_with_successors(3)};
  next.now = former.now + 1s;
  next.note(next.state.take_over(record, next.now));
  CHECK(next.state.records_of_others() == 3);
}

TEST_CASE("a process that takes the place of a rank which has not returned does not prove that rank's end (MEM-1)",
          "[control][takeover][MEM-1]") {
  controller_scene next = successor_of(serving_scene());
  come_back(next, 21, 0, epoch{1});
  come_back(next, 23, 1, epoch{1});
  next.join(31, 2, [](join_request& asked) { asked.attempt = 1; });
  CHECK(next.told<failure_directive>(21).size() == 1);
  CHECK(time_to_form(next, {21, 23, 31}) > waited - 20ms);
  CHECK(next.state.event().ranks == 3);
}

TEST_CASE("a controller counts its claim from when it asked, and by one per cent less than the store (MEM-1)",
          "[control][takeover][MEM-1]") {
  boot_time now{1h};
  const auto shared = std::make_shared<memory_store_state>([&] { return now; });
  const auto claim = leader_claim::campaign(std::make_shared<memory_store>(shared), "one", 3s, now);
  REQUIRE(claim);
  CHECK(claim->valid_until() == now + 2970ms);
  CHECK_FALSE(leader_claim::campaign(std::make_shared<memory_store>(shared), "other", 3s, now));
  now += 1s;
  claim->renew(now);
  CHECK(claim->valid_until() == now + 2970ms);
  CHECK(claim->decide("a decision"));
  shared->cut(true);
  const boot_time before = claim->valid_until();
  now += 2s;
  claim->renew(now);
  CHECK(claim->valid_until() == before); // a store that does not answer proves nothing
  CHECK(claim->failure().code == errc::missing);
  CHECK_FALSE(claim->is_lost(before));
  CHECK(claim->is_lost(before + 1ns));
  shared->cut(false);
  now = before + 1s;
  CHECK_FALSE(claim->decide("too late"));
  CHECK(shared->decisions() == 1);
  const auto next = leader_claim::campaign(std::make_shared<memory_store>(shared), "other", 3s, now);
  REQUIRE(next);
  CHECK(next->record() == "a decision");
  next->resign();
  CHECK(next->is_lost(now));
  CHECK_FALSE(shared->view().leader);
}

TEST_CASE("a controller grants no lease after the end of its claim (MEM-1)", "[control][takeover][MEM-1]") {
  controller_scene world = serving_scene();
  world.all.clear();
  world.state.claim_until(world.now + 1s);
  world.say(11, heartbeat{1});
  CHECK(world.told<lease_grant>(11).size() == 1);
  world.now += 1s + 1ns;
  world.say(11, heartbeat{2});
  CHECK(world.told<lease_grant>(11).size() == 1);
  world.state.claim_until(world.now + 1s);
  world.say(11, heartbeat{3});
  CHECK(world.told<lease_grant>(11).size() == 2);
}

TEST_CASE("the end of a connection that a lease outlasts proves nothing, and its rank goes on when it returns (MEM-1)",
          "[control][takeover][MEM-1]") {
  controller_scene world = serving_scene();
  world.all.clear();
  world.note(world.state.on_session_lost(13, session_end::closed, world.now));
  world.pass(1s, {11, 15});
  CHECK(world.phase() == control_phase::serving);
  SECTION("it returns") {
    come_back(world, 23, 1, epoch{1});
    world.pass(1min, {11, 15, 23});
    CHECK(world.phase() == control_phase::serving);
    CHECK(world.told<failure_directive>(11).empty());
  }
  SECTION("it has ended: the gate of its host has closed") {
    world.note(world.state.on_lease_ended(13, world.now));
    CHECK(world.told<failure_directive>(11).size() == 1);
    CHECK(time_to_form(world, {11, 15}) == 0ns);
  }
  SECTION("it does not return") {
    CHECK(time_to_form(world, {11, 15}) > waited - 2s); // since its latest grant, which was up to 2 s ago
    CHECK(world.state.event().ranks == 2);
  }
}

TEST_CASE("the end of a lease is no news of a process that is connected", "[control][takeover]") {
  controller_scene world = serving_scene();
  world.note(world.state.on_lease_ended(13, world.now));
  world.note(world.state.on_lease_ended(99, world.now));
  world.pass(1s, {11, 13, 15});
  CHECK(world.phase() == control_phase::serving);
}

TEST_CASE("a process that goes on with an epoch that nobody else does is told so, and waited for (MEM-1)",
          "[control][takeover][MEM-1]") {
  controller_scene world{terms_with_successors(1)}; // it has no record of epoch 7
  world.note(world.state.take_over(std::nullopt, world.now));
  world.join(11, 0, [](join_request& asked) {
    asked.last_epoch = asked.kept = epoch{7};
    asked.last_ranks = {"11"};
    asked.last_lease = lease;
  });
  REQUIRE(world.told<failure_directive>(11).size() == 1);
  CHECK(world.told<failure_directive>(11)[0].of == epoch{7});
  CHECK(world.state.current_epoch() == epoch{8});
}

TEST_CASE("a world whose ranks finish is taken over, too", "[control][takeover]") {
  controller_scene former = serving_scene();
  former.say(15, leave_notice{});
  REQUIRE(former.phase() == control_phase::finishing);
  controller_scene next = successor_of(former);
  CHECK(next.phase() == control_phase::finishing);
  CHECK(next.state.event().ranks == 3); // of the epoch
  come_back(next, 21, 0, epoch{1});
  come_back(next, 23, 1, epoch{1});
  CHECK(next.told<join_refusal>(21).empty());
  next.say(21, leave_notice{});
  next.say(23, leave_notice{});
  CHECK(next.count<control_effect::end>() == 1);
  CHECK(decisions_of(next).back().is_over);
  CHECK_FALSE(decisions_of(next).back().why);
  CHECK(decisions_of(next).back().ranks.empty());
}

TEST_CASE("a rank that returns to a successor which stops the world finishes its work", "[control][takeover]") {
  controller_scene next = successor_of(serving_scene());
  come_back(next, 21, 0, epoch{1});
  come_back(next, 25, 2, epoch{1});
  next.note(next.state.on_stop(next.now));
  next.note(next.state.on_session_lost(25, session_end::closed, next.now)); // a link that breaks alone
  for (const auto& [link, place] : {std::pair{session_id{23}, 1}, std::pair{session_id{35}, 2}}) {
    come_back(next, link, place, epoch{1});
    CHECK(next.told<join_refusal>(link).empty());
    CHECK(next.told<join_welcome>(link).size() == 1);
    CHECK(next.told<lease_grant>(link).size() == 1);
    CHECK(next.told<stop_directive>(link).size() == 1);
  }
  next.say(21, leave_notice{});
  next.say(35, leave_notice{});
  CHECK(next.count<control_effect::end>() == 0);
  SECTION("it finishes") {
    next.say(23, leave_notice{});
  }
  SECTION("it is silent") {
    next.pass(1min, {});
  }
  CHECK(next.count<control_effect::end>() == 1);
}

TEST_CASE("after the end of a world its record begins another, in a later epoch", "[control][takeover][EPO-1]") {
  controller_scene former = serving_scene(1);
  former.note(former.state.on_stop(former.now));
  REQUIRE(decisions_of(former).back().is_over);
  CHECK(decisions_of(former).back().why.code == errc::stopping);
  controller_scene next = successor_of(former);
  CHECK(next.phase() == control_phase::gathering);
  next.join(31, 0);
  CHECK(next.phase() == control_phase::gathering); // the former rank may still serve
  CHECK(time_to_form(next, {31}) > waited - 20ms);
  CHECK(next.state.current_epoch() == epoch{2});
}

namespace {

/// A clock that runs apart from true time by some millionths, and began some time ago.
struct drifting_clock {
  std::int64_t ppm = 0;
  nanoseconds ahead{};
  [[nodiscard]] boot_time at(nanoseconds truth) const { return boot_time{truth + truth / 1'000'000 * ppm + ahead}; }
};

/// Controllers with one store in virtual time, and processes that serve under the leases that they are granted. All of
/// them may stop, be cut off, or die. Everything is drawn from a seed.
class drawn_run {
public:
  explicit drawn_run(unsigned seed) : draw_{seed} {
    for (auto& one : controllers_) one.clock = drawn_clock();
    for (auto& one : processes_) one.clock = drawn_clock();
    shared_ = std::make_shared<memory_store_state>([this] { return store_clock_.at(now_); });
    store_clock_ = drawn_clock();
  }

  void run() {
    for (const nanoseconds until = now_ + 3min; now_ < until; now_ += step) {
      draw_faults();
      for (std::size_t i = 0; i < controllers_.size(); ++i) work(i);
      for (std::size_t p = 0; p < processes_.size(); ++p) work_process(p);
      check();
    }
  }
  int takeovers = 0;
  int epochs_kept = 0; ///< Takeovers after which the same epoch went on.
  std::set<epoch> served;

private:
  static constexpr nanoseconds step = 50ms;
  static constexpr nanoseconds claim_length = 3s;

  struct controller_node {
    drifting_clock clock;
    nanoseconds stopped_until{};
    bool is_cut = false; ///< From the store.
    std::unique_ptr<memory_store> store;
    std::unique_ptr<leader_claim> claim;
    std::unique_ptr<controller_state> state;
    control_effects held; ///< Behind a decision that the store does not have.
    std::optional<std::string> decision;
    boot_time renew_at{};
    std::vector<std::pair<session_id, process_message>> inbox; ///< Read when it runs, also after a pause.
  };
  struct process_node {
    drifting_clock clock;
    nanoseconds stopped_until{};
    std::optional<std::size_t> at; ///< The controller that it is connected to.
    session_id session = 0;
    std::uint64_t pid = 1;
    epoch serves{}; ///< The epoch that it has formed.
    boot_time until{}, joined_at{}, heard{};
    std::map<std::uint64_t, boot_time> beats;
    std::uint64_t beat = 0;
    std::vector<controller_message> inbox;
  };

  std::uint64_t below(std::uint64_t limit) { return draw_() % limit; }
  bool one_in(std::uint64_t many) { return below(many) == 0; }
  drifting_clock drawn_clock() {
    return {static_cast<std::int64_t>(below(9'801)) - 4'900, std::chrono::hours{below(1'000)}};
  }

  void draw_faults() {
    for (auto& one : controllers_) {
      if (one_in(400)) one.stopped_until = now_ + milliseconds_below(15'000);
      if (one_in(600)) end(one); // dies, and is started again at once, as one that stands by
      if (one_in(500)) one.is_cut = !one.is_cut;
    }
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      auto& one = processes_[p];
      if (one_in(1'500)) one.stopped_until = now_ + milliseconds_below(25'000);
      if (one_in(800)) part(p, session_end::closed); // a middlebox resets its connection: it keeps its lease
    }
    shared_->cut(store_cut_until_ > now_);
    if (one_in(2'000)) store_cut_until_ = now_ + milliseconds_below(20'000);
  }
  nanoseconds milliseconds_below(std::uint64_t limit) { return std::chrono::milliseconds{below(limit)}; }

  void end(controller_node& one) {
    const auto which = static_cast<std::size_t>(&one - controllers_.data());
    for (auto& process : processes_)
      if (process.at == which) process.at.reset();
    one.claim = nullptr;
    one.state = nullptr;
    one.held.clear();
    one.decision.reset();
    one.inbox.clear();
  }

  void work(std::size_t which) {
    controller_node& one = controllers_[which];
    if (one.stopped_until > now_) return;
    const boot_time now = one.clock.at(now_);
    // It reads what has come before it notices that it has lost its claim.
    if (one.state) one.state->claim_until(one.claim->valid_until());
    for (const auto& [session, what] : std::exchange(one.inbox, {}))
      carry_out(which, one.state->on_message(session, what, now));
    if (one.claim && one.claim->is_lost(now)) end(one);
    if (!one.claim) {
      if (one.is_cut) return;
      one.store = std::make_unique<memory_store>(shared_);
      try {
        one.claim = leader_claim::campaign(std::shared_ptr<controller_store>{one.store.get(), [](auto*) {}},
                                           std::to_string(which) + " " + std::to_string(++names_), claim_length, now);
      } catch (const exception&) {
      }
      if (!one.claim) return;
      one.renew_at = now;
      std::optional<control_record> found;
      if (one.claim->record()) {
        error why;
        found = decode_control_record(*one.claim->record(), why);
        REQUIRE(found);
        ++takeovers;
      }
      one.state = std::make_unique<controller_state>(terms_with_successors(3), now);
      one.state->claim_until(one.claim->valid_until());
      carry_out(which, one.state->take_over(found, now));
    }
    if (!one.is_cut && now >= one.renew_at) {
      one.claim->renew(now);
      if (!one.claim->failure()) one.renew_at = now + one.claim->renewal_period();
    }
    if (!one.is_cut && one.decision && one.claim->decide(*one.decision)) {
      one.decision.reset();
      carry_out(which, std::exchange(one.held, {}));
    }
    one.state->claim_until(one.claim->valid_until());
    carry_out(which, one.state->on_tick(now));
  }

  void carry_out(std::size_t which, const control_effects& effects) {
    controller_node& one = controllers_[which];
    for (const auto& effect : effects) {
      if (one.decision) {
        one.held.push_back(effect);
        continue;
      }
      if (const auto* decided = std::get_if<control_effect::decide>(&effect)) one.decision = encode(decided->what);
      if (const auto* sent = std::get_if<control_effect::send>(&effect))
        for (auto& process : processes_)
          if (process.at == which && process.session == sent->to) process.inbox.push_back(sent->what);
      if (std::holds_alternative<control_effect::open_order>(effect))
        one.state->note_outlasting(one.state->current_epoch(), true);
    }
  }

  void tell(std::size_t p, const process_message& what) {
    process_node& one = processes_[p];
    if (!one.at) return;
    controllers_[*one.at].inbox.emplace_back(one.session, what);
  }

  void part(std::size_t p, session_end how) {
    process_node& one = processes_[p];
    if (!one.at) return;
    controller_node& from = controllers_[*one.at];
    const std::size_t which = *one.at;
    one.at.reset();
    if (from.state) carry_out(which, from.state->on_session_lost(one.session, how, from.clock.at(now_)));
  }

  [[nodiscard]] bool holds(const process_node& one) const {
    return one.serves != epoch{} && one.clock.at(now_) < one.until;
  }

  void work_process(std::size_t p) {
    process_node& one = processes_[p];
    if (one.stopped_until > now_) return;
    const boot_time now = one.clock.at(now_);
    if (one.at && now - one.heard > 3s) part(p, session_end::closed); // a silent controller
    if (!one.at) connect(p);
    for (const auto& what : std::exchange(one.inbox, {})) {
      one.heard = now;
      hear(p, what);
    }
    if (!one.at || now - one.joined_at < std::chrono::milliseconds{250} * static_cast<int>(one.beat + 1)) return;
    one.beats[++one.beat] = now;
    tell(p, heartbeat{one.beat});
  }

  void connect(std::size_t p) {
    process_node& one = processes_[p];
    const auto leader = below(controllers_.size()); // any of those that listen
    controller_node& to = controllers_[leader];
    if (!to.state || to.stopped_until > now_) return;
    const epoch kept = holds(one) ? one.serves : epoch{};
    if (kept == epoch{}) one.until = {};
    one.at = leader;
    one.session = 2 * ++sessions_ + 1;
    one.joined_at = one.heard = one.clock.at(now_);
    one.beat = 0;
    one.beats = {{0, one.joined_at}};
    one.inbox.clear();
    const std::string name = std::to_string(p);
    to.state->claim_until(to.claim->valid_until());
    carry_out(leader, to.state->on_join(one.session,
                                        {.token = "secret",
                                         .who = {.name = name, .host = "h", .pid = static_cast<std::int64_t>(one.pid)},
                                         .facts = {{"troupe", "1"}},
                                         .place = static_cast<int>(p),
                                         .device_count = 8,
                                         .last_epoch = one.serves,
                                         .last_ranks = {"0", "1", "2"},
                                         .last_lease = lease,
                                         .kept = kept},
                                        to.clock.at(now_), 0));
  }

  void hear(std::size_t p, const controller_message& what) {
    process_node& one = processes_[p];
    if (std::holds_alternative<join_refusal>(what) || std::holds_alternative<fence_notice>(what) ||
        std::holds_alternative<stop_directive>(what)) { // it ends, and another takes its place
      one.serves = {};
      one.until = {};
      ++one.pid;
      part(p, session_end::closed);
    } else if (const auto* wanted = std::get_if<commits_wanted>(&what)) {
      one.until = {};
      tell(p, commits_report{wanted->of, {}});
    } else if (const auto* id = std::get_if<id_wanted>(&what)) {
      tell(p, id_offer{id->of, {}});
    } else if (const auto* formation = std::get_if<formation_directive>(&what)) {
      one.serves = formation->of;
      one.until = {};
      tell(p, formed_report{formation->of});
    } else if (const auto* failure = std::get_if<failure_directive>(&what)) {
      if (failure->of == one.serves) one.until = {};
    } else if (const auto* granted = std::get_if<lease_grant>(&what)) {
      const auto sent = one.beats.find(granted->number);
      if (granted->of == one.serves && sent != one.beats.end())
        one.until = std::max(one.until, sent->second + granted->length);
    }
  }

  /// MEM-1: those that may serve now do so in one epoch.
  void check() {
    std::set<epoch> now;
    for (const auto& one : processes_)
      if (holds(one)) now.insert(one.serves);
    served.insert(now.begin(), now.end());
    if (now.size() > 1)
      FAIL("at " << now_.count() << " ns epochs " << now.begin()->value() << " and " << now.rbegin()->value()
                 << " serve");
    int deciding = 0;
    for (const auto& one : controllers_) deciding += one.claim && !one.claim->is_lost(one.clock.at(now_)) ? 1 : 0;
    if (deciding > 1) FAIL("at " << now_.count() << " ns two controllers have valid claims");
  }

  std::mt19937 draw_;
  nanoseconds now_{1h};
  nanoseconds store_cut_until_{};
  drifting_clock store_clock_;
  std::shared_ptr<memory_store_state> shared_;
  std::array<controller_node, 3> controllers_;
  std::array<process_node, 3> processes_;
  session_id sessions_ = 0;
  std::uint64_t names_ = 0;
};

} // namespace

TEST_CASE("no two epochs are served, whatever controllers, processes, clocks and the store do (MEM-1)",
          "[control][takeover][MEM-1]") {
  int takeovers = 0;
  std::size_t epochs = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    drawn_run one{seed};
    one.run();
    takeovers += one.takeovers;
    epochs += one.served.size();
  }
  CHECK(takeovers > 100); // the runs are not idle
  CHECK(epochs > 100);
}

} // namespace troupe::tests::takeover_state_test
