#include <troupe/device/error.hpp>
#include <troupe/device/topology/cpu_set.hpp>

#include <algorithm>
#include <charconv>
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

cpu_set parse_cpu_set(std::string_view list) {
  constexpr int most = 1 << 16; // CPUs, repetitions included: a typing error must not exhaust the memory
  const auto refuse = [list] {
    return exception{errc::invalid_argument,
                     "'" + std::string{list} +
                         "' is not a list of CPUs: write numbers and ranges, for example 0-15,32"};
  };
  std::vector<int> cpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto number = [&] {
    int value = -1;
    const auto [next, problem] = std::from_chars(at, end, value);
    if (problem != std::errc{} || value < 0 || value >= most) throw refuse();
    at = next;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (last < first || cpus.size() + static_cast<std::size_t>(last - first) >= std::size_t{most}) throw refuse();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at == end) break;
    if (*at != ',' || ++at == end) throw refuse();
  }
  return cpu_set{std::move(cpus)};
}

std::string_view to_string(thread_placement placement) noexcept {
  switch (placement) {
    case thread_placement::near_device: return "near";
    case thread_placement::anywhere: return "none";
  }
  return {};
}

thread_placement parse_thread_placement(std::string_view name) {
  for (const auto placement : {thread_placement::near_device, thread_placement::anywhere})
    if (to_string(placement) == name) return placement;
  throw exception{errc::invalid_argument,
                  "unknown thread placement '" + std::string{name} + "': choose one of near, none"};
}

} // namespace troupe
