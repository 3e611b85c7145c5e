#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_link.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
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
  nanoseconds delay{};
  std::mutex mutex;
  condition changed;
  struct item {
    time_point due;
    delivery what;
    std::size_t size_bytes;
  };
  std::deque<item> waiting;
  std::size_t waiting_bytes = 0;
  time_point delivered{}; ///< The time of the last delivery, or since when the first one of `waiting` waits.
  time_point slow_until{};
  nanoseconds apart{};
  time_point last{}; ///< The due time of the last delivery: later ones are not due earlier.
  bool is_closed = false;
};

simulated_link::simulated_link(std::uint64_t seed, fibers::group of) : state_{std::make_shared<state>(seed)} {
  const fibers::group_scope in_group{of};
  worker{[mine = state_] { serve(*mine); }}.detach();
}

bool simulated_link::put(delivery what, std::size_t size_bytes) {
  const std::lock_guard lock{state_->mutex};
  if (state_->is_closed) return true;
  const time_point now = virtual_now();
  if (state_->waiting.empty()) state_->delivered = now;
  const nanoseconds delay = state_->chance.within(state_->chance.one_in(6) ? longest_delay : usual_delay);
  state_->last = std::max(state_->last, now + state_->delay + delay);
  state_->waiting.push_back({state_->last, std::move(what), size_bytes});
  state_->waiting_bytes += size_bytes;
  state_->changed.notify_all();
  return state_->waiting_bytes <= most_bytes && now - state_->delivered <= longest_stall;
}

void simulated_link::slow_down(nanoseconds span, nanoseconds apart) {
  state_->slow_until = std::max(state_->slow_until, virtual_now() + span);
  state_->apart = apart;
}

void simulated_link::lengthen(nanoseconds delay) {
  state_->delay = delay;
}

void simulated_link::discard() {
  state_->waiting_bytes = 0;
  const auto dropped = std::exchange(state_->waiting, {}); // its destructors may use the link
}

void simulated_link::stall(nanoseconds span) {
  state_->last = std::max(state_->last, virtual_now() + span);
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
    time_point due = mine.waiting.front().due;
    if (mine.delivered < mine.slow_until) due = std::max(due, std::min(mine.delivered + mine.apart, mine.slow_until));
    if (virtual_now() < due) {
      const fibers::virtual_clock_scope sleeping;
      mine.changed.sleep(lock, due);
      continue;
    }
    const delivery next = std::move(mine.waiting.front().what);
    mine.waiting_bytes -= mine.waiting.front().size_bytes;
    mine.waiting.pop_front();
    mine.delivered = virtual_now();
    lock.unlock();
    next();
  }
}

} // namespace troupe::simulation
