/// Metrics in Prometheus' terms, without its library: what is shown, by whatever means.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// What its values mean over time.
enum class metric_kind : std::uint8_t { counter, gauge, histogram };
/// "counter", "gauge", "histogram".
[[nodiscard]] std::string_view to_string(metric_kind kind) noexcept;

/// What is known of a metric before it is measured. docs/operations/metrics.md is the same table for people, and a test
/// compares them.
struct metric_description {
  std::string_view name;   ///< "troupe_requests_total".
  metric_kind kind{};      ///<
  std::string_view labels; ///< Their names, in their order, with commas between them.
  std::string_view unit;   ///< "seconds", "bytes", "requests", …
  std::string_view help;   ///< One line.
};

/// All of them, in the order in which they are shown.
[[nodiscard]] std::span<const metric_description> all_metrics() noexcept;

/// One value of a metric, under its labels.
struct metric_sample {
  /// One bucket of a histogram.
  struct bucket {
    double upper_bound = 0;  ///< Of the metric's unit.
    std::uint64_t count = 0; ///< Of what is at most that: with those of all buckets before it.
  };

  std::vector<std::pair<std::string_view, std::string>> labels;
  double value = 0; ///< Of a histogram: the sum.
  // Of histograms:
  std::vector<bucket> buckets{}; ///< Ascending; the one without a bound is left out.
  std::uint64_t count = 0;
};

/// A metric and its values now.
struct metric_family {
  const metric_description* what = nullptr;
  std::vector<metric_sample> samples;
};

} // namespace troupe
