/// The clocks of a simulated machine, which run apart from those of other machines.
#pragma once

#include <troupe/device/time.hpp>

#include <algorithm>
#include <cstdint>

namespace troupe {

/// CLOCK_MONOTONIC and CLOCK_BOOTTIME of one machine, as functions of virtual time. Both are driven by one oscillator,
/// and show the time since the machine was started. The first stands still while the machine is suspended.
/// Threads: only that of the simulation.
class machine_clock {
public:
  /// The machine was started \p ahead before virtual time begins, and was suspended for \p suspended since. \p
  /// drift_ppm: by how many millionths its oscillator is too fast; more than -1,000,000.
  machine_clock(std::int64_t drift_ppm, nanoseconds ahead, nanoseconds suspended) noexcept
    : drift_ppm_{drift_ppm}, steady_ahead_{ahead - suspended}, boot_ahead_{ahead} {}

  [[nodiscard]] time_point steady(time_point when) const noexcept {
    const nanoseconds lost = shown(std::clamp(when, suspended_at_, resumed_at_)) - shown(suspended_at_);
    return time_point{shown(when) - lost + steady_ahead_};
  }
  [[nodiscard]] time_point since_boot(time_point when) const noexcept { return time_point{shown(when) + boot_ahead_}; }
  /// Returns the first virtual time at which steady() is \p local or later.
  [[nodiscard]] time_point when_steady(time_point local) const noexcept {
    if (local == time_point::max()) return local;
    nanoseconds passed = local.time_since_epoch() - steady_ahead_;
    if (passed > shown(suspended_at_)) passed += shown(resumed_at_) - shown(suspended_at_);
    const std::int64_t rate = millionths + drift_ppm_;
    time_point when{passed - passed / rate * drift_ppm_ - passed % rate * drift_ppm_ / rate};
    while (shown(when) < passed) when += nanoseconds{1}; // what the divisions have rounded off
    while (shown(when - nanoseconds{1}) >= passed) when -= nanoseconds{1};
    return when;
  }

  /// Suspends the machine at \p now for \p span. One that is suspended already stays so for that long at least.
  void suspend(time_point now, nanoseconds span) noexcept {
    if (now > resumed_at_) {
      steady_ahead_ -= shown(resumed_at_) - shown(suspended_at_);
      suspended_at_ = resumed_at_ = now;
    }
    resumed_at_ = std::max(resumed_at_, now + span);
  }
  /// Lets CLOCK_BOOTTIME jump ahead, as that of a virtual machine whose hypervisor corrects it.
  void jump(nanoseconds span) noexcept { boot_ahead_ += span; }

private:
  static constexpr std::int64_t millionths = 1'000'000;

  /// Returns what the oscillator has counted at \p when.
  [[nodiscard]] nanoseconds shown(time_point when) const noexcept {
    const nanoseconds passed = when.time_since_epoch();
    return passed + passed / millionths * drift_ppm_ + passed % millionths * drift_ppm_ / millionths;
  }

  std::int64_t drift_ppm_;
  nanoseconds steady_ahead_;
  nanoseconds boot_ahead_;
  time_point suspended_at_{}; ///< The latest suspension, which may not have ended.
  time_point resumed_at_{};
};

} // namespace troupe
