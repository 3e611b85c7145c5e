/// The benches that `troupe bench suite` runs, and their scale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::program {

enum class suite_scale : std::uint8_t {
  full,  ///< For GPUs: sizes up to 1 GiB and each bench's default number of blocks. Takes minutes.
  quick, ///< Sizes up to 16 MiB, fewer blocks.
  tiny,  ///< Sizes up to 256 KiB, two blocks: a test that everything works. --quick selects it on the mock.
};

struct suite_bench {
  std::string name; ///< The bench: `troupe bench NAME`. Its files have this name too.
  std::string what; ///< One sentence for people.
  std::vector<std::string> arguments{};
  bool takes_settings = true; ///< If true, every setting is passed as an option; otherwise only --backend.
};

/// Returns the benches in the order in which they run. The first one is the one that finds out the devices soonest.
[[nodiscard]] std::vector<suite_bench> suite_benches(suite_scale scale);

} // namespace troupe::program
