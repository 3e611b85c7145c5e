#include <troupe/runtime/configuration/nearest_name.hpp>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe {

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // Rows for i - 1, i and i + 1 letters of `from`.
  std::vector<std::size_t> before, last(to.size() + 1), row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      row[j + 1] = std::min({last[j] + (from[i] == to[j] ? 0 : 1), row[j] + 1, last[j + 1] + 1});
      if (i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

const std::string& nearest_name(std::string_view name, std::span<const std::string> known) {
  return *std::ranges::min_element(known, {}, [name](const std::string& one) {
    return !name.empty() && one.find(name) != std::string::npos ? 0 : edit_distance(name, one);
  });
}

} // namespace troupe
