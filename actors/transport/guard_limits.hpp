/// How far a guard trusts those whom it does not know yet, and how much it holds for those whom it does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// How a guard's public side is protected.
enum class guard_mode : std::uint8_t {
  plain,      ///< The join token and bounded frames alone. Loopback addresses only (SEC-1).
  mutual_tls, ///< TLS 1.2 or later besides, where both sides show certificates of one CA.
};

/// Deadlines and bounds. Every phase has one (TIM-1).
struct guard_limits {
  std::chrono::milliseconds admission{5'000}; ///< From accepted or connected to admitted: TLS handshake and preamble.
  std::chrono::milliseconds connect{5'000};   ///< To reach the next socket, all its addresses together.
  std::chrono::milliseconds stall{60'000};    ///< Bytes that wait for a reader, or for the rest of their frame.
  std::chrono::milliseconds closing{5'000};   ///< Without a byte, once one of the two directions has ended.
  std::uint32_t frame_bytes = 16u << 20;      ///< The longest payload of a BASP frame.
  std::size_t buffer_bytes = 64u << 10;       ///< Held for each direction of a connection; at least 1 KiB.
  int connections = 256;                      ///< Admitted at a time.
  int pending = 64;                           ///< Not yet admitted at a time: another one takes the oldest one's place.
  int reports = 20;                           ///< About connections that were not admitted, in each report_window.
  std::chrono::milliseconds report_window{60'000};
};

} // namespace troupe
