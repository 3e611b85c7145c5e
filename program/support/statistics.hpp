/// Computes medians and percentiles of measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::program {

/// Returns the value below which \p fraction of \p values lie; 0 if there are no values.
template <class Value>
[[nodiscard]] Value percentile(std::vector<Value> values, double fraction) {
  if (values.empty()) return Value{};
  const auto at = std::ptrdiff_t{std::lround(fraction * static_cast<double>(values.size() - 1))};
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

template <class Value>
[[nodiscard]] Value median(std::vector<Value> values) {
  return percentile(std::move(values), 0.5);
}

/// Divides \p numerators by \p denominators of the same block. Drift between blocks cancels out.
[[nodiscard]] inline std::vector<double> paired_ratios(const std::vector<double>& numerators,
                                                       const std::vector<double>& denominators) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(numerators.size(), denominators.size()); ++i)
    ratios.push_back(numerators[i] / denominators[i]);
  return ratios;
}

/// One quantity, measured many times in each of several blocks. Its figures are the medians over blocks.
struct block_figures {
  std::vector<double> p50{}; ///< The median of each block.
  std::vector<double> p99{};

  void add_block(const std::vector<double>& samples) {
    p50.push_back(median(samples));
    p99.push_back(percentile(samples, 0.99));
  }
};

} // namespace troupe::program
