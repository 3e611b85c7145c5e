/// A world whose ranks are asked through its order, whatever that is: what a world in one process and one over
/// processes both promise is tested by the same cases (processes/order/world_order_test.cpp).
#pragma once

#include "support/ordering_rig.hpp"

#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/progress/absence_report.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::tests {

struct world_order_rig : ordering_rig {
  using ordering_rig::ordering_rig;

  /// The order as \p self takes part in it.
  [[nodiscard]] virtual world_order& order_of(int self) = 0;
  /// Everything that ranks have said arrives, and what follows from that.
  virtual void deliver_all() = 0;
  /// Time passes where requests are ordered.
  virtual void expire_above(nanoseconds by) = 0;
  /// Returns the operations whose peers have become late since the last call.
  [[nodiscard]] virtual std::vector<std::shared_ptr<const absence_report>> take_straggling() = 0;
  /// Returns how many requests wait where requests are ordered.
  [[nodiscard]] virtual std::size_t waiting_above() const = 0;
  /// What \p self has done becomes known where requests are ordered.
  virtual void tell_progress(int self) = 0;
  /// Calls \p work for every rank at one turn of all.
  virtual void take_turn(std::function<void(rank_pipeline&)> work) = 0;

  outcome_log ask(int self, operation what, lane_request terms = {}) {
    outcome_log log;
    terms.what = std::move(what);
    terms.name = ticket{++name};
    if (terms.deadline == nanoseconds{0}) terms.deadline = 1h;
    terms.reply = log.make_reply_promise();
    order_of(self).ask(rank{self}, std::move(terms));
    return log;
  }
  outcome_log ask(int self, lane where, operation what) { return ask(self, std::move(what), in(where)); }
  std::vector<outcome_log> ask_each(lane where, std::size_t count) {
    std::vector<outcome_log> logs;
    for (int r = 0; r < size(); ++r) logs.push_back(ask(r, where, add(r, count)));
    return logs;
  }
  [[nodiscard]] static lane_request in(lane where, std::uint64_t client = 0) {
    lane_request terms;
    terms.where = where;
    terms.client = client;
    return terms;
  }
  /// all_reduce of \p count elements.
  [[nodiscard]] operation add(int self, std::size_t count) const { return sum(static_cast<std::size_t>(self), count); }
  [[nodiscard]] operation pass(int self, int to, std::size_t count, int tag = 0) const {
    return troupe::send{
        .memory = memory(self, count), .count = count, .type = dtype::i32, .peer = rank{to}, .tag = tag};
  }
  [[nodiscard]] operation take(int self, int from, std::size_t count, int tag = 0) const {
    return recv{.memory = memory(self, count), .count = count, .type = dtype::i32, .peer = rank{from}, .tag = tag};
  }
  [[nodiscard]] buffer memory(int self, std::size_t count) const {
    return rig.numbers(static_cast<std::size_t>(self), count, 1);
  }
  /// The launches are made and answered.
  void finish() {
    settle();
    look();
  }
  [[nodiscard]] int size() const { return static_cast<int>(rig.ranks.size()); }

  std::atomic<std::uint64_t> name{0};
};

/// The code that all have been answered with, once each.
inline errc code_of_all(const std::vector<outcome_log>& logs) {
  for (const outcome_log& one : logs) {
    REQUIRE(one.count() == 1);
    CHECK(one.failure().code == logs.front().failure().code);
    if (one.failure()) CHECK(one.failure().effect == effect::rejected);
  }
  return logs.front().failure().code;
}

} // namespace troupe::tests
