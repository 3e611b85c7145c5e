/// Worlds of one process below one arbiter.
#pragma once

#include "support/world_order_rig.hpp"

#include <troupe/collectives/order/arbiter.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::tests {

struct arbiter_rig : world_order_rig {
  explicit arbiter_rig(int size, int world_count = 1, fusion_limits fused = {}, bool real_time = false)
    : world_order_rig{size, world_count, real_time},
      above{std::make_shared<arbiter>(rig.services.time, rig.services.poller, sequencer_limits{.straggling = 5ms},
                                      fused)} {
    for (const auto& set : sets)
      worlds.push_back(above->open_world(
          set, [this](auto report) { late.push_back(std::move(report)); }, std::make_shared<resume_log>()));
  }
  ~arbiter_rig() override {
    for (const auto& one : worlds)
      CHECK(one->close({.code = errc::stopping, .text = "the test is over"})->wait_for(std::chrono::seconds{30}));
    settle();
  }

  world_order& order_of(int) override { return *worlds[0]; }
  void deliver_all() override {}
  void expire_above(nanoseconds by) override {
    time->advance(by);
    CHECK(above->poll(time->now(), {}));
  }
  std::vector<std::shared_ptr<const absence_report>> take_straggling() override { return std::exchange(late, {}); }
  std::size_t waiting_above() const override { return above->load(); }
  void tell_progress(int) override {}
  void take_turn(std::function<void(rank_pipeline&)> work) override { take_turn(0, std::move(work)); }
  void take_turn(std::size_t world, std::function<void(rank_pipeline&)> work) {
    int granted = 0;
    worlds[world]->turn({}, [&](const error& why, std::span<const opened_world> opened) {
      CHECK_FALSE(why);
      CHECK(opened.empty());
      for (const auto& each : sets[world]) work(*each);
      ++granted;
    });
    CHECK(granted == 1); // at once
  }
  /// A launcher that was told that something waits takes a turn at the arbiter, in which others' are taken, too.
  void finish_turns_of(std::size_t which) const { static_cast<void>(stop(which)); }
  outcome_log ask_all(std::size_t world, std::size_t count) {
    outcome_log log;
    std::vector<operation> parts;
    for (std::size_t r = 0; r < rig.ranks.size(); ++r) parts.push_back(sum(r, count));
    worlds[world]->ask_all(ticket{++name}, std::move(parts), 1h, log.make_reply_promise());
    return log;
  }

  std::shared_ptr<arbiter> above;
  std::vector<std::shared_ptr<ordered_world>> worlds;
  std::vector<std::shared_ptr<const absence_report>> late;
};

} // namespace troupe::tests
