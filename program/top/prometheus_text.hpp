/// Parses the answer of a metrics endpoint: Prometheus' text format, version 0.0.4.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

struct text_sample {
  std::string name; ///< The parts of a histogram end in _bucket, _sum or _count.
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  /// Returns the label's value; empty if there is no such label.
  [[nodiscard]] std::string_view label(std::string_view label_name) const noexcept;
};

/// Returns the samples in their order, without comments and timestamps.
/// Errors: invalid_argument, with the number of the line and its error.
[[nodiscard]] std::vector<text_sample> parse_prometheus_text(std::string_view text);

} // namespace troupe::program
