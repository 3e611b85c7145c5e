/// The beginning of every program: opens devices, starts troupe's threads and its actor system, forms worlds.
#pragma once

#include <troupe/collectives/communicator.hpp>
#include <troupe/runtime/configuration.hpp>
#include <troupe/runtime/world.hpp>

#include <memory>
#include <optional>
#include <string>

namespace caf {
class actor_system;
}

namespace troupe {

/// What one world of a runtime has of its own.
struct world_options {
  /// Names the formation where the world spans processes: rank 0 makes it, every process passes it.
  std::optional<unique_id> id{};
  /// Instead of the runtime's.
  std::optional<completion_strategy> strategy{};
};

/// Owns everything that is not a world: driver, devices, pools, launchers, poller, helpers, actor system.
/// Destroyed, it stops its worlds and then, in this order, launchers, poller, helpers and the actor system.
/// Actors that you have spawned in its system must have ended by then. Where it still lives when main() returns or
/// exit() is called, its worlds and threads end there in the same way, before any static object is destroyed: what is
/// pending then is answered, and what is destroyed later (a static runtime, buffers) is left to the operating system.
class runtime {
public:
  /// Errors: invalid_argument (a setting), missing, too_old (driver, library), each with its remedy.
  explicit runtime(configuration settings = configuration::from_environment());
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Forms a world over the ranks that the configuration names, and returns when it is ready.
  /// Errors: invalid_argument (more ranks than devices, a missing id), device_occupied, communicator_failed,
  /// deadline_exceeded.
  [[nodiscard]] world form_world(const world_options& options = {});

  /// A name for a world that spans processes. It is a capability: pass it on in private, never log it (SEC-1).
  [[nodiscard]] unique_id make_unique_id();

  [[nodiscard]] caf::actor_system& system() noexcept;
  [[nodiscard]] const configuration& settings() const noexcept;
  [[nodiscard]] driver& api() noexcept;
  [[nodiscard]] troupe::backend& collectives() noexcept;
  /// One line: driver, backend, versions, profile, strategy. Every measurement prints it.
  [[nodiscard]] std::string describe() const;

private:
  class parts;
  std::shared_ptr<parts> parts_;
};

} // namespace troupe
