/// A clock that stands still while this process, or the thread that reads the clock, does not run. Limits for the
/// silence and slowness of others are measured by it. (docs/design/0101-running-clock.md)
#pragma once

#include <troupe/device/time.hpp>

#include <algorithm>
#include <chrono>

namespace troupe {

class running_clock;
/// A time of a running_clock. It is of another type than real time, so the two cannot be compared or subtracted.
using running_time = std::chrono::time_point<running_clock, nanoseconds>;

/// Measures the time in which a thread ran, from the real time at which the thread reads the clock. The thread, usually
/// a loop, reads it at least once per `counted` while it runs. If the time between two readings is longer, the process
/// was stopped (SIGSTOP, a debugger, a frozen cgroup, a suspended machine), or no CPU was free: only `counted` of it
/// passes. It is not 0, so that a thread that is always late still notices when a limit is exceeded.
///
/// Real time is a time_point or a boot_time, the same for all calls. Running time begins at the real time of the
/// construction, so that running_time{} is long ago. Times of two running_clocks are not comparable.
/// Threads: one call at a time.
class running_clock {
public:
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = running_time;
  static constexpr bool is_steady = true;

  template <class Real>
  running_clock(std::chrono::time_point<Real, nanoseconds> now, nanoseconds counted) noexcept
    : read_{now.time_since_epoch()}, now_{read_}, counted_{counted} {}

  /// Returns the present time. A \p now before that of the last reading has no effect.
  template <class Real>
  running_time read(std::chrono::time_point<Real, nanoseconds> now) noexcept {
    return read(now, counted_);
  }
  /// Same, but at most \p counted passes: for a reading after a wait that was planned to be longer.
  template <class Real>
  running_time read(std::chrono::time_point<Real, nanoseconds> now, nanoseconds counted) noexcept {
    const nanoseconds gap = std::max(since_reading(now), nanoseconds{0});
    read_ += gap;
    now_ += std::min(gap, counted);
    excluded_ += gap - std::min(gap, counted);
    return now_;
  }

  /// Returns the time at the last reading.
  [[nodiscard]] running_time last() const noexcept { return now_; }
  /// Returns the real time since the last reading.
  template <class Real>
  [[nodiscard]] nanoseconds since_reading(std::chrono::time_point<Real, nanoseconds> now) const noexcept {
    return now.time_since_epoch() - read_;
  }
  /// Returns how much real time has not been counted so far.
  [[nodiscard]] nanoseconds excluded() const noexcept { return excluded_; }
  [[nodiscard]] nanoseconds counted() const noexcept { return counted_; }
  /// Sets how much of the time between two readings counts from now on.
  void count(nanoseconds counted) noexcept { counted_ = counted; }

private:
  nanoseconds read_; ///< The real time of the last reading.
  running_time now_;
  nanoseconds counted_;
  nanoseconds excluded_{0};
};

/// Returns real time as running time that also passes in pauses, for counting where no loop reads a clock. Not to be
/// compared with times of a running_clock.
[[nodiscard]] constexpr running_time including_pauses(time_point now) noexcept {
  return running_time{now.time_since_epoch()};
}

/// Returns \p span after \p from, or the end of time on overflow, as later() of a time_point.
[[nodiscard]] constexpr running_time later(running_time from, nanoseconds span) noexcept {
  return span > nanoseconds{0} && from > running_time::max() - span ? running_time::max() : from + span;
}

} // namespace troupe
