#include <troupe/device/topology/locality.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
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
  constexpr int most = 1 << 16; // limit of CPUs, repetitions included, so that a typing error cannot exhaust memory
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

namespace {

/// Removes a hexadecimal number from the front of \p text and returns it. It has 1 to \p most_digits digits and is at
/// most \p limit.
std::optional<unsigned> take_number(std::string_view& text, std::size_t most_digits, unsigned limit) {
  unsigned value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (problem != std::errc{} || length > most_digits || value > limit) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

} // namespace

std::optional<pci_address> pci_address::parse(std::string_view text) {
  pci_address found;
  const bool has_domain = text.find(':') != text.rfind(':');
  if (has_domain) {
    const auto domain = take_number(text, 8, 0xffff'ffff);
    if (!domain || !take(text, ':')) return std::nullopt;
    found.domain = *domain;
  }
  const auto bus = take_number(text, 2, 0xff);
  if (!bus || !take(text, ':')) return std::nullopt;
  const auto device = take_number(text, 2, 0x1f);
  if (!device) return std::nullopt;
  found.bus = *bus;
  found.device = *device;
  if (take(text, '.')) {
    const auto function = take_number(text, 1, 7);
    if (!function) return std::nullopt;
    found.function = *function;
  }
  return text.empty() ? std::optional{found} : std::nullopt;
}

std::string to_string(const pci_address& address) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", address.domain, address.bus, address.device,
                address.function);
  return text.data();
}

} // namespace troupe
