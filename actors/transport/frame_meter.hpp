/// Checks the headers of BASP frames before CAF reads them. CAF's port accepts any frame length up to 4 GiB and
/// allocates that much, and a handshake without a payload ends its process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// Parses the BASP frames of one direction of a connection: a header of 32 bytes, then the payload. Byte 0 of the
/// header is the operation; bytes 4 to 7 are the payload's length in network order. CAF 0.17 and 1.x agree in this.
/// It refuses: unknown operations; operations that nodes without other peers do not need (routing, and stream messages,
/// whose content CAF does not check); a payload in a heartbeat; a missing payload in any other frame; a payload that is
/// too long.
///
/// Source: caf/io/basp/header.hpp. Threads: one.
class frame_meter {
public:
  static constexpr std::size_t header_bytes = 32;
  static constexpr std::uint8_t direct_message = 2; ///< The values of caf::io::basp::message_type.
  static constexpr std::uint8_t routed_message = 3;
  static constexpr std::uint8_t heartbeat = 6; ///< The highest operation code.

  explicit frame_meter(std::uint32_t longest_payload) noexcept : longest_{longest_payload} {}

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

} // namespace troupe
