/// Lets threads read and await the world's events, and passes them to listeners.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

class request_gate;

/// Stores the latest event of a world and gives access to its request gate. Threads: safe from any.
class world_status {
public:
  using listener = std::function<void(const world_event&)>;

  /// Sets the world's number within the process (world_stamp) and its gate. Called once, by the world's executor,
  /// before the world is spawned.
  void belongs_to(std::uint64_t world, std::shared_ptr<request_gate> gate) noexcept {
    world_.store(world, std::memory_order_relaxed);
    gate_ = std::move(gate);
  }
  [[nodiscard]] std::uint64_t world() const noexcept { return world_.load(std::memory_order_relaxed); }
  /// Returns the gate that admits requests to the whole world. Null before the world has been spawned.
  [[nodiscard]] const std::shared_ptr<request_gate>& gate() const noexcept { return gate_; }

  void publish(const world_event& event);
  [[nodiscard]] world_event latest() const;
  /// Returns the epoch of the latest event without copying the event.
  [[nodiscard]] troupe::epoch epoch() const;
  /// Waits until \p enough returns true for the latest event, for at most \p at_most. Returns whether it did.
  [[nodiscard]] bool wait(const std::function<bool(const world_event&)>& enough, nanoseconds at_most) const;
  /// Calls \p heard for every later event on the world actor's thread. It must neither block nor throw. It is dropped
  /// after the last event, world_phase::stopped.
  void listen(listener heard);

private:
  std::atomic<std::uint64_t> world_{0};
  std::shared_ptr<request_gate> gate_;
  mutable std::mutex mutex_;
  mutable condition changed_;
  world_event latest_;
  std::vector<listener> listeners_;
};

} // namespace troupe
