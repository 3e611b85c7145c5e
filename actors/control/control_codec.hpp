/// Encodes and decodes the messages between a controller and its processes. The decoder trusts no input: each field has
/// a limit, and a frame that exceeds one is refused as a whole (SEC-1).
#pragma once

#include <troupe/actors/control/control_messages.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The maximum size of one frame in bytes.
inline constexpr std::size_t control_frame_limit = std::size_t{16} << 20U;

/// A message of a process with the session that it belongs to; 0 before there is a session.
struct process_frame {
  session_id session = 0;
  process_message what;
};
/// A message of a controller with the session that it belongs to.
struct controller_frame {
  session_id session = 0;
  controller_message what;
};

[[nodiscard]] std::string encode(const process_frame& frame);
[[nodiscard]] std::string encode(const controller_frame& frame);

/// Decodes \p bytes. Returns nullopt on an error, and \p why describes it.
[[nodiscard]] std::optional<process_frame> decode_process_frame(std::string_view bytes, error& why);
[[nodiscard]] std::optional<controller_frame> decode_controller_frame(std::string_view bytes, error& why);

} // namespace troupe
