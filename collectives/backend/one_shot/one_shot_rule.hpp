/// Decides which operations are one-shot kernels of troupe's own and which go to the library. The decision depends only
/// on what all ranks' requests have in common (ORD-2) and on limits that are fixed when a communicator forms, never on
/// an address, an alignment or what one rank sees: ranks that decide differently wait for each other for ever.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// The largest number of ranks of a communicator with one-shot kernels: they are for the devices of one host.
inline constexpr int most_one_shot_ranks = 8;

/// The sizes of a communicator's one-shot operations. Fixed when it forms, and equal at all its ranks.
struct one_shot_limits {
  /// The most bytes that one rank sends to one other in an operation that is launched as a one-shot kernel, except
  /// barriers, which send none. 0: no operation is.
  std::size_t part_bytes = 0;
  int ranks = 2; ///< Of the communicator.

  /// The most bytes that all ranks receive in several kernels of one launch. More are faster in one launch of the
  /// library's, which uses all links at once.
  static constexpr std::size_t together_bytes = std::size_t{8} << 20U;

  /// Returns the limits for \p world_size GPUs that reach each other by NVLink, up to which the kernels are faster than
  /// NCCL's. (docs/design/0106-one-shot-collectives.md)
  [[nodiscard]] static one_shot_limits usual(int world_size) noexcept;

  friend bool operator==(const one_shot_limits&, const one_shot_limits&) = default;
};

/// Returns whether \p what is launched as a one-shot kernel: a collective of equal parts within the limits, or a
/// barrier. Precondition: it is not a group, whose parts are decided one by one.
[[nodiscard]] bool is_one_shot(const operation& what, const one_shot_limits& limits) noexcept;

/// Returns whether \p what is launched as two kernels, a reduce_scatter and an all_gather of its result: an all_reduce
/// too large for one, whose parts are equal and within the limits. Two ranks send each other as much in one kernel.
[[nodiscard]] bool is_two_shot(const operation& what, const one_shot_limits& limits) noexcept;

/// Operations that are launched together, divided by how each one is launched. Each list keeps their order.
struct one_shot_split {
  std::vector<const operation*> kernels;   ///< As one-shot kernels.
  std::vector<const operation*> two_shots; ///< As two kernels.
  std::vector<const operation*> library;   ///< By the library.
};

/// Divides \p all, and the parts of groups among them. Several operations that are too large together (together_bytes)
/// are all the library's. The composition of a launch is the same at all ranks (ORD-1), so they decide the same.
[[nodiscard]] one_shot_split split_one_shot(std::span<const operation* const> all, const one_shot_limits& limits);

} // namespace troupe
