/// Represents the IP addresses and ports at which a TLS proxy listens or to which it connects.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// An IP address and a port.
class guard_address {
public:
  /// Returns 127.0.0.1 with \p port.
  [[nodiscard]] static guard_address loopback(std::uint16_t port) noexcept;
  /// Returns the address that a socket is bound to. Errors: internal.
  [[nodiscard]] static guard_address of_socket(int descriptor);

  guard_address() noexcept = default;
  guard_address(const sockaddr* raw, socklen_t length) noexcept;

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

/// Returns the addresses of \p host, at most four. May query the name service, for an unbounded time.
///
/// Errors: invalid_argument for an unknown host or port.
[[nodiscard]] std::vector<guard_address> resolve_guard_address(const std::string& host, std::uint16_t port);

/// Formats \p host, as a person wrote it, and \p port as "10.0.0.1:7000" or "[fd00::1]:7000".
[[nodiscard]] std::string host_and_port(std::string_view host, std::uint16_t port);

} // namespace troupe
