/// Passes file descriptors between processes over a Unix socket.
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Limits of one message.
inline constexpr std::size_t most_passed_descriptors = 16;
inline constexpr std::size_t most_passing_bytes = 1024;

/// Sends \p bytes, at least one, and \p descriptors as one message. \p socket must be a connected Unix socket whose
/// peer is authenticated. The descriptors remain the caller's. Does not wait: if the socket has no room, that is an
/// error. Errors: invalid_argument (limits, not a Unix socket), rank_lost (the peer has closed), busy (no room).
void send_descriptors(const file_descriptor& socket, std::string_view bytes, std::span<const int> descriptors);

/// A message that was received. The descriptors are closed on exec.
struct passed_descriptors {
  std::string bytes;
  std::vector<file_descriptor> descriptors;
};

/// Waits for one message of 1 to \p most_bytes, with up to \p most_descriptors, up to \p until (on the system's steady
/// clock). Anything else is refused, and all descriptors that came with it are closed. Errors: as
/// receive_descriptors().
[[nodiscard]] passed_descriptors receive_passed(const file_descriptor& socket, std::size_t most_bytes,
                                                std::size_t most_descriptors,
                                                std::chrono::steady_clock::time_point until);
/// Waits for one message of exactly \p size_bytes with exactly \p count descriptors, up to \p until (on the system's
/// steady clock). Anything else is refused, and all descriptors that came with it are closed. Errors: invalid_argument
/// (limits, not a Unix socket), deadline_exceeded, rank_lost (the peer has closed), out_of_memory (no descriptor is
/// left in this process), internal (the message is not as expected).
[[nodiscard]] passed_descriptors receive_descriptors(const file_descriptor& socket, std::size_t size_bytes,
                                                     std::size_t count, std::chrono::steady_clock::time_point until);

} // namespace troupe
