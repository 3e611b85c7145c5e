/// The order of an epoch that a planned change ends: it is held, and what waits is asked again in the next epoch.
#include "processes/order/distributed_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::tests::hand_over_test {

namespace {

using Catch::Matchers::ContainsSubstring;

/// Ranks that go on in another epoch. No request succeeds before that, because their pipelines are the same.
struct changing_rig : distributed_rig {
  /// \p by_service: the order service of another host decides, as under a controller with a store.
  explicit changing_rig(int size, bool by_service = false) : distributed_rig{size}, is_service{by_service} {
    if (is_service) keeper.open_host(of, size, all(), {}, {});
  }
  [[nodiscard]] std::vector<rank> all() const {
    std::vector<rank> made;
    for (int r = 0; r < size(); ++r) made.emplace_back(r);
    return made;
  }
  /// A rank has finished, and so many of its requests have succeeded.
  void drain(int self, std::uint64_t count) {
    if (is_service)
      successes[static_cast<std::size_t>(self)] = count;
    else
      keeper.note_successes(rank{self}, count);
  }

  /// Returns whether the order could be held. What is decided arrives.
  [[nodiscard]] bool hold() {
    deliver_all();
    if (!keeper.hold()) return false;
    collect();
    for (int r = 0; r < size(); ++r)
      while (deliver_down(r)) {
      }
    return true;
  }
  /// Begins the next epoch with the same ranks.
  void open_next() {
    const epoch held = std::exchange(of, of.next());
    std::vector<std::optional<rank>> before;
    for (int r = 0; r < size(); ++r) before.emplace_back(r);
    if (is_service)
      keeper.open_host(of, size(), all(), held, {}, {}, {.before = before, .successes = successes});
    else
      keeper.open(of, size(), before);
    former = std::exchange(orders, {});
    std::vector<std::shared_ptr<order_connection>> next;
    for (const auto& one : rig.ranks) {
      auto& line = up[static_cast<std::size_t>(one->self().value())];
      line.clear();
      next.push_back(std::make_shared<order_connection>(one, of, time, [this, &line](std::string batch) {
        const std::lock_guard lock{sending};
        line.push_back(std::move(batch));
      }));
      orders.push_back(next.back()->whole());
    }
    links = std::move(next);
  }
  void hand_over(int self) {
    former[static_cast<std::size_t>(self)]->hand_over(orders[static_cast<std::size_t>(self)], rank{self}, check,
                                                      {.code = errc::rebuilding, .text = "it has changed"},
                                                      [this] { ++handed_over; });
  }
  void change() {
    REQUIRE(hold());
    open_next();
    for (int r = 0; r < size(); ++r) hand_over(r);
    CHECK(handed_over == size());
  }
  void run() {
    for (int i = 0; i < 3; ++i) {
      deliver_all();
      finish();
    }
  }

  const bool is_service;
  std::vector<std::uint64_t> successes = std::vector<std::uint64_t>(rig.ranks.size());
  epoch of = rig_epoch;
  int handed_over = 0;
  std::vector<std::shared_ptr<distributed_order>> former;
  world_order::operation_check check = [](const operation&) { return error{}; };
};

lane_request at(lane where, std::optional<std::uint64_t> position) {
  lane_request terms;
  terms.where = where;
  terms.position = position;
  terms.client = 7;
  return terms;
}

} // namespace

TEST_CASE("requests that wait in a held order meet in the next one, at the positions that follow",
          "[processes][order][planned][ORD-1][ONE-1]") {
  changing_rig rig{2, GENERATE(false, true)};
  const lane a = lane::named("handed a"), b = lane::named("handed b");
  std::vector<outcome_log> first{rig.ask(0, rig.add(0, 8), at(a, 0)), rig.ask(1, rig.add(1, 9), at(a, 0))};
  rig.deliver_all();
  CHECK(code_of_all(first) == errc::mismatch);
  // Rank 0 is ahead in one lane, rank 1 in the other.
  std::vector<outcome_log> asked{rig.ask(0, rig.add(0, 16), at(a, 1)), rig.ask(0, rig.add(0, 24), at(a, 2)),
                                 rig.ask(1, rig.add(1, 32), at(b, 0))};
  rig.change();
  rig.run();
  for (const outcome_log& one : asked) CHECK(one.count() == 0);
  const outcome_log repeated = rig.ask(1, rig.add(1, 16), at(a, 0));
  rig.run();
  CHECK(repeated.failure().code == errc::invalid_argument);
  CHECK_THAT(repeated.failure().text, ContainsSubstring("1 is the next"));
  asked.push_back(rig.ask(1, rig.add(1, 16), at(a, 1)));
  asked.push_back(rig.ask(1, rig.add(1, 24), at(a, 2)));
  asked.push_back(rig.ask(0, rig.add(0, 32), at(b, 0)));
  rig.run();
  for (const outcome_log& one : asked) {
    REQUIRE(one.count() == 1);
    CHECK_FALSE(one.failure());
  }
  CHECK(rig.keeper.waiting() == 0);
}

