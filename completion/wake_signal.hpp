/// How troupe's threads wait: they spin first, because waking a parked thread costs tens of microseconds, then park.
#pragma once

#include <troupe/completion/clock.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace troupe {

/// How long a thread of troupe's stays awake.
struct wait_profile {
  nanoseconds spin{0};                  ///< Spins this long after the last work before it gives the core away.
  nanoseconds nap{nanoseconds{20'000}}; ///< While waiting for a device past that, sleeps this long between looks.
};

/// Lets one thread park and any thread wake it. notify() costs one atomic add while nobody is parked.
class wake_signal {
public:
  /// The number of notifications so far; pass it to park().
  [[nodiscard]] std::uint32_t seen() const noexcept { return count_.load(std::memory_order_acquire); }

  void notify() noexcept;

  /// Returns at once if a notification has come since \p seen was read; otherwise when one comes or after \p at_most.
  void park(std::uint32_t seen, nanoseconds at_most);

private:
  std::atomic<std::uint32_t> count_{0};
  std::atomic<bool> parked_{false};
  std::mutex guard_;
  std::condition_variable wake_;
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
