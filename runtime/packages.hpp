/// What the packages beside the core add to a runtime: worlds over processes, and the optional backends. Internal.
///
/// A program has a package if it is linked with the package's target. The functions below are weak: without the package
/// their address is null. The package's target names its function to the linker (-u), which then takes the package out
/// of a static library; there is no registration at run time.
#pragma once

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/membership.hpp>
#include <troupe/runtime/placement/backend_selection.hpp>

#include <memory>
#include <string_view>

namespace troupe {

/// What a process needs to join its controller's world.
struct membership_terms {
  const configuration& settings;
  const selected_backend& selected;
  device_id where; ///< The process's device.
  std::shared_ptr<deadline_pool> helpers;
  std::shared_ptr<const clock> time;
  wait_profile wait; ///< Of the thread that receives the decisions about this rank's requests.
  /// Called once, when the controller has admitted the process as a spare. Never blocks.
  std::function<void()> stands_by;
};

/// Worlds over processes.
struct processes_package {
  /// Errors: those of controlled_membership.
  std::shared_ptr<membership> (*join)(const membership_terms& terms);
  /// Connects mock ranks in several processes.
  mock_rendezvous_maker connect_mocks;
  /// Returns where the ranks of communicators with one-shot kernels meet if they are in several processes.
  std::shared_ptr<one_shot_meeting_place> (*make_meetings)(const configuration& settings);
};

/// Gloo, and operations composed over nodes.
struct backends_package {
  selected_backend (*select_gloo)(const configuration& settings);
  /// Replaces the backend by one that composes operations over several nodes, if the settings want that.
  void (*compose_over_nodes)(selected_backend& selected, const configuration& settings);
};

/// Returns the package. Errors: unsupported, if \p what needs it and the program is linked without it.
[[nodiscard]] const processes_package& need_processes_package(std::string_view what);
[[nodiscard]] const backends_package& need_backends_package(std::string_view what);
/// Returns the package, or null if the program is linked without it.
[[nodiscard]] const backends_package* find_backends_package() noexcept;

} // namespace troupe

extern "C" {
[[gnu::weak]] const troupe::processes_package* troupe_processes_package() noexcept;
[[gnu::weak]] const troupe::backends_package* troupe_backends_package() noexcept;
}
