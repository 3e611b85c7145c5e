/// What shows a runtime's metrics over HTTP, at /metrics.
#pragma once

#include <troupe/runtime/metrics/metrics_settings.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>

#include <memory>

namespace prometheus {
class Collectable;
}

namespace troupe {

/// Serves until it is destroyed, on threads of its own.
class metrics_endpoint {
public:
  metrics_endpoint() = default;
  metrics_endpoint(const metrics_endpoint&) = delete;
  metrics_endpoint& operator=(const metrics_endpoint&) = delete;
  virtual ~metrics_endpoint() = default;

  /// Where it listens, with the port that it has got.
  [[nodiscard]] virtual const metrics_address& where() const noexcept = 0;
};

/// Errors: invalid_argument (an address that is not allowed, or cannot be listened on), missing (this troupe was built
/// without prometheus-cpp), each with the remedy.
[[nodiscard]] std::unique_ptr<metrics_endpoint> serve_metrics(const metrics_settings& settings,
                                                              std::shared_ptr<const metrics_source> from);

/// Errors: missing, as above.
[[nodiscard]] std::shared_ptr<prometheus::Collectable> make_collectable(std::shared_ptr<const metrics_source> from);

} // namespace troupe
