/// The sizes that a bench measures.
#pragma once

#include <cstddef>
#include <vector>

namespace troupe::program {

/// The step between two sizes: a factor or, if `bytes` is not 0, a fixed number of bytes.
struct size_step {
  std::size_t factor = 4;
  std::size_t bytes = 0;
};

/// Returns the sizes from \p begin to \p end in bytes. \p begin is included; \p end is, if a step meets it.
/// Errors: invalid_argument (begin below 8 or above end, a step that does not increase, more than 4,096 sizes).
[[nodiscard]] std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step);

} // namespace troupe::program
