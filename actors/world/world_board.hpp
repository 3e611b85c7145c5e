/// Lets plain threads read and await the world's events, which actors receive as messages.
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

/// Stores the latest event of a world. Threads: safe from any.
class world_board {
public:
  using listener = std::function<void(const world_event&)>;

  /// Sets the world's number within the process (world_stamp). Call it before the first event.
  void belongs_to(std::uint64_t world) noexcept { world_.store(world, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t world() const noexcept { return world_.load(std::memory_order_relaxed); }

  void publish(const world_event& event);
  [[nodiscard]] world_event latest() const;
  /// Returns the epoch of the latest event without copying the event.
  [[nodiscard]] troupe::epoch epoch() const;
  /// Waits until \p enough returns true for the latest event, for at most \p at_most. Returns whether it did.
  [[nodiscard]] bool wait(const std::function<bool(const world_event&)>& enough, nanoseconds at_most) const;
  /// Calls \p heard for every later event on the world actor's thread. It must neither block nor throw.
  void listen(listener heard);

private:
  std::atomic<std::uint64_t> world_{0};
  mutable std::mutex guard_;
  mutable condition changed_;
  world_event latest_;
  std::vector<listener> listeners_;
};

} // namespace troupe
