/// One direction of an admitted connection: what is read from one socket goes to another, frame lengths checked.
#pragma once

#include <troupe/actors/transport/frame_meter.hpp>
#include <troupe/actors/transport/guard_channel.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Holds a bounded number of bytes: while they wait for a slow reader, nothing more is read. Threads: one.
class guard_pipe {
public:
  /// How the last pump went.
  enum class state : std::uint8_t {
    going,         ///< Both sides are there.
    over,          ///< The source has ended, and the other side has had all of it and knows.
    source_failed, ///< The source's channel says why.
    target_failed, ///< The target's channel says why.
    bad_frame,     ///< frame_text() says why.
  };

  guard_pipe(std::size_t buffer_bytes, std::uint32_t longest_frame, time_point now);

  /// Moves what can be moved without waiting, and at most a few buffers of it, so that others have their turn.
  state pump(guard_channel& from, guard_channel& to, time_point now);

  [[nodiscard]] bool wants_read() const noexcept { return !has_ended_ && held() < buffer_.size(); }
  [[nodiscard]] bool wants_write() const noexcept { return held() > 0 || (has_ended_ && !is_over_); }
  /// Whether the last pump ended for the others' sake, so that the next one should not wait.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

  /// Whether bytes wait for their reader, or a frame for its rest. \p last_progress() says since when.
  [[nodiscard]] bool is_stuck() const noexcept { return held() > 0 || (!has_ended_ && !meter_.is_between_frames()); }
  [[nodiscard]] time_point last_progress() const noexcept { return last_progress_; }

  [[nodiscard]] std::string frame_text() const { return meter_.fault_text(); }

private:
  enum class step : std::uint8_t { moved, waits, failed, refused };

  [[nodiscard]] std::size_t held() const noexcept { return end_ - begin_; }
  step take(guard_channel& from);
  step give(guard_channel& to);

  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0; ///< Of what is held.
  std::size_t end_ = 0;
  frame_meter meter_;
  time_point last_progress_;
  bool has_ended_ = false;
  bool is_over_ = false;
  bool has_more_ = false;
};

} // namespace troupe
