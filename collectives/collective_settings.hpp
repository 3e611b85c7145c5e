/// Settings for the ordering, fusion, staging and composition of requests.
#pragma once

#include <troupe/device/enum_names.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Limits of waiting requests.
struct sequencer_limits {
  /// Maximum number of requests of one rank in one world that wait for peers; further ones are refused as busy. The
  /// same limit applies to each lane. There, a withdrawn request counts until every peer has requested the operation,
  /// because it is remembered for these peers.
  std::size_t lead = 256;
  /// A request that has waited this long for peers is reported once, with the ranks that are late. 0: never.
  nanoseconds straggling{0};
};

/// Which operations may share a launch. Fusion changes how NCCL executes them, and thereby the rounding of
/// floating-point sums.
enum class fusion : std::uint8_t {
  off,   ///< No operation shares a launch.
  plans, ///< Only requests of a captured plan, which are fused in the same way in every run.
  free,  ///< Also requests released while the launchers are busy, which differ from run to run.
};

/// Returns the mode called \p name. Errors: invalid_argument, with the valid names.
[[nodiscard]] inline fusion parse_fusion(std::string_view name) {
  return parse_enum<fusion>("fusion mode", name);
}

/// Limits of fusion. They must be the same in all processes of a world, because launches depend on them.
/// (docs/design/0018-fusion.md)
struct fusion_limits {
  fusion mode = fusion::free;
  std::size_t max_operations = 64;               ///< Per launch; 1 has the effect of off.
  std::size_t max_bytes = std::size_t{4} << 20U; ///< Total per launch; its first operation ends only with its last.
  /// A larger operation gains nothing from fusion and is launched alone.
  std::size_t max_operation_bytes = std::size_t{256} << 10U;
};

/// Limits of staging. They must be the same at every rank of a world, in all its processes, because launches depend on
/// them (ORD-1).
struct staging_limits {
  std::size_t chunk_bytes = std::size_t{4} << 20U; ///< Maximum size of a chunk's input, and of its result.
  std::size_t slots = 3;                           ///< Input chunks, and result chunks, on the device at one time.
};

/// Which operations are composed of operations inside and between nodes (docs/hierarchy.md).
enum class hierarchy_mode : std::uint8_t {
  automatic, ///< Operations of at least min_bytes that gain by it, if at least two nodes have several ranks.
  always,    ///< All operations that can be composed, if there are at least two nodes and one has several ranks.
  never,
};
template <>
inline constexpr std::array<std::string_view, 3> enum_names<hierarchy_mode>{"auto", "always", "never"};
/// Returns the mode with this name. Errors: invalid_argument, which lists the choices.
[[nodiscard]] inline hierarchy_mode parse_hierarchy_mode(std::string_view name) {
  return parse_enum<hierarchy_mode>("hierarchy mode", name);
}

/// Parameters of composed operations. They must be the same in all processes of a world, so that all ranks compose the
/// same operations (ORD-1).
struct hierarchy_terms {
  hierarchy_mode mode = hierarchy_mode::automatic;
  /// Minimum size of an operation's longest buffer, in automatic mode.
  std::size_t min_bytes = std::size_t{1} << 20U;
  /// Memory of each rank's device for intermediate results. Larger data is processed in pieces.
  std::size_t scratch_bytes = std::size_t{8} << 20U;
};

/// The effect of a mock's collectives on memory.
enum class mock_results : std::uint8_t {
  computed, ///< The results of a real collective.
  none,     ///< No results: operations end without accessing memory, to measure the code around them.
};

/// Returns the setting with this name. Errors: invalid_argument, which lists the choices.
[[nodiscard]] inline mock_results parse_mock_results(std::string_view name) {
  return parse_enum<mock_results>("kind of mock results", name);
}

} // namespace troupe
