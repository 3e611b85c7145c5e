#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_planner.hpp>

#include <algorithm>

namespace troupe {

bool has_hierarchy(const node_map& nodes, const hierarchy_terms& terms) noexcept {
  switch (terms.mode) {
    case hierarchy_mode::automatic: return nodes.shared_node_count() >= 2;
    case hierarchy_mode::always: return nodes.node_count() >= 2 && nodes.shared_node_count() >= 1;
    case hierarchy_mode::never: return false;
  }
  return false;
}

namespace {

std::size_t total_of(const partition& parts) {
  std::size_t total = 0;
  for (const std::size_t count : parts.counts) total += count;
  return total;
}

/// Computes the length of the longest buffer of an operation that can be composed, in elements.
struct hierarchy_length {
  std::size_t ranks;

  std::size_t operator()(const all_reduce& what) const { return what.count; }
  std::size_t operator()(const reduce& what) const { return what.count; }
  std::size_t operator()(const broadcast& what) const { return what.count; }
  std::size_t operator()(const all_gather_v& what) const { return total_of(what.recv_parts); }
  std::size_t operator()(const reduce_scatter_v& what) const { return total_of(what.send_parts); }
  template <class Operation>
  std::size_t operator()(const Operation& what) const {
    if constexpr (
        requires { what.root; } || requires { what.recv; })
      if constexpr (requires { what.count; }) return ranks * what.count;
    return 0;
  }
};

/// Returns whether composition reduces the time that is bound by the network's bandwidth between nodes. The other
/// operations gain only if the number of messages limits them, and pay with an additional pass through each node.
bool gains_by_size(const operation& what) {
  return std::holds_alternative<all_reduce>(what) || std::holds_alternative<reduce>(what) ||
         std::holds_alternative<broadcast>(what) || std::holds_alternative<all_gather>(what) ||
         std::holds_alternative<all_gather_v>(what) || std::holds_alternative<reduce_scatter>(what) ||
         std::holds_alternative<reduce_scatter_v>(what);
}

bool is_worth_composing(const operation& what, const node_map& nodes, const hierarchy_terms& terms) {
  if (!has_hierarchy(nodes, terms)) return false;
  if (std::holds_alternative<barrier>(what)) return terms.mode == hierarchy_mode::always;
  const std::size_t length = std::visit(hierarchy_length{nodes.size()}, what);
  if (length == 0) return false;
  if (terms.mode == hierarchy_mode::always) return true;
  const std::size_t width = std::visit(
      [](const auto& one) {
        if constexpr (requires { one.type; }) return size_bytes(one.type);
        return std::size_t{0};
      },
      what);
  return gains_by_size(what) && length * width >= terms.min_bytes;
}

} // namespace

std::optional<hierarchy_plan> compose(const operation& what, const node_map& nodes, rank self,
                                      const hierarchy_terms& terms) {
  if (!is_worth_composing(what, nodes, terms)) return {};
  return std::visit(hierarchy_planner{nodes, self, terms.scratch_bytes}, what);
}

bool can_run_together(const hierarchy_plan& one, const hierarchy_plan& other) {
  return !one.uses_scratch && !other.uses_scratch &&
         std::ranges::equal(one.phases, other.phases, {}, &hierarchy_phase::level, &hierarchy_phase::level);
}

} // namespace troupe
