/// Serves a runtime's metrics over HTTP, at /metrics.
#pragma once

#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>

#include <memory>
#include <string>

namespace prometheus {
class Collectable;
}

namespace troupe {

/// An endpoint that serves on threads of its own until it is destroyed.
class metrics_endpoint {
public:
  metrics_endpoint() = default;
  metrics_endpoint(const metrics_endpoint&) = delete;
  metrics_endpoint& operator=(const metrics_endpoint&) = delete;
  virtual ~metrics_endpoint() = default;

  /// Returns the address on which it listens, with its actual port.
  [[nodiscard]] virtual const metrics_address& where() const noexcept = 0;
};

/// Starts an endpoint. Errors, each with the remedy: invalid_argument (an address that is not allowed, or on which it
/// cannot listen), missing (troupe was built without prometheus-cpp).
[[nodiscard]] std::unique_ptr<metrics_endpoint> serve_metrics(const metrics_settings& settings,
                                                              std::shared_ptr<const metrics_source> from);

/// Returns the metrics in the text format of Prometheus. Errors: missing (troupe was built without prometheus-cpp).
[[nodiscard]] std::string metrics_text(const metrics_source& from);

/// Returns a collectable for \p from. Errors: missing (troupe was built without prometheus-cpp).
[[nodiscard]] std::shared_ptr<prometheus::Collectable> make_collectable(std::shared_ptr<const metrics_source> from);

} // namespace troupe
