/// Counts what happened to requests marked retry_safe in faults.
#pragma once

#include <cstdint>

namespace troupe {

/// Operations of one world since it was formed. Each counts once, however many ranks ask for it.
struct retry_counts {
  std::uint64_t put_aside = 0; ///< Interrupted by a fault, and kept instead of answered.
  std::uint64_t run_again = 0; ///< Run in a later epoch. One operation can be run again several times.
  std::uint64_t given_up = 0;  ///< Kept, but finally answered with their fault or rejected.

  friend bool operator==(const retry_counts&, const retry_counts&) = default;
};

} // namespace troupe
