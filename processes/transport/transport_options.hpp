/// Defines the settings of the control transport besides its credentials, and its reports: protection, limits and
/// events. Event texts consist of fixed words and numbers only; they never contain a secret or bytes from an
/// unauthenticated peer.
#pragma once

#include <troupe/device/enum_names.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/transport/join_secret.hpp>
#include <troupe/processes/transport/transport_credentials.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The protection of a connection.
enum class transport_mode : std::uint8_t {
  plain,      ///< The join token, and messages encrypted with a key derived from it. Loopback addresses only (SEC-1).
  mutual_tls, ///< In addition TLS 1.2 or later, with certificates of one CA on both sides.
};

/// Deadlines and limits. Every phase has a deadline (TIM-1).
struct transport_limits {
  std::chrono::milliseconds admission{5'000}; ///< From accept or connect until admission: TLS handshake and preamble.
  std::chrono::milliseconds connect{5'000};   ///< For a dialer to connect, all addresses together.
  /// Time for a peer to read the bytes that wait for it, and to send the rest of a frame that it has begun.
  std::chrono::milliseconds stall{60'000};
  std::uint32_t frame_bytes = 16U << 20U; ///< Maximum payload of a frame.
  /// Maximum number of bytes that wait for one peer. A peer that lets more accumulate is disconnected.
  std::size_t queue_bytes = 128U << 20U;
  int connections = 256; ///< Maximum number of admitted connections.
  int pending = 64;      ///< Maximum number of connections not yet admitted; another one replaces the oldest.
  int reports = 20;      ///< Maximum number of events about refused connections per report_window.
  std::chrono::milliseconds report_window{60'000};
};

/// The kind of event on one connection.
enum class transport_event_kind : std::uint8_t {
  admitted,        ///< It passed all checks; its messages are delivered.
  ended,           ///< An admitted connection was closed normally.
  broken,          ///< The other side disappeared, or made no progress for too long.
  bad_certificate, ///< A certificate was missing or not accepted, on either side.
  bad_protocol,    ///< The other side does not use TLS, uses a TLS version that is too old, or sent no valid preamble.
  bad_token,       ///< The other side does not know the join token, or reports that we do not.
  bad_frame,       ///< After the preamble, bytes arrived that are not a frame, or a frame that is too long.
  too_slow,        ///< The deadline of a phase passed.
  too_many,        ///< The limit on connections was reached.
  unreachable,     ///< The target of the connection could not be reached.
  other_version,   ///< The other side knows the join token, but has another version of troupe.
  left_out,        ///< Without a connection: the number of refused connections that had no event of their own.
  warning,         ///< Without a connection: a problem with the credentials that should be corrected.
};

/// One event.
struct transport_event {
  transport_event_kind kind = transport_event_kind::warning;
  /// Address and port of the other side, for example "10.0.0.1:7000"; empty for warnings and left_out.
  std::string peer;
  std::string text; ///< A text for people.
};

/// Receives the events. Threads: called by the transport's own thread; warnings by the thread that creates the listener
/// or dialer. It must neither block nor stop them. Its exceptions are ignored.
using transport_event_sink = std::function<void(const transport_event&)>;

/// The reason why a connection cannot continue. The text is a predicate: "refused the join token".
struct transport_fault {
  transport_event_kind kind = transport_event_kind::broken;
  std::string text;
  /// Whether the system of the other side has ended the connection: its process has closed the socket, or has ended.
  bool is_by_peer = false;
};

/// Reports events to an owner's sink. Events of peers that have not been admitted are limited in number: at most
/// limits.reports within limits.report_window, so that unauthenticated peers cannot fill the owner's log. Further ones
/// are counted, and the next window begins with the count. Threads: one at a time.
class transport_reports {
public:
  transport_reports(const transport_limits& limits, transport_event_sink sink)
    : limits_{limits}, sink_{std::move(sink)} {}

  void report(transport_event_kind kind, std::string peer, std::string text) const noexcept;
  void report_stranger(transport_event_kind kind, std::string peer, std::string text, time_point now) noexcept;

private:
  transport_limits limits_;
  transport_event_sink sink_;
  time_point window_end_{};    ///< End of the present report window.
  int reported_ = 0;           ///< Events of unadmitted peers reported in this window.
  std::uint64_t left_out_ = 0; ///< Events not reported in this window.
};

/// Throws for limits that are not positive. Errors: invalid_argument.
void require_valid(const transport_limits& limits);

/// Checks everything that can be checked without the other side: files exist and have the right content, the key
/// belongs to the certificate, the CA has signed it for this \p side, nothing has expired, and the token has a valid
/// length. Returns warnings as lines for people: a key that others may read, a certificate that expires within a week.
///
/// Errors: missing for a file that cannot be read; invalid_argument for anything else. Texts name the file.
[[nodiscard]] std::vector<std::string> check_credentials(transport_mode mode, connection_side side,
                                                         const transport_credentials& credentials);

} // namespace troupe
