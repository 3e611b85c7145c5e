/// Defines the events that a TLS proxy reports to its owner: admitted and refused connections, with the reason. The
/// texts consist of fixed words and numbers only; they never contain a secret or bytes from an unauthenticated peer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe {

/// The kind of event on one connection of a proxy.
enum class guard_event_kind : std::uint8_t {
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
  left_out,        ///< Without a connection: the number of refused connections that had no event of their own.
  warning,         ///< Without a connection: a problem with the credentials that should be corrected.
};

[[nodiscard]] std::string_view to_string(guard_event_kind kind) noexcept;

/// One event.
struct guard_event {
  guard_event_kind kind = guard_event_kind::warning;
  /// Address and port of the public side, for example "10.0.0.1:7000"; empty for warnings and left_out.
  std::string peer;
  std::string text; ///< A text for people.
};

/// Receives a proxy's events. Threads: called by the proxy's own thread; warnings by the thread that creates the proxy.
/// It must neither block nor stop the proxy. Its exceptions are ignored.
using guard_event_sink = std::function<void(const guard_event&)>;

/// The reason why a connection cannot continue. The text is a predicate: "refused the join token".
struct guard_fault {
  guard_event_kind kind = guard_event_kind::broken;
  std::string text;
};

} // namespace troupe
