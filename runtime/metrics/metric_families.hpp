/// What is shown of a look at a runtime.
#pragma once

#include <troupe/runtime/metrics/metric_family.hpp>
#include <troupe/runtime/metrics/runtime_reading.hpp>

#include <vector>

namespace troupe {

/// In the order of all_metrics(), without those that have no sample. An operation and size that nobody has asked for
/// has none, nor has an error that did not occur.
[[nodiscard]] std::vector<metric_family> families_of(const runtime_reading& seen);

} // namespace troupe
