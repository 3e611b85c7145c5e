/// Decides when an operation is composed of operations inside nodes and across nodes, and which steps a rank then
/// executes. Plain data, independent of a device.
#pragma once

#include <troupe/backends/hierarchy/node_map.hpp>
#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Returns whether a world with these nodes has anything to compose.
[[nodiscard]] bool has_hierarchy(const node_map& nodes, const hierarchy_terms& terms) noexcept;

/// The ranks that a step communicates with. Inside: the ranks of one node, numbered by their indices. Across, if all
/// nodes have the same number of ranks: the ranks with the same index on every node; otherwise the first rank of each
/// node. Across ranks are numbered by their nodes.
enum class hierarchy_level : std::uint8_t { inside, across };

/// The start of a memory range in a buffer of the composed operation or in the rank's scratch.
struct hierarchy_range {
  /// The buffer that contains the range.
  enum class memory : std::uint8_t { none, send, recv, scratch };
  memory in = memory::none;
  std::size_t first = 0; ///< Offset in the buffer, in elements of the operation's dtype.

  friend bool operator==(const hierarchy_range&, const hierarchy_range&) = default;
};

/// Source of the factor of a step's pre_mul_sum.
enum class hierarchy_factor : std::uint8_t {
  none,
  given, ///< The operation's own factor.
  one,
  mean, ///< 1/n, rounded to the dtype: turns a sum of n floats into their mean.
};

/// One operation of a phase. Its root or peer is a rank of the phase's communicator.
struct hierarchy_step {
  operation what;         ///< Its buffers are not set.
  hierarchy_range from{}; ///< The memory that the operation sends from.
  hierarchy_range to{};   ///< The memory that the operation receives into.
  hierarchy_factor factor = hierarchy_factor::none;
};

/// A copy on the rank's own device. No-op if source and destination are the same.
struct hierarchy_copy {
  hierarchy_range from;
  hierarchy_range to;
  std::size_t count = 0; ///< Number of elements.
};

/// Work that is launched together, the copies first. May be empty on this rank.
struct hierarchy_phase {
  hierarchy_level level = hierarchy_level::inside;
  std::vector<hierarchy_copy> copies{};
  std::vector<hierarchy_step> steps{};
};

/// One rank's part of a composed operation: phases in order. All ranks have the same levels in the same order. Within a
/// phase, no written range overlaps a range that is used concurrently.
struct hierarchy_plan {
  std::vector<hierarchy_phase> phases;
  /// Whether any rank's phases may use scratch; the same on all ranks. Plans without scratch can run concurrently.
  bool uses_scratch = false;
};

/// Returns the plan by which rank \p self executes \p what, a valid operation, in a world with these nodes; nullopt if
/// the flat communicator executes it.
/// Whether there is a plan, its levels and uses_scratch depend only on facts that all ranks know: the operation's kind,
/// dtype, reduction, counts and root, the nodes and the terms (ORD-1). The memory of \p what is not examined.
[[nodiscard]] std::optional<hierarchy_plan> compose(const operation& what, const node_map& nodes, rank self,
                                                    const hierarchy_terms& terms);

/// Returns whether the phases of both can be launched together: both have the same levels, and neither uses scratch.
[[nodiscard]] bool can_run_together(const hierarchy_plan& one, const hierarchy_plan& other);

} // namespace troupe
