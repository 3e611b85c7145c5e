#include <troupe/collectives/backend/hierarchy/hierarchy_planner.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr auto in_node = hierarchy_level::inside, over_nodes = hierarchy_level::across;

} // namespace

/// Even nodes: the root scatters its elements inside its node, each share is broadcast across by itself, and each node
/// gathers the shares. Uneven nodes: the leader of the root's node broadcasts the elements to the other leaders, and
/// each leader to its node.
hierarchy_planner::outcome hierarchy_planner::operator()(const broadcast& what) const {
  const auto root = static_cast<std::size_t>(what.root.value());
  const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
  const bool is_root = self_ == root, at_root = node_ == root_node;
  hierarchy_plan plan = plan_of_levels({in_node, over_nodes, in_node}, false);
  const auto add = [&](std::size_t phase, const hierarchy_shape& shape, range from, range to) {
    plan.phases[phase].steps.push_back({.what = shaped<broadcast>(shape), .from = from, .to = to});
  };

  if (!is_even()) {
    const hierarchy_shape in_its_node{.count = what.count, .type = what.type, .root = at_root ? root_index : 0};
    if (!is_lone() && at_root) add(0, in_its_node, only(is_root, at_send(0)), at_recv(0));
    if (leads())
      add(1, {.count = what.count, .type = what.type, .root = root_node},
          only(at_root, is_lone() ? at_send(0) : at_recv(0)), at_recv(0));
    if (!is_lone() && !at_root) add(2, in_its_node, only(leads(), at_recv(0)), at_recv(0));
    return plan;
  }

  const std::size_t share = share_of(what.count, size_), end = share * size_, rest = what.count - end;
  const range mine = at_recv(share * index_);
  const bool has_rest = index_ == root_index;
  if (share > 0) {
    if (at_root)
      plan.phases[0].steps.push_back({.what = shaped<scatter>({.count = share, .type = what.type, .root = root_index}),
                                      .from = only(is_root, at_send(0)),
                                      .to = mine});
    add(1, {.count = share, .type = what.type, .root = root_node}, only(at_root, mine), mine);
    plan.phases[2].steps.push_back(
        {.what = shaped<all_gather>({.count = share, .type = what.type}), .from = mine, .to = at_recv(0)});
  }
  if (rest > 0) {
    if (has_rest)
      add(1, {.count = rest, .type = what.type, .root = root_node}, only(is_root, at_send(end)), at_recv(end));
    add(2, {.count = rest, .type = what.type, .root = root_index}, only(has_rest, at_recv(end)), at_recv(end));
  }
  return plan;
}

/// The k-th rank of each node takes part in the k-th step, so that no message between nodes waits for others.
hierarchy_planner::outcome hierarchy_planner::operator()(const all_to_all& what) const {
  const std::size_t largest_piece = rounded_piece(scratch_count(what.type) / nodes_.size());
  if (!is_even() || largest_piece == 0) return {};
  hierarchy_plan plan{.phases = {}, .uses_scratch = true};
  for (std::size_t begin = 0; begin < what.count; begin += largest_piece) {
    const std::size_t count = std::min(largest_piece, what.count - begin);
    hierarchy_phase sorted{.level = in_node}, crossed{.level = over_nodes};
    // Inside, each rank receives what the others send to ranks with its index, ordered by node and then by sender.
    for (std::size_t node = 0; node < node_count(); ++node) {
      all_to_all_v one;
      one.type = what.type;
      for (std::size_t index = 0; index < size_; ++index) {
        one.send_parts.counts.push_back(count);
        one.send_parts.displacements.push_back(nodes_.members(node)[index] * what.count + begin);
        one.recv_parts.counts.push_back(count);
        one.recv_parts.displacements.push_back((node * size_ + index) * count);
      }
      sorted.steps.push_back({.what = std::move(one), .from = at_send(0), .to = at_scratch(0)});
    }
    if (nodes_.is_in_rank_order() && count == what.count) {
      crossed.steps.push_back({.what = shaped<all_to_all>({.count = size_ * count, .type = what.type}),
                               .from = at_scratch(0),
                               .to = at_recv(0)});
    } else {
      for (std::size_t index = 0; index < size_; ++index) {
        all_to_all_v one;
        one.type = what.type;
        for (std::size_t node = 0; node < node_count(); ++node) {
          one.send_parts.counts.push_back(count);
          one.send_parts.displacements.push_back((node * size_ + index) * count);
          one.recv_parts.counts.push_back(count);
          one.recv_parts.displacements.push_back(nodes_.members(node)[index] * what.count + begin);
        }
        crossed.steps.push_back({.what = std::move(one), .from = at_scratch(0), .to = at_recv(0)});
      }
    }
    plan.phases.push_back(std::move(sorted));
    plan.phases.push_back(std::move(crossed));
  }
  return plan;
}

