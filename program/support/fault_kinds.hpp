/// Defines the kinds of faults that a program can raise in a running world of its own process.
#pragma once

#include <troupe/program/support/fault_kernels.hpp>

#include <troupe/runtime/world.hpp>
#include <troupe/testing/fault_script.hpp>

#include <future>
#include <span>
#include <string>
#include <string_view>

namespace troupe::program {

/// The environment in which a fault is raised.
struct fault_scene {
  world where;
  testing::fault_script& faults;         ///< The script of the world's runtime.
  rank target;                           ///< The rank at which the fault is raised.
  nanoseconds slow_abort_takes;          ///< The delay of an abort.
  nanoseconds spin_takes;                ///< Duration of work that occupies a device.
  const fault_kernels_of_world& kernels; ///< The fault kernels of the world's devices.
};

/// The consequence of a fault.
enum class fault_consequence : std::uint8_t {
  stays_ready, ///< The world's epoch continues.
  next_epoch,  ///< The world loses its communicators and forms again.
  world_ends,  ///< No world of the process can serve any more.
};

/// A fault that has been raised. Clients must send collectives meanwhile, because most faults wait for the next launch.
struct raised_fault {
  std::future<time_point> happened;
  std::future<completion>
      request{}; ///< Valid if the fault is in a request of its own, which must be answered like all others.
  std::shared_ptr<void> held{}; ///< Keeps the fault's resources alive until the fault has ended.
};

/// A kind of fault.
struct fault_kind {
  std::string_view name; ///< The name on the command line.
  std::string_view what; ///< The description for users.
  /// Raises the fault. Errors: internal, if the call that was to fail succeeded.
  raised_fault (*raise)(const fault_scene& scene);
  fault_consequence leads_to = fault_consequence::next_epoch;
  bool needs_peers = true; ///< Needs communicators, which a world of a single rank lacks.
};

/// Returns the kinds in the order in which they are documented.
[[nodiscard]] std::span<const fault_kind> all_fault_kinds() noexcept;
/// Returns the kind with this name. Errors: invalid_argument, whose text names the valid values.
[[nodiscard]] const fault_kind& find_fault_kind(std::string_view name);
/// Returns all names as text: "withheld, refused, …".
[[nodiscard]] std::string fault_kind_names();

} // namespace troupe::program
