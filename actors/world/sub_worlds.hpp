/// The worlds that were split off one world. They end before it does.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/world/restoration.hpp>
#include <troupe/actors/world/world_split.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Threads: the parent's actor. What children tell arrives there as sub_worlds_report.
class sub_worlds {
public:
  /// Spawns the worlds of \p made, the children of \p parent, and delivers to \p reply when all have settled. Where
  /// one fails, all are stopped.
  void raise(caf::actor_system& system, const world_inner_handle& self, const world_plan& parent, world_split& made,
             std::shared_ptr<split_answer> reply);

  /// What \p report means for the parent's events: a child has come back from a fault, or has failed for good. To be
  /// asked before heard().
  [[nodiscard]] std::optional<restored_part> restored_by(const sub_worlds_report& report);
  void heard(const sub_worlds_report& report);

  void stop_all();
  [[nodiscard]] bool all_stopped() const noexcept { return living_.empty(); }

private:
  /// One split's children until all of them have settled.
  struct litter {
    std::shared_ptr<split_answer> reply;
    split_reply result;
    std::size_t unsettled = 0;
    error failure;
  };
  struct child {
    std::uint64_t name;
    world_handle world;
    std::string group;
    std::shared_ptr<litter> born_with; ///< Until it has settled.
    epoch back_in{};                   ///< The latest epoch that it has come back in.
  };

  std::uint64_t next_ = 0;
  std::vector<child> living_;
};

} // namespace troupe
