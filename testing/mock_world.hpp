/// Creates a world over the mock backend in one line, in real time, for tests of clients that use threads, futures or
/// actors.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/memory.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace troupe::testing {

/// Returns the settings of a mock_world of \p ranks ranks: the mock, few threads, which park at once, no placement, 16
/// MiB per device, no log. Change what your test is about: recovery, ordering, deadlines, limits.
[[nodiscard]] configuration mock_settings(int ranks);

/// A runtime and its world, which is ready. Both end with this object. They live in an actor system of their own, or in
/// yours as a guest.
///
/// Lifetime: in its own system, actors that you have spawned there must have ended by then. Your system outlives it,
/// and so may your actors there: their later requests to its actors fail. Threads: safe from any for the world and the
/// script.
class mock_world {
public:
  /// Forms a world of \p ranks ranks. Errors: those of troupe::runtime and form_world().
  explicit mock_world(int ranks) : mock_world{mock_settings(ranks)} {}
  /// Forms a world with \p settings, which come from mock_settings(). Set `faults` to a script of your own for faults
  /// while the world forms. Errors: invalid_argument (faults that are not a fault_script, a backend other than the
  /// mock), and those above.
  explicit mock_world(configuration settings) : mock_world{nullptr, std::move(settings)} {}
  /// Does the same in \p host, your actor system: prepare its configuration with prepare_host() and the same settings
  /// (runtime/interop/host_system.hpp). Errors: those of a runtime in a system of yours, and those above. A system that
  /// the test steps is refused: use an actor_world.
  mock_world(caf::actor_system& host, int ranks) : mock_world{host, mock_settings(ranks)} {}
  mock_world(caf::actor_system& host, configuration settings) : mock_world{&host, std::move(settings)} {}
  mock_world(const mock_world&) = delete;
  mock_world& operator=(const mock_world&) = delete;
  /// Releases the operations that hang because of the script, then stops the world.
  ~mock_world();

  /// Returns the runtime. Its system() is for actors of the test; as a guest it is yours.
  [[nodiscard]] troupe::runtime& runtime() noexcept { return *runtime_; }
  /// Returns the world.
  [[nodiscard]] troupe::world& world() noexcept { return *world_; }
  /// Returns the fault script, which also records the launches.
  [[nodiscard]] fault_script& script() noexcept { return *script_; }
  /// Returns the simulated devices.
  [[nodiscard]] mock_driver& devices() noexcept { return *devices_; }

  /// Returns \p count floats for each rank, each rank + 1: see testing::make_ranked().
  [[nodiscard]] std::vector<buffer> make_ranked(std::size_t count) const {
    return testing::make_ranked<float>(*world_, count);
  }

private:
  mock_world(caf::actor_system* host, configuration settings);

  std::shared_ptr<fault_script> script_;
  std::unique_ptr<troupe::runtime> runtime_;
  mock_driver* devices_ = nullptr;
  std::unique_ptr<troupe::world> world_;
};

} // namespace troupe::testing
