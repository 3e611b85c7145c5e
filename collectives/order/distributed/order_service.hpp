/// Decides the order of the requests of the processes of one host, which reach it through rings in shared memory.
#pragma once

#include <troupe/collectives/order/distributed/order_server.hpp>
#include <troupe/collectives/transport/shared_memory/ring_connection.hpp>
#include <troupe/completion/completion_settings.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Settings of an order_service.
struct order_service_settings {
  sequencer_limits limits{};
  wait_profile wait{}; ///< `nap` is not used: the thread parks until a rank wakes it.
  /// Longest sleep of the parked thread. A process that ends while it writes wakes nobody, and a hostile one can
  /// suppress the wake-ups of others: this bounds the delay.
  nanoseconds park{std::chrono::milliseconds{5}};
  /// Interval between checks of the processes and of the deadlines of requests.
  nanoseconds check_interval{std::chrono::milliseconds{5}};
};

/// Reads the rings of all ranks, decides with an order_server, and writes each rank the decisions that concern it.
///
/// A rank whose process has ended, that has written what cannot be read, or that falls behind with reading its
/// decisions is closed, and with it the epoch: what waits is refused at the remaining ranks (world_failed), and nothing
/// is waited for. While decisions for a rank wait for room, no more requests of it are read, so its share of memory is
/// bounded.
///
/// Threads: one at a time; run() has the object to itself until it returns.
class order_service {
public:
  /// Errors: out_of_memory, unsupported.
  explicit order_service(const order_service_settings& settings = {});

  /// The doorbell for ring_connection::offer().
  [[nodiscard]] const std::shared_ptr<shared_doorbell>& bell() const noexcept { return bell_; }

  /// Begins an epoch, with the connection of each rank in order. Earlier connections and losses are dropped.
  /// Errors: invalid_argument (no rank).
  void open(epoch of, std::vector<ring_connection> ranks);
  /// Refuses what waits, and all later requests of this epoch.
  void close(const error& why, time_point now);

  /// Does one round: reads at most one message of each rank, and writes what was decided. Returns whether there was
  /// anything to do. Never waits.
  bool poll(time_point now);
  /// Does rounds until \p stop is true or no rank is connected any more. Between them spins and parks by the profile.
  /// Reads \p stop at least at every settings.park.
  void run(const std::atomic<bool>& stop);

  /// A rank that was closed.
  struct loss {
    troupe::rank rank{0};
    error why;
  };
  /// In the order in which they were found. The first one ended the epoch.
  [[nodiscard]] const std::vector<loss>& losses() const noexcept { return losses_; }
  /// Returns the number of ranks that are connected.
  [[nodiscard]] std::size_t connected() const noexcept { return connected_; }
  [[nodiscard]] std::vector<std::shared_ptr<const absence_report>> take_straggling() {
    return order_.take_straggling();
  }

private:
  bool read(std::size_t index, time_point now);
  bool check(time_point now);
  void deliver(time_point now);
  void lose(std::size_t index, error why);
  void park(time_point now);

  order_service_settings settings_;
  std::shared_ptr<shared_doorbell> bell_;
  order_server order_;
  std::vector<std::optional<ring_connection>> ranks_;
  std::size_t connected_ = 0;
  std::vector<loss> losses_;
  time_point next_check_{};
  std::string message_; ///< A member to reuse its memory.
};

} // namespace troupe
