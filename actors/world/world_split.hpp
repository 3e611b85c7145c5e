/// One split of a world under way: what its ranks' helpers make, for the worlds that follow.
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

/// Threads: take_part() from helpers, the rest from the world's actor.
class world_split {
public:
  /// \p groups have been checked for \p world_size.
  world_split(std::vector<rank_group> groups, int world_size);

  /// Takes part for the rank of \p parent in every round. Blocks until all ranks of the world do.
  void take_part(rank_pipeline& parent);

  /// The plan of group \p index's world, with the communicators that were made; nothing if no rank of it lives here.
  [[nodiscard]] std::optional<world_plan> plan_of(std::size_t index, const world_plan& parent);
  /// Aborts, in helpers, whatever has been made and handed to nobody, and what will be.
  void abandon(deadline_pool& helpers, nanoseconds deadline);

  [[nodiscard]] const std::vector<rank_group>& groups() const noexcept { return groups_; }

private:
  void keep(std::size_t group, rank self, std::shared_ptr<communicator> made);

  std::vector<rank_group> groups_;
  std::vector<std::vector<std::size_t>> rounds_;

  std::mutex guard_;
  bool abandoned_ = false;
  std::vector<std::map<rank, std::shared_ptr<communicator>>> made_; ///< Of each group, by rank in the parent.
};

} // namespace troupe
