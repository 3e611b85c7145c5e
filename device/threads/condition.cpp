#include <troupe/device/threads/condition.hpp>

namespace troupe {

void condition::notify_all() noexcept {
  if (fibers* const all = fibers::current())
    all->wake(simulated_);
  else
    real_.notify_all();
}

void condition::sleep(std::unique_lock<std::mutex>& lock, time_point until) {
  fibers* const all = fibers::current();
  if (all == nullptr) {
    if (until == time_point::max())
      real_.wait(lock);
    else
      real_.wait_until(lock, until);
    return;
  }
  lock.unlock();
  // When called outside the fibers, one turn of a fiber may make the condition true. If no fiber is ready, only the
  // passing of time can.
  if (all->running_ != nullptr)
    all->give_way(simulated_, until);
  else if (!all->step(until) && until != time_point::max())
    all->now_ = std::max(all->now_, until);
  lock.lock();
}

} // namespace troupe
