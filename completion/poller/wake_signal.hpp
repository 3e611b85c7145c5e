/// Waiting of troupe's threads: they spin first, because waking a parked thread costs tens of microseconds, then park.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <atomic>
#include <mutex>

namespace troupe {

/// Lets one thread park and any other thread wake it. Notifying while no thread is parked costs only a load.
class wake_signal {
public:
  /// Wakes the thread if it is parked. Before the call, write the data that the thread is to find, with sequential
  /// consistency.
  void notify() noexcept {
    if (parked_.load()) wake();
  }

  /// Returns whether the thread is parked, or about to park. What it has written before park() is then visible.
  [[nodiscard]] bool is_parked() const noexcept { return parked_.load(); }

  /// Parks until notified or until \p at_most has passed, unless \p has_news() returns true. \p has_news() must read
  /// with sequential consistency. The parking thread first announces that it parks and then reads the data. The
  /// notifying thread first writes the data and then reads whether the other is parked. At least one of them sees the
  /// other, so no wake-up is lost. Returns false if only time has passed.
  template <class HasNews>
  bool park(HasNews has_news, nanoseconds at_most) {
    parked_.store(true);
    const bool found = has_news();
    if (!found) sleep(at_most);
    const bool notified = !parked_.exchange(false);
    return found || notified;
  }

private:
  void wake() noexcept {
    {
      const std::lock_guard lock{mutex_};
      parked_.store(false);
    }
    wake_.notify_all(); // without the lock, for which the woken thread would be put to sleep again
  }
  void sleep(nanoseconds at_most) {
    std::unique_lock lock{mutex_};
    wake_.wait_for(lock, at_most, [this] { return !parked_.load(); });
  }

  alignas(64) std::atomic<bool> parked_{false}; ///< Read by all notifying threads, written only around a sleep.
  std::mutex mutex_;
  condition wake_;
};

/// Tells the core that this is a spin loop.
inline void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

} // namespace troupe
