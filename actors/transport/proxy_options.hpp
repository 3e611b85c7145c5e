/// Defines the options of a TLS proxy, except its credentials (protection mode, deadlines, limits), and the events that
/// it reports. Event texts consist of fixed words and numbers only; they never contain a secret or bytes from an
/// unauthenticated peer.
#pragma once

#include <troupe/actors/control/controller_terms.hpp>
#include <troupe/actors/transport/preamble.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The protection of a proxy's public side.
enum class proxy_mode : std::uint8_t {
  plain,      ///< Only the join token and bounded frames. Loopback addresses only (SEC-1).
  mutual_tls, ///< In addition TLS 1.2 or later, with certificates of one CA on both sides.
};

/// Deadlines and limits. Every phase has a deadline (TIM-1).
struct proxy_limits {
  std::chrono::milliseconds admission{5'000}; ///< Limit from accept or connect to admission.
  std::chrono::milliseconds connect{5'000};   ///< Limit for connecting to all addresses of the next socket.
  std::chrono::milliseconds stall{60'000};    ///< Limit for bytes that wait for a reader or for the rest of a frame.
  std::chrono::milliseconds closing{5'000};   ///< Limit without data after one of the two directions has ended.
  std::uint32_t frame_bytes = 16u << 20;      ///< Maximum payload of a BASP frame.
  std::size_t buffer_bytes = 64u << 10;       ///< Buffer of each direction of a connection; at least 1 KiB.
  int connections = 256;                      ///< Maximum number of admitted connections.
  int pending = 64; ///< Maximum number of connections not yet admitted; another one replaces the oldest.
  int reports = 20; ///< Maximum number of events about refused connections per report_window.
  std::chrono::milliseconds report_window{60'000};
};

/// The kind of event on one connection of a proxy.
enum class proxy_event_kind : std::uint8_t {
  admitted,        ///< It passed all checks; its bytes are passed on.
  ended,           ///< An admitted connection was closed normally.
  broken,          ///< The other side disappeared, or made no progress for too long.
  bad_certificate, ///< A certificate was missing or not accepted, on either side.
  bad_protocol,    ///< The other side does not use TLS, uses a TLS version that is too old, or sent no valid preamble.
  bad_token,       ///< The other side does not know the join token, or reports that we do not.
  bad_frame,       ///< After the preamble came bytes that are not a BASP frame, or a frame that is too long.
  too_slow,        ///< The deadline of a phase passed.
  too_many,        ///< The limit on connections was reached.
  unreachable,     ///< The target of the connection could not be reached.
  left_out,        ///< Not about one connection: the number of refused connections that had no event of their own.
  warning,         ///< Not about a connection: a problem with the credentials that should be corrected.
};

[[nodiscard]] std::string_view to_string(proxy_event_kind kind) noexcept;

/// One event of a proxy.
struct proxy_event {
  proxy_event_kind kind = proxy_event_kind::warning;
  /// Address and port of the public side, for example "10.0.0.1:7000"; empty for warnings and left_out.
  std::string peer;
  std::string text; ///< Human-readable text.
};

/// Receives a proxy's events. Threads: called by the proxy's own thread; warnings by the thread that creates the proxy.
/// It must neither block nor stop the proxy. Its exceptions are ignored.
using proxy_event_sink = std::function<void(const proxy_event&)>;

/// The reason why a connection cannot continue. The text is a predicate: "refused the join token".
struct proxy_fault {
  proxy_event_kind kind = proxy_event_kind::broken;
  std::string text;
};

/// Checks everything that can be checked without the other side: files exist and have the right content, the key
/// belongs to the certificate, the CA has signed it for this \p side, nothing has expired, and the token has a valid
/// length. Returns warnings as human-readable lines: a key that other users may read, a certificate that expires within
/// a week.
///
/// Errors: missing for a file that cannot be read; invalid_argument for anything else. Texts name the file.
[[nodiscard]] std::vector<std::string> check_credentials(proxy_mode mode, proxy_side side,
                                                         const proxy_credentials& credentials);

/// Returns the join token in \p file: its first line. A file that others may read is refused, because the whole token
/// is secret.
///
/// Errors: missing if it cannot be read; invalid_argument if the token is too long or others have access.
[[nodiscard]] std::string read_join_token(const std::filesystem::path& file);

} // namespace troupe
