/// Types for points in time and durations on the steady clock.
#pragma once

#include <chrono>

namespace troupe {

using time_point = std::chrono::steady_clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

/// Returns \p span after \p from, or the end of time on overflow. "No deadline" is therefore an ordinary deadline.
[[nodiscard]] constexpr time_point later(time_point from, nanoseconds span) noexcept {
  return span > nanoseconds{0} && from > time_point::max() - span ? time_point::max() : from + span;
}

} // namespace troupe
