/// Settings that decide when operations are composed of operations inside nodes and across nodes.
#pragma once

#include <troupe/collectives/backend/hierarchy/node_map.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Whether operations are composed.
enum class hierarchy_mode : std::uint8_t {
  automatic, ///< If at least two nodes have several ranks: operations that gain by it, from min_bytes on.
  always,    ///< If there are at least two nodes and one has several ranks: every operation that can be composed.
  never,
};
[[nodiscard]] std::string_view to_string(hierarchy_mode mode) noexcept;
/// Returns the mode with this name. Errors: invalid_argument, which lists the choices.
[[nodiscard]] hierarchy_mode parse_hierarchy_mode(std::string_view name);

/// The same in all processes of a world: all ranks must choose alike (ORD-1).
struct hierarchy_terms {
  hierarchy_mode mode = hierarchy_mode::automatic;
  /// Minimum size of an operation's longest buffer, in automatic mode.
  std::size_t min_bytes = std::size_t{1} << 20U;
  /// Memory of each rank's device for intermediate results. Larger data is processed in pieces.
  std::size_t scratch_bytes = std::size_t{8} << 20U;
};

/// Returns whether a world with these nodes has anything to compose.
[[nodiscard]] bool has_hierarchy(const node_map& nodes, const hierarchy_terms& terms) noexcept;

} // namespace troupe
