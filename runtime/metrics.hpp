/// A runtime's metrics for Prometheus, shown by a program's own exposer in place of troupe's endpoint.
///
/// Including this needs no header of prometheus-cpp; using what it gives does: link the core or pull of prometheus-cpp.
#pragma once

#include <memory>

namespace prometheus {
class Collectable;
}

namespace troupe {

class runtime;

/// Whether this troupe was built with prometheus-cpp (TROUPE_METRICS).
[[nodiscard]] bool has_metrics() noexcept;

/// Everything that docs/operations/metrics.md lists, of \p of and its worlds, read when Collect() is called. Register
/// it with prometheus::Exposer::RegisterCollectable() or whatever else collects. Lifetime: collectors hold it weakly,
/// so keep it; it may outlive the runtime, and is empty then. Threads: Collect() from any; it waits for no request and
/// no GPU. Errors: missing (this troupe was built without prometheus-cpp), with the remedy.
[[nodiscard]] std::shared_ptr<prometheus::Collectable> make_collectable(const runtime& of);

} // namespace troupe
