#include <troupe/actors/world/world_status.hpp>
#include <troupe/device/threads/own_thread.hpp>

#include <utility>

namespace troupe {

void world_status::publish(const world_event& event) {
  std::vector<listener> listeners;
  {
    const std::lock_guard lock{mutex_};
    latest_ = event;
    // No event follows: release what the listeners hold.
    listeners = event.phase == world_phase::stopped ? std::exchange(listeners_, {}) : listeners_;
    changed_.notify_all();
  }
  const own_thread_scope calls;
  for (const auto& heard : listeners) heard(event);
}

world_event world_status::latest() const {
  const std::lock_guard lock{mutex_};
  return latest_;
}

epoch world_status::epoch() const {
  const std::lock_guard lock{mutex_};
  return latest_.epoch;
}

bool world_status::wait(const std::function<bool(const world_event&)>& enough, nanoseconds at_most) const {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, at_most, [&] { return enough(latest_); });
}

void world_status::listen(listener heard) {
  const std::lock_guard lock{mutex_};
  listeners_.push_back(std::move(heard));
}

} // namespace troupe
