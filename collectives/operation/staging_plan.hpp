/// Translates an operation on host memory to operations on device memory. Computes which elements go where, without
/// accessing any.
#pragma once

#include <troupe/collectives/collective_settings.hpp>
#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace troupe {

/// Determines how an operation's host memory is staged.
enum class staging : std::uint8_t {
  none, ///< No host memory, or the device can access it (copy of pinned memory), or a function gets it as it is (call).
  chunks, ///< One launch for each chunk, on all ranks.
  whole,  ///< One launch. Other ranks need not stage theirs.
  copy,   ///< A copy that the device cannot execute by itself: of pageable memory, or from host to host.
};

[[nodiscard]] staging staging_of(const operation& what);

/// Returns whether ranks must agree on the staging of \p what. An operation without elements is launched once in any
/// case.
[[nodiscard]] bool is_launched_in_chunks(const operation& what);

/// Elements of one operand that are to be placed in device memory, one piece after the other.
struct staged_area {
  /// One range of the area.
  struct piece {
    std::size_t offset_bytes = 0; ///< Offset in `memory`.
    std::size_t size_bytes = 0;
  };

  buffer memory{}; ///< The client's buffer.
  std::vector<piece> pieces{};
  std::size_t size_bytes = 0;
  bool written = false; ///< True for a result, false for an input.
};

/// Returns device memory for an area, of at least its size.
using staging_place = std::function<buffer(const staged_area&)>;

/// The chunks of one operation. Chunk c takes the same elements of every rank's part, so it is the same operation with
/// a smaller count. The number of chunks depends only on what all ranks agree on: counts, dtype, world size, limits.
class staging_plan {
public:
  /// \p what must be validated, and staged in chunks or whole.
  staging_plan(const operation& what, rank self, int world_size, const staging_limits& limits);

  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunk_count_; }
  /// Returns whether the plan is a single launch, of any size.
  [[nodiscard]] bool is_whole() const noexcept { return whole_; }
  /// Returns the operation on chunk \p index, on device memory only. \p place is called for each host operand that the
  /// rank uses, and for each device operand whose elements of this chunk are not contiguous.
  [[nodiscard]] operation chunk(std::size_t index, const staging_place& place) const;

private:
  operation what_;
  rank self_;
  int world_size_;
  bool whole_ = false;
  std::size_t step_ = 0; ///< Elements of each rank's part in a chunk.
  std::size_t chunk_count_ = 1;
};

} // namespace troupe
