/// What a guard tells its owner: who was let in, who was refused and why. Its texts are made of fixed words and numbers
/// alone; neither a secret nor anything that a stranger sent is ever part of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe {

/// What happened to one connection of a guard.
enum class guard_event_kind : std::uint8_t {
  admitted,        ///< It passed every check: its bytes go through.
  ended,           ///< An admitted connection was closed in order.
  broken,          ///< The other side went away, or stood still for too long.
  bad_certificate, ///< A certificate was missing or not accepted, by either side.
  bad_protocol,    ///< The other side speaks no TLS, too old a TLS, or not this preamble.
  bad_token,       ///< The other side does not know the join token, or says that we do not.
  bad_frame,       ///< What came after the preamble was no BASP frame, or too long a one.
  too_slow,        ///< A phase's deadline passed.
  too_many,        ///< The bound on connections was reached.
  unreachable,     ///< What the connection was to be passed on to could not be reached.
  left_out,        ///< Of no connection: how many were not admitted without an event of their own.
  warning,         ///< Of no connection: something about the credentials should be mended.
};

[[nodiscard]] std::string_view to_string(guard_event_kind kind) noexcept;

/// One thing that happened.
struct guard_event {
  guard_event_kind kind = guard_event_kind::warning;
  std::string peer; ///< Address and port of the public side, as "10.0.0.1:7000"; empty for warnings and left_out.
  std::string text; ///< For people.
};

/// Threads: called by the guard's own thread, warnings by the thread that makes the guard. It must neither block nor
/// stop the guard. What it throws is dropped.
using guard_event_sink = std::function<void(const guard_event&)>;

/// Why a connection cannot go on. Its text is a predicate: "refused the join token".
struct guard_fault {
  guard_event_kind kind = guard_event_kind::broken;
  std::string text;
};

} // namespace troupe
