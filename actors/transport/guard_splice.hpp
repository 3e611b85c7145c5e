/// Connects two sockets of an admitted connection in both directions.
#pragma once

#include <troupe/actors/transport/guard_limits.hpp>
#include <troupe/actors/transport/guard_pipe.hpp>

#include <poll.h>

#include <optional>
#include <vector>

namespace troupe {

/// Moves bytes between the public side and the loopback side in both directions. Threads: one.
class guard_splice {
public:
  guard_splice(const guard_limits& limits, time_point now);

  /// Moves what can be moved without waiting. \p outside is the public side.
  void advance(guard_channel& outside, guard_channel& inside, time_point now);

  /// Returns whether both directions have ended, or one has ended and the other had no byte for limits.closing.
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Returns why it cannot continue. The text is a predicate if \p is_outside, else a complete sentence.
  [[nodiscard]] const std::optional<guard_fault>& fault() const noexcept { return fault_; }
  /// Returns whether the public side caused the fault.
  [[nodiscard]] bool is_outside() const noexcept { return is_outside_; }

  void gather(const guard_channel& outside, const guard_channel& inside, std::vector<pollfd>& into) const;
  [[nodiscard]] time_point due() const noexcept;
  [[nodiscard]] bool has_more() const noexcept { return inward_.has_more() || outward_.has_more(); }

private:
  void judge(guard_pipe::state state, const guard_pipe& pipe, const guard_channel& source, const guard_channel& target);
  void blame(bool outside, guard_fault why);

  guard_limits limits_;
  guard_pipe inward_;
  guard_pipe outward_;
  std::optional<guard_fault> fault_;
  bool is_outside_ = false;
  bool is_over_ = false;
};

} // namespace troupe
