/// Where the ranks of a formation meet, and what lets them in: what the gloo backend's unique ids say.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <string>

namespace troupe {

/// An address of the Internet, with or without a port.
struct socket_address {
  sockaddr_storage bytes{};
  socklen_t size_bytes = 0;

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes); }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&bytes); }
};

/// \p numbers as an address without a port. Errors: invalid_argument (no address in numbers, or one that nobody could
/// connect to).
[[nodiscard]] socket_address parse_socket_address(const std::string& numbers);

/// Proves that its holder was given the unique id. Never logged (SEC-1).
using gloo_secret = std::array<std::byte, 32>;

/// Whether they are the same, in a time that does not depend on where they differ.
[[nodiscard]] bool equal(const gloo_secret& left, const gloo_secret& right) noexcept;

struct gloo_door {
  socket_address where; ///< With the port.
  gloo_secret secret{};
};

[[nodiscard]] unique_id to_unique_id(const gloo_door& door);
/// Errors: invalid_argument (another backend made it, or another version of troupe).
[[nodiscard]] gloo_door to_door(const unique_id& id);

} // namespace troupe
