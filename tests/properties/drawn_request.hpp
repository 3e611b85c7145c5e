/// Requests of any mix and shape, drawn for all ranks of a world, with the memory that they must leave.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <vector>

namespace troupe::tests {

/// One part of a group as all ranks see it: a collective, or a transfer from root to another rank.
struct drawn_part {
  std::size_t kind = 0; ///< Index in troupe::operation; a send's stands for the transfer.
  dtype type{};
  reduction op{};
  std::size_t count = 0;
  int root = 0;
  int to = 0; ///< Of a transfer.
  int tag = 0;
  bool in_place = false;
  std::vector<std::size_t> counts; ///< Of the v-forms: one for each rank, or for each pair of ranks.
};

/// Up to \p most parts for \p world_size ranks (at most 4, so that all results are exact in every dtype).
[[nodiscard]] std::vector<drawn_part> draw_parts(int world_size, int most);

/// What every rank is asked, its memory before, and what must be there afterwards.
struct drawn_request {
  std::vector<operation> asked;
  std::vector<std::vector<std::byte>> before;
  std::vector<std::vector<std::byte>> after;
};

/// The size of memory that is enough for any parts of draw_parts(…, 6).
inline constexpr std::size_t arena_bytes = 32768;

/// Lays the parts out in \p arenas, one buffer of arena_bytes on each rank's device, with guards between them. One
/// part alone is asked for without a group where \p bare.
[[nodiscard]] drawn_request lay_out(const std::vector<drawn_part>& parts, const std::vector<buffer>& arenas, bool bare);

/// Changes one field of one rank's part, or leaves the part out, such that the ranks no longer agree. False where
/// \p asked has nothing to change.
[[nodiscard]] bool plant_mismatch(std::vector<operation>& asked);

} // namespace troupe::tests
