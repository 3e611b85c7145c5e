/// Provides the addresses and sockets of a TLS proxy. All sockets are non-blocking and close-on-exec.
#pragma once

#include <troupe/device/file_descriptor.hpp>

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// An IP address and a port.
class proxy_address {
public:
  /// Returns 127.0.0.1 with \p port.
  [[nodiscard]] static proxy_address loopback(std::uint16_t port) noexcept;
  /// Returns the address that a socket is bound to. Errors: internal.
  [[nodiscard]] static proxy_address of_socket(int descriptor);

  proxy_address() noexcept = default;
  proxy_address(const sockaddr* raw, socklen_t length) noexcept;

  [[nodiscard]] const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// Returns whether the address is in 127.0.0.0/8 or ::1, also as an IPv4-mapped IPv6 address.
  [[nodiscard]] bool is_loopback() const noexcept;
  /// Returns the address as "10.0.0.1:7000" or "[fd00::1]:7000".
  [[nodiscard]] std::string text() const;

private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// Returns the addresses of \p host, at most four. May block on the name service for an unbounded time.
///
/// Errors: invalid_argument for an unknown host or port.
[[nodiscard]] std::vector<proxy_address> resolve_address(const std::string& host, std::uint16_t port);

/// Formats \p host, as given by the user, and \p port as "10.0.0.1:7000" or "[fd00::1]:7000".
[[nodiscard]] std::string host_and_port(std::string_view host, std::uint16_t port);

/// Returns a listening socket. Errors: invalid_argument if the port is in use or this machine has no such address.
[[nodiscard]] file_descriptor listen_at(const proxy_address& where);

/// Returns two sockets that are connected to each other and that no other process can reach. Errors: internal (the
/// process has no descriptors left).
[[nodiscard]] std::pair<file_descriptor, file_descriptor> connected_sockets();

/// Starts to connect. The socket becomes writable when connecting has ended. Returns an empty socket and sets errno if
/// it failed at once.
[[nodiscard]] file_descriptor begin_connect(const proxy_address& where) noexcept;

/// Returns the result of connecting: 0 or an errno. Reading it resets it.
[[nodiscard]] int connect_result(int descriptor) noexcept;

/// Sets TCP options: no delay of small segments, and an error within \p patience if the other machine no longer
/// answers.
void watch_peer(int descriptor, std::chrono::milliseconds patience) noexcept;

/// Returns a human-readable text for an errno of connect: "connection refused".
[[nodiscard]] std::string connect_failure_text(int native_code);

} // namespace troupe
