/// Unix sockets with which the processes of one user in one network namespace find each other. Their addresses are
/// abstract, so there is no file that could be left behind or replaced.
#pragma once

#include <troupe/device/file_descriptor.hpp>

#include <sys/types.h>

#include <string_view>

namespace troupe {

/// Returns whether a process of user \p theirs may be at the other end. Only processes of the same user may, because
/// they exchange memory that the other side can write.
[[nodiscard]] constexpr bool is_admissible_peer(uid_t theirs, uid_t own) noexcept {
  return theirs == own;
}
[[nodiscard]] bool is_of_this_user(const file_descriptor& socket) noexcept;

/// Returns a socket that listens at \p name, for messages with bounds (SOCK_SEQPACKET). It never blocks. Empty if that
/// is not possible; errno tells why. \p pending: limit of connections that have not been accepted.
[[nodiscard]] file_descriptor listen_locally(std::string_view name, int pending) noexcept;
/// Accepts a connection. Empty if there is none.
[[nodiscard]] file_descriptor accept_locally(const file_descriptor& listener) noexcept;
/// Connects to the process of this user that listens at \p name, without waiting. Empty if there is none, if it belongs
/// to another user, or if too many connections are pending.
[[nodiscard]] file_descriptor connect_locally(std::string_view name) noexcept;

} // namespace troupe
