/// Defines the entry point of every program. It opens devices, starts troupe's threads and actor system, and forms
/// worlds.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/world.hpp>

#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace caf {
class actor_system;
}

namespace troupe {

class backend;
class metrics_source;

/// Options of one world of a runtime.
struct world_options {
  /// The devices of a world that is in this process alone: rank i is on the i-th. Empty: as many as the setting
  /// `ranks`, from device 0. A device may be in several worlds of a runtime, which then have one order of launches, and
  /// a fault of the device is a fault of each. Worlds on disjoint devices, for example of a trainer and of its
  /// rollouts, fail and recover each by itself.
  std::vector<device_id> devices{};
  /// Identifies the formation if the world spans processes without a controller: rank 0 makes the id, and every process
  /// passes it.
  std::optional<unique_id> id{};
  /// Overrides the runtime's strategy for the detection of completions.
  std::optional<completion_strategy> strategy{};
  /// If a stop is requested before form_world() returns, the forming ends, and form_world() throws stopping. Without
  /// one, forming ends when the world is ready, has failed, or deadlines.form has passed.
  std::stop_token stop{};
};

/// Owns everything that is shared by worlds: driver, devices, pools, launchers, poller, helpers, and the actor system
/// unless the caller provides it.
///
/// Lifetime: the destructor stops the worlds and then, in this order, launchers, poller, helpers and the actor system.
/// Actors that you have spawned in its system must have ended by then: it waits for them at most deadlines.drain. Any
/// thread may destroy it. In a function that troupe calls (on_event(), a rank's function) the destructor returns at
/// once, and the end follows on another thread. On CAF 0.17, end a thread that has spawned an actor in the system, or
/// has a scoped_actor there, before another thread destroys the runtime: CAF's own end waits for it. If the runtime
/// still exists when main() returns or exit() is called, its worlds and threads end there in the same way, before any
/// static object is destroyed: pending requests are answered. Objects that are destroyed later (a static runtime,
/// buffers) are left to the operating system.
class runtime {
public:
  /// Opens the backend and starts the threads. Errors, each with its remedy: invalid_argument (a setting), missing,
  /// too_old (driver, library).
  explicit runtime(configuration settings = configuration::from_environment());
  /// Does the same with \p host, an actor system that it neither owns nor ends and in which troupe's actors live beside
  /// yours. Prepare its configuration with prepare_host() (runtime/interop/host_system.hpp). Recommended settings that
  /// \p host lacks are logged. Lifetime: \p host outlives the runtime. When the runtime has ended, troupe's actors have
  /// ended, and \p host continues. Errors: those of the other constructor, and invalid_argument (\p host lacks
  /// something that a runtime requires).
  explicit runtime(caf::actor_system& host, configuration settings = configuration::from_environment());
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// Forms a world over the ranks that the configuration or \p options name. Returns when it is ready. Errors:
  /// invalid_argument (more ranks than devices, a missing id; a device that does not exist or is named twice),
  /// device_occupied (by another runtime of this process, or a world of another one), communicator_failed,
  /// deadline_exceeded, stopping (a stop is requested; or the runtime is being destroyed: its destructor waits until
  /// this call returns).
  [[nodiscard]] world form_world(const world_options& options = {});
  /// Does the same on a thread of its own. If the future is dropped meanwhile, so is the world. The destructor waits
  /// for it as for form_world(). Errors: also std::system_error (no thread can be started).
  [[nodiscard]] std::future<world> form_world_async(world_options options = {});

  /// Returns an id for a world that spans processes. It is a capability: pass it on in private, and never log it
  /// (SEC-1).
  [[nodiscard]] unique_id make_unique_id();

  /// Returns the device memory that the pools of all devices keep unused, and the pinned memory that is kept for later
  /// allocations; also the number of their bytes. Waits for all work of all devices (page-locked memory cannot be
  /// released otherwise), so prefer world::release_unused() while requests are in flight. Errors: those of a device.
  std::size_t release_unused();

  /// Writes the latest requests of every rank and their outcomes, including those in flight, for `troupe trace`
  /// (docs/operations/tracing.md). The file is \p file, else a new one in report.folder, else a new one in the working
  /// folder. Returns its path. Cheap enough to be called at any time. Threads: any. Errors: invalid_argument (the file
  /// cannot be written).
  std::string write_flight_record(const std::optional<std::string>& file = {}) const; // NOLINT(modernize-use-nodiscard)

  /// Returns the actor system, for actors of your own. They must end before the runtime.
  [[nodiscard]] caf::actor_system& system() noexcept;
  /// Returns the settings in effect. They have been checked.
  [[nodiscard]] const configuration& settings() const noexcept;
  /// Returns the driver of its devices: CUDA's, or the mock's.
  [[nodiscard]] driver& api() noexcept;
  /// Returns the library that moves the data, as it is without troupe: for comparisons with it. Small collectives of
  /// worlds may be kernels of troupe's own (docs/small-collectives.md), and faults are not injected into it.
  [[nodiscard]] troupe::backend& collectives() noexcept;
  /// Returns the source of the metrics of this runtime and its worlds. Its header is internal: programs read the
  /// metrics through <troupe/runtime/metrics.hpp> or the endpoint. It may outlive the runtime and is empty then.
  [[nodiscard]] std::shared_ptr<const metrics_source> metrics() const noexcept;
  /// Returns the address of the metrics endpoint, for example "127.0.0.1:9464". Empty if there is none
  /// (metrics.address).
  [[nodiscard]] std::string metrics_address() const;
  /// Returns driver, backend, versions, profile and strategy on one line. Benchmarks print it with every result.
  [[nodiscard]] std::string describe() const;

private:
  class parts;
  void begin(configuration settings, caf::actor_system* host);
  static void end(std::shared_ptr<parts> all) noexcept;

  std::shared_ptr<parts> parts_;
};

} // namespace troupe
