/// Named subsets of a world's ranks, used to split a world into sub-worlds.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Ranks of a world that form a sub-world: members[i] is rank i of the sub-world.
struct rank_group {
  std::string name;
  std::vector<rank> members;
};

/// Checks the groups of a split of a world of \p world_size ranks. Returns errc::none, or invalid_argument if there is
/// no group, or if a group has no name, the name of another group, no members, a repeated rank or a rank outside the
/// world. The error names the group if it has a name.
[[nodiscard]] error check_groups(std::span<const rank_group> groups, int world_size);

/// Distributes the groups over rounds by first fit, so that no rank is in two groups of one round. Each round is one
/// split of the communicator. Returns indices into \p groups, each exactly once.
[[nodiscard]] std::vector<std::vector<std::size_t>> disjoint_rounds(std::span<const rank_group> groups, int world_size);

} // namespace troupe
