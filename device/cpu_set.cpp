#include <troupe/device/cpu_set.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

cpu_set::cpu_set(std::initializer_list<int> cpus) : cpu_set{std::vector<int>(cpus)} {}

cpu_set::cpu_set(std::vector<int> cpus) : cpus_{std::move(cpus)} {
  std::ranges::sort(cpus_);
  cpus_.erase(std::unique(cpus_.begin(), cpus_.end()), cpus_.end());
}

cpu_set union_of(const cpu_set& left, const cpu_set& right) {
  std::vector<int> all;
  std::ranges::set_union(left.cpus(), right.cpus(), std::back_inserter(all));
  return cpu_set{std::move(all)};
}

cpu_set intersection_of(const cpu_set& left, const cpu_set& right) {
  std::vector<int> shared;
  std::ranges::set_intersection(left.cpus(), right.cpus(), std::back_inserter(shared));
  return cpu_set{std::move(shared)};
}

std::string to_string(const cpu_set& cpus) {
  std::string list;
  const auto& all = cpus.cpus();
  for (auto first = all.begin(); first != all.end();) {
    auto last = first;
    while (std::next(last) != all.end() && *std::next(last) == *last + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(*first);
    if (last != first) list += '-' + std::to_string(*last);
    first = std::next(last);
  }
  return list;
}

} // namespace troupe
