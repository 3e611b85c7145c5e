/// Connects the two sockets of an admitted connection in both directions, and checks the headers of BASP frames before
/// CAF reads them. CAF's port accepts any frame length up to 4 GiB and allocates that much, and a handshake frame
/// without a payload ends its process.
#pragma once

#include <troupe/actors/transport/proxy_channel.hpp>
#include <troupe/actors/transport/proxy_options.hpp>
#include <troupe/device/time.hpp>

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Parses the BASP frames of one direction of a connection: a header of 32 bytes, then the payload. Byte 0 of the
/// header is the operation; bytes 4 to 7 are the payload's length in network order. CAF 0.17 and 1.x agree in this.
/// It refuses: unknown operations; operations that nodes without other peers do not need (routing, and stream messages,
/// whose content CAF does not check); a payload in a heartbeat; a missing payload in any other frame; a payload that is
/// too long.
///
/// Source: caf/io/basp/header.hpp. Threads: one.
class frame_validator {
public:
  static constexpr std::size_t header_bytes = 32;
  static constexpr std::uint8_t direct_message = 2; ///< The values of caf::io::basp::message_type.
  static constexpr std::uint8_t routed_message = 3;
  static constexpr std::uint8_t heartbeat = 6; ///< The highest operation code.

  explicit frame_validator(std::uint32_t longest_payload) noexcept : longest_{longest_payload} {}

  /// Returns how many of these bytes may be passed on: all, or those before the byte that revealed a bad frame. After a
  /// bad frame it returns 0.
  [[nodiscard]] std::size_t pass(std::span<const std::uint8_t> bytes) noexcept;

  /// Returns whether a bad frame was found.
  [[nodiscard]] bool has_fault() const noexcept { return fault_ != fault::none; }
  /// Describes the bad frame as a predicate: "sent a frame of 17 bytes, …". Empty without a fault.
  [[nodiscard]] std::string fault_text() const;

  /// Returns whether the bytes so far end at a frame boundary.
  [[nodiscard]] bool is_between_frames() const noexcept { return header_count_ == 0; }

private:
  enum class fault : std::uint8_t { none, kind, length, emptiness, stream };

  void judge_header() noexcept;

  std::uint32_t longest_;
  fault fault_ = fault::none;
  std::size_t header_count_ = 0;   ///< Number of bytes read of the present frame's header.
  std::uint32_t payload_left_ = 0; ///< Number of bytes still missing of its payload.
  std::array<std::uint8_t, 9> head_{};
};

/// Buffers a bounded number of bytes. While the buffer is full because of a slow reader, nothing more is read. Threads:
/// one.
class proxy_pipe {
public:
  /// The result of pump().
  enum class state : std::uint8_t {
    going,         ///< Both sides are open.
    over,          ///< The source has ended; the target has received all bytes and the end.
    source_failed, ///< fault() of the source's channel is the reason.
    target_failed, ///< fault() of the target's channel is the reason.
    bad_frame,     ///< frame_text() returns the reason.
  };

  proxy_pipe(std::size_t buffer_bytes, std::uint32_t longest_frame, time_point now);

  /// Moves the bytes that can be moved without waiting, at most a few buffers per call, so that other connections are
  /// served.
  state pump(proxy_channel& from, proxy_channel& to, time_point now);

  [[nodiscard]] bool wants_read() const noexcept { return !has_ended_ && held() < buffer_.size(); }
  [[nodiscard]] bool wants_write() const noexcept { return held() > 0 || (has_ended_ && !is_over_); }
  /// Returns whether the last pump() stopped at this limit, so that the next call should follow without waiting.
  [[nodiscard]] bool has_more() const noexcept { return has_more_; }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

  /// Returns whether bytes wait for their reader or a frame is incomplete. last_progress() returns since when.
  [[nodiscard]] bool is_stuck() const noexcept { return held() > 0 || (!has_ended_ && !meter_.is_between_frames()); }
  [[nodiscard]] time_point last_progress() const noexcept { return last_progress_; }

  [[nodiscard]] std::string frame_text() const { return meter_.fault_text(); }

private:
  enum class step : std::uint8_t { moved, waits, failed, refused };

  [[nodiscard]] std::size_t held() const noexcept { return end_ - begin_; }
  step take(proxy_channel& from);
  step give(proxy_channel& to);

  std::vector<std::uint8_t> buffer_;
  std::size_t begin_ = 0; ///< Start of the buffered bytes.
  std::size_t end_ = 0;
  frame_validator meter_;
  time_point last_progress_;
  bool has_ended_ = false;
  bool is_over_ = false;
  bool has_more_ = false;
};

/// Moves bytes between the public side and the loopback side in both directions. Threads: one.
class proxy_splice {
public:
  proxy_splice(const proxy_limits& limits, time_point now);

  /// Moves what can be moved without waiting. \p outside is the public side.
  void advance(proxy_channel& outside, proxy_channel& inside, time_point now);

  /// Returns whether both directions have ended, or one has ended and the other had no byte for limits.closing.
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Returns why it cannot continue. The text is a predicate if \p is_outside, else a complete sentence.
  [[nodiscard]] const std::optional<proxy_fault>& fault() const noexcept { return fault_; }
  /// Returns whether the public side caused the fault.
  [[nodiscard]] bool is_outside() const noexcept { return is_outside_; }

  void gather(const proxy_channel& outside, const proxy_channel& inside, std::vector<pollfd>& into) const;
  [[nodiscard]] time_point due() const noexcept;
  [[nodiscard]] bool has_more() const noexcept { return inward_.has_more() || outward_.has_more(); }

private:
  void judge(proxy_pipe::state state, const proxy_pipe& pipe, const proxy_channel& source, const proxy_channel& target);
  void blame(bool outside, proxy_fault why);

  proxy_limits limits_;
  proxy_pipe inward_;
  proxy_pipe outward_;
  std::optional<proxy_fault> fault_;
  bool is_outside_ = false;
  bool is_over_ = false;
};

} // namespace troupe
