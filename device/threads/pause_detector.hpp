/// Measures the time in which a thread did not run, because its process was stopped or no CPU was free. Such time says
/// nothing about other processes. (docs/design/0050-failure-detection.md)
#pragma once

#include <troupe/device/time.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

/// For time limits that may be shorter than the interval of ticks: limit / pauses_in_a_limit of each pause counts. It
/// is not zero, so that a thread that is always late still notices when the limit is exceeded.
inline constexpr int pauses_in_a_limit = 16;

/// Finds the pauses of a thread from the intervals between its ticks. Threads: one call at a time.
class pause_detector {
public:
  explicit pause_detector(time_point now) noexcept : ticked_{now} {}

  /// Call it at each tick. Returns the pause: by how much the time since the last tick exceeds \p counted, or 0.
  /// Because \p counted of each pause is not excluded, a thread that is always late still notices a silent peer.
  [[nodiscard]] nanoseconds tick(time_point now, nanoseconds counted) noexcept {
    return std::max(now - std::exchange(ticked_, now) - counted, nanoseconds{0});
  }

private:
  time_point ticked_;
};

/// Returns \p since, from which a time is measured, moved so that a pause that ends \p now is excluded.
[[nodiscard]] inline time_point without_pause(time_point since, nanoseconds pause, time_point now) noexcept {
  return std::min(now, later(since, pause));
}

} // namespace troupe
