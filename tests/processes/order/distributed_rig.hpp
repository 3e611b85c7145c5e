/// Ranks that share no order but that of a controller, joined by batches of bytes which the test delivers when it
/// likes.
#pragma once

#include "processes/order/connected_order.hpp"
#include "support/world_order_rig.hpp"

#include <troupe/collectives/operation/validation.hpp>
#include <troupe/processes/order/order_connection.hpp>
#include <troupe/processes/order/order_server.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
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

/// Ranks that share a host with an order service of its own.
using host_ranks = std::vector<rank>;

struct distributed_rig : world_order_rig {
  explicit distributed_rig(int size, sequencer_limits limits = {}, const fusion_limits& fused = {.mode = fusion::off},
                           const std::vector<host_ranks>& of_hosts = {})
    : world_order_rig{size}, keeper{limits}, up(rig.ranks.size()), down(rig.ranks.size()) {
    keeper.open(rig_epoch, size);
    for (const host_ranks& ranks : of_hosts) {
      keeper.delegate(ranks);
      auto& made = hosts.emplace_back(std::make_unique<host>());
      made->ranks = ranks;
      made->keeper.open_host(rig_epoch, size, ranks, {}, limits);
    }
    for (const auto& one : rig.ranks) {
      auto& line = up[static_cast<std::size_t>(one->self().value())];
      exports.push_back(std::make_shared<exported_memory>(static_cast<std::uint64_t>(one->self().value()) + 1));
      links.push_back(std::make_shared<order_connection>(
          one, rig_epoch, time,
          [this, &line](std::string batch) {
            const std::lock_guard lock{sending};
            line.push_back(std::move(batch));
          },
          fused, exports.back()));
      orders.push_back(links.back()->whole());
    }
  }
  ~distributed_rig() override {
    for (const auto& one : links) one->close({.code = errc::stopping, .text = "the test is over"});
    settle();
    look();
  }

  world_order& order_of(int self) override { return *orders[static_cast<std::size_t>(self)]; }
  std::vector<std::shared_ptr<const absence_report>> take_straggling() override { return keeper.take_straggling(); }
  std::size_t waiting_above() const override { return keeper.waiting(); }
  void tell_progress(int self) override { links[static_cast<std::size_t>(self)]->tell_progress(); }
  void take_turn(std::function<void(rank_pipeline&)> work) override {
    int granted = 0;
    for (int r = 0; r < size(); ++r)
      turn(r, [&, r] {
        work(*rig.ranks[static_cast<std::size_t>(r)]);
        ++granted;
      });
    deliver_all();
    CHECK(granted == size());
  }
  /// Calls \p work at a turn of \p self.
  void turn(int self, std::function<void()> work) {
    orders[static_cast<std::size_t>(self)]->turn(
        {.name = "work"}, [work = std::move(work)](const error& why, std::span<const opened_world>) {
          if (!why) work();
        });
  }
  /// Another host, with its order service.
  struct host {
    host_ranks ranks{};
    order_server keeper{};
    std::deque<std::string> up{}, down{}; ///< Messages between it and the controller.
    bool is_closed = false;
  };
  [[nodiscard]] host* host_of(int self) const {
    for (const auto& one : hosts)
      if (std::ranges::find(one->ranks, rank{self}) != one->ranks.end()) return one.get();
    return nullptr;
  }

  /// The oldest batch of \p self reaches the controller, or the order service of its host. False where there is none.
  bool deliver_up(int self) {
    std::string batch;
    {
      const std::lock_guard lock{sending};
      auto& line = up[static_cast<std::size_t>(self)];
      if (line.empty()) return false;
      batch = std::move(line.front());
      line.pop_front();
    }
    host* const on = host_of(self);
    refused_above = (on != nullptr ? on->keeper : keeper).receive(rank{self}, batch, time->now());
    collect();
    return true;
  }
  /// The oldest message of a host reaches the controller.
  bool deliver_up(host& from) {
    if (from.up.empty()) return false;
    error why;
    const host_frame told = decode_host_frame(from.up.front(), size(), why);
    from.up.pop_front();
    REQUIRE_FALSE(why);
    for (const auto& [self, bytes] : told.batches) refused_above = keeper.receive(self, bytes, time->now());
    collect();
    return true;
  }
  /// The same the other way.
  bool deliver_down(host& to) {
    if (to.down.empty()) return false;
    error why;
    const host_frame decided = decode_host_frame(to.down.front(), size(), why);
    to.down.pop_front();
    REQUIRE_FALSE(why);
    refused_below = to.keeper.receive_from_controller(decided);
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
    for (std::size_t r = 0; r < down.size(); ++r) {
      const rank self{static_cast<int>(r)};
      host* const on = host_of(self.value());
      for (std::string batch; !(batch = (on != nullptr ? on->keeper : keeper).take_outgoing(self)).empty();)
        down[r].push_back(std::move(batch));
    }
    for (const auto& one : hosts) {
      host_frame decided;
      for (const rank self : one->ranks)
        for (std::string batch; !(batch = keeper.take_outgoing(self)).empty();)
          decided.batches.push_back({self, std::move(batch)});
      if (closed_above && !std::exchange(one->is_closed, true)) decided.closed = closed_above;
      if (!decided.empty()) one->down.push_back(encode(decided));
      host_frame asked;
      one->keeper.take_for_controller(asked, true);
      if (!asked.empty()) one->up.push_back(encode(asked));
    }
  }
  /// The controller ends the order.
  void close_above(const error& why) {
    closed_above = why;
    keeper.close(why);
    collect();
  }
  /// Everything arrives, and what follows from that.
  void deliver_all() override {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < size(); ++r) moved = deliver_up(r) || moved;
      for (int r = 0; r < size(); ++r) moved = deliver_down(r) || moved;
      for (const auto& one : hosts) moved = deliver_up(*one) || moved;
      for (const auto& one : hosts) moved = deliver_down(*one) || moved;
    }
  }
  /// Time passes at the controller, which says so.
  void expire_above(nanoseconds by) override {
    time->advance(by);
    keeper.expire(time->now());
    for (const auto& one : hosts) one->keeper.expire(time->now());
    collect();
  }
  order_server keeper;
  std::vector<std::unique_ptr<host>> hosts;
  error closed_above{};
  std::mutex sending;                                    ///< Launchers send, too, if requests waited for them.
  std::vector<std::deque<std::string>> up, down;         ///< Batches on their way, by rank.
  std::vector<std::shared_ptr<exported_memory>> exports; ///< By rank, each in a process of its own.
  std::vector<std::shared_ptr<order_connection>> links;
  std::vector<std::shared_ptr<distributed_order>> orders;
  error refused_above, refused_below; ///< What the last delivery came to.
};

} // namespace troupe::tests
