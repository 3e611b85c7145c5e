#include <troupe/collectives/backend/hierarchy/hierarchy_planner.hpp>

#include <algorithm>

namespace troupe {

namespace {

constexpr auto inside = hierarchy_level::inside, across = hierarchy_level::across;

} // namespace

/// An average of floats is a sum of elements that each rank has multiplied by 1/n. Therefore the first level that
/// processes a rank's elements multiplies them. For a lone rank that is the level across nodes, where all ranks must
/// request the same reduction.
std::optional<hierarchy_reduction> hierarchy_planner::levels_of(reduction op, dtype type) const {
  if (op != reduction::avg && op != reduction::pre_mul_sum) return hierarchy_reduction{.inside = op, .across = op};
  if (op == reduction::avg && is_integer(type)) return {}; // a sum that is divided once, at the end
  const auto own = op == reduction::avg ? hierarchy_factor::mean : hierarchy_factor::given;
  hierarchy_reduction how{.inside = reduction::pre_mul_sum, .inside_factor = own, .across = reduction::sum};
  if (nodes_.smallest() > 1) return how;
  how.across = reduction::pre_mul_sum;
  how.across_factor = is_lone() ? own : hierarchy_factor::one;
  return how;
}

hierarchy_planner::outcome hierarchy_planner::operator()(const all_reduce& what) const {
  const auto how = levels_of(what.op, what.type);
  if (!how) return {};
  return is_even() ? all_reduce_in_shares(what, *how) : all_reduce_by_leaders(what, *how);
}

/// The remainder after equal shares is processed by the node's last rank; it lies directly behind that rank's share.
hierarchy_plan hierarchy_planner::all_reduce_in_shares(const all_reduce& what, const hierarchy_reduction& how) const {
  const std::size_t share = share_of(what.count, size_), end = share * size_, rest = what.count - end;
  const std::size_t mine = share * index_, last = size_ - 1;
  const bool has_rest = index_ == last;
  hierarchy_plan plan = plan_of_levels({inside, across, inside}, false);

  auto& first = plan.phases[0].steps;
  if (share > 0)
    first.push_back({.what = shaped<reduce_scatter>({.count = share, .type = what.type, .op = how.inside}),
                     .from = at_send(0),
                     .to = at_recv(mine),
                     .factor = how.inside_factor});
  if (rest > 0)
    first.push_back({.what = shaped<reduce>({.count = rest, .type = what.type, .root = last, .op = how.inside}),
                     .from = at_send(end),
                     .to = only(has_rest, at_recv(end)),
                     .factor = how.inside_factor});

  if (const std::size_t count = share + (has_rest ? rest : 0); count > 0)
    plan.phases[1].steps.push_back({.what = shaped<all_reduce>({.count = count, .type = what.type, .op = how.across}),
                                    .from = at_recv(mine),
                                    .to = at_recv(mine),
                                    .factor = how.across_factor});

  auto& spread = plan.phases[2].steps;
  if (share > 0)
    spread.push_back(
        {.what = shaped<all_gather>({.count = share, .type = what.type}), .from = at_recv(mine), .to = at_recv(0)});
  if (rest > 0)
    spread.push_back({.what = shaped<broadcast>({.count = rest, .type = what.type, .root = last}),
                      .from = only(has_rest, at_recv(end)),
                      .to = at_recv(end)});
  return plan;
}

hierarchy_plan hierarchy_planner::all_reduce_by_leaders(const all_reduce& what, const hierarchy_reduction& how) const {
  hierarchy_plan plan = plan_of_levels({inside, across, inside}, false);
  if (!is_lone())
    plan.phases[0].steps.push_back(
        {.what = shaped<reduce>({.count = what.count, .type = what.type, .root = 0, .op = how.inside}),
         .from = at_send(0),
         .to = only(leads(), at_recv(0)),
         .factor = how.inside_factor});
  if (leads())
    plan.phases[1].steps.push_back(
        {.what = shaped<all_reduce>({.count = what.count, .type = what.type, .op = how.across}),
         .from = is_lone() ? at_send(0) : at_recv(0),
         .to = at_recv(0),
         .factor = how.across_factor});
  if (!is_lone())
    plan.phases[2].steps.push_back({.what = shaped<broadcast>({.count = what.count, .type = what.type, .root = 0}),
                                    .from = only(leads(), at_recv(0)),
                                    .to = at_recv(0)});
  return plan;
}

hierarchy_planner::outcome hierarchy_planner::operator()(const reduce& what) const {
  const auto how = levels_of(what.op, what.type);
  if (!how) return {};
  return is_even() ? reduce_in_shares(what, *how) : reduce_by_leaders(what, *how);
}

/// Works in pieces, so that one share plus the remainder after equal shares fits the scratch. The remainder of the last
/// piece goes through the ranks with the root's index.
hierarchy_planner::outcome hierarchy_planner::reduce_in_shares(const reduce& what,
                                                               const hierarchy_reduction& how) const {
  const std::size_t room = scratch_count(what.type);
  if (room <= size_) return {};
  const std::size_t largest_share = rounded_piece(room - size_);
  const auto root = static_cast<std::size_t>(what.root.value());
  const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
  const bool is_root = self_ == root, at_root = node_ == root_node, has_rest = index_ == root_index;

  hierarchy_plan plan{.phases = {}, .uses_scratch = true};
  for (std::size_t begin = 0; begin < what.count;) {
    const std::size_t left = what.count - begin;
    const std::size_t share = std::min(largest_share, left / size_), end = share * size_;
    const std::size_t rest = left - end < size_ ? left - end : 0;
    const range mine = is_root ? at_recv(begin + share * index_) : at_scratch(0);
    const range my_rest = only(has_rest, is_root ? at_recv(begin + end) : at_scratch(share));
    hierarchy_plan piece = plan_of_levels({inside, across, inside}, true);
    if (share > 0) {
      piece.phases[0].steps.push_back(
          {.what = shaped<reduce_scatter>({.count = share, .type = what.type, .op = how.inside}),
           .from = at_send(begin),
           .to = mine,
           .factor = how.inside_factor});
      piece.phases[1].steps.push_back(
          {.what = shaped<reduce>({.count = share, .type = what.type, .root = root_node, .op = how.across}),
           .from = mine,
           .to = only(at_root, mine),
           .factor = how.across_factor});
      if (at_root)
        piece.phases[2].steps.push_back(
            {.what = shaped<gather>({.count = share, .type = what.type, .root = root_index}),
             .from = mine,
             .to = only(is_root, at_recv(begin))});
    }
    if (rest > 0) {
      piece.phases[0].steps.push_back(
          {.what = shaped<reduce>({.count = rest, .type = what.type, .root = root_index, .op = how.inside}),
           .from = at_send(begin + end),
           .to = my_rest,
           .factor = how.inside_factor});
      if (has_rest)
        piece.phases[1].steps.push_back(
            {.what = shaped<reduce>({.count = rest, .type = what.type, .root = root_node, .op = how.across}),
             .from = my_rest,
             .to = only(is_root, my_rest),
             .factor = how.across_factor});
    }
    for (hierarchy_phase& one : piece.phases) plan.phases.push_back(std::move(one));
    begin += end + rest;
  }
  return plan;
}

/// If the root is not its node's leader, the leader sends it the result.
hierarchy_planner::outcome hierarchy_planner::reduce_by_leaders(const reduce& what,
                                                                const hierarchy_reduction& how) const {
  const std::size_t largest_piece = rounded_piece(scratch_count(what.type));
  if (largest_piece == 0) return {};
  const auto root = static_cast<std::size_t>(what.root.value());
  const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
  const bool is_root = self_ == root, at_root = node_ == root_node;

  hierarchy_plan plan{.phases = {}, .uses_scratch = true};
  for (std::size_t begin = 0; begin < what.count; begin += largest_piece) {
    const std::size_t count = std::min(largest_piece, what.count - begin);
    const range mine = is_root ? at_recv(begin) : at_scratch(0);
    hierarchy_plan piece = plan_of_levels({inside, across, inside}, true);
    if (!is_lone())
      piece.phases[0].steps.push_back(
          {.what = shaped<reduce>({.count = count, .type = what.type, .root = 0, .op = how.inside}),
           .from = at_send(begin),
           .to = only(leads(), mine),
           .factor = how.inside_factor});
    if (leads())
      piece.phases[1].steps.push_back(
          {.what = shaped<reduce>({.count = count, .type = what.type, .root = root_node, .op = how.across}),
           .from = is_lone() ? at_send(begin) : mine,
           .to = only(at_root, mine),
           .factor = how.across_factor});
    if (at_root && root_index != 0) {
      if (leads())
        piece.phases[2].steps.push_back(
            {.what = shaped<send>({.count = count, .type = what.type, .root = root_index}), .from = mine});
      if (is_root)
        piece.phases[2].steps.push_back(
            {.what = shaped<recv>({.count = count, .type = what.type, .root = 0}), .to = mine});
    }
    for (hierarchy_phase& one : piece.phases) plan.phases.push_back(std::move(one));
  }
  return plan;
}

} // namespace troupe
