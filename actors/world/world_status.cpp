#include <troupe/actors/world/world_status.hpp>
#include <troupe/device/threads/own_thread.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

void world_status::publish(const world_event& event) {
  std::function<void(world_event&)> ended; // destroyed without the lock
  std::vector<listener> listeners;
  {
    const std::lock_guard lock{mutex_};
    ended = replace_latest(event); // with the same lock: who listens from now on knows this event
    // No event follows the last one: release what the listeners hold.
    listeners = event.phase == world_phase::stopped ? std::exchange(listeners_, {}) : listeners_;
    const auto answered = std::stable_partition(waiters_.begin(), waiters_.end(),
                                                [&](const waiter& one) { return !is_ready_after(event, one.after); });
    for (auto one = answered; one != waiters_.end(); ++one) listeners.push_back(std::move(one->heard));
    waiters_.erase(answered, waiters_.end());
  }
  const own_thread_scope calls;
  for (const auto& heard : listeners) heard(event);
}

void world_status::set(const world_event& event) {
  std::function<void(world_event&)> ended; // destroyed without the lock
  const std::lock_guard lock{mutex_};
  ended = replace_latest(event);
}

std::function<void(world_event&)> world_status::replace_latest(const world_event& event) {
  latest_ = event;
  changed_.notify_all();
  return event.phase != world_phase::ready ? std::exchange(revise_, nullptr) : nullptr;
}

void world_status::revise_by(std::function<void(world_event&)> revise) {
  const std::lock_guard lock{mutex_};
  revise_.swap(revise);
}

world_event world_status::revised() const {
  world_event now = latest_;
  if (now.phase == world_phase::ready && revise_) revise_(now);
  return now;
}

world_event world_status::latest() const {
  const std::lock_guard lock{mutex_};
  return revised();
}

world_event world_status::wait(const std::function<bool(const world_event&)>& enough, nanoseconds at_most) const {
  std::unique_lock lock{mutex_};
  world_event now;
  static_cast<void>(changed_.wait_for(lock, at_most, [&] {
    now = revised();
    return enough(now);
  }));
  return now;
}

world_event world_status::wait_ready(troupe::epoch after, nanoseconds at_most) const {
  return wait([after](const world_event& now) { return is_ready_after(now, after); }, at_most);
}

void world_status::when_ready(troupe::epoch after, listener heard) {
  world_event now;
  {
    const std::lock_guard lock{mutex_};
    now = revised();
    if (!is_ready_after(now, after)) return waiters_.push_back({after, std::move(heard)});
  }
  heard(now);
}

void world_status::listen(listener heard) {
  const std::lock_guard lock{mutex_};
  listeners_.push_back(std::move(heard));
}

} // namespace troupe
