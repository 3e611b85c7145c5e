/// Decides when a process that sends heartbeats counts as lost.
#pragma once

#include <troupe/device/threads/pause_detector.hpp>
#include <troupe/device/time.hpp>

#include <utility>

namespace troupe {

/// The silence of one peer. A peer counts as lost at the second consecutive tick at which it is silent for too long,
/// because messages that arrived before the first are handled before the second.
/// (docs/design/0050-failure-detection.md)
class peer_silence {
public:
  /// Reports a message of the peer.
  void end(time_point now) noexcept { heard_ = now; }
  /// Excludes a pause of the listener, which could not read the peer's messages: see pause_detector.
  void exclude(nanoseconds pause, time_point now) noexcept { heard_ = without_pause(heard_, pause, now); }
  [[nodiscard]] nanoseconds length(time_point now) const noexcept { return now - heard_; }
  /// Call it at each tick. Returns whether the peer counts as lost.
  [[nodiscard]] bool exceeds(nanoseconds limit, time_point now) noexcept {
    const bool was_long = std::exchange(is_long_, length(now) > limit);
    return is_long_ && was_long;
  }

private:
  time_point heard_{};
  bool is_long_ = false; ///< At the last tick.
};

} // namespace troupe
