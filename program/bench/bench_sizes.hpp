/// Which sizes a bench goes through.
#pragma once

#include <cstddef>
#include <vector>

namespace troupe::program {

/// From one size to the next: by a factor, or by a fixed step where there is one.
struct size_step {
  std::size_t factor = 4;
  std::size_t bytes = 0;
};

/// From \p begin to \p end, both in bytes and included where the steps meet them.
/// Errors: invalid_argument (begin below 8 or above end, a step that does not go on, more than 4,096 sizes).
[[nodiscard]] std::vector<std::size_t> sizes_between(std::size_t begin, std::size_t end, size_step step);

} // namespace troupe::program
