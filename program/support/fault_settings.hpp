/// The settings of a world in which faults are raised: those asked for, and where nothing was said, such as show a
/// recovery rather than a wait.
#pragma once

#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/world.hpp>

#include <memory>

namespace troupe::program {

/// Under keep_size with a budget that does not end; an operation hangs after 100 ms (\p hangs_soon), a forming after
/// 3 s. Errors: invalid_argument (a policy under which no world comes back).
[[nodiscard]] configuration fault_settings(const gathered_settings& asked, std::shared_ptr<fault_injector> faults,
                                           bool hangs_soon = true);

/// Errors: invalid_argument, where \p where has nothing that could go wrong: worlds of one rank have no communicator.
void require_peers(const world& where);

/// Runs the operations of fault_traffic once in a patient world of its own: the first launch of an NCCL kernel loads
/// it, which may take longer than an operation may then.
void load_kernels(const gathered_settings& asked);

} // namespace troupe::program
