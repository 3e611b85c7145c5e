/// The beginning of every program: opens devices, starts troupe's threads and its actor system, forms worlds.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/world.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace caf {
class actor_system;
}

namespace troupe {

class metrics_source;

/// What one world of a runtime has of its own.
struct world_options {
  /// Names the formation where the world spans processes: rank 0 makes it, every process passes it.
  std::optional<unique_id> id{};
  /// Instead of the runtime's.
  std::optional<completion_strategy> strategy{};
};

/// Owns everything that is not a world: driver, devices, pools, launchers, poller, helpers, and the actor system unless
/// it is a guest of yours.
/// Destroyed, it stops its worlds and then, in this order, launchers, poller, helpers and the actor system.
/// Actors that you have spawned in its system must have ended by then. Where it still lives when main() returns or
/// exit() is called, its worlds and threads end there in the same way, before any static object is destroyed: what is
/// pending then is answered, and what is destroyed later (a static runtime, buffers) is left to the operating system.
class runtime {
public:
  /// Errors: invalid_argument (a setting), missing, too_old (driver, library), each with its remedy.
  explicit runtime(configuration settings = configuration::from_environment());
  /// As a guest of \p host, which it neither owns nor ends: its actors live there, beside yours. What \p host is to be
  /// made with: prepare_host() (runtime/interop/host_system.hpp); what it lacks of that is logged.
  /// Lifetime: \p host outlives this; when this has ended, troupe's actors have, and \p host goes on.
  /// Errors: the other's, and invalid_argument (\p host lacks what a runtime cannot do without).
  explicit runtime(caf::actor_system& host, configuration settings = configuration::from_environment());
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Forms a world over the ranks that the configuration names, and returns when it is ready.
  /// Errors: invalid_argument (more ranks than devices, a missing id), device_occupied, communicator_failed,
  /// deadline_exceeded.
  [[nodiscard]] world form_world(const world_options& options = {});

  /// A name for a world that spans processes. It is a capability: pass it on in private, never log it (SEC-1).
  [[nodiscard]] unique_id make_unique_id();

  /// Writes down what every rank was asked for lately and what became of it, those under way included, for
  /// `troupe trace` (docs/operations/tracing.md). Into \p file, or a new one in report.folder, else in the working
  /// folder. Returns its path. Cheap enough to be called at any time, from any thread. Errors: invalid_argument (where
  /// it cannot be written).
  std::filesystem::path write_flight_record(const std::optional<std::filesystem::path>& file = {}) const;

  /// For actors of your own, which must end before the runtime.
  [[nodiscard]] caf::actor_system& system() noexcept;
  /// The settings in effect, checked.
  [[nodiscard]] const configuration& settings() const noexcept;
  /// The driver of its devices: CUDA's, or the mock's.
  [[nodiscard]] driver& api() noexcept;
  /// What moves the data.
  [[nodiscard]] troupe::backend& collectives() noexcept;
  /// What is counted of this runtime and its worlds, read anew at each read(). It may outlive the runtime: then there
  /// is nothing to be read. <troupe/runtime/metrics.hpp> makes metrics for Prometheus of it.
  [[nodiscard]] std::shared_ptr<const metrics_source> metrics() const noexcept;
  /// Where metrics are shown, as "127.0.0.1:9464"; empty where they are not (metrics.address).
  [[nodiscard]] std::string metrics_address() const;
  /// One line: driver, backend, versions, profile, strategy. Every measurement prints it.
  [[nodiscard]] std::string describe() const;

private:
  class parts;
  void begin(configuration settings, caf::actor_system* host);

  std::shared_ptr<parts> parts_;
};

} // namespace troupe
