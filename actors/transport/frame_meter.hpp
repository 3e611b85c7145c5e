/// CAF's port takes any frame length up to 4 GiB and allocates that much, and ends its process over a handshake without
/// a payload. A guard reads the heads of frames before CAF does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// Follows the BASP frames of one direction of a connection: a header of 32 bytes, of which the first is the operation
/// and the fifth to eighth are the payload's length in network order, then the payload. CAF 0.17 and 1.x agree in this.
/// Refused are: operations that there are not; those that nodes which speak to nobody else have no use for (routing,
/// messages of streams, whose content CAF does not check); a payload where there is none, or none where CAF takes one
/// for granted; one that is too long.
///
/// Source: caf/io/basp/header.hpp. Threads: one.
class frame_meter {
public:
  static constexpr std::size_t header_bytes = 32;
  static constexpr std::uint8_t direct_message = 2; ///< As caf::io::basp::message_type has them.
  static constexpr std::uint8_t routed_message = 3;
  static constexpr std::uint8_t heartbeat = 6; ///< The last one.

  explicit frame_meter(std::uint32_t longest_payload) noexcept : longest_{longest_payload} {}

  /// How many of these bytes may go on: all of them, or those before the byte that showed a bad frame. After that none.
  [[nodiscard]] std::size_t pass(std::span<const std::uint8_t> bytes) noexcept;

  /// Whether a bad frame was met.
  [[nodiscard]] bool has_fault() const noexcept { return fault_ != fault::none; }
  /// What is wrong with it, as a predicate: "sent a frame of 17 bytes, …". Empty without fault.
  [[nodiscard]] std::string fault_text() const;

  /// Whether the bytes so far are whole frames.
  [[nodiscard]] bool is_between_frames() const noexcept { return header_count_ == 0; }

private:
  enum class fault : std::uint8_t { none, kind, length, emptiness, stream };

  void judge_header() noexcept;

  std::uint32_t longest_;
  fault fault_ = fault::none;
  std::size_t header_count_ = 0;   ///< Of the present frame's header, how many bytes have come.
  std::uint32_t payload_left_ = 0; ///< Of its payload, how many have not.
  std::array<std::uint8_t, 9> head_{};
};

} // namespace troupe
