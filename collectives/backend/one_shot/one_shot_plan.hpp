/// Puts operations into the tables that one-shot kernels are launched with.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

/// The entries of one launch, with their warps, and its shape.
struct one_shot_launch {
  std::vector<one_shot_entry> entries;
  one_shot_shape shape;
};

/// Returns the entry of \p what, without its warps. Precondition: is_one_shot().
[[nodiscard]] one_shot_entry entry_of(const operation& what, rank self);

/// Returns the fastest kernel for \p one by itself.
[[nodiscard]] one_shot_form form_of(const one_shot_entry& one) noexcept;

/// Returns the shape of a launch of \p one by itself, with at most \p most_blocks blocks.
[[nodiscard]] one_shot_shape plan_alone(const one_shot_entry& one, unsigned most_blocks) noexcept;

/// Divides \p all into as few launches of at most \p most_blocks blocks each as there is room for, in their order. The
/// division depends on their sizes alone, so that it is the same at all ranks.
[[nodiscard]] std::vector<one_shot_launch> plan_launches(std::span<const one_shot_entry> all, unsigned most_blocks);

} // namespace troupe
