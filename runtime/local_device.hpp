/// Selects the device of a process that holds one rank of a world over several processes.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

namespace troupe {

/// Returns the device of the process at \p position, which sees \p device_count devices: the only one if there is one,
/// since a launcher may restrict each process to one device (CUDA_VISIBLE_DEVICES), else the one whose index is the
/// local rank. Errors: invalid_argument, with the remedy, if the local rank is beyond the last device.
[[nodiscard]] device_id choose_local_device(const process_position& position, int device_count);

} // namespace troupe
