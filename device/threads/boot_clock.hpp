/// Real time that also passes while the machine is suspended.
#pragma once

#include <troupe/device/threads/thread_scheduler.hpp>

#include <chrono>
#include <ctime>

namespace troupe {

/// CLOCK_BOOTTIME. The steady clock stops with a suspended machine, so what other machines do meanwhile has to be
/// measured by this one: by how long they have not heard of this process, and a lease that they have granted it.
struct boot_clock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<boot_clock, nanoseconds>;
  static constexpr bool is_steady = true;

  /// Returns the present time: that of the calling thread's scheduler or, without a scheduler, real time.
  [[nodiscard]] static time_point now() noexcept {
    if (const thread_scheduler* const simulated = thread_scheduler::current())
      return time_point{simulated->boot_now().time_since_epoch()};
    std::timespec read{};
    ::clock_gettime(CLOCK_BOOTTIME, &read); // cannot fail with these arguments
    return time_point{std::chrono::seconds{read.tv_sec} + nanoseconds{read.tv_nsec}};
  }
};
using boot_time = boot_clock::time_point;

} // namespace troupe
