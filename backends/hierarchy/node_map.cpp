#include <troupe/backends/hierarchy/node_map.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>
#include <map>

namespace troupe {

namespace {

/// Numbers the distinct names in the order of their first appearance; returns the number of each entry.
template <class Name>
std::vector<int> numbered_names(std::span<const Name> names) {
  std::map<Name, int> seen;
  std::vector<int> numbers;
  numbers.reserve(names.size());
  for (const Name& one : names) numbers.push_back(seen.try_emplace(one, static_cast<int>(seen.size())).first->second);
  return numbers;
}

} // namespace

node_map::node_map(std::span<const int> node_of_rank) {
  if (node_of_rank.empty()) throw exception{errc::invalid_argument, "a node map needs at least one rank"};
  for (const int node : numbered_names(node_of_rank)) {
    const auto number = static_cast<std::size_t>(node);
    if (number == nodes_.size()) nodes_.emplace_back();
    if (number + 1 < nodes_.size()) in_rank_order_ = false; // a later node already has ranks
    places_.push_back({number, nodes_[number].size()});
    nodes_[number].push_back(places_.size() - 1);
  }
  const auto [fewest, most] = std::ranges::minmax_element(nodes_, {}, &std::vector<std::size_t>::size);
  smallest_ = fewest->size();
  largest_ = most->size();
}

node_map node_map::of_sizes(std::span<const std::size_t> sizes) {
  std::vector<int> node_of_rank;
  for (std::size_t node = 0; node < sizes.size(); ++node) {
    if (sizes[node] == 0)
      throw exception{errc::invalid_argument, "node " + std::to_string(node) + " has no rank: leave it out"};
    node_of_rank.insert(node_of_rank.end(), sizes[node], static_cast<int>(node));
  }
  return node_map{node_of_rank};
}

node_map node_map::of_hosts(std::span<const std::string> hosts) {
  return node_map{numbered_names(hosts)};
}

std::size_t node_map::shared_node_count() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(nodes_, [](const auto& node) { return node.size() > 1; }));
}

node_map node_map::without(std::span<const rank> left) const {
  std::vector<int> node_of_rank;
  for (std::size_t r = 0; r < size(); ++r)
    if (std::ranges::find(left, rank{static_cast<int>(r)}) == left.end())
      node_of_rank.push_back(static_cast<int>(places_[r].node));
  return node_map{node_of_rank};
}

std::string node_map::describe() const {
  std::string text;
  for (const auto& node : nodes_) text += (text.empty() ? "" : ", ") + std::to_string(node.size());
  return text;
}

} // namespace troupe
