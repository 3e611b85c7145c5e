/// Defines the settings and credentials of a controller, and the events with which it reports the state of its world to
/// its owner.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/transport/transport_credentials.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Identifies a process to users and to the program that started it.
struct process_identity {
  /// The launcher's name for it ("0", "s1"), else the number of its place, else its host and process id.
  std::string name{};
  std::string host{};
  std::int64_t pid = 0;
  std::string gpu{}; ///< The GPU of its rank: the device's own name on that host; empty for a mock device.
  /// A random number that the process has drawn once. Containers may have one name, host and process id (1) after
  /// another, and the former one may still run on a machine that the network has cut off.
  std::uint64_t life = 0;
};
[[nodiscard]] std::string describe(const process_identity& who);

/// The configuration of a controller.
struct controller_terms {
  int world_size = 1; ///< Number of processes, one rank each.
  /// Losses of all processes while the world gathers are counted separately, and at least ten of them are allowed.
  recovery_terms recovery{.rebuilds = 10, .backoff = nanoseconds{0}};
  /// The token that a joining process must present. If it is empty (in simulations only), no token is required.
  std::string token{};
  nanoseconds heartbeat{std::chrono::milliseconds{250}};
  /// Silence after which a process counts as lost. Only time in which the controller itself was running counts. The end
  /// of a process is noticed immediately, by its connection or its launcher (docs/design/0050-failure-detection.md).
  nanoseconds suspicion{std::chrono::seconds{10}};
  /// How long a process may serve after it has asked for its lease, which it does with each heartbeat (MEM-1). 0: nine
  /// tenths of `suspicion`. It ends, with lease_bound(), within `suspicion`, so that a loss that nothing proves takes
  /// no longer than one that silence shows (docs/design/0115-leases.md).
  nanoseconds lease{0};
  nanoseconds gather{std::chrono::seconds{60}}; ///< Limit until all processes have joined, at first and after a loss.
  nanoseconds form{std::chrono::seconds{60}};
  nanoseconds drain{std::chrono::seconds{30}};
  /// Delay between a rank's own fault and the next epoch. If a process died and its peers first saw only a communicator
  /// error, its death is known by then.
  nanoseconds settle{std::chrono::milliseconds{50}};
  /// Delay from the first report of an unreachable peer until the forming is judged. The peer's own report arrives in
  /// that time (docs/design/0051-broken-links.md).
  nanoseconds judge{std::chrono::seconds{1}};
  nanoseconds link_retry{std::chrono::seconds{10}}; ///< Delay before a broken link is tried again; doubles each time.
  nanoseconds link_retry_most{std::chrono::minutes{10}}; ///< Upper limit of this delay.
  /// Maximum difference between the clock of a process's host and the controller's.
  nanoseconds clock_skew{std::chrono::seconds{60}};
  /// Whether another controller takes over when this one is lost. Each decision is then written down before it takes
  /// effect (control_effect::decide).
  bool has_successors = false;
};

[[nodiscard]] constexpr nanoseconds lease_length(const controller_terms& terms) noexcept {
  return terms.lease > nanoseconds{0} ? terms.lease : terms.suspicion - terms.suspicion / 10;
}
/// Returns how much longer than \p lease the controller waits, by its own clock: clocks that run apart by up to one per
/// cent are allowed for.
[[nodiscard]] constexpr nanoseconds lease_bound(nanoseconds lease) noexcept {
  return lease / 100;
}

/// The phase of a controller's world.
enum class control_phase : std::uint8_t {
  gathering, ///< Processes join for the first time.
  forming,   ///< The ranks of an epoch create their communicators.
  serving,
  quiescing,  ///< The epoch accepts no more requests, so that a larger epoch can form.
  rebuilding, ///< The next epoch is being prepared after a loss or a fault.
  finishing,  ///< Some processes have finished their work and left; the others may finish theirs.
  stopping,   ///< All processes have been asked to end.
  failed,
};

/// The state of a world as a controller reports it.
struct control_event {
  control_phase phase = control_phase::gathering;
  troupe::epoch epoch{};
  int ranks = 0;                      ///< Number of ranks in the epoch.
  int world_size = 0;                 ///< Configured number of ranks.
  int ring_ranks = 0;                 ///< Number of ranks whose requests arrive through shared memory.
  std::size_t spares = 0;             ///< Number of processes that stand by.
  std::vector<std::string> holders{}; ///< Names of the processes that are ranks of the epoch.
  error reason{}; ///< Why the world rebuilds or failed; in phase serving, why the previous epoch ended.
  std::optional<process_identity> lost{};       ///< The process whose loss caused the event.
  std::optional<nanoseconds> since_detection{}; ///< In phase serving after a fault: time since the fault was detected.
};
[[nodiscard]] std::string describe(const control_event& event);

} // namespace troupe
