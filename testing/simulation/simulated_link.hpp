/// Simulates one direction of a connection: passes messages on in their order, each after a random delay.
#pragma once

#include <troupe/device/time.hpp>
#include <troupe/testing/simulation/fibers.hpp>

#include <cstdint>
#include <functional>
#include <memory>

namespace troupe::simulation {

/// A queue of deliveries. Threads: only that of the run.
class simulated_link {
public:
  using delivery = std::function<void()>;

  /// The deliveries are made by a fiber of the group \p of.
  simulated_link(std::uint64_t seed, fibers::group of);
  simulated_link(const simulated_link&) = delete;
  simulated_link& operator=(const simulated_link&) = delete;
  ~simulated_link() { drop(); }

  void put(delivery what);
  /// Delays all later deliveries by \p span at least.
  void stall(nanoseconds span);
  /// Accepts no more deliveries. Those in the queue are still made.
  void close() noexcept;
  /// Accepts no more deliveries, and discards those in the queue.
  void drop() noexcept;

private:
  struct state;

  static void serve(state& mine);

  std::shared_ptr<state> state_; ///< Shared with the fiber, which may outlive this object.
};

} // namespace troupe::simulation
