/// Holds the sub-worlds that were split off one world. They end before it does.
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
    std::shared_ptr<litter> born_with; ///< Set until it has become ready or failed.
    epoch back_in{};                   ///< The latest epoch in which it has recovered.
  };

  std::uint64_t next_ = 0;
  std::vector<child> living_;
};

} // namespace troupe
