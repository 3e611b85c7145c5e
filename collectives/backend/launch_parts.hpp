/// Puts the operations of one launch into an order on which all ranks agree.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Launches \p what. If it is a group with copies, these are first enqueued in \p stream, because communicators do not
/// launch copies. Returns whether the launch itself writes \p at_end (communicator::launch()); never for such a group,
/// because its collectives alone do not complete it.
bool launch_with_copies(communicator& peers, const operation& what, stream_ref stream, completion_word at_end = {});
/// Enqueues the copies of a group in \p stream and returns the group without them. Returns nullopt if \p what is to be
/// launched unchanged.
[[nodiscard]] std::optional<group> launch_copies_of(const operation& what, stream_ref stream);

/// The operations of one launch, with groups replaced by their parts. The pointers refer to the operations they were
/// made from.
struct launch_parts {
  std::vector<const operation*> collectives{}; ///< The collectives, in the given order.
  /// Sends and receives, in the order in which they match those of their peers.
  std::vector<const operation*> transfers{};
};

/// Returns the number of operations in \p all, with groups replaced by their parts.
[[nodiscard]] std::size_t part_count(std::span<const operation* const> all) noexcept;

/// Collects the parts of operations that are launched together, or of a single group. In a batch, the
/// transfers of all groups are ordered together (ORD-1).
[[nodiscard]] launch_parts parts_of_launch(std::span<const operation* const> all);

} // namespace troupe
