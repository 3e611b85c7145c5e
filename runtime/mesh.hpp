/// A world split along the axes of a grid, as parallel training and inference want it: {dp: 2, tp: 4}.
#pragma once

#include <troupe/collectives/operation/mesh_shape.hpp>
#include <troupe/runtime/world.hpp>

#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// Worlds along each axis of a mesh. Copies share them.
///
/// Lifetime: as world::split()'s. Threads: safe from any.
class mesh {
public:
  /// Splits \p whole along every axis of \p shape, each in one split. Every process of the world does the same.
  /// Errors: invalid_argument (the mesh has not as many ranks as the world), and those of world::split().
  [[nodiscard]] static mesh form(world whole, mesh_shape shape);

  /// The grid.
  [[nodiscard]] const mesh_shape& shape() const noexcept { return shape_; }
  /// The world that was split.
  [[nodiscard]] const world& whole() const noexcept { return whole_; }

  /// The world along \p axis in which rank \p member of the whole is. There it has the rank rank_along().
  /// Errors: invalid_argument (no such axis or rank, or no rank of that world lives in this process).
  [[nodiscard]] world along(std::string_view axis, rank member) const;
  /// The rank that \p member of the whole has in along(axis, member). Errors: as there.
  [[nodiscard]] rank rank_along(std::string_view axis, rank member) const;

private:
  mesh(mesh_shape shape, world whole) : shape_{std::move(shape)}, whole_{std::move(whole)} {}

  mesh_shape shape_;
  world whole_;
  std::map<std::string, world> worlds_; ///< By the name of their group.
};

} // namespace troupe
