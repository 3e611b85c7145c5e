/// The settings of how requests are ordered, fused, staged and composed.
#pragma once

#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// Limits of waiting requests.
struct sequencer_limits {
  /// Limit of one rank's requests in one world that wait for its peers; one more is refused as busy. The limit of each
  /// lane includes withdrawn requests that some peer has not asked for, because they are remembered for that peer.
  std::size_t lead = 256;
  /// A request that has waited this long for peers is reported as straggling, once. 0: never.
  nanoseconds straggling{0};
};

/// Which operations may share a launch. Fusion changes how NCCL works, and so how sums of floats are rounded.
enum class fusion : std::uint8_t {
  off,   ///< No operations.
  plans, ///< Only the requests of a captured plan: the same in every run.
  free,  ///< Also requests released while the launchers were busy: differs from run to run.
};

[[nodiscard]] std::string_view to_string(fusion mode) noexcept;
/// Returns the mode called \p name. Errors: invalid_argument, with the valid names.
[[nodiscard]] fusion parse_fusion(std::string_view name);

/// Limits of fusion. They must be the same in all processes of a world, because launches depend on them.
/// (docs/design/0018-fusion.md)
struct fusion_limits {
  fusion mode = fusion::free;
  std::size_t max_operations = 64;               ///< Per launch; 1 has the effect of off.
  std::size_t max_bytes = std::size_t{4} << 20U; ///< Total per launch: its first operation waits for its last.
  /// A larger operation gains nothing and is launched alone.
  std::size_t max_operation_bytes = std::size_t{256} << 10U;
};

/// Limits of staging. They must be the same at every rank of a world, in all its processes, because launches depend on
/// them (ORD-1).
struct staging_limits {
  std::size_t chunk_bytes = std::size_t{4} << 20U; ///< Size limit of the larger one of a chunk's input and result.
  std::size_t slots = 3;                           ///< Chunks of input, and of results, on the device at one time.
};

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

/// The effect of a mock's collectives on memory.
enum class mock_results : std::uint8_t {
  computed, ///< The results of a real collective.
  none,     ///< None: operations meet and end without accessing memory, to measure the code around them.
};

[[nodiscard]] std::string_view to_string(mock_results results) noexcept;
/// Returns the setting with this name. Errors: invalid_argument, which lists the choices.
[[nodiscard]] mock_results parse_mock_results(std::string_view name);

} // namespace troupe
