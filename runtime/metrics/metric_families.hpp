/// Converts a reading of a runtime into metrics.
#pragma once

#include <troupe/runtime/metrics/metrics_source.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// How a metric's values change over time.
enum class metric_kind : std::uint8_t { counter, gauge, histogram };
/// Returns "counter", "gauge" or "histogram".
[[nodiscard]] std::string_view to_string(metric_kind kind) noexcept;

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

/// One value of a metric, with its labels.
struct metric_sample {
  /// One bucket of a histogram.
  struct bucket {
    double upper_bound = 0;  ///< Upper bound in the metric's unit.
    std::uint64_t count = 0; ///< The number of values of at most that bound, cumulative.
  };

  std::vector<std::pair<std::string_view, std::string>> labels;
  double value = 0; ///< The value; for a histogram the sum of all values.
  // For histograms:
  std::vector<bucket> buckets{}; ///< Ascending, without the bucket that has no bound.
  std::uint64_t count = 0;
};

/// A metric and its current values.
struct metric_family {
  const metric_description* what = nullptr;
  std::vector<metric_sample> samples;
};

/// Returns the families in the order of all_metrics(), without those that have no sample. There is no sample for an
/// operation and size that was never requested, or for an error that did not occur.
[[nodiscard]] std::vector<metric_family> families_of(const runtime_reading& seen);

} // namespace troupe
