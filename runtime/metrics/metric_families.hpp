/// Converts a reading of a runtime into the metrics of prometheus-cpp.
#pragma once

#include <troupe/device/enum_names.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace prometheus {
struct MetricFamily;
}

namespace troupe {

/// How a metric's values change over time.
enum class metric_kind : std::uint8_t { counter, gauge, histogram };

/// The static description of a metric. docs/operations/metrics.md has the same table for users, and a test compares
/// them.
struct metric_description {
  std::string_view name; ///< For example "troupe_requests_total".
  metric_kind kind{};
  std::string_view labels; ///< The names of its labels, in order, separated by commas.
  std::string_view unit;   ///< For example "seconds", "bytes" or "requests".
  std::string_view help;   ///< The help text, on one line.
};

/// Returns all metrics, in the order in which they are shown.
[[nodiscard]] std::span<const metric_description> all_metrics() noexcept;

/// Returns the families in the order of all_metrics(), without those that have no sample. There is no sample for an
/// operation and size that was never requested, or for an error that did not occur.
[[nodiscard]] std::vector<prometheus::MetricFamily> families_of(const runtime_reading& seen);

} // namespace troupe
