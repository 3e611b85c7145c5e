#include <troupe/collectives/backend/hierarchy/hierarchy_planner.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr auto at_home = hierarchy_level::inside, abroad = hierarchy_level::across;

/// Returns the parts of \p whole that belong to \p ranks.
partition parts_of(const partition& whole, std::span<const std::size_t> ranks) {
  partition chosen;
  for (const std::size_t r : ranks) {
    chosen.counts.push_back(whole.counts[r]);
    chosen.displacements.push_back(whole.displacements[r]);
  }
  return chosen;
}

all_gather_v gathering(partition parts, dtype type) {
  all_gather_v made;
  made.recv_parts = std::move(parts);
  made.type = type;
  return made;
}

bool has_elements(const partition& parts) {
  return std::ranges::any_of(parts.counts, [](std::size_t count) { return count > 0; });
}

} // namespace

hierarchy_planner::outcome hierarchy_planner::operator()(const all_gather& what) const {
  const partition parts = partition::packed(std::vector<std::size_t>(nodes_.size(), what.count));
  return is_even() ? gather_in_shares(parts, what.type, true) : gather_by_leaders(parts, what.type, true);
}

hierarchy_planner::outcome hierarchy_planner::operator()(const all_gather_v& what) const {
  return is_even() ? gather_in_shares(what.recv_parts, what.type, false)
                   : gather_by_leaders(what.recv_parts, what.type, false);
}

/// Each part crosses once, to the rank with its sender's index on each node. That rank distributes it inside its node.
hierarchy_plan hierarchy_planner::gather_in_shares(const partition& parts, dtype type, bool packed) const {
  hierarchy_plan plan = plan_of_levels({abroad, at_home}, false);
  std::vector<std::size_t> alike; // the ranks with my index
  for (std::size_t node = 0; node < node_count(); ++node) alike.push_back(nodes_.members(node)[index_]);
  const auto where = [&](std::size_t whose) {
    return only(parts.counts[whose] > 0, at_recv(parts.displacements[whose]));
  };
  if (partition crossing = parts_of(parts, alike); has_elements(crossing))
    plan.phases[0].steps.push_back({.what = gathering(std::move(crossing), type),
                                    .from = only(parts.counts[self_] > 0, at_send(0)),
                                    .to = at_recv(0)});
  for (std::size_t node = 0; node < node_count(); ++node) {
    partition of_node = parts_of(parts, nodes_.members(node));
    if (!has_elements(of_node)) continue;
    if (packed && nodes_.is_in_rank_order())
      plan.phases[1].steps.push_back({.what = shaped<all_gather>({.count = parts.counts.front(), .type = type}),
                                      .from = where(alike[node]),
                                      .to = where(first_of(node))});
    else
      plan.phases[1].steps.push_back(
          {.what = gathering(std::move(of_node), type), .from = where(alike[node]), .to = at_recv(0)});
  }
  return plan;
}

/// Each node gathers its parts at its leader. The leaders exchange them and broadcast the new parts inside their nodes.
hierarchy_plan hierarchy_planner::gather_by_leaders(const partition& parts, dtype type, bool packed) const {
  hierarchy_plan plan = plan_of_levels({at_home, abroad, at_home}, false);
  const auto where = [&](std::size_t whose) {
    return only(parts.counts[whose] > 0, at_recv(parts.displacements[whose]));
  };
  const auto& mine = nodes_.members(node_);
  const range sent = only(parts.counts[self_] > 0, at_send(0));
  if (partition of_node = parts_of(parts, mine); !is_lone() && has_elements(of_node))
    plan.phases[0].steps.push_back({.what = gathering(std::move(of_node), type), .from = sent, .to = at_recv(0)});

  // If the node's parts are adjacent, one step moves them all. Otherwise the k-th part of each node is in the k-th
  // step.
  const bool in_one = packed && nodes_.is_in_rank_order();
  for (std::size_t k = 0; leads() && k < (in_one ? 1 : nodes_.largest()); ++k) {
    partition crossing;
    for (std::size_t node = 0; node < node_count(); ++node) {
      const bool has = k < node_size(node);
      const std::size_t member = has ? nodes_.members(node)[k] : 0;
      crossing.counts.push_back(has ? parts.counts[member] * (in_one ? node_size(node) : 1) : 0);
      crossing.displacements.push_back(has ? parts.displacements[member] : 0);
    }
    if (!has_elements(crossing)) continue;
    const range from = k >= size_ ? range{} : is_lone() ? sent : where(mine[k]);
    plan.phases[1].steps.push_back({.what = gathering(std::move(crossing), type), .from = from, .to = at_recv(0)});
  }

  if (is_lone()) return plan;
  const auto hand_on = [&](std::size_t count, range what) {
    plan.phases[2].steps.push_back({.what = shaped<broadcast>({.count = count, .type = type, .root = 0}),
                                    .from = only(leads(), what),
                                    .to = what});
  };
  if (packed) {
    hand_on(nodes_.size() * parts.counts.front(), at_recv(0));
    return plan;
  }
  for (std::size_t r = 0; r < nodes_.size(); ++r)
    if (nodes_.node_of(r) != node_ && parts.counts[r] > 0) hand_on(parts.counts[r], where(r));
  return plan;
}

} // namespace troupe
