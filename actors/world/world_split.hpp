/// Holds one split of a world in progress: the communicators that helpers create per rank, and the plans of the
/// sub-worlds.
#pragma once

#include <troupe/actors/world/world_plan.hpp>
#include <troupe/collectives/operation/rank_group.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Creates the communicators of all groups. Threads: take_part() from helpers, the rest from the world's actor.
class world_split {
public:
  /// \p groups must have been checked for \p world_size.
  world_split(std::vector<rank_group> groups, int world_size);

  /// Takes part in every round for the rank of \p parent. Blocks until all ranks of the world do.
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

  std::mutex guard_;
  bool abandoned_ = false;
  std::vector<std::map<rank, std::shared_ptr<communicator>>> made_; ///< Per group, by rank in the parent.
};

} // namespace troupe
