/// Copies one direction of an admitted connection from one socket to another and checks frame lengths.
#pragma once

#include <troupe/actors/transport/frame_meter.hpp>
#include <troupe/actors/transport/guard_channel.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Buffers a bounded number of bytes. While the buffer is full because of a slow reader, nothing more is read. Threads:
/// one.
class guard_pipe {
public:
  /// The result of a pump.
  enum class state : std::uint8_t {
    going,         ///< Both sides are open.
    over,          ///< The source has ended; the target has received all bytes and the end.
    source_failed, ///< The source's channel has the reason.
    target_failed, ///< The target's channel has the reason.
    bad_frame,     ///< frame_text() returns the reason.
  };

  guard_pipe(std::size_t buffer_bytes, std::uint32_t longest_frame, time_point now);

  /// Moves the bytes that can be moved without waiting, at most a few buffers per call, so that other connections are
  /// served.
  state pump(guard_channel& from, guard_channel& to, time_point now);

  [[nodiscard]] bool wants_read() const noexcept { return !has_ended_ && held() < buffer_.size(); }
  [[nodiscard]] bool wants_write() const noexcept { return held() > 0 || (has_ended_ && !is_over_); }
  /// Returns whether the last pump stopped at that limit, so that the next one should follow without waiting.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

  /// Returns whether bytes wait for their reader or a frame is incomplete. \p last_progress() says since when.
  [[nodiscard]] bool is_stuck() const noexcept { return held() > 0 || (!has_ended_ && !meter_.is_between_frames()); }
  [[nodiscard]] time_point last_progress() const noexcept { return last_progress_; }

  [[nodiscard]] std::string frame_text() const { return meter_.fault_text(); }

private:
  enum class step : std::uint8_t { moved, waits, failed, refused };

  [[nodiscard]] std::size_t held() const noexcept { return end_ - begin_; }
  step take(guard_channel& from);
  step give(guard_channel& to);

  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0; ///< Start of the buffered bytes.
  std::size_t end_ = 0;
  frame_meter meter_;
  time_point last_progress_;
  bool has_ended_ = false;
  bool is_over_ = false;
  bool has_more_ = false;
};

} // namespace troupe
