/// Where plain threads read and await what actors are told by message.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace troupe {

/// Threads: safe from any.
class world_board {
public:
  using listener = std::function<void(const world_event&)>;

  /// Before the first event: the number that the world has among all of the process (world_stamp).
  void belongs_to(std::uint64_t world) noexcept { world_.store(world, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t world() const noexcept { return world_.load(std::memory_order_relaxed); }

  void publish(const world_event& event);
  [[nodiscard]] world_event latest() const;
  /// That of the latest event, without a copy of it all.
  [[nodiscard]] troupe::epoch epoch() const;
  /// Waits until \p enough says yes to the latest event, at most \p at_most. Returns whether it did.
  [[nodiscard]] bool wait(const std::function<bool(const world_event&)>& enough, nanoseconds at_most) const;
  /// Calls \p heard for every later event, on the world actor's thread: it must neither block nor throw.
  void listen(listener heard);

private:
  std::atomic<std::uint64_t> world_{0};
  mutable std::mutex guard_;
  mutable condition changed_;
  world_event latest_;
  std::vector<listener> listeners_;
};

} // namespace troupe
