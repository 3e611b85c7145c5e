// What every order of a world promises, be its ranks in one process or in several (ORD-1, ORD-2, TIM-1).
#include "processes/order/distributed_rig.hpp"
#include "support/arbiter_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A world of \p size ranks, in one process or in as many. A case that takes it runs once with either.
std::unique_ptr<world_order_rig> in_any_shape(int size) {
  const bool is_distributed = GENERATE(false, true);
  CAPTURE(is_distributed);
  if (is_distributed) return std::make_unique<distributed_rig>(size, sequencer_limits{.straggling = 5ms});
  return std::make_unique<arbiter_rig>(size, 1, fusion_limits{.mode = fusion::off});
}

} // namespace

TEST_CASE("an operation is launched when all ranks have asked for it", "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto left = one.ask(0, one.add(0, 4));
  one.deliver_all();
  one.settle();
  CHECK(one.notes[0]->empty());
  CHECK(one.waiting_above() == 1);
  const auto right = one.ask(1, one.add(1, 4));
  one.deliver_all();
  one.finish();
  CHECK(one.waiting_above() == 0);
  CHECK(code_of_all({left, right}) == errc::none);
  CHECK(*one.notes[0] == launch_notes{"a all_reduce of 4 i32, sum"});
  CHECK(*one.notes[0] == *one.notes[1]);
}

TEST_CASE("lanes that ranks ask in crosswise are launched in one order on all of them (ORD-1)",
          "[collectives][sequencing][distributed][ORD-1]") {
  const auto rig = in_any_shape(3);
  world_order_rig& one = *rig;
  const lane lanes[] = {lane{}, lane::named("distributed 1"), lane::named("distributed 2")};
  std::vector<outcome_log> logs;
  for (int i = 0; i < 3; ++i)
    for (int r = 0; r < 3; ++r) {
      const int l = (i + r) % 3;
      logs.push_back(one.ask(r, lanes[l], one.add(r, static_cast<std::size_t>(1 + l))));
    }
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(logs) == errc::none);
  CHECK(one.notes[0]->size() == 3);
  CHECK(*one.notes[0] == *one.notes[1]);
  CHECK(*one.notes[0] == *one.notes[2]);
}

TEST_CASE("ranks that do not agree are told, and nothing is launched (ORD-2)",
          "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const std::vector logs{one.ask(0, one.add(0, 4)), one.ask(1, one.add(1, 5))};
  one.deliver_all();
  CHECK(code_of_all(logs) == errc::mismatch);
  for (int r = 0; r < 2; ++r) {
    const error why = logs[static_cast<std::size_t>(r)].failure();
    CHECK(why.rank == rank{r});
    CHECK(why.ticket);
    CHECK(why.epoch == rig_epoch);
    CHECK_THAT(why.text, ContainsSubstring("all_reduce of 4 i32") && ContainsSubstring("all_reduce of 5 i32"));
  }
  one.finish();
  CHECK(one.notes[0]->empty());
}

TEST_CASE("a rank that does not come is named at the deadline, with how far the asker has come (TIM-1)",
          "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(3);
  world_order_rig& one = *rig;
  const lane decode = lane::named("decode");
  one.ask_each({}, 7);
  one.deliver_all();
  one.finish();
  one.tell_progress(1);
  lane_request terms = world_order_rig::in(decode);
  terms.deadline = 10ms;
  const auto waits = one.ask(0, one.add(0, 4), std::move(terms));
  const auto patient = one.ask(2, decode, one.add(2, 4));
  one.deliver_all();
  CHECK(one.waiting_above() == 2);
  one.expire_above(5ms);
  const auto late = one.take_straggling();
  REQUIRE(late.size() == 1);
  CHECK(late[0]->missing() == std::vector{rank{1}});
  CHECK(one.take_straggling().empty());
  one.expire_above(5ms);
  one.deliver_all();
  const error why = waits.failure();
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(why.effect == effect::rejected);
  CHECK_THAT(why.text, ContainsSubstring("in lane decode") && ContainsSubstring("rank 1 has not asked"));
  REQUIRE(why.absence);
  CHECK(why.absence->missing() == std::vector{rank{1}});
  CHECK(why.absence->what == "all_reduce of 4 i32, sum");
  CHECK(why.absence->lane == decode);
  CHECK(why.absence->waited == 10ms);
  REQUIRE(why.absence->ranks[1].last_asked);
  CHECK(why.absence->ranks[1].last_asked->what == "all_reduce of 7 i32, sum");
  REQUIRE(why.absence->ranks[0].last_finished); // its own, which it knows itself
  REQUIRE(why.absence->ranks[1].last_launched); // as it told the controller
  CHECK(why.absence->ranks[1].last_launched->what == "all_reduce of 7 i32, sum");
  REQUIRE(why.absence->ranks[1].last_finished);
  CHECK(why.absence->ranks[1].last_finished->what == "all_reduce of 7 i32, sum");
  REQUIRE(late[0]->ranks[1].last_finished);
  // Of a rank in another process, what it has told.
  CHECK(late[0]->ranks[2].last_finished.has_value() == (dynamic_cast<arbiter_rig*>(rig.get()) != nullptr));
  CHECK(patient.failure().code == errc::cancelled);
  CHECK(patient.failure().absence);
  const auto straggler = one.ask(1, decode, one.add(1, 4));
  one.deliver_all();
  CHECK(straggler.failure().effect == effect::rejected);
  CHECK(one.waiting_above() == 0);
}

