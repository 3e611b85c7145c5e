/// Named subsets of a world's ranks: what a world is split into.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Ranks of a world that form a world of their own: members[i] is rank i there.
struct rank_group {
  std::string name;
  std::vector<rank> members;
};

/// errc::none, or invalid_argument naming the group: without a name or with another's, without members, with a rank
/// twice or one that is not among \p world_size.
[[nodiscard]] error check_groups(std::span<const rank_group> groups, int world_size);

/// The groups in as few rounds as first fit gives, so that no rank is in two of one round. Each round is one split of
/// the communicator. Returns indices into \p groups, each once.
[[nodiscard]] std::vector<std::vector<std::size_t>> disjoint_rounds(std::span<const rank_group> groups, int world_size);

} // namespace troupe
