/// Seeds on the command line.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe::program {

struct seed_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0; ///< Itself among them.
};

/// "1..1000", or "17". Errors: invalid_argument.
[[nodiscard]] seed_range parse_seed_range(std::string_view text);

} // namespace troupe::program
