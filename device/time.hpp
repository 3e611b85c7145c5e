/// Points in time and spans of it, and the clock that threads wait by.
#pragma once

#include <chrono>

namespace troupe {

using time_point = std::chrono::steady_clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

/// \p span after \p from, or the end of time: "for ever" is a deadline like any other.
[[nodiscard]] constexpr time_point later(time_point from, nanoseconds span) noexcept {
  return span > nanoseconds{0} && from > time_point::max() - span ? time_point::max() : from + span;
}

} // namespace troupe
