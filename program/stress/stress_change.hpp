/// Adds `troupe stress change`.
#pragma once

#include <troupe/program/commands.hpp>

namespace troupe::program {

/// Adds the subcommand to \p stress.
void add_stress_change(CLI::App& stress, action& chosen);

} // namespace troupe::program
