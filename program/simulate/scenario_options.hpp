/// The options of `troupe simulate` that determine a run of one seed, and the command that repeats it.
#pragma once

#include <troupe/testing/simulation/scenario.hpp>

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace troupe::program {

struct scenario_options {
  int ranks = 4;
  bool processes = false;
  bool changes = false;       ///< Its ranks change as planned.
  bool standby = false;       ///< A second controller stands by.
  int hosts = 0;              ///< Of a world over processes; 0: two processes on each.
  std::string faults = "all"; ///< Kinds, comma-separated; `all`, or `none`.
  // The numbers of those of the seed's requests and faults that are used, comma-separated; `all`, or `none`.
  std::string only_requests = "all";
  std::string only_faults = "all";
};

void add_scenario_options(CLI::App& command, scenario_options& options);

/// Returns the scenario of \p seed. Errors: invalid_argument (an option cannot be read).
[[nodiscard]] simulation::scenario scenario_of(const scenario_options& options, std::uint64_t seed);

/// Returns the options that leave only the requests and faults of \p few.
[[nodiscard]] scenario_options restricted_to(scenario_options options, const simulation::scenario& few);

/// Returns the command that runs \p seed with these options.
[[nodiscard]] std::string command_of(const scenario_options& options, std::uint64_t seed);

} // namespace troupe::program
