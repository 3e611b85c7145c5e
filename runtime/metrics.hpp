/// Exports a runtime's metrics to Prometheus for programs that use their own exposer instead of troupe's endpoint.
///
/// This header does not include prometheus-cpp. To use its result, link the core or pull library of prometheus-cpp.
#pragma once

#include <memory>

namespace prometheus {
class Collectable;
}

namespace troupe {

class runtime;

/// Returns whether this troupe was built with prometheus-cpp (TROUPE_METRICS).
[[nodiscard]] bool has_metrics() noexcept;

/// Returns a collectable with all metrics of docs/operations/metrics.md for \p of and its worlds. They are read when
/// Collect() is called. Register it with prometheus::Exposer::RegisterCollectable() or another collector. Lifetime:
/// collectors hold it weakly, so keep the result; it may outlive the runtime and is empty then. Threads: Collect() may
/// be called from any thread; it waits for no request and no GPU. Errors: missing, with the remedy (troupe was built
/// without prometheus-cpp).
[[nodiscard]] std::shared_ptr<prometheus::Collectable> make_collectable(const runtime& of);

} // namespace troupe
