/// Describes what a communicator has of one-shot kernels, for users and for metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe {

/// What a world's communicators have of one-shot kernels (docs/small-collectives.md). Fixed when they form; the same at
/// all ranks. Without kernels all sizes are 0.
struct one_shot_status {
  std::size_t part_bytes = 0; ///< The most bytes from one rank to another in an operation that is a kernel.
  unsigned blocks = 0;        ///< The most thread blocks of one kernel.
  /// Device memory that each rank holds for it, outside of the pools. Kept while the world is suspended.
  std::size_t scratch_bytes = 0;
  std::string why{}; ///< For people: why there are no kernels. Empty if there are.

  friend bool operator==(const one_shot_status&, const one_shot_status&) = default;
};

/// Returns for people, for example, "one-shot kernels up to 4096 B, 128 blocks" or "no one-shot kernels (why)".
[[nodiscard]] std::string describe(const one_shot_status& one);

/// What a communicator has launched, by the way that it went. Parts of a group are operations of their own.
struct launch_counts {
  std::uint64_t one_shot_launches = 0;
  std::uint64_t one_shot_operations = 0;
  std::uint64_t library_launches = 0;
  std::uint64_t library_operations = 0;

  friend bool operator==(const launch_counts&, const launch_counts&) = default;
};

} // namespace troupe
