/// A world's ranks as a grid with named axes: {dp: 2, tp: 4}.
#pragma once

#include <troupe/collectives/operation/rank_group.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A named axis and how many ranks lie along it.
struct mesh_axis {
  std::string name;
  int size = 1;
};

/// Ranks fill the grid in row-major order: along the last axis they are neighbours, as in other systems' meshes.
class mesh_shape {
public:
  /// Errors: invalid_argument (no axes, a size below 1, a name that is empty or given twice, too many ranks).
  explicit mesh_shape(std::vector<mesh_axis> axes);

  [[nodiscard]] const std::vector<mesh_axis>& axes() const noexcept { return axes_; }
  /// Ranks in the grid.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// One per axis. Errors: invalid_argument (outside the grid), here and below.
  [[nodiscard]] std::vector<int> coordinates_of(rank one) const;
  [[nodiscard]] rank rank_at(std::span<const int> coordinates) const;

  /// The groups of ranks that differ only along \p names, for every place on the other axes: with {dp: 2, tp: 2},
  /// along tp these are "tp[dp=0]" and "tp[dp=1]". Each rank is in exactly one. Members are in the order of ranks.
  /// Errors: invalid_argument (an axis that the mesh does not have, or one named twice).
  [[nodiscard]] std::vector<rank_group> groups_along(std::span<const std::string> names) const;
  /// The name of that group in which \p one is.
  [[nodiscard]] std::string group_name(std::span<const std::string> names, rank one) const;

private:
  [[nodiscard]] std::vector<bool> chosen(std::span<const std::string> names) const;

  std::vector<mesh_axis> axes_;
  int size_ = 1;
};

/// "{dp: 2, tp: 4}".
[[nodiscard]] std::string to_string(const mesh_shape& shape);

} // namespace troupe
