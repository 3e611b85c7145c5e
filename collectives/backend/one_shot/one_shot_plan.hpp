/// Puts operations into the tables that one-shot kernels are launched with.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

/// The entries of one launch and its shape.
struct one_shot_launch {
  std::span<const one_shot_entry> entries; ///< Among those that were divided.
  one_shot_shape shape;
};

/// Returns the entry of \p what, without its warps. Precondition: is_one_shot().
[[nodiscard]] one_shot_entry entry_of(const operation& what, rank self);

/// Returns the entries of an all_reduce in two shots, of which the second is launched behind the first: each rank
/// reduces a part, then all gather the parts. Precondition: is_two_shot() with as many \p ranks.
[[nodiscard]] std::array<one_shot_entry, 2> two_shot_entries(const operation& what, rank self, int ranks);

/// Returns the fastest kernel for \p one by itself.
[[nodiscard]] one_shot_form form_of(const one_shot_entry& one) noexcept;

/// Returns the shape of a launch of \p one by itself, with at most \p most_blocks blocks.
[[nodiscard]] one_shot_shape plan_alone(const one_shot_entry& one, unsigned most_blocks) noexcept;

/// Divides \p all into as few launches of at most \p most_blocks blocks each as there is room for, in their order, and
/// sets their warps. The division depends on their sizes alone, so that it is the same at all ranks.
[[nodiscard]] std::vector<one_shot_launch> plan_launches(std::span<one_shot_entry> all, unsigned most_blocks);

} // namespace troupe
