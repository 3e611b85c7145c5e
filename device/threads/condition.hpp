/// A condition variable for troupe's threads. Among threads of a thread_scheduler it waits in virtual time.
#pragma once

#include <troupe/device/threads/thread_scheduler.hpp>

#include <condition_variable>
#include <mutex>

namespace troupe {

/// Like std::condition_variable. Threads: all functions may be called from any thread. Scheduled and real threads never
/// share one object.
class condition {
public:
  void notify_all() noexcept;

  /// Waits until \p reached returns true. \p reached is called with \p lock held.
  template <class Reached>
  void wait(std::unique_lock<std::mutex>& lock, Reached reached) {
    while (!reached()) sleep(lock, time_point::max());
  }
  /// Waits until \p reached returns true, but not past \p until. Returns whether \p reached returned true.
  template <class Reached>
  bool wait_until(std::unique_lock<std::mutex>& lock, time_point until, Reached reached) {
    while (!reached()) {
      if (steady_now() >= until) return false;
      sleep(lock, until);
    }
    return true;
  }
  template <class Reached>
  bool wait_for(std::unique_lock<std::mutex>& lock, nanoseconds at_most, Reached reached) {
    return wait_until(lock, later(steady_now(), at_most), std::move(reached));
  }
  /// Waits until notified or until \p until. May also wake spuriously.
  void sleep(std::unique_lock<std::mutex>& lock, time_point until);

private:
  std::condition_variable real_;
  thread_scheduler::thread_list scheduled_;
};

} // namespace troupe
