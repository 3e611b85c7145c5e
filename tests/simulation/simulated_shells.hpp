/// A simulated world with its real actors: each has its turns from the seed, between those of troupe's threads and in
/// their time. What only CAF can lose is lost here: actors that are killed, messages they had, handles let go of.
#pragma once

#include <troupe/testing/simulation/simulation.hpp>

#include <vector>

namespace troupe::tests {

/// All kinds of faults, and those that only actors have.
[[nodiscard]] std::vector<simulation::fault_kind> shell_fault_kinds();

/// As simulation::simulate().
[[nodiscard]] simulation::simulation_result simulate_shells(const simulation::scenario& what, bool with_trace = false);

} // namespace troupe::tests
