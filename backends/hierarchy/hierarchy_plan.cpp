#include <troupe/backends/hierarchy/hierarchy_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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

/// The reductions and factors used on the two levels.
struct hierarchy_reduction {
  reduction inside{};
  hierarchy_factor inside_factor = hierarchy_factor::none;
  reduction across{};
  hierarchy_factor across_factor = hierarchy_factor::none; ///< The factor that this rank uses.
};

/// Values for the members of a step's operation. Members that the operation lacks are ignored.
struct hierarchy_shape {
  std::size_t count = 0;
  dtype type{};
  std::size_t root = 0; ///< The root, or the peer of a send or recv.
  reduction op{};
};
template <class Operation>
Operation shaped(const hierarchy_shape& shape) {
  Operation made;
  made.count = shape.count;
  made.type = shape.type;
  if constexpr (requires { made.root; }) made.root = rank{static_cast<int>(shape.root)};
  if constexpr (requires { made.peer; }) made.peer = rank{static_cast<int>(shape.root)};
  if constexpr (requires { made.op; }) made.op = shape.op;
  return made;
}

/// Returns a plan with empty phases of these levels.
hierarchy_plan plan_of_levels(std::initializer_list<hierarchy_level> levels, bool uses_scratch) {
  hierarchy_plan plan{.phases = {}, .uses_scratch = uses_scratch};
  for (const hierarchy_level one : levels) plan.phases.push_back({.level = one});
  return plan;
}

/// Rounds a maximum piece size, in elements, down to a multiple of 128: NCCL is fastest on aligned memory, and the loss
/// is small.
std::size_t rounded_piece(std::size_t most) noexcept {
  constexpr std::size_t round = 128;
  return most >= round ? most - most % round : most;
}

/// Returns the number of elements of \p count in each rank's share. Large shares are rounded down in the same way.
std::size_t share_of(std::size_t count, std::size_t ranks) noexcept {
  constexpr std::size_t large = 4096;
  const std::size_t share = count / ranks;
  return share >= large ? rounded_piece(share) : share;
}

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

/// Plans one rank's part of an operation on several nodes.
class hierarchy_planner {
public:
  using outcome = std::optional<hierarchy_plan>;

  hierarchy_planner(const node_map& nodes, rank self, std::size_t scratch_bytes)
    : nodes_{nodes},
      self_{static_cast<std::size_t>(self.value())},
      node_{nodes.node_of(self_)},
      index_{nodes.index_of(self_)},
      size_{nodes.members(node_).size()},
      scratch_bytes_{scratch_bytes} {}

  /// Even nodes: the root scatters its elements inside its node, each share is broadcast across by itself, and each
  /// node gathers the shares. Uneven nodes: the leader of the root's node broadcasts the elements to the other leaders,
  /// and each leader to its node.
  [[nodiscard]] outcome operator()(const broadcast& what) const {
    const auto root = static_cast<std::size_t>(what.root.value());
    const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
    const bool is_root = self_ == root, at_root = node_ == root_node;
    hierarchy_plan plan = plan_of_levels({inside, across, inside}, false);

    if (!is_even()) {
      const hierarchy_shape in_its_node{.count = what.count, .type = what.type, .root = at_root ? root_index : 0};
      if (!is_lone() && at_root) add<broadcast>(plan.phases[0], in_its_node, only(is_root, at_send(0)), at_recv(0));
      if (leads())
        add<broadcast>(plan.phases[1], {.count = what.count, .type = what.type, .root = root_node},
                       only(at_root, is_lone() ? at_send(0) : at_recv(0)), at_recv(0));
      if (!is_lone() && !at_root) add<broadcast>(plan.phases[2], in_its_node, only(leads(), at_recv(0)), at_recv(0));
      return plan;
    }

    const std::size_t share = share_of(what.count, size_), end = share * size_, rest = what.count - end;
    const range mine = at_recv(share * index_);
    const bool has_rest = index_ == root_index;
    if (share > 0) {
      if (at_root)
        add<scatter>(plan.phases[0], {.count = share, .type = what.type, .root = root_index}, only(is_root, at_send(0)),
                     mine);
      add<broadcast>(plan.phases[1], {.count = share, .type = what.type, .root = root_node}, only(at_root, mine), mine);
      add<all_gather>(plan.phases[2], {.count = share, .type = what.type}, mine, at_recv(0));
    }
    if (rest > 0) {
      if (has_rest)
        add<broadcast>(plan.phases[1], {.count = rest, .type = what.type, .root = root_node},
                       only(is_root, at_send(end)), at_recv(end));
      add<broadcast>(plan.phases[2], {.count = rest, .type = what.type, .root = root_index},
                     only(has_rest, at_recv(end)), at_recv(end));
    }
    return plan;
  }

