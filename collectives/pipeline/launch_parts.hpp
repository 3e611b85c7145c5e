/// What several operations come to when one call launches them: the one order that all ranks' launches agree on.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Launches \p what, whose copies, if it is a group that holds some, go into \p stream first: no communicator is asked
/// to launch a copy.
void launch_with_copies(communicator& peers, const operation& what, stream_ref stream);
/// The first half of that: enqueues the copies of a group, and returns the group without them. Nothing where \p what is
/// to be launched as it is.
[[nodiscard]] std::optional<group> launch_copies_of(const operation& what, stream_ref stream);

/// Operations side by side, parts of groups among them. They point into what they were made from.
struct launch_parts {
  std::vector<const operation*> collectives{}; ///< As given.
  std::vector<const operation*> transfers{};   ///< Sends and receives, in the order in which they meet their peers'.
};

/// Of operations that are launched together, and of the group that is \p all alone: a group in a batch has no order of
/// its own (ORD-1).
[[nodiscard]] launch_parts parts_of_launch(std::span<const operation* const> all);

} // namespace troupe
