/// Defines the settings of the metrics endpoint: whether and where a process serves its metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// The settings of the endpoint.
struct metrics_settings {
  std::string address{}; ///< HOST:PORT on which the endpoint listens. Port 0: any free port. Empty: no endpoint.
  /// Whether `address` may be beyond loopback. The metrics contain no data of clients, but they are not encrypted, and
  /// anybody who reaches the address can read them (docs/security.md).
  bool allow_remote = false;
};

/// The parts of HOST:PORT.
struct metrics_address {
  std::string host; ///< A numeric address, for example 127.0.0.1 or ::1.
  std::uint16_t port = 0;
  bool is_ipv6 = false;
  bool is_loopback = false;
};

/// Parses HOST:PORT. Errors: invalid_argument, describing the expected form. Names other than localhost are not
/// resolved.
[[nodiscard]] metrics_address parse_metrics_address(std::string_view text);
/// Returns, for example, "127.0.0.1:9464" or "[::1]:9464".
[[nodiscard]] std::string to_string(const metrics_address& where);

/// Checks \p settings. Errors: invalid_argument, with the remedy, for an address beyond loopback that is not allowed.
void check(const metrics_settings& settings);

} // namespace troupe
