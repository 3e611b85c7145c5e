/// Creates and supervises the sub-worlds that are split off one world. They end before that world.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/operation/rank_group.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Creates the communicators of all groups. Threads: take_part() from helpers, the rest from the world's actor.
class world_split {
public:
  /// \p groups must have been checked for \p world_size.
  world_split(std::vector<rank_group> groups, int world_size);

  /// Takes part in every round for the rank of \p parent. Blocks until all ranks of the world take part.
  void take_part(rank_pipeline& parent);

  /// Returns the plan for group \p index with its communicators, or nullopt if none of its ranks live here.
  [[nodiscard]] std::optional<world_plan> plan_of(std::size_t index, const world_plan& parent);
  /// Aborts, in helpers, all communicators that have been created and not handed out, and those still to be created.
  void abandon(deadline_pool& helpers, nanoseconds deadline);

  [[nodiscard]] const std::vector<rank_group>& groups() const noexcept { return groups_; }

private:
  void keep(std::size_t group, rank self, std::shared_ptr<communicator> made);

  std::vector<rank_group> groups_;
  std::vector<std::vector<std::size_t>> rounds_;

  std::mutex mutex_;
  bool abandoned_ = false;
  std::vector<std::map<rank, std::shared_ptr<communicator>>> made_; ///< Communicators per group, by rank in the parent.
};

/// Spawns, observes and stops sub-worlds. Threads: the parent's actor. Events of sub-worlds arrive there as
/// sub_worlds_report.
class sub_worlds {
public:
  /// Spawns the sub-worlds of \p made with parent \p parent. Delivers to \p reply when each has become ready or failed.
  /// If one fails, all are stopped.
  void raise(caf::actor_system& system, const world_inner_handle& self, const world_plan& parent, world_split& made,
             std::shared_ptr<split_answer> reply);

  /// Returns what \p report means for the parent's events: a sub-world has recovered from a fault, or has failed for
  /// good. Call it before heard().
  [[nodiscard]] std::optional<restored_part> restored_by(const sub_worlds_report& report);
  void heard(const sub_worlds_report& report);

  void stop_all();
  [[nodiscard]] bool all_stopped() const noexcept { return living_.empty(); }

private:
  /// The sub-worlds of one split until each has become ready or failed.
  struct pending_split {
    std::shared_ptr<split_answer> reply;
    split_reply result;
    std::size_t unsettled = 0;
    error failure;
  };
  struct child {
    std::uint64_t name;
    world_handle world;
    std::string group;
    std::shared_ptr<pending_split> unsettled_split; ///< Set until it has become ready or failed.
    epoch back_in{};                                ///< The latest epoch in which it has recovered.
  };

  std::uint64_t next_ = 0;
  std::vector<child> living_;
};

} // namespace troupe
