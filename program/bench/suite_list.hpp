/// Which benches `troupe bench suite` runs, and how long each takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::program {

enum class suite_scale : std::uint8_t {
  full,  ///< On GPUs: sizes to 1 GiB, the benches' own numbers of blocks. Minutes.
  quick, ///< To 16 MiB, fewer blocks.
  tiny,  ///< To 256 KiB, two blocks: that everything works. What --quick is on the mock.
};

struct suite_bench {
  std::string name; ///< Of the bench: `troupe bench NAME`. Its files are called so, too.
  std::string what; ///< A sentence for people.
  std::vector<std::string> arguments{};
  bool takes_settings = true; ///< Every setting as an option; else only --backend.
};

/// In the order in which they run: first the one that knows soonest what devices there are.
[[nodiscard]] std::vector<suite_bench> suite_benches(suite_scale scale);

} // namespace troupe::program
