/// Decides when a process that sends heartbeats counts as lost.
#pragma once

#include <troupe/device/threads/running_clock.hpp>

#include <utility>

namespace troupe {

/// The silence of one peer, in the time of the listener's running_clock: while the listener is stopped it cannot read
/// what its peers send. A peer counts as lost at the second consecutive tick at which it is silent for too long,
/// because messages that arrived before the first are handled before the second.
/// (docs/design/0050-failure-detection.md)
class peer_silence {
public:
  /// Reports a message of the peer.
  void end(running_time now) noexcept { heard_ = now; }
  [[nodiscard]] nanoseconds length(running_time now) const noexcept { return now - heard_; }
  /// Call it at each tick. Returns whether the peer counts as lost.
  [[nodiscard]] bool exceeds(nanoseconds limit, running_time now) noexcept {
    const bool was_long = std::exchange(is_long_, length(now) > limit);
    return is_long_ && was_long;
  }

private:
  running_time heard_{};
  bool is_long_ = false; ///< At the last tick.
};

} // namespace troupe
