/// Where a guard listens and what it dials.
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
  /// 127.0.0.1.
  [[nodiscard]] static guard_address loopback(std::uint16_t port) noexcept;
  /// Where a socket is bound to. Errors: internal.
  [[nodiscard]] static guard_address of_socket(int descriptor);

  guard_address() noexcept = default;
  guard_address(const sockaddr* raw, socklen_t length) noexcept;

  [[nodiscard]] const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] int family() const noexcept { return storage_.ss_family; }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// 127.0.0.0/8 or ::1, also where IPv6 wraps IPv4.
  [[nodiscard]] bool is_loopback() const noexcept;
  /// As "10.0.0.1:7000" or "[fd00::1]:7000".
  [[nodiscard]] std::string text() const;

private:
  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// The addresses that \p host stands for, at most four. May ask the name service, and take as long as it takes.
///
/// Errors: invalid_argument for a port or a host that there is none of.
[[nodiscard]] std::vector<guard_address> resolve_guard_address(const std::string& host, std::uint16_t port);

/// As "10.0.0.1:7000" or "[fd00::1]:7000", of what a person wrote.
[[nodiscard]] std::string host_and_port(std::string_view host, std::uint16_t port);

} // namespace troupe