  /// The k-th rank of each node takes part in the k-th step, so that no message between nodes waits for others.
  [[nodiscard]] outcome operator()(const all_to_all& what) const {
    const std::size_t largest_piece = rounded_piece(scratch_count(what.type) / nodes_.size());
    if (!is_even() || largest_piece == 0) return {};
    hierarchy_plan plan{.phases = {}, .uses_scratch = true};
    for (std::size_t begin = 0; begin < what.count; begin += largest_piece) {
      const std::size_t count = std::min(largest_piece, what.count - begin);
      hierarchy_phase sorted{.level = inside}, crossed{.level = across};
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
        add(sorted, std::move(one), at_send(0), at_scratch(0));
      }
      if (nodes_.is_in_rank_order() && count == what.count) {
        add<all_to_all>(crossed, {.count = size_ * count, .type = what.type}, at_scratch(0), at_recv(0));
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
          add(crossed, std::move(one), at_scratch(0), at_recv(0));
        }
      }
      plan.phases.push_back(std::move(sorted));
      plan.phases.push_back(std::move(crossed));
    }
    return plan;
  }

  /// Each node sends one message, which the rank with the root's index has gathered. Nodes are not split into pieces,
  /// so that parts need no sorting. Not composed if a node's parts do not fit the scratch or would need sorting.
  [[nodiscard]] outcome operator()(const gather& what) const {
    const auto root = static_cast<std::size_t>(what.root.value());
    const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
    if (!nodes_.is_in_rank_order() || (!is_even() && root_index != 0)) return {};
    if (nodes_.largest() * what.count > scratch_count(what.type)) return {};
    const bool is_root = self_ == root, represents_node = index_ == root_index;
    hierarchy_plan plan = plan_of_levels({inside, across}, true);
    const range node_parts = is_root ? at_recv(first_of(node_) * what.count) : at_scratch(0);
    if (!is_lone())
      add<gather>(plan.phases[0], {.count = what.count, .type = what.type, .root = root_index}, at_send(0),
                  only(represents_node, node_parts));
    else if (is_root)
      plan.phases[0].copies.push_back({.from = at_send(0), .to = node_parts, .count = what.count});
    if (is_root) {
      for (std::size_t node = 0; node < node_count(); ++node)
        if (node != root_node)
          add<recv>(plan.phases[1], {.count = node_size(node) * what.count, .type = what.type, .root = node}, {},
                    at_recv(first_of(node) * what.count));
    } else if (represents_node) {
      add<send>(plan.phases[1], {.count = size_ * what.count, .type = what.type, .root = root_node},
                is_lone() ? at_send(0) : node_parts);
    }
    return plan;
  }

  /// The reverse of gather.
  [[nodiscard]] outcome operator()(const scatter& what) const {
    const auto root = static_cast<std::size_t>(what.root.value());
    const std::size_t root_node = nodes_.node_of(root), root_index = nodes_.index_of(root);
    if (!nodes_.is_in_rank_order() || (!is_even() && root_index != 0)) return {};
    if (nodes_.largest() * what.count > scratch_count(what.type)) return {};
    const bool is_root = self_ == root, represents_node = index_ == root_index;
    hierarchy_plan plan = plan_of_levels({across, inside}, true);
    const range node_parts = is_root ? at_send(first_of(node_) * what.count) : at_scratch(0);
    if (is_root) {
      for (std::size_t node = 0; node < node_count(); ++node)
        if (node != root_node)
          add<send>(plan.phases[0], {.count = node_size(node) * what.count, .type = what.type, .root = node},
                    at_send(first_of(node) * what.count));
    } else if (represents_node) {
      add<recv>(plan.phases[0], {.count = size_ * what.count, .type = what.type, .root = root_node}, {},
                is_lone() ? at_recv(0) : node_parts);
    }
    if (!is_lone())
      add<scatter>(plan.phases[1], {.count = what.count, .type = what.type, .root = root_index},
                   only(represents_node, node_parts), at_recv(0));
    else if (is_root)
      plan.phases[1].copies.push_back({.from = node_parts, .to = at_recv(0), .count = what.count});
    return plan;
  }

  /// Even nodes: once all ranks of a node have arrived, the ranks with the same index only need to synchronize across
  /// nodes.
  [[nodiscard]] outcome operator()(const barrier&) const {
    hierarchy_plan plan =
        is_even() ? plan_of_levels({inside, across}, false) : plan_of_levels({inside, across, inside}, false);
    for (hierarchy_phase& one : plan.phases)
      if (one.level == inside ? !is_lone() : is_even() || leads()) add(one, barrier{}, {}, {});
    return plan;
  }

  [[nodiscard]] outcome operator()(const all_gather& what) const {
    const partition parts = partition::packed(std::vector<std::size_t>(nodes_.size(), what.count));
    return is_even() ? gather_in_shares(parts, what.type, true) : gather_by_leaders(parts, what.type, true);
  }

  [[nodiscard]] outcome operator()(const all_gather_v& what) const {
    return is_even() ? gather_in_shares(what.recv_parts, what.type, false)
                     : gather_by_leaders(what.recv_parts, what.type, false);
  }

  [[nodiscard]] outcome operator()(const all_reduce& what) const {
    const auto how = levels_of(what.op, what.type);
    if (!how) return {};
    return is_even() ? all_reduce_in_shares(what, *how) : all_reduce_by_leaders(what, *how);
  }

  [[nodiscard]] outcome operator()(const reduce& what) const {
    const auto how = levels_of(what.op, what.type);
    if (!how) return {};
    return is_even() ? reduce_in_shares(what, *how) : reduce_by_leaders(what, *how);
  }

  [[nodiscard]] outcome operator()(const reduce_scatter& what) const {
    const partition parts = partition::packed(std::vector<std::size_t>(nodes_.size(), what.count));
    return reduce_parts({.whole = parts, .type = what.type, .uniform = true}, what.op);
  }

  [[nodiscard]] outcome operator()(const reduce_scatter_v& what) const {
    return reduce_parts({.whole = what.send_parts, .type = what.type, .uniform = false}, what.op);
  }

  /// The other operations are not composed.
  template <class Other>
  [[nodiscard]] outcome operator()(const Other&) const {
    return {};
  }

