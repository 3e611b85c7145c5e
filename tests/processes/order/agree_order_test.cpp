// What an agree promises in any order of a world, be its ranks in one process or in several (ORD-1, ORD-2, TIM-1).
#include "processes/order/distributed_rig.hpp"
#include "support/arbiter_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::agree_order_test {

namespace {

using Catch::Matchers::ContainsSubstring;

/// How the ranks of a world are ordered.
enum class shape : std::uint8_t { one_process, controller, service_of_host, two_hosts };

std::unique_ptr<world_order_rig> in_shape(shape which, int size) {
  std::vector<host_ranks> hosts;
  if (which == shape::service_of_host) {
    hosts.emplace_back();
    for (int r = 0; r < size; ++r) hosts.back().push_back(rank{r});
  }
  if (which == shape::two_hosts) hosts = {{rank{0}}};
  if (which == shape::one_process) return std::make_unique<arbiter_rig>(size, 1, fusion_limits{.mode = fusion::off});
  return std::make_unique<distributed_rig>(size, sequencer_limits{.straggling = 5ms},
                                           fusion_limits{.mode = fusion::off}, hosts);
}

std::unique_ptr<world_order_rig> in_any_shape(int size) {
  const shape which = GENERATE(shape::one_process, shape::controller, shape::service_of_host, shape::two_hosts);
  CAPTURE(static_cast<int>(which));
  return in_shape(which, size);
}

operation contributed(agreement_rule rule, contribution value, rank root = {}) {
  return agree{rule, std::move(value.bytes), root};
}

/// Returns the value that all ranks have received, once each and the same.
agreed_value value_of_all(const std::vector<outcome_log>& logs) {
  for (const outcome_log& one : logs) {
    REQUIRE(one.count() == 1);
    REQUIRE(one.failure().code == errc::none);
    REQUIRE(one.success().agreed);
    CHECK(*one.success().agreed == *logs.front().success().agreed);
  }
  return *logs.front().success().agreed;
}

const lane step = lane::named("agree/step");

} // namespace

TEST_CASE("all ranks receive one value, which no GPU takes part in (ORD-1, ONE-1)",
          "[collectives][sequencing][distributed][agree][ORD-1][ONE-1]") {
  const auto rig = in_any_shape(3);
  world_order_rig& one = *rig;
  std::vector<outcome_log> logs;
  for (int r = 0; r < 3; ++r) {
    one.deliver_all();
    for (const outcome_log& log : logs) CHECK(log.count() == 0);
    logs.push_back(one.ask(r, step, contributed(agreement_rule::min, std::int64_t{10} - r)));
  }
  one.deliver_all();
  const agreed_value value = value_of_all(logs);
  CHECK(value.integer() == 8);
  CHECK(value.epoch == rig_epoch);
  CHECK(value.position == 0);
  CHECK(logs[1].success().launch == 0);
  one.finish();
  for (int r = 0; r < 3; ++r) CHECK(one.notes[static_cast<std::size_t>(r)]->empty());
}

TEST_CASE("an agree takes one position of its lane, and a later collective is launched after it (ORD-1, CUT-1)",
          "[collectives][sequencing][distributed][agree][ORD-1][CUT-1]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto first = one.ask_each(step, 4);
  const auto early = one.ask(0, step, contributed(agreement_rule::sum, 1));
  const auto behind = one.ask(0, step, one.add(0, 5));
  const auto other = one.ask_each(lane::named("agree/other"), 6); // another lane goes on
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(first) == errc::none);
  CHECK(code_of_all(other) == errc::none);
  CHECK(early.count() == 0);
  CHECK(behind.count() == 0);
  const auto late = one.ask(1, step, contributed(agreement_rule::sum, 2));
  one.deliver_all();
  CHECK(value_of_all({early, late}).position == 1);
  CHECK(behind.count() == 0); // the other rank has not asked for it
  const auto last = one.ask(1, step, one.add(1, 5));
  one.deliver_all();
  one.finish();
  CHECK(code_of_all({behind, last}) == errc::none);
  const auto second = one.ask(0, step, contributed(agreement_rule::sum, 1));
  const auto third = one.ask(1, step, contributed(agreement_rule::sum, 2));
  one.deliver_all();
  CHECK(value_of_all({second, third}).position == 3);
}

TEST_CASE("ranks that name different rules, roots or sizes are all told, and the lane goes on (ORD-2)",
          "[collectives][sequencing][distributed][agree][ORD-2]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto refused = [&](operation left, operation right) {
    const std::vector logs{one.ask(0, step, std::move(left)), one.ask(1, step, std::move(right))};
    one.deliver_all();
    CHECK(code_of_all(logs) == errc::mismatch);
    CHECK(logs[0].failure().text == logs[1].failure().text);
  };
  refused(contributed(agreement_rule::min, 1), contributed(agreement_rule::max, 1));
  refused(contributed(agreement_rule::of_rank, 1, rank{0}), contributed(agreement_rule::of_rank, 1, rank{1}));
  refused(contributed(agreement_rule::any_of, "a"), contributed(agreement_rule::any_of, "ab"));
  refused(contributed(agreement_rule::any_of, "a"), barrier{});
  const std::vector logs{one.ask(0, step, contributed(agreement_rule::of_rank, "no", rank{1})),
                         one.ask(1, step, contributed(agreement_rule::of_rank, "yes", rank{1}))};
  one.deliver_all();
  CHECK(value_of_all(logs).text() == "yes");
  CHECK(value_of_all(logs).position == 0);
}

