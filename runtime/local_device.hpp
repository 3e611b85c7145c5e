/// Which of the devices that a process sees is its own, when it holds one rank of a world over several processes.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

namespace troupe {

/// The device of the process at \p position, which sees \p device_count devices: the only one there is, since a
/// launcher may have given each process one (CUDA_VISIBLE_DEVICES), else the one that its local rank counts. Errors:
/// invalid_argument where the local rank counts past the last device, saying what to do.
[[nodiscard]] device_id choose_local_device(const process_position& position, int device_count);

} // namespace troupe
