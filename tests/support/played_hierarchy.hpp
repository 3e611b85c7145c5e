/// Plays the plans of all ranks of a world on vectors: what devices and communicators would do, without them.
#pragma once

#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::tests {

/// Memory of one rank, f64 throughout: what it sends, what it receives, which may overlap, and its scratch.
struct played_rank {
  std::vector<double> memory;
  std::size_t send_at = 0, send_count = 0;
  std::size_t recv_at = 0, recv_count = 0;
  std::size_t scratch_at = 0, scratch_count = 0;
};

/// One operation of a world, in ranks' memory as it is before and as it must be after.
struct played_case {
  std::vector<operation> asked; ///< Of each rank.
  std::vector<played_rank> before;
  std::vector<std::vector<double>> after; ///< Without scratch.
};

/// What there is to choose of a case. Of what does not apply nothing is used.
struct case_choice {
  std::size_t kind = 0; ///< Index in troupe::operation.
  std::size_t ranks = 1;
  std::size_t count = 0;
  std::size_t root = 0;
  reduction op = reduction::sum;
  bool in_place = false;
  std::vector<std::size_t> counts{}; ///< Of a v-form's parts.
  std::size_t gap = 0;               ///< Between a v-form's parts; they lie in descending order on odd ranks.
};

/// \p scratch_count elements of scratch for each rank.
[[nodiscard]] played_case make_case(const case_choice& choice, std::size_t scratch_count);

struct played_outcome {
  std::string fault{}; ///< Empty where memory is as it must be, and no rule of plans was broken.
  bool composed = false;
};

/// \p backwards: steps of a phase are done from the last to the first, which must make no difference.
[[nodiscard]] played_outcome play(const played_case& one, const node_map& nodes, const hierarchy_terms& terms,
                                  bool backwards = false);

} // namespace troupe::tests