TEST_CASE("a held order decides nothing: neither what comes nor what is late", "[processes][order][planned][ORD-1]") {
  changing_rig rig{2};
  lane_request soon;
  soon.deadline = 1s;
  const outcome_log one = rig.ask(0, rig.add(0, 8), std::move(soon));
  REQUIRE(rig.hold());
  const outcome_log other = rig.ask(1, rig.add(1, 8));
  rig.run();
  rig.expire_above(2s);
  rig.run();
  CHECK(one.count() + other.count() == 0);
  CHECK(rig.keeper.next_due() == time_point::max());
  rig.open_next();
  for (int r = 0; r < 2; ++r) rig.hand_over(r);
  rig.run();
  // Its deadline has passed meanwhile, so it is refused, by the next order.
  rig.expire_above(1ms);
  rig.run();
  REQUIRE(one.count() == 1);
  CHECK((one.failure() ? one.failure().code == errc::deadline_exceeded : other.count() == 1));
}

TEST_CASE("a held order counts the successes that ranks report, and a batch that the report has overtaken is no fault",
          "[processes][order][planned][CUT-1]") {
  changing_rig rig{2, GENERATE(false, true)};
  for (int r = 0; r < 2; ++r) static_cast<void>(rig.ask(r, rig.add(r, 8)));
  rig.deliver_all();
  REQUIRE(rig.hold());
  rig.finish();
  for (int r = 0; r < 2; ++r) rig.drain(r, 1);
  rig.keeper.note_successes(rank{0}, 2); // more than were released to it
  if (GENERATE(true, false)) {           // the batches arrive after the reports, or not at all
    for (int r = 0; r < 2; ++r) rig.tell_progress(r);
    rig.deliver_all();
    CHECK_FALSE(rig.refused_above);
    request_writer late;
    CHECK_FALSE(
        rig.keeper.receive(rank{0}, late.take({.epoch = rig_epoch, .number = 77, .succeeded = 0}), rig.time->now()));
  }
  rig.open_next();
  REQUIRE(rig.keeper.points());
  CHECK(rig.keeper.points()->lanes.at(0).complete == 1);
}

TEST_CASE("clients that still ask the former order are passed on, behind what they asked before",
          "[processes][order][planned][ORD-1]") {
  changing_rig rig{2};
  const lane mine = lane::named("handed on");
  std::vector<outcome_log> asked{rig.ask(0, rig.add(0, 8), at(mine, std::nullopt))};
  rig.change();
  const auto late = [&](std::size_t count) {
    outcome_log log;
    lane_request terms = at(mine, std::nullopt);
    terms.what = rig.add(0, count);
    terms.name = ticket{++rig.name};
    terms.deadline = 1h;
    terms.reply = log.make_reply_promise();
    rig.former[0]->ask(rank{0}, std::move(terms));
    return log;
  };
  asked.push_back(late(16));
  const outcome_log cancelled = late(24);
  rig.deliver_all();
  rig.former[0]->cancel(rank{0}, mine, 2);
  rig.run();
  REQUIRE(cancelled.count() == 1);
  CHECK(cancelled.failure().code == errc::cancelled);
  for (const std::size_t count : {8U, 16U}) asked.push_back(rig.ask(1, rig.add(1, count), at(mine, std::nullopt)));
  rig.run();
  for (const outcome_log& one : asked) {
    REQUIRE(one.count() == 1);
    CHECK_FALSE(one.failure());
  }
  const outcome_log left = late(32);
  rig.former[0]->withdraw(rank{0}, 7, {.code = errc::cancelled, .text = "its client has ended"});
  rig.run();
  REQUIRE(left.count() == 1);
  CHECK(left.failure().code == errc::cancelled);
}

