/// How an operation on host memory becomes operations on device memory: which elements go where, without touching any.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace troupe {

/// The same at every rank of a world, in all its processes: the launches follow from it (ORD-1).
struct staging_limits {
  std::size_t chunk_bytes = std::size_t{4} << 20U; ///< Of the larger of a chunk's input and result.
  std::size_t slots = 3;                           ///< Chunks of input, and of results, on the device at once.
};

/// What is done about an operation's host memory.
enum class staging : std::uint8_t {
  none,   ///< It has none.
  chunks, ///< One launch for each chunk, at every rank.
  whole,  ///< One launch; only this rank knows.
  copy,   ///< A copy that the device cannot do by itself.
};

[[nodiscard]] staging staging_of(const operation& what);

/// Whether ranks must agree about it: an operation of no elements is launched once in any case.
[[nodiscard]] bool is_launched_in_chunks(const operation& what);

/// Elements of one operand that are to lie on the device, one piece behind the other.
struct staged_area {
  /// One range of it.
  struct piece {
    std::size_t offset_bytes = 0; ///< In \p memory.
    std::size_t size_bytes = 0;
  };

  buffer memory{}; ///< The client's.
  std::vector<piece> pieces{};
  std::size_t size_bytes = 0;
  bool written = false; ///< A result; else an input.
};

/// Gives the device memory for an area, of that size at least.
using staging_place = std::function<buffer(const staged_area&)>;

/// One operation, cut. Chunk c takes the same elements of every rank's part, so that it is the operation itself with a
/// smaller count. How many there are follows from what all ranks agree on: counts, dtype, world size, limits.
class staging_plan {
public:
  /// \p what has been validated, and is staged in chunks or whole.
  staging_plan(const operation& what, rank self, int world_size, const staging_limits& limits);

  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunk_count_; }
  /// One launch, of whatever size.
  [[nodiscard]] bool is_whole() const noexcept { return whole_; }
  /// The operation on chunk \p index, on device memory alone. \p place is asked for each host operand that the rank
  /// uses, and for those in device memory whose elements of this chunk do not lie together.
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
