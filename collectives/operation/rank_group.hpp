/// Named subsets of a world's ranks, used to split a world into sub-worlds, and grids of ranks with named axes, which
/// yield such subsets.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
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

/// A named axis and its number of ranks.
struct mesh_axis {
  std::string name;
  int size = 1;
};

/// A grid of ranks with named axes. Ranks fill it in row-major order, as in the meshes of other systems: ranks along
/// the last axis are neighbours.
class mesh_shape {
public:
  /// Errors: invalid_argument (no axes, a size below 1, an empty or repeated name, too many ranks).
  explicit mesh_shape(std::vector<mesh_axis> axes);

  [[nodiscard]] const std::vector<mesh_axis>& axes() const noexcept { return axes_; }
  /// Returns the number of ranks in the grid.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Converts between a rank and its coordinates, one per axis. Errors: invalid_argument (outside the grid).
  [[nodiscard]] std::vector<int> coordinates_of(rank one) const;
  [[nodiscard]] rank rank_at(std::span<const int> coordinates) const;

  /// Returns the groups of ranks that differ only along the axes \p names, one group for each position on the other
  /// axes. With {dp: 2, tp: 2}, the groups along tp are "tp[dp=0]" and "tp[dp=1]". Each rank is in exactly one group.
  /// Members are in rank order. Errors: invalid_argument (an axis that the mesh does not have, or an axis named twice).
  [[nodiscard]] std::vector<rank_group> groups_along(std::span<const std::string> names) const;
  /// Returns the name of the group that contains \p one.
  [[nodiscard]] std::string group_name(std::span<const std::string> names, rank one) const;

private:
  [[nodiscard]] std::vector<bool> chosen(std::span<const std::string> names) const;

  std::vector<mesh_axis> axes_;
  int size_ = 1;
};

/// Returns text of the form "{dp: 2, tp: 4}".
[[nodiscard]] std::string to_string(const mesh_shape& shape);

} // namespace troupe
