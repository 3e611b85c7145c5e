/// Selects the driver, the communicator backend and the device from a configuration and a process's position.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/device/driver.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace troupe {

/// The driver and the backend of a runtime.
struct selected_backend {
  std::shared_ptr<driver> api;
  std::shared_ptr<backend> collectives;
  std::shared_ptr<backend> library{}; ///< What it passes large collectives to; the same backend if nothing is between.
  std::string why;                    ///< The reason for the choice: one line for the log.
  /// The strategy that `auto` means; automatic: the device decides.
  completion_strategy by_default = completion_strategy::automatic;
  /// Notes the host of each rank of a formation. Empty: no operation is composed over nodes.
  std::function<void(const unique_id& formation, std::span<const std::string> hosts)> note_hosts{};
  /// Is to be told which formations over processes are on one node (note_node()). Null: no one-shot kernels are wanted
  /// in worlds over processes.
  std::shared_ptr<one_shot_meeting_place> meetings{};
};

/// Returns the driver and the backend for \p settings. `automatic` selects the mock only if the machine has no GPU. A
/// GPU that cannot be used is an error, so that a broken installation is not mistaken for a test. Errors: those of the
/// selected driver and library.
[[nodiscard]] selected_backend select_backend(const configuration& settings);

/// Returns the mock devices that the settings describe.
[[nodiscard]] std::shared_ptr<driver> make_mock_devices(const configuration& settings);

/// Returns the device of the process at \p position, which sees \p device_count devices: the only one if there is one,
/// since a launcher may restrict each process to one device (CUDA_VISIBLE_DEVICES), else the one whose index is the
/// local rank. Errors: invalid_argument, with the remedy, if the local rank is beyond the last device.
[[nodiscard]] device_id choose_local_device(const process_position& position, int device_count);

} // namespace troupe
