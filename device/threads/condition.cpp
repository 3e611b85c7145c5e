#include <troupe/device/threads/condition.hpp>

namespace troupe {

thread_local constinit thread_scheduler* thread_scheduler::current_ = nullptr;

void condition::notify_all() noexcept {
  if (thread_scheduler* const scheduler = thread_scheduler::current())
    scheduler->wake(scheduled_);
  else
    real_.notify_all();
}

void condition::sleep(std::unique_lock<std::mutex>& lock, time_point until) {
  if (thread_scheduler* const scheduler = thread_scheduler::current()) {
    lock.unlock();
    scheduler->wait(scheduled_, until);
    lock.lock();
  } else if (until == time_point::max()) {
    real_.wait(lock);
  } else {
    real_.wait_until(lock, until);
  }
}

} // namespace troupe
