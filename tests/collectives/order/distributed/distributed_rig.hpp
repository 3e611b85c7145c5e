/// Ranks that share no order but that of a controller, joined by batches of bytes which the test delivers when it
/// likes.
#pragma once

#include "support/ordering_rig.hpp"

#include <troupe/collectives/order/distributed/order_connection.hpp>
#include <troupe/collectives/order/distributed/order_server.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

struct distributed_rig : ordering_rig {
  explicit distributed_rig(int size, sequencer_limits limits = {}, const fusion_limits& fused = {.mode = fusion::off})
    : ordering_rig{size}, keeper{limits}, up(rig.ranks.size()), down(rig.ranks.size()) {
    keeper.open(rig_epoch, size);
    for (const auto& one : rig.ranks) {
      auto& line = up[static_cast<std::size_t>(one->self().value())];
      links.push_back(std::make_shared<order_connection>(
          one, rig_epoch, time,
          [this, &line](std::string batch) {
            const std::lock_guard lock{sending};
            line.push_back(std::move(batch));
          },
          fused));
      orders.push_back(links.back()->whole());
    }
  }
  ~distributed_rig() {
    for (const auto& one : links) one->close({.code = errc::stopping, .text = "the test is over"});
    settle();
    look();
  }

  outcome_log ask(int self, operation what, lane_request terms = {}) {
    outcome_log log;
    terms.what = std::move(what);
    terms.name = ticket{++name};
    if (terms.deadline == nanoseconds{0}) terms.deadline = 1h;
    terms.reply = log.make_reply_promise();
    orders[static_cast<std::size_t>(self)]->ask(rank{self}, std::move(terms));
    return log;
  }
  /// Calls \p work at a turn of \p self.
  void turn(int self, std::function<void()> work) {
    orders[static_cast<std::size_t>(self)]->turn(
        {.name = "work"}, [work = std::move(work)](const error& why, std::span<const opened_world>) {
          if (!why) work();
        });
  }
  outcome_log ask(int self, lane where, operation what) { return ask(self, std::move(what), in(where)); }
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

  /// The oldest batch of \p self reaches the controller. False where there is none.
  bool deliver_up(int self) {
    std::string batch;
    {
      const std::lock_guard lock{sending};
      auto& line = up[static_cast<std::size_t>(self)];
      if (line.empty()) return false;
      batch = std::move(line.front());
      line.pop_front();
    }
    refused_above = keeper.receive(rank{self}, batch, time->now());
    collect();
    return true;
  }
  /// The same the other way.
  bool deliver_down(int self) {
    auto& line = down[static_cast<std::size_t>(self)];
    if (line.empty()) return false;
    const std::string batch = std::move(line.front());
    line.pop_front();
    refused_below = links[static_cast<std::size_t>(self)]->receive(batch);
    return true;
  }
  /// What the controller has for the ranks is on its way.
  void collect() {
    for (std::size_t r = 0; r < down.size(); ++r)
      for (std::string batch; !(batch = keeper.take_outgoing(rank{static_cast<int>(r)})).empty();)
        down[r].push_back(std::move(batch));
  }
  /// Everything arrives, and what follows from that.
  void deliver_all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < size(); ++r) moved = deliver_up(r) || moved;
      for (int r = 0; r < size(); ++r) moved = deliver_down(r) || moved;
    }
  }
  /// Time passes at the controller, which says so.
  void expire_above(nanoseconds by) {
    time->advance(by);
    keeper.expire(time->now());
    collect();
  }
  /// The launches are made and answered.
  void finish() {
    settle();
    look();
  }
  [[nodiscard]] int size() const { return static_cast<int>(orders.size()); }

  order_server keeper;
  std::mutex sending;                            ///< Launchers send, too, if requests waited for them.
  std::vector<std::deque<std::string>> up, down; ///< Batches on their way, by rank.
  std::vector<std::shared_ptr<order_connection>> links;
  std::vector<std::shared_ptr<distributed_order>> orders;
  error refused_above, refused_below; ///< What the last delivery came to.
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
