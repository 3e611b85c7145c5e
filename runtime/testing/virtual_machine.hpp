/// What worlds in virtual time run on: pretend devices, and the threads that serve them, as fibers of one thread.
#pragma once

#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/threads/fibers.hpp>
#include <troupe/runtime/simulation/simulated_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace troupe::testing {

/// Threads: the one that made it.
class virtual_machine {
public:
  /// Errors: invalid_argument (\p ranks, options, or another one on this thread).
  virtual_machine(int ranks, virtual_options wanted);
  virtual_machine(const virtual_machine&) = delete;
  virtual_machine& operator=(const virtual_machine&) = delete;
  /// What hung returns at last. Its worlds have ended.
  ~virtual_machine();

  /// Returns whether it was enough within \p at_most.
  bool run_until(const std::function<bool()>& enough, nanoseconds at_most);
  /// Everything that can take long at a world's end, one behind the other, for each rebuild.
  [[nodiscard]] nanoseconds longest_stop() const;

  virtual_options options;
  std::shared_ptr<fibers> threads;
  time_point began;
  simulation::simulated_terms terms;
  std::unique_ptr<simulation::simulated_machine> machine;
  /// By place, that is by the ranks' names in the first epoch.
  std::vector<std::shared_ptr<device>> devices;
  std::vector<std::shared_ptr<memory_pool>> pools;
};

/// Of the rank that is called \p whom at \p now. Errors: invalid_argument, where there is none.
[[nodiscard]] std::size_t place_of(rank whom, const world_event& now);

} // namespace troupe::testing