/// Each node sends one message, which the rank with the root's index has gathered. Nodes are not split into pieces, so
/// that parts need no sorting. Not composed if a node's parts do not fit the scratch or would need sorting.
hierarchy_planner::outcome hierarchy_planner::operator()(const gather& what) const {
  const auto root = static_cast<std::size_t>(what.root.value());
  const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
  if (!nodes_.is_in_rank_order() || (!is_even() && root_index != 0)) return {};
  if (nodes_.largest() * what.count > scratch_count(what.type)) return {};
  const bool is_root = self_ == root, stands_for_node = index_ == root_index;
  hierarchy_plan plan = plan_of_levels({in_node, over_nodes}, true);
  const range node_parts = is_root ? at_recv(first_of(node_) * what.count) : at_scratch(0);
  if (!is_lone())
    plan.phases[0].steps.push_back(
        {.what = shaped<gather>({.count = what.count, .type = what.type, .root = root_index}),
         .from = at_send(0),
         .to = only(stands_for_node, node_parts)});
  else if (is_root)
    plan.phases[0].copies.push_back({.from = at_send(0), .to = node_parts, .count = what.count});
  if (is_root) {
    for (std::size_t node = 0; node < node_count(); ++node)
      if (node != root_node)
        plan.phases[1].steps.push_back(
            {.what = shaped<recv>({.count = node_size(node) * what.count, .type = what.type, .root = node}),
             .to = at_recv(first_of(node) * what.count)});
  } else if (stands_for_node) {
    plan.phases[1].steps.push_back(
        {.what = shaped<send>({.count = size_ * what.count, .type = what.type, .root = root_node}),
         .from = is_lone() ? at_send(0) : node_parts});
  }
  return plan;
}

/// The reverse of gather.
hierarchy_planner::outcome hierarchy_planner::operator()(const scatter& what) const {
  const auto root = static_cast<std::size_t>(what.root.value());
  const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
  if (!nodes_.is_in_rank_order() || (!is_even() && root_index != 0)) return {};
  if (nodes_.largest() * what.count > scratch_count(what.type)) return {};
  const bool is_root = self_ == root, stands_for_node = index_ == root_index;
  hierarchy_plan plan = plan_of_levels({over_nodes, in_node}, true);
  const range node_parts = is_root ? at_send(first_of(node_) * what.count) : at_scratch(0);
  if (is_root) {
    for (std::size_t node = 0; node < node_count(); ++node)
      if (node != root_node)
        plan.phases[0].steps.push_back(
            {.what = shaped<send>({.count = node_size(node) * what.count, .type = what.type, .root = node}),
             .from = at_send(first_of(node) * what.count)});
  } else if (stands_for_node) {
    plan.phases[0].steps.push_back(
        {.what = shaped<recv>({.count = size_ * what.count, .type = what.type, .root = root_node}),
         .to = is_lone() ? at_recv(0) : node_parts});
  }
  if (!is_lone())
    plan.phases[1].steps.push_back(
        {.what = shaped<scatter>({.count = what.count, .type = what.type, .root = root_index}),
         .from = only(stands_for_node, node_parts),
         .to = at_recv(0)});
  else if (is_root)
    plan.phases[1].copies.push_back({.from = node_parts, .to = at_recv(0), .count = what.count});
  return plan;
}

/// Even nodes: once all ranks of a node have arrived, the ranks with the same index only need to synchronize across
/// nodes.
hierarchy_planner::outcome hierarchy_planner::operator()(const barrier&) const {
  hierarchy_plan plan =
      is_even() ? plan_of_levels({in_node, over_nodes}, false) : plan_of_levels({in_node, over_nodes, in_node}, false);
  for (hierarchy_phase& one : plan.phases)
    if (one.level == in_node ? !is_lone() : is_even() || leads()) one.steps.push_back({.what = barrier{}});
  return plan;
}

} // namespace troupe