TEST_CASE("a value that is too large is refused at all ranks (ORD-2)",
          "[collectives][sequencing][distributed][agree][ORD-2]") {
  const auto rig = in_any_shape(17);
  world_order_rig& one = *rig;
  std::vector<outcome_log> logs;
  for (int r = 0; r < 17; ++r)
    logs.push_back(
        one.ask(r, step, contributed(agreement_rule::gather_all, std::vector<std::byte>(most_contributed_bytes))));
  one.deliver_all();
  CHECK(code_of_all(logs) == errc::invalid_argument);
  for (int r = 0; r < 17; ++r) CHECK(logs[static_cast<std::size_t>(r)].failure().rank == rank{r});
}

TEST_CASE("a request that is refused for one rank is refused at all, and the lane goes on (ORD-2)",
          "[collectives][sequencing][distributed][agree][ORD-2]") {
  const auto rig = in_any_shape(3);
  world_order_rig& one = *rig;
  lane_request wrong = world_order_rig::in(step);
  wrong.objection = std::make_unique<error>(error{.code = errc::invalid_argument, .text = "too much", .rank = rank{1}});
  const auto refused = one.ask(1, contributed(agreement_rule::sum, {}), std::move(wrong));
  const auto first = one.ask(0, step, contributed(agreement_rule::sum, 1));
  one.deliver_all();
  CHECK(refused.count() == 0);
  const auto last = one.ask(2, step, contributed(agreement_rule::sum, 1));
  one.deliver_all();
  CHECK(code_of_all({first, refused, last}) == errc::invalid_argument);
  for (const auto* log : {&first, &refused, &last}) {
    CHECK(log->failure().text == "too much");
    CHECK(log->failure().rank == rank{1});
  }
  std::vector<outcome_log> again;
  for (int r = 0; r < 3; ++r) again.push_back(one.ask(r, step, contributed(agreement_rule::sum, r)));
  one.deliver_all();
  CHECK(value_of_all(again).integer() == 3);
}

TEST_CASE("at the deadline of one rank an agree is refused at all, also those that come later, with one reason (TIM-1)",
          "[collectives][sequencing][distributed][agree][TIM-1]") {
  const auto rig = in_any_shape(3);
  world_order_rig& one = *rig;
  lane_request hasty = world_order_rig::in(step);
  hasty.deadline = 10ms;
  const auto first = one.ask(0, contributed(agreement_rule::sum, 1), std::move(hasty));
  const auto patient = one.ask(1, step, contributed(agreement_rule::sum, 1));
  one.deliver_all();
  one.expire_above(10ms);
  one.deliver_all();
  const auto late = one.ask(2, step, contributed(agreement_rule::sum, 1));
  one.deliver_all();
  CHECK(code_of_all({first, patient, late}) == errc::deadline_exceeded);
  for (const auto* log : {&first, &patient, &late}) {
    CHECK(log->failure().text == first.failure().text);
    REQUIRE(log->failure().absence);
    CHECK(log->failure().absence->missing() == std::vector{rank{2}});
  }
  CHECK_THAT(first.failure().text, ContainsSubstring("agree by sum, 8 bytes") && ContainsSubstring("rank 2"));
  std::vector<outcome_log> again;
  for (int r = 0; r < 3; ++r) again.push_back(one.ask(r, step, contributed(agreement_rule::sum, r)));
  one.deliver_all();
  CHECK(value_of_all(again).integer() == 3);
}

TEST_CASE("an agree that a client withdraws is refused at all ranks with one reason",
          "[collectives][sequencing][distributed][agree]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto mine = one.ask(0, contributed(agreement_rule::sum, 1), world_order_rig::in(step, 7));
  one.order_of(0).cancel(rank{0}, step, 0);
  one.deliver_all(); // in two batches, between which the other rank's could arrive
  const auto other = one.ask(1, step, contributed(agreement_rule::sum, 1));
  one.deliver_all();
  CHECK(code_of_all({mine, other}) == errc::cancelled);
  CHECK(mine.failure().text == other.failure().text);
  const auto lone = one.ask(1, step, contributed(agreement_rule::sum, 1));
  const auto left = one.ask(0, contributed(agreement_rule::sum, 1), world_order_rig::in(lane::named("agree/two"), 7));
  const auto there = one.ask(1, lane::named("agree/two"), contributed(agreement_rule::sum, 1));
  CHECK(there.count() == (dynamic_cast<arbiter_rig*>(rig.get()) != nullptr ? 1 : 0));
  one.deliver_all();
  CHECK(value_of_all({left, there}).integer() == 2);
  one.order_of(0).withdraw(rank{0}, 7, {.code = errc::abandoned, .text = "client 7 has ended"});
  one.deliver_all();
  CHECK(lone.count() == 0);
}

