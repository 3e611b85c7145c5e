/// What several operations come to when one call launches them: the one order that all ranks' launches agree on.
#pragma once

#include <troupe/collectives/operation.hpp>

#include <span>
#include <vector>

namespace troupe {

/// Operations side by side, parts of groups among them. They point into what they were made from.
struct launch_parts {
  std::vector<const operation*> collectives{}; ///< As given.
  std::vector<const operation*> transfers{};   ///< Sends and receives, in the order in which they meet their peers'.
};

/// Of operations that are launched together, and of the group that is \p all alone: a group in a batch has no order of
/// its own (ORD-1).
[[nodiscard]] launch_parts parts_of_launch(std::span<const operation* const> all);

} // namespace troupe
