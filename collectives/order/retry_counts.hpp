/// How often requests marked retry_safe outlived a fault.
#pragma once

#include <cstdint>

namespace troupe {

/// Operations of one world since it was formed; each counts as one, however many ranks ask for it.
struct retry_counts {
  std::uint64_t put_aside = 0; ///< Lost in a fault, and not answered with it.
  std::uint64_t run_again = 0; ///< Of those: asked for anew in a later epoch. One may come to this several times.
  std::uint64_t given_up = 0;  ///< Of those: answered with their fault, or rejected, after all.

  friend bool operator==(const retry_counts&, const retry_counts&) = default;
};

} // namespace troupe