TEST_CASE("an order is not held while a lane remembers a withdrawn request for a rank that has not asked",
          "[processes][order][planned][ORD-1]") {
  changing_rig rig{2};
  const lane mine = lane::named("withdrawn");
  SECTION("a collective") {
    static_cast<void>(rig.ask(0, rig.add(0, 8), at(mine, 0)));
    rig.deliver_all();
    rig.orders[0]->cancel(rank{0}, mine, 0);
    CHECK_FALSE(rig.hold());
    const outcome_log late = rig.ask(1, rig.add(1, 8), at(mine, 0));
    rig.deliver_all();
    CHECK(late.failure().code == errc::cancelled);
  }
  SECTION("a send") {
    static_cast<void>(rig.ask(0, rig.pass(0, 1, 8), at(mine, 0)));
    rig.deliver_all();
    rig.orders[0]->cancel(rank{0}, mine, 0);
    CHECK_FALSE(rig.hold());
    const outcome_log late = rig.ask(1, rig.take(1, 0, 8), at(mine, 0));
    rig.deliver_all();
    CHECK(late.failure().code == errc::cancelled);
  }
  SECTION("a request that was refused behind one that waits") {
    const outcome_log waits = rig.ask(0, rig.add(0, 8), at(mine, 0));
    static_cast<void>(rig.ask(0, copy{rig.memory(0, 8), rig.memory(0, 8)}, at(mine, 1)));
    static_cast<void>(rig.ask(0, rig.add(0, 16), at(mine, 2)));
    rig.deliver_all();
    rig.orders[0]->cancel(rank{0}, mine, 1);
    CHECK_FALSE(rig.hold());
    static_cast<void>(rig.ask(1, rig.add(1, 8), at(mine, 0)));
    rig.deliver_all();
    CHECK(waits.count() == 0); // it has been released
  }
  CHECK(rig.hold());
  rig.finish();
}

TEST_CASE("a request that does not fit the next epoch is refused at all ranks that it needs",
          "[processes][order][planned][ORD-2]") {
  changing_rig rig{2};
  rig.check = [](const operation& what) {
    const auto* const sum = std::get_if<all_reduce>(&what);
    const bool fits = sum != nullptr && sum->count != 24;
    return fits ? error{} : error{.code = errc::invalid_argument, .text = "it does not fit"};
  };
  const lane a = lane::named("fits"), b = lane::named("fits not");
  std::vector<outcome_log> refused{rig.ask(0, rig.add(0, 24), at(a, std::nullopt))};
  std::vector<outcome_log> done{rig.ask(0, rig.add(0, 8), at(a, std::nullopt))};
  const outcome_log transfer = rig.ask(0, rig.pass(0, 1, 8), at(b, std::nullopt));
  bool was_refused = false;
  rig.orders[0]->turn({.name = "a turn"}, [&](const error& why, std::span<const opened_world>) {
    was_refused = why.code == errc::rebuilding;
  });
  rig.change();
  CHECK(was_refused);
  REQUIRE(transfer.count() == 1); // at once: its peer has not asked
  CHECK(transfer.failure().code == errc::invalid_argument);
  CHECK(transfer.failure().effect == effect::rejected);
  refused.push_back(rig.ask(1, rig.add(1, 24), at(a, std::nullopt)));
  done.push_back(rig.ask(1, rig.add(1, 8), at(a, std::nullopt)));
  rig.run();
  CHECK(code_of_all(refused) == errc::invalid_argument);
  for (const outcome_log& one : done) {
    REQUIRE(one.count() == 1);
    CHECK_FALSE(one.failure());
  }
}

TEST_CASE("an order that has failed hands nothing over", "[processes][order][planned][ONE-1]") {
  changing_rig rig{2};
  const outcome_log one = rig.ask(0, rig.add(0, 8));
  REQUIRE(rig.hold());
  rig.links[0]->close({.code = errc::communicator_failed, .text = "a rank is lost"});
  REQUIRE(one.count() == 1);
  CHECK(one.failure().effect == effect::rejected);
  rig.open_next();
  rig.hand_over(0);
  rig.run();
  CHECK(one.count() == 1);
  CHECK(rig.keeper.waiting() == 0);
}

} // namespace troupe::tests::hand_over_test
