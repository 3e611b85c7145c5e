/// The settings of the metrics endpoint, and a runtime's metrics for programs that use a Prometheus exposer of their
/// own.
///
/// This header does not include prometheus-cpp. To use its result, link the core or pull library of prometheus-cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace prometheus {
class Collectable;
}

namespace troupe {

class runtime;

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

/// Returns whether this troupe was built with prometheus-cpp (TROUPE_METRICS).
[[nodiscard]] bool has_metrics() noexcept;

/// Returns a collectable with all metrics of docs/operations/metrics.md for \p of and its worlds. They are read when
/// Collect() is called. Register it with prometheus::Exposer::RegisterCollectable() or another collector. Lifetime:
/// collectors hold it weakly, so keep the result; it may outlive the runtime and is empty then. Threads: Collect() may
/// be called from any thread; it waits for no request and no GPU. Errors: missing, with the remedy (troupe was built
/// without prometheus-cpp).
[[nodiscard]] std::shared_ptr<prometheus::Collectable> make_collectable(const runtime& of);

} // namespace troupe
