/// Defines which ranks of a world share a node. Hierarchies of communicators are built from it.
#pragma once

#include <troupe/device/identity.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// The node of each rank of a world. Nodes are numbered in the order of their first ranks. A rank's index is its
/// position among the ranks of its node, in rank order. Nodes may have any sizes, and a node's ranks need not be
/// consecutive.
class node_map {
public:
  /// \p node_of_rank[r] is any number for rank r's node: ranks with equal numbers share the node.
  /// Errors: invalid_argument (no ranks).
  explicit node_map(std::span<const int> node_of_rank);
  /// Places the first sizes[0] ranks on one node, the next sizes[1] on another, and so on.
  /// Errors: invalid_argument (a node without ranks, or no node).
  [[nodiscard]] static node_map of_sizes(std::span<const std::size_t> sizes);
  /// \p hosts[r] is the name of the host of rank r.
  /// Errors: invalid_argument (no ranks).
  [[nodiscard]] static node_map of_hosts(std::span<const std::string> hosts);

  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t node_count() const noexcept { return nodes_.size(); }
  [[nodiscard]] std::size_t node_of(std::size_t of_rank) const { return places_.at(of_rank).node; }
  [[nodiscard]] std::size_t index_of(std::size_t of_rank) const { return places_.at(of_rank).index; }
  /// Returns the ranks of a node, ascending.
  [[nodiscard]] const std::vector<std::size_t>& members(std::size_t node) const { return nodes_.at(node); }

  /// Returns whether all nodes have the same number of ranks.
  [[nodiscard]] bool is_even() const noexcept { return largest_ == smallest_; }
  /// Returns whether each node's ranks are consecutive: concatenating the nodes then gives rank order.
  [[nodiscard]] bool is_in_rank_order() const noexcept { return in_rank_order_; }
  /// Returns the number of ranks of the largest or smallest node.
  [[nodiscard]] std::size_t largest() const noexcept { return largest_; }
  [[nodiscard]] std::size_t smallest() const noexcept { return smallest_; }
  /// Returns the number of nodes with more than one rank.
  [[nodiscard]] std::size_t shared_node_count() const noexcept;

  /// Returns the map without the ranks \p left. The remaining ranks count from 0 in their old order.
  /// Errors: invalid_argument (no rank remains).
  [[nodiscard]] node_map without(std::span<const rank> left) const;

  /// Returns the sizes of the nodes as text for users: "2, 3".
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
