/// Defines the deadlines, size limits and connection limits of a TLS proxy, before and after admission.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// The protection of a proxy's public side.
enum class guard_mode : std::uint8_t {
  plain,      ///< Only the join token and bounded frames. Loopback addresses only (SEC-1).
  mutual_tls, ///< In addition TLS 1.2 or later, with certificates of one CA on both sides.
};

/// Deadlines and limits. Every phase has a deadline (TIM-1).
struct guard_limits {
  std::chrono::milliseconds admission{5'000}; ///< From accept or connect until admission: TLS handshake and preamble.
  std::chrono::milliseconds connect{5'000};   ///< To connect to the next socket, all its addresses together.
  std::chrono::milliseconds stall{60'000};    ///< For bytes that wait for a reader or for the rest of their frame.
  std::chrono::milliseconds closing{5'000};   ///< Without a byte, after one of the two directions has ended.
  std::uint32_t frame_bytes = 16u << 20;      ///< Maximum payload of a BASP frame.
  std::size_t buffer_bytes = 64u << 10;       ///< Buffer of each direction of a connection; at least 1 KiB.
  int connections = 256;                      ///< Maximum number of admitted connections.
  int pending = 64; ///< Maximum number of connections not yet admitted; another one replaces the oldest.
  int reports = 20; ///< Maximum number of events about refused connections per report_window.
  std::chrono::milliseconds report_window{60'000};
};

} // namespace troupe
