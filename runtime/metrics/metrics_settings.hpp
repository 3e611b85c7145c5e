/// Where a process shows its metrics, if anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Whether there is an endpoint, and where.
struct metrics_settings {
  std::string address{}; ///< HOST:PORT that the endpoint listens on; port 0 is any; empty: there is no endpoint.
  /// Whether `address` may be beyond loopback. What is there to be read is no secret of a client's, but neither
  /// encrypted nor kept from anybody who reaches the address (docs/security.md).
  bool allow_remote = false;
};

/// HOST:PORT, taken apart.
struct metrics_address {
  std::string host; ///< In numbers: 127.0.0.1, ::1.
  std::uint16_t port = 0;
  bool is_ipv6 = false;
  bool is_loopback = false;
};

/// Errors: invalid_argument, saying what it must look like: names are not looked up, but for localhost.
[[nodiscard]] metrics_address parse_metrics_address(std::string_view text);
/// "127.0.0.1:9464", "[::1]:9464".
[[nodiscard]] std::string to_string(const metrics_address& where);

/// Errors: invalid_argument, for an address beyond loopback that nobody has allowed, saying how to.
void check(const metrics_settings& settings);

} // namespace troupe
