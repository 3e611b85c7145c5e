/// Which ranks of a world share a node: what a hierarchy of communicators is made by.
#pragma once

#include <troupe/device/identity.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The node of each rank of a world. Nodes are numbered by their first ranks; a rank's index is its place among the
/// ranks of its node, in rank order. Nodes may have any sizes, and a node's ranks need not be neighbours.
class node_map {
public:
  /// \p node_of_rank[r] is any name of rank r's node: ranks with one name share it.
  /// Errors: invalid_argument where there is no rank.
  explicit node_map(std::span<const int> node_of_rank);
  /// The first sizes[0] ranks are on one node, the next sizes[1] on another, and so on.
  /// Errors: invalid_argument where a node has no rank, or there is none.
  [[nodiscard]] static node_map of_sizes(std::span<const std::size_t> sizes);
  /// \p hosts[r] is the name of the host that rank r is on.
  /// Errors: invalid_argument where there is no rank.
  [[nodiscard]] static node_map of_hosts(std::span<const std::string> hosts);

  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t node_count() const noexcept { return nodes_.size(); }
  [[nodiscard]] std::size_t node_of(std::size_t of_rank) const { return places_.at(of_rank).node; }
  [[nodiscard]] std::size_t index_of(std::size_t of_rank) const { return places_.at(of_rank).index; }
  /// The ranks of a node, ascending.
  [[nodiscard]] const std::vector<std::size_t>& members(std::size_t node) const { return nodes_.at(node); }

  /// Whether all nodes have as many ranks.
  [[nodiscard]] bool is_even() const noexcept { return largest_ == smallest_; }
  /// Whether each node's ranks are neighbours: then node after node is rank order.
  [[nodiscard]] bool is_in_rank_order() const noexcept { return in_rank_order_; }
  /// Of the node with the most ranks.
  [[nodiscard]] std::size_t largest() const noexcept { return largest_; }
  [[nodiscard]] std::size_t smallest() const noexcept { return smallest_; }
  /// How many nodes have more than one rank.
  [[nodiscard]] std::size_t shared_node_count() const noexcept;

  /// Of those ranks that are not in \p left, which count from 0 in their old order.
  /// Errors: invalid_argument where none stays.
  [[nodiscard]] node_map without(std::span<const rank> left) const;

  /// The sizes, for people: "2, 3".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const node_map&, const node_map&) = default;

private:
  struct place {
    std::size_t node = 0;
    std::size_t index = 0;
    friend bool operator==(const place&, const place&) = default;
  };

  std::vector<place> places_;
  std::vector<std::vector<std::size_t>> nodes_;
  std::size_t largest_ = 0;
  std::size_t smallest_ = 0;
  bool in_rank_order_ = true;
};

} // namespace troupe