TEST_CASE("no rank ends an agree by its own clock (TIM-1)", "[distributed][agree][TIM-1]") {
  distributed_rig one{2};
  lane_request terms = world_order_rig::in(step);
  terms.deadline = 10ms;
  const auto waits = one.ask(0, contributed(agreement_rule::sum, 1), std::move(terms));
  lane_request usual = world_order_rig::in(lane::named("agree/usual"));
  usual.deadline = 10ms;
  const auto sum = one.ask(0, one.add(0, 4), std::move(usual));
  one.time->advance(1h); // the controller says nothing
  for (const auto& link : one.links) link->expire(one.time->now());
  CHECK(sum.failure().code == errc::deadline_exceeded);
  CHECK(waits.count() == 0);
  one.close_above({.code = errc::rank_lost, .text = "a rank was lost"});
  one.deliver_all();
  CHECK(waits.count() == 1);
}

TEST_CASE("an agree that the end of the epoch finds undecided here may have been decided (ONE-2)",
          "[distributed][agree][ONE-2]") {
  distributed_rig one{2};
  const auto mine = one.ask(0, step, contributed(agreement_rule::sum, 1));
  const auto other = one.ask(1, step, contributed(agreement_rule::sum, 1));
  while (one.deliver_up(0) || one.deliver_up(1)) {
  }
  while (one.deliver_down(1)) {
  }
  CHECK(other.failure().code == errc::none);
  one.links[0]->close({.code = errc::rank_lost, .text = "a rank was lost"});
  CHECK(mine.count() == 1);
  CHECK(mine.failure().code == errc::rank_lost);
  CHECK(mine.failure().effect == effect::unknown_outcome);
}

TEST_CASE("a value that comes after the process has reported what it knows is not delivered (CUT-1, ONE-2)",
          "[distributed][agree][CUT-1][ONE-2]") {
  const auto rig = in_any_shape(2);
  world_order_rig& one = *rig;
  const auto record = std::make_shared<commit_record>(rig_epoch, nullptr);
  one.rig.ranks[0]->record_commits(record);
  const auto mine = one.ask(0, step, contributed(agreement_rule::sum, 1));
  CHECK(record->seal().lanes.empty()); // the epoch has ended meanwhile, and a batch of it is in progress
  const auto other = one.ask(1, step, contributed(agreement_rule::sum, 1));
  one.deliver_all();
  CHECK(other.success().agreed->integer() == 2);
  REQUIRE(mine.count() == 1);
  CHECK(mine.failure().code == errc::rebuilding);
  CHECK(mine.failure().effect == effect::unknown_outcome);
  CHECK(mine.failure().rank == rank{0});
  CHECK(record->told().lanes.empty());
}

TEST_CASE("values beyond the resume point are told to the next epoch (CUT-1)", "[distributed][agree][CUT-1]") {
  distributed_rig one{2};
  const auto sums = one.ask_each(step, 4); // whose success nobody reports
  std::vector<outcome_log> logs;
  for (int r = 0; r < 2; ++r) logs.push_back(one.ask(r, step, contributed(agreement_rule::of_rank, "told", rank{0})));
  one.deliver_all();
  const agreed_value value = value_of_all(logs);
  CHECK(value.position == 1);
  one.keeper.open(epoch{rig_epoch.value() + 1}, 2);
  const auto points = one.keeper.points();
  REQUIRE(points);
  const resume_point* const point = find_point(*points, step);
  REQUIRE(point != nullptr);
  CHECK(point->complete == 0);
  REQUIRE(point->agreed.size() == 1);
  CHECK(*point->agreed.front() == value);
  for (const std::uint64_t later : {2U, 3U}) { // epochs in which nobody has used the lane
    one.keeper.open(epoch{rig_epoch.value() + later}, 2);
    const resume_point* const again = find_point(*one.keeper.points(), step);
    REQUIRE(again != nullptr);
    CHECK(again->agreed.size() == 1);
  }
}

TEST_CASE("an agree counts as complete only after the operations before it (CUT-1)", "[distributed][agree][CUT-1]") {
  distributed_rig one{2};
  std::vector<outcome_log> logs;
  for (int r = 0; r < 2; ++r) logs.push_back(one.ask(r, step, contributed(agreement_rule::sum, 1)));
  one.deliver_all();
  {
    const auto stopped = one.stop(0);
    const auto sums = one.ask_each(step, 4);
    for (int r = 0; r < 2; ++r) logs.push_back(one.ask(r, step, contributed(agreement_rule::sum, 1)));
    one.deliver_all();
    CHECK(logs[2].count() == 1);
    CHECK(one.rig.ranks[0]->successes()->value() == 1);
  }
  one.finish();
  CHECK(one.rig.ranks[0]->successes()->value() == 3);
  CHECK(one.rig.ranks[1]->successes()->value() == 3);
}

} // namespace troupe::tests::agree_order_test
