/// Simulates one direction of a connection: passes messages on in their order, each after a random delay.
#pragma once

#include <troupe/device/time.hpp>
#include <troupe/testing/simulation/fibers.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace troupe::simulation {

/// A queue of deliveries. Threads: only that of the run.
class simulated_link {
public:
  using delivery = std::function<void()>;

  /// A sender gives a connection up when this many bytes wait, or when none has been delivered for this long. Real
  /// connections have transport_limits.
  static constexpr std::size_t most_bytes = std::size_t{256} << 10U;
  static constexpr nanoseconds longest_stall = std::chrono::milliseconds{600};

  /// The deliveries are made by a fiber of the group \p of.
  simulated_link(std::uint64_t seed, fibers::group of);
  simulated_link(const simulated_link&) = delete;
  simulated_link& operator=(const simulated_link&) = delete;
  ~simulated_link() { drop(); }

  /// Returns whether the sender goes on; else it gives the connection up. \p size_bytes: of the message.
  bool put(delivery what, std::size_t size_bytes = 0);
  /// Reads slowly for \p span: \p apart passes between two deliveries at least.
  void slow_down(nanoseconds span, nanoseconds apart);
  /// The messages take \p delay longer from now on.
  void lengthen(nanoseconds delay);
  /// Discards the deliveries in the queue, and accepts more.
  void discard();
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
