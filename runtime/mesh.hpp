/// Splits a world along the axes of a grid, as parallel training and inference need it: {dp: 2, tp: 4}.
#pragma once

#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/runtime/world.hpp>

#include <string_view>
#include <vector>

namespace troupe {

/// The sub-worlds along each axis of a mesh. Copies share them.
///
/// Lifetime: that of the worlds of world::split(). Threads: safe from any.
class mesh {
public:
  /// Splits \p whole along every axis of \p shape. Every process of the world makes the same call. Errors:
  /// invalid_argument (the mesh and the world differ in their number of ranks), and those of world::split().
  [[nodiscard]] static mesh form(world whole, mesh_shape shape);

  /// Returns the grid.
  [[nodiscard]] const mesh_shape& shape() const noexcept { return shape_; }
  /// Returns the world that was split.
  [[nodiscard]] const world& whole() const noexcept { return whole_; }

  /// Returns the world along \p axis that contains rank \p member of whole(). In that world \p member has the rank that
  /// rank_along() returns. Errors: invalid_argument (no such axis or rank, or no rank of that world is in this
  /// process).
  [[nodiscard]] world along(std::string_view axis, rank member) const;
  /// Returns the rank that \p member of whole() has in along(axis, member). Errors: invalid_argument (no such axis or
  /// rank).
  [[nodiscard]] rank rank_along(std::string_view axis, rank member) const;

private:
  mesh(mesh_shape shape, world whole) : shape_{std::move(shape)}, whole_{std::move(whole)} {}

  mesh_shape shape_;
  world whole_;
  std::vector<split_world> worlds_; ///< Those with ranks in this process.
};

} // namespace troupe
