/// Medians and tails of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace troupe::program {

/// The value below which \p fraction of \p values lie; 0 for none.
template <class Value>
[[nodiscard]] Value percentile(std::vector<Value> values, double fraction) {
  if (values.empty()) return Value{};
  const auto at = static_cast<std::ptrdiff_t>(fraction * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

template <class Value>
[[nodiscard]] Value median(std::vector<Value> values) {
  return percentile(std::move(values), 0.5);
}

} // namespace troupe::program
