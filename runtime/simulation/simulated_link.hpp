/// Simulates one direction of a connection: passes messages on in their order, each after a random delay.
#pragma once

#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/runtime/simulation/fibers.hpp>
#include <troupe/runtime/simulation/scenario.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe::simulation {

/// A queue of deliveries. Threads: only that of the run.
class simulated_link {
public:
  using delivery = std::function<void()>;

  /// The deliveries are made by a fiber of the group \p of.
  simulated_link(std::uint64_t seed, fibers::group of) : state_{std::make_shared<state>(seed)} {
    const fibers::group_scope in_group{of};
    worker{[mine = state_] { serve(*mine); }}.detach();
  }
  simulated_link(const simulated_link&) = delete;
  simulated_link& operator=(const simulated_link&) = delete;
  ~simulated_link() { drop(); }

  void put(delivery what) {
    using namespace std::chrono_literals;
    const std::lock_guard lock{state_->mutex};
    if (state_->is_closed) return;
    prng& chance = state_->chance;
    const nanoseconds delay = chance.within(chance.one_in(6) ? nanoseconds{4ms} : nanoseconds{300us});
    state_->last = std::max(state_->last, steady_now() + delay);
    state_->waiting.emplace_back(state_->last, std::move(what));
    state_->changed.notify_all();
  }
  /// Delays all later deliveries by \p span at least.
  void stall(nanoseconds span) { state_->last = std::max(state_->last, steady_now() + span); }
  /// Accepts nothing more. What has been accepted is delivered.
  void close() noexcept {
    const std::lock_guard lock{state_->mutex};
    state_->is_closed = true;
    state_->changed.notify_all();
  }
  /// Delivers nothing more.
  void drop() noexcept {
    close();
    state_->waiting.clear();
  }

private:
  struct state {
    explicit state(std::uint64_t seed) : chance{seed} {}
    prng chance;
    std::mutex mutex;
    condition changed;
    std::deque<std::pair<time_point, delivery>> waiting;
    time_point last{};
    bool is_closed = false;
  };

  static void serve(state& mine) {
    for (;;) {
      std::unique_lock lock{mine.mutex};
      mine.changed.wait(lock, [&] { return mine.is_closed || !mine.waiting.empty(); });
      if (mine.waiting.empty()) return;
      const time_point due = mine.waiting.front().first;
      mine.changed.wait_until(lock, due, [&] { return mine.waiting.empty(); });
      if (mine.waiting.empty()) continue;
      const delivery next = std::move(mine.waiting.front().second);
      mine.waiting.pop_front();
      lock.unlock();
      next();
    }
  }

  std::shared_ptr<state> state_;
};

} // namespace troupe::simulation
