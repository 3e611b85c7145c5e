/// The settings of a world in which faults are raised: those that were given, and for the others values under which a
/// recovery is seen soon.
#pragma once

#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/world.hpp>

#include <memory>

namespace troupe::program {

/// Returns settings with the policy keep_size and an unlimited restart budget. An operation counts as hung after 100 ms
/// (\p hangs_soon), forming after 3 s. Errors: invalid_argument (a policy under which no world comes back).
[[nodiscard]] configuration fault_settings(const gathered_settings& asked, std::shared_ptr<fault_injector> faults,
                                           bool hangs_soon = true);

/// Errors: invalid_argument, if \p where has one rank and so no communicator in which faults could be raised.
void require_peers(const world& where);

/// Runs the operations of fault_traffic once in a separate world with long deadlines. The first launch of an NCCL
/// kernel loads it, which may take longer than the deadline of an operation in the world under test.
void load_kernels(const gathered_settings& asked);

} // namespace troupe::program
