/// How threads of troupe's wait for each other: as on a condition variable, or in virtual time where they are fibers.
#pragma once

#include <troupe/device/threads/fibers.hpp>

#include <condition_variable>
#include <mutex>

namespace troupe {

/// Threads: safe from any; fibers and threads never share one.
class condition {
public:
  void notify_all() noexcept;

  /// Waits until \p reached, which is asked with \p lock held.
  template <class Reached>
  void wait(std::unique_lock<std::mutex>& lock, Reached reached) {
    while (!reached()) sleep(lock, time_point::max());
  }
  /// The same until \p until at most. Returns whether it was reached.
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
  /// Until notified or \p until, or for no reason at all.
  void sleep(std::unique_lock<std::mutex>& lock, time_point until);

private:
  std::condition_variable real_;
  fibers::fiber_list simulated_;
};

} // namespace troupe