TEST_CASE("requests are taken back one by one, or with their client, and the peers are told",
          "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const lane mine = lane::named("distributed mine");
  const auto first = one.ask(0, one.add(0, 4), world_order_rig::in(mine, 7));
  const auto second = one.ask(0, one.add(0, 5), world_order_rig::in(mine, 7));
  const auto third = one.ask(0, one.add(0, 6), world_order_rig::in(mine, 7));
  one.order_of(0).cancel(rank{0}, mine, 0);
  one.order_of(0).cancel(rank{0}, mine, 99);
  one.order_of(0).cancel(rank{0}, lane::named("distributed nobody"), 0);
  one.deliver_all();
  CHECK(first.failure().code == errc::cancelled);
  CHECK(second.count() == 0);
  one.order_of(0).withdraw(rank{0}, 7, {.code = errc::abandoned, .text = "client 7 has ended", .native_code = -3});
  one.deliver_all();
  for (const auto* log : {&second, &third}) {
    CHECK(log->count() == 1);
    CHECK(log->failure().code == errc::abandoned);
    CHECK(log->failure().text == "client 7 has ended");
    CHECK(log->failure().native_code == -3);
  }
  const auto told = one.ask(1, mine, one.add(1, 4));
  one.deliver_all();
  CHECK(told.failure().code == errc::cancelled);
  CHECK_THAT(told.failure().text, ContainsSubstring("rank 0 cancelled"));
  CHECK(one.waiting_above() == 0);
  const auto other = one.ask(0, one.add(0, 8), world_order_rig::in(mine, 8)); // the lane is free
  one.deliver_all();
  CHECK(other.count() == 0);
}

TEST_CASE("a position that is not the next, or a lane of somebody else, is refused and takes no place",
          "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto at = [](std::uint64_t position, std::uint64_t client) {
    lane_request terms = world_order_rig::in({}, client);
    terms.position = position;
    return terms;
  };
  const auto gap = one.ask(0, one.add(0, 4), at(1, 5));
  const auto right = one.ask(0, one.add(0, 4), at(0, 5));
  const auto stranger = one.ask(0, one.add(0, 4), at(1, 6));
  const auto peer = one.ask(1, one.add(1, 4));
  one.deliver_all();
  one.finish();
  CHECK(gap.failure().code == errc::invalid_argument);
  CHECK(stranger.failure().code == errc::invalid_argument);
  CHECK(code_of_all({right, peer}) == errc::none);
}

TEST_CASE("sends meet their recvs by tag, alone and in groups", "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(3);
  world_order_rig& one = *rig;
  std::vector<outcome_log> logs;
  logs.push_back(one.ask(0, one.pass(0, 2, 4, 8)));
  logs.push_back(one.ask(0, lane::named("distributed other"), one.pass(0, 2, 5, 9)));
  logs.push_back(one.ask(2, lane::named("distributed other"), one.take(2, 0, 5, 9)));
  logs.push_back(one.ask(2, one.take(2, 0, 4, 8)));
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(logs) == errc::none);
  CHECK(one.notes[0]->size() == 2);
  CHECK(one.notes[1]->empty());
  logs.clear();
  for (int r = 0; r < 3; ++r) {
    group ring;
    ring.parts.push_back(one.pass(r, (r + 1) % 3, 6));
    ring.parts.push_back(one.take(r, (r + 2) % 3, 6));
    ring.parts.push_back(one.add(r, 3));
    logs.push_back(one.ask(r, lane::named("distributed ring"), ring));
  }
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(logs) == errc::none);
  const std::vector wrong{one.ask(0, lane::named("distributed wrong"), one.pass(0, 1, 4)),
                          one.ask(1, lane::named("distributed wrong"), one.take(1, 0, 5))};
  one.deliver_all();
  CHECK(code_of_all(wrong) == errc::mismatch);
  const auto nobody = one.ask(0, lane::named("distributed nobody"), one.pass(0, 3, 4));
  one.deliver_all();
  CHECK(nobody.failure().code == errc::invalid_argument);
}

TEST_CASE("each hold ends with a resume of its own, the oldest first", "[collectives][sequencing]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto hold = [](rank_pipeline& each) { each.hold(); };
  const auto resume = [](rank_pipeline& each) { each.resume(); };
  one.take_turn(hold);
  const auto first = one.ask_each({}, 4);
  one.deliver_all();
  one.take_turn(hold);
  const auto second = one.ask_each({}, 5);
  one.deliver_all();
  one.settle();
  for (const auto& notes : one.notes) CHECK(notes->empty());
  one.take_turn(resume);
  one.settle();
  for (const auto& notes : one.notes) CHECK(*notes == launch_notes{"a all_reduce of 4 i32, sum"});
  one.take_turn(resume);
  one.take_turn(resume); // one more than there were
  one.finish();
  for (const auto& notes : one.notes) CHECK(notes->back() == "a all_reduce of 5 i32, sum");
  CHECK(code_of_all(first) == errc::none);
  CHECK(code_of_all(second) == errc::none);
}

TEST_CASE("a request knows its place in its lane once it is released", "[collectives][sequencing][distributed]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const lane where = lane::named("distributed place");
  for (const std::uint64_t place : {0U, 1U, 2U}) {
    one.ask_each(where, 4);
    one.deliver_all();
    one.finish();
    const auto launched = one.rig.ranks[0]->progress().launched;
    REQUIRE(launched);
    CHECK(launched->lane == where);
    CHECK(launched->position == place);
  }
}

TEST_CASE("commits of different numbers do not match (ORD-2)", "[collectives][sequencing][distributed][resume]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const std::vector logs{one.ask(0, barrier{.commit = 1}), one.ask(1, barrier{.commit = 2})};
  one.deliver_all();
  CHECK(code_of_all(logs) == errc::mismatch);
  CHECK_THAT(logs[0].failure().text, ContainsSubstring("commit 1") && ContainsSubstring("commit 2"));
}
