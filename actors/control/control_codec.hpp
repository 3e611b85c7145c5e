/// The bytes of what a controller and its processes say to each other. Whatever comes is distrusted: each field has a
/// limit, and what breaks one is refused as a whole (SEC-1).
#pragma once

#include <troupe/actors/control/control_messages.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// What is read of one frame at most.
inline constexpr std::size_t control_frame_limit = std::size_t{16} << 20U;

/// A message and the session that it belongs to; 0 before there is one.
struct process_frame {
  session_id session = 0;
  process_message what;
};
/// What a controller sends, and in which of its sessions.
struct controller_frame {
  session_id session = 0;
  controller_message what;
};

[[nodiscard]] std::string encode(const process_frame& frame);
[[nodiscard]] std::string encode(const controller_frame& frame);

/// What \p bytes say. Errors: nothing is returned, and \p why says what was wrong with them.
[[nodiscard]] std::optional<process_frame> decode_process_frame(std::string_view bytes, error& why);
[[nodiscard]] std::optional<controller_frame> decode_controller_frame(std::string_view bytes, error& why);

} // namespace troupe
