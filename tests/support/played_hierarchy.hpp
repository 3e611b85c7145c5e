/// Executes the hierarchy plans of all ranks of a world on vectors, without devices and communicators.
#pragma once

#include <troupe/backends/hierarchy/hierarchy_plan.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::tests {

/// The memory of one rank, in f64 elements: the send range and the receive range, which may overlap, and the scratch.
struct played_rank {
  std::vector<double> memory;
  std::size_t send_at = 0, send_count = 0;
  std::size_t recv_at = 0, recv_count = 0;
  std::size_t scratch_at = 0, scratch_count = 0;
};

/// One operation of a world, with the ranks' memory before it and the expected memory after it.
struct played_case {
  std::vector<operation> asked; ///< Indexed by rank.
  std::vector<played_rank> before;
  std::vector<std::vector<double>> after; ///< The expected memory of each rank, without scratch.
};

/// The parameters of a case. Parameters that do not apply to its operation are ignored.
struct case_choice {
  std::size_t kind = 0; ///< Index in troupe::operation.
  std::size_t ranks = 1;
  std::size_t count = 0;
  std::size_t root = 0;
  reduction op = reduction::sum;
  bool in_place = false;
  std::vector<std::size_t> counts{}; ///< The counts of a v-form's parts.
  std::size_t gap = 0;               ///< Elements between a v-form's parts, which odd ranks lay out in reverse order.
};

/// Makes a case with \p scratch_count elements of scratch for each rank.
[[nodiscard]] played_case make_case(const case_choice& choice, std::size_t scratch_count);

struct played_outcome {
  std::string fault{}; ///< Empty if the memory is as expected and no rule of plans was broken.
  bool composed = false;
};

/// Executes the plans of \p one. If \p backwards is true, the steps of a phase run in reverse order, which must make no
/// difference.
[[nodiscard]] played_outcome play(const played_case& one, const node_map& nodes, const hierarchy_terms& terms,
                                  bool backwards = false);

} // namespace troupe::tests
