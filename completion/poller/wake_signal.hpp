/// How troupe's threads wait: they spin first, because waking a parked thread costs tens of microseconds, then park.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <atomic>
#include <mutex>

namespace troupe {

/// How long a thread of troupe's stays awake.
struct wait_profile {
  nanoseconds spin{0};                  ///< Spins this long after the last work before it gives the core away.
  nanoseconds nap{nanoseconds{20'000}}; ///< While waiting for a device past that, sleeps this long between looks.
};

/// Lets one thread park and any thread wake it. While nobody is parked, notifying only looks.
class wake_signal {
public:
  /// What the other thread is to find has been written before, sequentially consistently.
  void notify() noexcept {
    if (parked_.load()) wake();
  }

  /// Parks until somebody notifies or \p at_most has passed, unless \p has_news() says that there is something to find:
  /// it reads sequentially consistently. It says that it parks and then looks, while others write and then look whether
  /// it parks, so one side sees the other and no wake-up is lost. Returns false when it was only time that passed.
  template <class HasNews>
  bool park(HasNews has_news, nanoseconds at_most) {
    parked_.store(true);
    const bool found = has_news();
    if (!found) sleep(at_most);
    const bool notified = !parked_.exchange(false);
    return found || notified;
  }

private:
  void wake() noexcept;
  void sleep(nanoseconds at_most);

  alignas(64) std::atomic<bool> parked_{false}; ///< Shared by all who notify, and written only around a sleep.
  std::mutex guard_;
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