private:
  static constexpr auto inside = hierarchy_level::inside, across = hierarchy_level::across;
  using range = hierarchy_range;

  /// A piece of every rank's part: at most `most` elements, starting at `offset`.
  struct parted {
    const partition& whole;
    dtype type;
    bool uniform;           ///< The parts have one size and are adjacent.
    std::size_t offset = 0; ///< Offset in each part, in elements.
    std::size_t most = 0;   ///< Limit of the elements per part.

    [[nodiscard]] std::size_t count(std::size_t whose) const {
      return std::min(most, whole.counts[whose] - std::min(offset, whole.counts[whose]));
    }
    [[nodiscard]] std::size_t first(std::size_t whose) const { return whole.displacements[whose] + offset; }
    /// Returns whether the piece covers complete, adjacent parts of one size in the order of \p nodes.
    [[nodiscard]] bool is_all(const node_map& nodes) const {
      return uniform && nodes.is_in_rank_order() && most >= whole.counts.front();
    }
  };

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

  /// Adds an operation to \p phase.
  static void add(hierarchy_phase& phase, operation what, range from, range to, hierarchy_factor factor = {}) {
    phase.steps.push_back({.what = std::move(what), .from = from, .to = to, .factor = factor});
  }
  template <class Operation>
  static void add(hierarchy_phase& phase, const hierarchy_shape& shape, range from, range to = {},
                  hierarchy_factor factor = {}) {
    add(phase, shaped<Operation>(shape), from, to, factor);
  }

  /// Each part crosses once, to the rank with its sender's index on each node. That rank distributes it inside its
  /// node.
  [[nodiscard]] hierarchy_plan gather_in_shares(const partition& parts, dtype type, bool packed) const {
    hierarchy_plan plan = plan_of_levels({across, inside}, false);
    std::vector<std::size_t> alike; // ranks with the same index on each node
    for (std::size_t node = 0; node < node_count(); ++node) alike.push_back(nodes_.members(node)[index_]);
    const auto where = [&](std::size_t whose) {
      return only(parts.counts[whose] > 0, at_recv(parts.displacements[whose]));
    };
    if (partition crossing = parts_of(parts, alike); has_elements(crossing))
      add(plan.phases[0], gathering(std::move(crossing), type), only(parts.counts[self_] > 0, at_send(0)), at_recv(0));
    for (std::size_t node = 0; node < node_count(); ++node) {
      partition of_node = parts_of(parts, nodes_.members(node));
      if (!has_elements(of_node)) continue;
      if (packed && nodes_.is_in_rank_order())
        add<all_gather>(plan.phases[1], {.count = parts.counts.front(), .type = type}, where(alike[node]),
                        where(first_of(node)));
      else
        add(plan.phases[1], gathering(std::move(of_node), type), where(alike[node]), at_recv(0));
    }
    return plan;
  }

  /// Each node gathers its parts at its leader. The leaders exchange them and broadcast the new parts inside their
  /// nodes.
  [[nodiscard]] hierarchy_plan gather_by_leaders(const partition& parts, dtype type, bool packed) const {
    hierarchy_plan plan = plan_of_levels({inside, across, inside}, false);
    const auto where = [&](std::size_t whose) {
      return only(parts.counts[whose] > 0, at_recv(parts.displacements[whose]));
    };
    const auto& mine = nodes_.members(node_);
    const range sent = only(parts.counts[self_] > 0, at_send(0));
    if (partition of_node = parts_of(parts, mine); !is_lone() && has_elements(of_node))
      add(plan.phases[0], gathering(std::move(of_node), type), sent, at_recv(0));

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
      add(plan.phases[1], gathering(std::move(crossing), type), from, at_recv(0));
    }

    if (is_lone()) return plan;
    const auto broadcast_in_node = [&](std::size_t count, range what) {
      add<broadcast>(plan.phases[2], {.count = count, .type = type, .root = 0}, only(leads(), what), what);
    };
    if (packed) {
      broadcast_in_node(nodes_.size() * parts.counts.front(), at_recv(0));
      return plan;
    }
    for (std::size_t r = 0; r < nodes_.size(); ++r)
      if (nodes_.node_of(r) != node_ && parts.counts[r] > 0) broadcast_in_node(parts.counts[r], where(r));
    return plan;
  }

  /// An average of floats is a sum of elements that each rank has multiplied by 1/n. Therefore the first level that
  /// processes a rank's elements multiplies them. For a lone rank that is the level across nodes, where all ranks must
  /// request the same reduction.
  [[nodiscard]] std::optional<hierarchy_reduction> levels_of(reduction op, dtype type) const {
    if (op != reduction::avg && op != reduction::pre_mul_sum) return hierarchy_reduction{.inside = op, .across = op};
    if (op == reduction::avg && is_integer(type)) return {}; // the sum must be divided once, at the end
    const auto own = op == reduction::avg ? hierarchy_factor::mean : hierarchy_factor::given;
    hierarchy_reduction how{.inside = reduction::pre_mul_sum, .inside_factor = own, .across = reduction::sum};
    if (nodes_.smallest() > 1) return how;
    how.across = reduction::pre_mul_sum;
    how.across_factor = is_lone() ? own : hierarchy_factor::one;
    return how;
  }

  /// The node's last rank processes the remainder after equal shares, which lies directly behind that rank's share.
  [[nodiscard]] hierarchy_plan all_reduce_in_shares(const all_reduce& what, const hierarchy_reduction& how) const {
    const std::size_t share = share_of(what.count, size_), end = share * size_, rest = what.count - end;
    const std::size_t mine = share * index_, last = size_ - 1;
    const bool has_rest = index_ == last;
    hierarchy_plan plan = plan_of_levels({inside, across, inside}, false);

    hierarchy_phase& first = plan.phases[0];
    if (share > 0)
      add<reduce_scatter>(first, {.count = share, .type = what.type, .op = how.inside}, at_send(0), at_recv(mine),
                          how.inside_factor);
    if (rest > 0)
      add<reduce>(first, {.count = rest, .type = what.type, .root = last, .op = how.inside}, at_send(end),
                  only(has_rest, at_recv(end)), how.inside_factor);

    if (const std::size_t count = share + (has_rest ? rest : 0); count > 0)
      add<all_reduce>(plan.phases[1], {.count = count, .type = what.type, .op = how.across}, at_recv(mine),
                      at_recv(mine), how.across_factor);

    hierarchy_phase& spread = plan.phases[2];
    if (share > 0) add<all_gather>(spread, {.count = share, .type = what.type}, at_recv(mine), at_recv(0));
    if (rest > 0)
      add<broadcast>(spread, {.count = rest, .type = what.type, .root = last}, only(has_rest, at_recv(end)),
                     at_recv(end));
    return plan;
  }

  [[nodiscard]] hierarchy_plan all_reduce_by_leaders(const all_reduce& what, const hierarchy_reduction& how) const {
    hierarchy_plan plan = plan_of_levels({inside, across, inside}, false);
    if (!is_lone())
      add<reduce>(plan.phases[0], {.count = what.count, .type = what.type, .root = 0, .op = how.inside}, at_send(0),
                  only(leads(), at_recv(0)), how.inside_factor);
    if (leads())
      add<all_reduce>(plan.phases[1], {.count = what.count, .type = what.type, .op = how.across},
                      is_lone() ? at_send(0) : at_recv(0), at_recv(0), how.across_factor);
    if (!is_lone())
      add<broadcast>(plan.phases[2], {.count = what.count, .type = what.type, .root = 0}, only(leads(), at_recv(0)),
                     at_recv(0));
    return plan;
  }

  /// Works in pieces, so that one share plus the remainder after equal shares fits the scratch. The remainder of the
  /// last piece goes through the ranks with the root's index.
  [[nodiscard]] outcome reduce_in_shares(const reduce& what, const hierarchy_reduction& how) const {
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
        add<reduce_scatter>(piece.phases[0], {.count = share, .type = what.type, .op = how.inside}, at_send(begin),
                            mine, how.inside_factor);
        add<reduce>(piece.phases[1], {.count = share, .type = what.type, .root = root_node, .op = how.across}, mine,
                    only(at_root, mine), how.across_factor);
        if (at_root)
          add<gather>(piece.phases[2], {.count = share, .type = what.type, .root = root_index}, mine,
                      only(is_root, at_recv(begin)));
      }
      if (rest > 0) {
        add<reduce>(piece.phases[0], {.count = rest, .type = what.type, .root = root_index, .op = how.inside},
                    at_send(begin + end), my_rest, how.inside_factor);
        if (has_rest)
          add<reduce>(piece.phases[1], {.count = rest, .type = what.type, .root = root_node, .op = how.across}, my_rest,
                      only(is_root, my_rest), how.across_factor);
      }
      for (hierarchy_phase& one : piece.phases) plan.phases.push_back(std::move(one));
      begin += end + rest;
    }
    return plan;
  }

  /// If the root is not its node's leader, the leader sends it the result.
  [[nodiscard]] outcome reduce_by_leaders(const reduce& what, const hierarchy_reduction& how) const {
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
        add<reduce>(piece.phases[0], {.count = count, .type = what.type, .root = 0, .op = how.inside}, at_send(begin),
                    only(leads(), mine), how.inside_factor);
      if (leads())
        add<reduce>(piece.phases[1], {.count = count, .type = what.type, .root = root_node, .op = how.across},
                    is_lone() ? at_send(begin) : mine, only(at_root, mine), how.across_factor);
      if (at_root && root_index != 0) {
        if (leads()) add<send>(piece.phases[2], {.count = count, .type = what.type, .root = root_index}, mine);
        if (is_root) add<recv>(piece.phases[2], {.count = count, .type = what.type, .root = 0}, {}, mine);
      }
      for (hierarchy_phase& one : piece.phases) plan.phases.push_back(std::move(one));
    }
    return plan;
  }

  /// Even nodes: each rank receives its node's sums for the ranks with its index, one part per node. Uneven nodes: each
  /// leader receives its node's sums of all parts. Parts are processed in pieces that fit the scratch.
  [[nodiscard]] outcome reduce_parts(const parted& what, reduction op) const {
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

  void scatter_in_shares(hierarchy_plan& plan, const parted& what, const hierarchy_reduction& how) const {
    hierarchy_phase summed{.level = inside}, crossed{.level = across};
    const auto length = what.count(0); // the same for all ranks if uniform
    const std::size_t slot = what.uniform ? length : what.most;
    for (std::size_t node = 0; node < node_count(); ++node) {
      if (what.is_all(nodes_)) {
        add<reduce_scatter>(summed, {.count = length, .type = what.type, .op = how.inside},
                            at_send(what.first(first_of(node))), at_scratch(node * slot), how.inside_factor);
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
      add(summed, std::move(one), at_send(0), at_scratch(node * slot), how.inside_factor);
    }

    if (what.uniform) {
      add<reduce_scatter>(crossed, {.count = length, .type = what.type, .op = how.across}, at_scratch(0),
                          at_recv(what.offset), how.across_factor);
    } else {
      reduce_scatter_v one;
      one.type = what.type;
      one.op = how.across;
      for (std::size_t node = 0; node < node_count(); ++node) {
        one.send_parts.counts.push_back(what.count(nodes_.members(node)[index_]));
        one.send_parts.displacements.push_back(node * slot);
      }
      if (std::ranges::any_of(one.send_parts.counts, [](std::size_t count) { return count > 0; }))
        add(crossed, std::move(one), at_scratch(0), only(what.count(self_) > 0, at_recv(what.offset)),
            how.across_factor);
    }
    plan.phases.push_back(std::move(summed));
    plan.phases.push_back(std::move(crossed));
  }

  void scatter_by_leaders(hierarchy_plan& plan, const parted& what, const hierarchy_reduction& how) const {
    std::vector<std::size_t> places(nodes_.size()); // offset of each rank's part in the scratch
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

    hierarchy_phase summed{.level = inside}, crossed{.level = across}, distributed{.level = inside};
    const auto reduce_at_leader = [&](std::size_t first, std::size_t place, std::size_t count) {
      if (is_lone())
        summed.copies.push_back({.from = at_send(first), .to = at_scratch(place), .count = count});
      else
        add<reduce>(summed, {.count = count, .type = what.type, .root = 0, .op = how.inside}, at_send(first),
                    only(leads(), at_scratch(place)), how.inside_factor);
    };
    if (what.is_all(nodes_))
      reduce_at_leader(what.first(0), 0, end);
    else
      for (std::size_t r = 0; r < nodes_.size(); ++r)
        if (what.count(r) > 0) reduce_at_leader(what.first(r), places[r], what.count(r));

    if (leads()) {
      reduce_scatter_v one;
      one.type = what.type;
      one.op = how.across;
      one.send_parts = partition::packed(node_counts);
      const range mine = is_lone() ? at_recv(what.offset) : at_scratch(one.send_parts.displacements[node_]);
      add(crossed, std::move(one), at_scratch(0), only(node_counts[node_] > 0, mine), how.across_factor);
    }

    if (!is_lone() && leads()) {
      for (std::size_t index = 1; index < size_; ++index) {
        const std::size_t member = nodes_.members(node_)[index];
        if (what.count(member) > 0)
          add<send>(distributed, {.count = what.count(member), .type = what.type, .root = index},
                    at_scratch(places[member]));
      }
      if (what.count(self_) > 0)
        distributed.copies.push_back(
            {.from = at_scratch(places[self_]), .to = at_recv(what.offset), .count = what.count(self_)});
    } else if (!is_lone() && what.count(self_) > 0) {
      add<recv>(distributed, {.count = what.count(self_), .type = what.type, .root = 0}, {}, at_recv(what.offset));
    }
    plan.phases.push_back(std::move(summed));
    plan.phases.push_back(std::move(crossed));
    plan.phases.push_back(std::move(distributed));
  }

  const node_map& nodes_;
  std::size_t self_;
  std::size_t node_;
  std::size_t index_; ///< Index of this rank in its node.
  std::size_t size_;  ///< Number of ranks of this rank's node.
  std::size_t scratch_bytes_;
};

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
