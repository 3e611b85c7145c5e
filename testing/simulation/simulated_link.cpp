#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_link.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds usual_delay = 300us;
constexpr nanoseconds longest_delay = 4ms;

} // namespace

struct simulated_link::state {
  explicit state(std::uint64_t seed) : chance{seed} {}

  prng chance;
  std::mutex mutex;
  condition changed;
  std::deque<std::pair<time_point, delivery>> waiting; ///< With the times at which they are due.
  time_point last{}; ///< The due time of the last delivery: later ones are not due earlier.
  bool is_closed = false;
};

simulated_link::simulated_link(std::uint64_t seed, fibers::group of) : state_{std::make_shared<state>(seed)} {
  const fibers::group_scope in_group{of};
  worker{[mine = state_] { serve(*mine); }}.detach();
}

void simulated_link::put(delivery what) {
  const std::lock_guard lock{state_->mutex};
  if (state_->is_closed) return;
  const nanoseconds delay = state_->chance.within(state_->chance.one_in(6) ? longest_delay : usual_delay);
  state_->last = std::max(state_->last, steady_now() + delay);
  state_->waiting.emplace_back(state_->last, std::move(what));
  state_->changed.notify_all();
}

void simulated_link::stall(nanoseconds span) {
  state_->last = std::max(state_->last, steady_now() + span);
}

void simulated_link::close() noexcept {
  const std::lock_guard lock{state_->mutex};
  state_->is_closed = true;
  state_->changed.notify_all();
}

void simulated_link::drop() noexcept {
  close();
  const auto dropped = std::exchange(state_->waiting, {}); // its destructors may use the link
}

void simulated_link::serve(state& mine) {
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

} // namespace troupe::simulation
