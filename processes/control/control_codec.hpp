/// Encodes and decodes the messages between a controller and its processes. The decoder trusts no input: each field has
/// a limit, and a frame that exceeds one is refused as a whole (SEC-1).
#pragma once

#include <troupe/processes/control/control_messages.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The maximum size of one frame in bytes.
inline constexpr std::size_t control_frame_limit = std::size_t{16} << 20U;

/// A message from a process, with its session; the session is 0 before the process has joined.
struct process_frame {
  session_id session = 0;
  process_message what;
};
/// A message from a controller, with the session of the receiving process.
struct controller_frame {
  session_id session = 0;
  controller_message what;
};

[[nodiscard]] std::string encode(const process_frame& frame);
[[nodiscard]] std::string encode(const controller_frame& frame);

/// Decodes \p bytes. On an error it returns nullopt and stores the description in \p why.
[[nodiscard]] std::optional<process_frame> decode_process_frame(std::string_view bytes, error& why);
[[nodiscard]] std::optional<controller_frame> decode_controller_frame(std::string_view bytes, error& why);

} // namespace troupe
