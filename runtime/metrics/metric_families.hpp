/// Converts a reading of a runtime into metrics.
#pragma once

#include <troupe/runtime/metrics/metric_family.hpp>
#include <troupe/runtime/metrics/runtime_reading.hpp>

#include <vector>

namespace troupe {

/// Returns the families in the order of all_metrics(), without those that have no sample. There is no sample for an
/// operation and size that was never asked for, or for an error that did not occur.
[[nodiscard]] std::vector<metric_family> families_of(const runtime_reading& seen);

} // namespace troupe
