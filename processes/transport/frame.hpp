/// Defines the frames of the control transport: a header of fixed size, then a payload of bounded length.
///
///   "TR\2", kind, length of the payload in network order (4)      8 bytes, then the payload
///
/// Before a connection is admitted, only the preamble's frames are accepted, each with its own fixed length. After the
/// admission, only messages are accepted, each of at least one byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

inline constexpr std::size_t frame_header_bytes = 8;

enum class frame_kind : std::uint8_t {
  greeting = 1, ///< Listener → dialer: nonce, version of troupe.
  claim = 2,    ///< Dialer → listener: nonce, version of troupe, proof.
  answer = 3,   ///< Listener → dialer: verdict, proof.
  message = 4,  ///< In both directions, after admission.
};

inline constexpr std::size_t join_greeting_bytes = 32 + 24;
inline constexpr std::size_t join_claim_bytes = 32 + 24 + 32;
inline constexpr std::size_t join_answer_bytes = 4 + 32;

struct frame {
  frame_kind kind{};
  std::string payload;
};

/// Returns header and payload. \p payload has at most 2³² - 1 bytes.
[[nodiscard]] std::string encode_frame(frame_kind kind, std::string_view payload);

/// Parses the frames of one direction of a connection. It holds at most one frame, and allocates for bytes that have
/// arrived, never for a length that was only announced. Threads: one.
class frame_parser {
public:
  /// Accepts the preamble's frames.
  frame_parser() noexcept = default;

  /// Accepts messages of at most \p longest bytes from now on, and no preamble. Call it between two frames.
  void accept_messages(std::uint32_t longest) noexcept;

  /// Consumes the first of \p bytes, at most to the end of a frame, and returns their number. Sets \p complete if a
  /// frame has ended there. After a fault it consumes nothing.
  [[nodiscard]] std::size_t receive(std::string_view bytes, std::optional<frame>& complete);

  [[nodiscard]] bool has_fault() const noexcept { return fault_ != fault::none; }
  /// Describes the fault as a predicate: "sent a frame of 17 bytes, …". Empty without a fault. It contains numbers
  /// from the peer's header, so report it only for an admitted peer.
  [[nodiscard]] std::string fault_text() const;

  /// Returns whether the bytes so far end at a frame boundary.
  [[nodiscard]] bool is_between_frames() const noexcept { return header_count_ == 0; }

private:
  enum class fault : std::uint8_t { none, prefix, kind, length, no_payload };

  void check_header() noexcept;
  [[nodiscard]] std::uint8_t header_byte(std::size_t at) const noexcept {
    return static_cast<std::uint8_t>(header_.at(at));
  }

  std::uint32_t longest_ = 0; ///< The longest message allowed; 0 before accept_messages().
  fault fault_ = fault::none;
  std::size_t header_count_ = 0;     ///< Number of bytes read of the present frame's header.
  std::uint32_t payload_length_ = 0; ///< The payload length of the present frame.
  std::array<char, frame_header_bytes> header_{};
  std::string payload_; ///< The received part of the present frame's payload.
};

} // namespace troupe
