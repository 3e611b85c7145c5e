/// Content of a unique id of the gloo backend: the address of the formation's store, and the secret that admits a rank.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <string>

namespace troupe {

/// An IPv4 or IPv6 address, with or without a port.
struct socket_address {
  sockaddr_storage bytes{};
  socklen_t size_bytes = 0;

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes); }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&bytes); }
};

/// Parses \p numbers into an address without a port. Errors: invalid_argument (not a numeric address, or a wildcard
/// address that no peer can connect to).
[[nodiscard]] socket_address parse_socket_address(const std::string& numbers);

/// Returns whether only processes of one host reach this address.
[[nodiscard]] bool is_loopback(const socket_address& one) noexcept;

/// Proves that a rank was given the unique id. Never logged (SEC-1).
using gloo_secret = std::array<std::byte, 32>;

/// Compares two secrets in constant time: the duration does not depend on where they differ.
[[nodiscard]] bool equal(const gloo_secret& left, const gloo_secret& right) noexcept;

struct gloo_endpoint {
  socket_address where; ///< Includes the port.
  gloo_secret secret{};
};

[[nodiscard]] unique_id to_unique_id(const gloo_endpoint& endpoint);
/// Errors: invalid_argument (the id was made by another backend, or by another version of troupe).
[[nodiscard]] gloo_endpoint to_endpoint(const unique_id& id);

} // namespace troupe
