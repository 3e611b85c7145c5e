/// Plans how each kind of operation is composed. Internal: see compose().
#pragma once

#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>

#include <cstddef>
#include <initializer_list>
#include <optional>

namespace troupe {

/// The reductions and factors used on the two levels.
struct hierarchy_reduction {
  reduction inside{};
  hierarchy_factor inside_factor = hierarchy_factor::none;
  reduction across{};
  hierarchy_factor across_factor = hierarchy_factor::none; ///< The factor that this rank uses.
};

/// Plans one rank's part of an operation on several nodes.
class hierarchy_planner {
public:
  using outcome = std::optional<hierarchy_plan>;

  hierarchy_planner(const node_map& nodes, rank self, std::size_t scratch_bytes);

  [[nodiscard]] outcome operator()(const all_reduce& what) const;
  [[nodiscard]] outcome operator()(const reduce& what) const;
  [[nodiscard]] outcome operator()(const reduce_scatter& what) const;
  [[nodiscard]] outcome operator()(const reduce_scatter_v& what) const;
  [[nodiscard]] outcome operator()(const all_gather& what) const;
  [[nodiscard]] outcome operator()(const all_gather_v& what) const;
  [[nodiscard]] outcome operator()(const broadcast& what) const;
  [[nodiscard]] outcome operator()(const all_to_all& what) const;
  [[nodiscard]] outcome operator()(const gather& what) const;
  [[nodiscard]] outcome operator()(const scatter& what) const;
  [[nodiscard]] outcome operator()(const barrier&) const;
  [[nodiscard]] outcome operator()(const all_to_all_v&) const { return {}; }
  [[nodiscard]] outcome operator()(const gather_v&) const { return {}; }
  [[nodiscard]] outcome operator()(const scatter_v&) const { return {}; }
  [[nodiscard]] outcome operator()(const send&) const { return {}; }
  [[nodiscard]] outcome operator()(const recv&) const { return {}; }
  [[nodiscard]] outcome operator()(const copy&) const { return {}; }
  [[nodiscard]] outcome operator()(const group&) const { return {}; }
  [[nodiscard]] outcome operator()(const replay&) const { return {}; }
  [[nodiscard]] outcome operator()(const call&) const { return {}; }

private:
  using range = hierarchy_range;
  struct parted; ///< A piece of the parts of a reduce_scatter or reduce_scatter_v.

  static range at_send(std::size_t first) { return {range::memory::send, first}; }
  static range at_recv(std::size_t first) { return {range::memory::recv, first}; }
  static range at_scratch(std::size_t first) { return {range::memory::scratch, first}; }
  static range only(bool here, range one) { return here ? one : range{}; }

  [[nodiscard]] std::size_t node_count() const { return nodes_.node_count(); }
  [[nodiscard]] std::size_t node_size(std::size_t node) const { return nodes_.members(node).size(); }
  [[nodiscard]] std::size_t first_of(std::size_t node) const { return nodes_.members(node).front(); }
  [[nodiscard]] bool is_even() const { return nodes_.is_even(); }
  /// leads() returns whether this rank is the first of its node, is_lone() whether it is the only one.
  [[nodiscard]] bool leads() const { return index_ == 0; }
  [[nodiscard]] bool is_lone() const { return size_ == 1; }
  [[nodiscard]] std::size_t scratch_count(dtype type) const { return scratch_bytes_ / size_bytes(type); }

  [[nodiscard]] std::optional<hierarchy_reduction> levels_of(reduction op, dtype type) const;
  [[nodiscard]] hierarchy_plan all_reduce_in_shares(const all_reduce& what, const hierarchy_reduction& how) const;
  [[nodiscard]] hierarchy_plan all_reduce_by_leaders(const all_reduce& what, const hierarchy_reduction& how) const;
  [[nodiscard]] outcome reduce_in_shares(const reduce& what, const hierarchy_reduction& how) const;
  [[nodiscard]] outcome reduce_by_leaders(const reduce& what, const hierarchy_reduction& how) const;
  [[nodiscard]] outcome reduce_parts(const parted& what, reduction op) const;
  void scatter_in_shares(hierarchy_plan& plan, const parted& what, const hierarchy_reduction& how) const;
  void scatter_by_leaders(hierarchy_plan& plan, const parted& what, const hierarchy_reduction& how) const;
  [[nodiscard]] hierarchy_plan gather_in_shares(const partition& parts, dtype type, bool packed) const;
  [[nodiscard]] hierarchy_plan gather_by_leaders(const partition& parts, dtype type, bool packed) const;

  const node_map& nodes_;
  std::size_t self_;
  std::size_t node_;
  std::size_t index_; ///< Index of this rank in its node.
  std::size_t size_;  ///< Number of ranks of this rank's node.
  std::size_t scratch_bytes_;
};

/// Values for the members of a step's operation. Members that the operation lacks are ignored.
struct hierarchy_shape {
  std::size_t count = 0;
  dtype type{};
  std::size_t root = 0; ///< The root, or the peer of a send or recv.
  reduction op{};
};
template <class Operation>
[[nodiscard]] Operation shaped(const hierarchy_shape& shape) {
  Operation made;
  made.count = shape.count;
  made.type = shape.type;
  if constexpr (requires { made.root; }) made.root = rank{static_cast<int>(shape.root)};
  if constexpr (requires { made.peer; }) made.peer = rank{static_cast<int>(shape.root)};
  if constexpr (requires { made.op; }) made.op = shape.op;
  return made;
}

/// Returns a plan with empty phases of these levels.
[[nodiscard]] hierarchy_plan plan_of_levels(std::initializer_list<hierarchy_level> levels, bool uses_scratch);

/// Returns the number of elements of \p count in each rank's share. Large shares are rounded down: NCCL is fastest on
/// memory that begins at round addresses, and the loss is small.
[[nodiscard]] std::size_t share_of(std::size_t count, std::size_t ranks) noexcept;
/// Rounds a maximum piece size, in elements, down in the same way.
[[nodiscard]] std::size_t rounded_piece(std::size_t most) noexcept;

} // namespace troupe
