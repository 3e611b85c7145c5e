#include <troupe/collectives/backend/hierarchy/hierarchy_planner.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr auto within = hierarchy_level::inside, between = hierarchy_level::across;

} // namespace

/// A piece of every rank's part: up to \p most elements from an offset on, as far as the part has them.
struct hierarchy_planner::parted {
  const partition& whole;
  dtype type;
  bool uniform;           ///< Parts of one size, adjacent.
  std::size_t offset = 0; ///< In each part.
  std::size_t most = 0;   ///< Elements of one part.

  [[nodiscard]] std::size_t count(std::size_t whose) const {
    return std::min(most, whole.counts[whose] - std::min(offset, whole.counts[whose]));
  }
  [[nodiscard]] std::size_t first(std::size_t whose) const { return whole.displacements[whose] + offset; }
  /// Returns whether the piece covers complete, adjacent parts of one size in the order of \p nodes.
  [[nodiscard]] bool is_all(const node_map& nodes) const {
    return uniform && nodes.is_in_rank_order() && most >= whole.counts.front();
  }
};

hierarchy_planner::outcome hierarchy_planner::operator()(const reduce_scatter& what) const {
  const partition parts = partition::packed(std::vector<std::size_t>(nodes_.size(), what.count));
  return reduce_parts({.whole = parts, .type = what.type, .uniform = true}, what.op);
}

hierarchy_planner::outcome hierarchy_planner::operator()(const reduce_scatter_v& what) const {
  return reduce_parts({.whole = what.send_parts, .type = what.type, .uniform = false}, what.op);
}

/// Even nodes: each rank receives its node's sums for the ranks with its index, one part per node. Uneven nodes: each
/// leader receives its node's sums of all parts. Parts are processed in pieces that fit the scratch.
hierarchy_planner::outcome hierarchy_planner::reduce_parts(const parted& what, reduction op) const {
  const auto how = levels_of(op, what.type);
  const std::size_t largest_piece =
      rounded_piece(scratch_count(what.type) / (is_even() ? node_count() : nodes_.size()));
  if (!how || largest_piece == 0) return {};
  hierarchy_plan plan{.phases = {}, .uses_scratch = true};
  parted piece = what;
  piece.most = largest_piece;
  for (const std::size_t longest = std::ranges::max(what.whole.counts); piece.offset < longest;
       piece.offset += largest_piece) {
    if (is_even())
      scatter_in_shares(plan, piece, *how);
    else
      scatter_by_leaders(plan, piece, *how);
  }
  return plan;
}

void hierarchy_planner::scatter_in_shares(hierarchy_plan& plan, const parted& what,
                                          const hierarchy_reduction& how) const {
  hierarchy_phase summed{.level = within}, crossed{.level = between};
  const auto length = what.count(0); // the same for all ranks if uniform
  const std::size_t slot = what.uniform ? length : what.most;
  for (std::size_t node = 0; node < node_count(); ++node) {
    if (what.is_all(nodes_)) {
      summed.steps.push_back({.what = shaped<reduce_scatter>({.count = length, .type = what.type, .op = how.inside}),
                              .from = at_send(what.first(first_of(node))),
                              .to = at_scratch(node * slot),
                              .factor = how.inside_factor});
      continue;
    }
    reduce_scatter_v one;
    one.type = what.type;
    one.op = how.inside;
    for (const std::size_t member : nodes_.members(node)) {
      one.send_parts.counts.push_back(what.count(member));
      one.send_parts.displacements.push_back(what.first(member));
    }
    if (std::ranges::all_of(one.send_parts.counts, [](std::size_t count) { return count == 0; })) continue;
    summed.steps.push_back(
        {.what = std::move(one), .from = at_send(0), .to = at_scratch(node * slot), .factor = how.inside_factor});
  }

  if (what.uniform) {
    crossed.steps.push_back({.what = shaped<reduce_scatter>({.count = length, .type = what.type, .op = how.across}),
                             .from = at_scratch(0),
                             .to = at_recv(what.offset),
                             .factor = how.across_factor});
  } else {
    reduce_scatter_v one;
    one.type = what.type;
    one.op = how.across;
    for (std::size_t node = 0; node < node_count(); ++node) {
      one.send_parts.counts.push_back(what.count(nodes_.members(node)[index_]));
      one.send_parts.displacements.push_back(node * slot);
    }
    if (std::ranges::any_of(one.send_parts.counts, [](std::size_t count) { return count > 0; }))
      crossed.steps.push_back({.what = std::move(one),
                               .from = at_scratch(0),
                               .to = only(what.count(self_) > 0, at_recv(what.offset)),
                               .factor = how.across_factor});
  }
  plan.phases.push_back(std::move(summed));
  plan.phases.push_back(std::move(crossed));
}

void hierarchy_planner::scatter_by_leaders(hierarchy_plan& plan, const parted& what,
                                           const hierarchy_reduction& how) const {
  std::vector<std::size_t> places(nodes_.size()); // in the scratch, node by node
  std::vector<std::size_t> node_counts;
  std::size_t end = 0;
  for (std::size_t node = 0; node < node_count(); ++node) {
    const std::size_t begin = end;
    for (const std::size_t member : nodes_.members(node)) {
      places[member] = end;
      end += what.count(member);
    }
    node_counts.push_back(end - begin);
  }
  if (end == 0) return;

  hierarchy_phase summed{.level = within}, crossed{.level = between}, dealt{.level = within};
  const auto bring = [&](std::size_t first, std::size_t place, std::size_t count) {
    if (is_lone())
      summed.copies.push_back({.from = at_send(first), .to = at_scratch(place), .count = count});
    else
      summed.steps.push_back({.what = shaped<reduce>({.count = count, .type = what.type, .root = 0, .op = how.inside}),
                              .from = at_send(first),
                              .to = only(leads(), at_scratch(place)),
                              .factor = how.inside_factor});
  };
  if (what.is_all(nodes_))
    bring(what.first(0), 0, end);
  else
    for (std::size_t r = 0; r < nodes_.size(); ++r)
      if (what.count(r) > 0) bring(what.first(r), places[r], what.count(r));

  if (leads()) {
    reduce_scatter_v one;
    one.type = what.type;
    one.op = how.across;
    one.send_parts = partition::packed(node_counts);
    const range mine = is_lone() ? at_recv(what.offset) : at_scratch(one.send_parts.displacements[node_]);
    crossed.steps.push_back({.what = std::move(one),
                             .from = at_scratch(0),
                             .to = only(node_counts[node_] > 0, mine),
                             .factor = how.across_factor});
  }

  if (!is_lone() && leads()) {
    for (std::size_t index = 1; index < size_; ++index) {
      const std::size_t member = nodes_.members(node_)[index];
      if (what.count(member) > 0)
        dealt.steps.push_back({.what = shaped<send>({.count = what.count(member), .type = what.type, .root = index}),
                               .from = at_scratch(places[member])});
    }
    if (what.count(self_) > 0)
      dealt.copies.push_back(
          {.from = at_scratch(places[self_]), .to = at_recv(what.offset), .count = what.count(self_)});
  } else if (!is_lone() && what.count(self_) > 0) {
    dealt.steps.push_back(
        {.what = shaped<recv>({.count = what.count(self_), .type = what.type, .root = 0}), .to = at_recv(what.offset)});
  }
  plan.phases.push_back(std::move(summed));
  plan.phases.push_back(std::move(crossed));
  plan.phases.push_back(std::move(dealt));
}

} // namespace troupe
