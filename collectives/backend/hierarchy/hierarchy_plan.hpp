/// What a rank does for an operation that is composed of its node's and of the nodes' own: data, without a device.
#pragma once

#include <troupe/collectives/backend/hierarchy/hierarchy_terms.hpp>
#include <troupe/collectives/backend/hierarchy/node_map.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Whom a step meets. Inside are the ranks of one node, by their indices. Across are, where all nodes have as many
/// ranks, those with one index on every node, and else the first of each node; by the numbers of their nodes.
enum class hierarchy_level : std::uint8_t { inside, across };

/// Memory of the operation that is composed, from an element on; or of the rank's scratch.
struct hierarchy_range {
  /// Which of the operation's buffers.
  enum class memory : std::uint8_t { none, send, recv, scratch };
  memory in = memory::none;
  std::size_t first = 0; ///< In elements of the operation's dtype.

  friend bool operator==(const hierarchy_range&, const hierarchy_range&) = default;
};

/// Where the factor of a step's pre_mul_sum comes from.
enum class hierarchy_factor : std::uint8_t {
  none,
  given, ///< The operation's own.
  one,
  mean, ///< 1/n, rounded to the dtype: what makes a sum the mean of n floats.
};

/// One operation of a phase. Its root or peer is a rank of the phase's communicator.
struct hierarchy_step {
  operation what;         ///< Without memory.
  hierarchy_range from{}; ///< Its send, and a send's memory.
  hierarchy_range to{};   ///< Its recv, and a recv's memory.
  hierarchy_factor factor = hierarchy_factor::none;
};

/// A copy on the rank's own device. Nothing where both are one place.
struct hierarchy_copy {
  hierarchy_range from;
  hierarchy_range to;
  std::size_t count = 0; ///< In elements.
};

/// What is launched together, the copies first. There may be nothing to do here for this rank.
struct hierarchy_phase {
  hierarchy_level level = hierarchy_level::inside;
  std::vector<hierarchy_copy> copies{};
  std::vector<hierarchy_step> steps{};
};

/// One rank's part of a composed operation: phases in order. All ranks have the same levels in the same order.
/// Within a phase nothing that is written overlaps with what is used beside it.
struct hierarchy_plan {
  std::vector<hierarchy_phase> phases;
  /// Whether any rank's phases may use scratch; the same on all ranks. Without it, plans can run beside each other.
  bool uses_scratch = false;
};

/// How rank \p self composes \p what, which is valid, in a world with these nodes. Nothing where it is left to all
/// ranks' own communicator.
/// Whether there is a plan, its levels and uses_scratch follow from what all ranks know: the operation's kind, dtype,
/// reduction, counts and root, the nodes and the terms (ORD-1). The memory of \p what is not looked at.
[[nodiscard]] std::optional<hierarchy_plan> compose(const operation& what, const node_map& nodes, rank self,
                                                    const hierarchy_terms& terms);

/// Whether the phases of both can be launched side by side: both have the same levels, and none uses scratch.
[[nodiscard]] bool can_run_together(const hierarchy_plan& one, const hierarchy_plan& other);

} // namespace troupe
