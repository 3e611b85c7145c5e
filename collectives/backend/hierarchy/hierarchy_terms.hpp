/// When operations are composed of a node's and of the nodes' own.
#pragma once

#include <troupe/collectives/backend/hierarchy/node_map.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Whether operations are composed.
enum class hierarchy_mode : std::uint8_t {
  automatic, ///< Where two nodes or more have several ranks, operations from min_bytes on that gain by it.
  always,    ///< Whatever can be composed, where there are two nodes or more and one of them has several ranks.
  never,
};
[[nodiscard]] std::string_view to_string(hierarchy_mode mode) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] hierarchy_mode parse_hierarchy_mode(std::string_view name);

/// The same in all processes of a world: all ranks must choose alike (ORD-1).
struct hierarchy_terms {
  hierarchy_mode mode = hierarchy_mode::automatic;
  /// Of an operation's longest buffer, in automatic mode.
  std::size_t min_bytes = std::size_t{1} << 20U;
  /// Of each rank's device, for what one step leaves to the next. What is larger goes through it in pieces.
  std::size_t scratch_bytes = std::size_t{8} << 20U;
};

/// Whether a world with these nodes has anything to compose.
[[nodiscard]] bool has_hierarchy(const node_map& nodes, const hierarchy_terms& terms) noexcept;

} // namespace troupe
