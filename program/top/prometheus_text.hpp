/// What a metrics endpoint answers: Prometheus' text format, version 0.0.4.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

struct text_sample {
  std::string name; ///< Of a histogram's parts: with _bucket, _sum or _count.
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  /// The label's value; empty where there is none.
  [[nodiscard]] std::string_view label(std::string_view label_name) const noexcept;
};

/// The samples, in their order. Comments and timestamps are left out.
/// Errors: invalid_argument, with the line's number and what is wrong with it.
[[nodiscard]] std::vector<text_sample> parse_prometheus_text(std::string_view text);

} // namespace troupe::program
