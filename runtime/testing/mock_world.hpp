/// A world over the mock in a line, in real time: for tests of clients that use threads, futures or actors.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/memory.hpp>

#include <memory>
#include <vector>

namespace troupe::testing {

/// As mock_world makes its runtime for \p ranks ranks: on the mock, few threads, which park at once, nothing placed,
/// 16 MiB for each device, no log. Change what your test is about: recovery, ordering, deadlines, limits.
[[nodiscard]] configuration mock_settings(int ranks);

/// A runtime and its world, ready; both end with it.
///
/// Lifetime: actors that you have spawned in its system must have ended by then.
/// Threads: those of world and script: safe from any.
class mock_world {
public:
  /// Errors: those of troupe::runtime and form_world().
  explicit mock_world(int ranks) : mock_world{mock_settings(ranks)} {}
  /// \p settings as mock_settings() gives them; `faults` may be a script of yours, for faults while the world forms.
  /// Errors: invalid_argument (faults that are no fault_script, a backend that is not the mock), and those above.
  explicit mock_world(configuration settings);
  mock_world(const mock_world&) = delete;
  mock_world& operator=(const mock_world&) = delete;
  /// What hangs by the script is released first.
  ~mock_world();

  /// The runtime, whose system() is for actors of the test.
  [[nodiscard]] troupe::runtime& runtime() noexcept { return *runtime_; }
  /// The world, as clients hold it.
  [[nodiscard]] troupe::world& world() noexcept { return *world_; }
  /// What goes wrong, and what was launched.
  [[nodiscard]] fault_script& script() noexcept { return *script_; }
  /// The pretended devices.
  [[nodiscard]] mock_driver& devices() noexcept { return *devices_; }

  /// As make_ranked(): floats of \p count for each rank, rank + 1 in each.
  [[nodiscard]] std::vector<buffer> make_ranked(std::size_t count) const {
    return testing::make_ranked<float>(*world_, count);
  }
  /// Waits until the world is ready in \p wanted or a later epoch, at most \p at_most. Returns whether it is.
  [[nodiscard]] bool wait_until_ready(epoch wanted, nanoseconds at_most) const;

private:
  class phases;

  std::shared_ptr<fault_script> script_;
  std::unique_ptr<troupe::runtime> runtime_;
  mock_driver* devices_ = nullptr;
  std::unique_ptr<troupe::world> world_;
  std::shared_ptr<phases> phases_;
};

} // namespace troupe::testing
