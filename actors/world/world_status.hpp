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

  /// Sets the latest event, and tells the listeners.
  void publish(const world_event& event);
  /// Sets the latest event without telling the listeners, so that no client is refused while it still says `ready`. The
  /// world's executor calls it before the first refusal, and publishes the event later.
  void set(const world_event& event);
  /// Lets \p revise correct the latest event whenever it is read, until an event with another phase than `ready` is
  /// set: a rank may have failed before the world's executor has been told. It must neither block nor throw.
  void revise_by(std::function<void(world_event&)> revise);
  [[nodiscard]] world_event latest() const;
  /// Returns \p look of the latest event as it was set, not corrected by revise_by(): for what no correction changes,
  /// its epoch and ranks. Each request asks for that, and a copy of the event would cost more than the request. \p look
  /// is called under the lock and must be short.
  template <class Look>
  [[nodiscard]] auto peek(const Look& look) const {
    const std::lock_guard lock{mutex_};
    return look(latest_);
  }
  [[nodiscard]] troupe::epoch epoch() const {
    return peek([](const world_event& now) { return now.epoch; });
  }
  /// Waits until \p enough returns true for the latest event, for at most \p at_most. Returns the last event for which
  /// it was called. A later one may already have followed.
  [[nodiscard]] world_event wait(const std::function<bool(const world_event&)>& enough, nanoseconds at_most) const;
  /// Waits until the latest event is_ready_after() \p after, for at most \p at_most. Returns the latest event.
  [[nodiscard]] world_event wait_ready(troupe::epoch after, nanoseconds at_most) const;
  /// Calls \p heard once, as soon as the latest event is_ready_after() \p after: at once, or later on the world actor's
  /// thread. It must neither block nor throw.
  void when_ready(troupe::epoch after, listener heard);
  /// Calls \p heard for every later event on the world actor's thread. It must neither block nor throw. It is dropped
  /// after the last event, world_phase::stopped.
  void listen(listener heard);

private:
  struct waiter {
    troupe::epoch after;
    listener heard;
  };
  [[nodiscard]] world_event revised() const;
  /// Returns the correction that has ended with the event. Requires mutex_ to be locked.
  [[nodiscard]] std::function<void(world_event&)> replace_latest(const world_event& event);

  std::atomic<std::uint64_t> world_{0};
  std::shared_ptr<request_gate> gate_;
  mutable std::mutex mutex_;
  mutable condition changed_;
  world_event latest_;
  std::function<void(world_event&)> revise_;
  std::vector<listener> listeners_;
  std::vector<waiter> waiters_;
};

} // namespace troupe
