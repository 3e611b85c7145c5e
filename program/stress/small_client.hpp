/// Sends small collectives to a world, and verifies every byte that they write; fills devices with other work.
#pragma once

#include <troupe/program/stress/small_script.hpp>
#include <troupe/program/support/fault_kernels.hpp>

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/runtime/world.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::program {

struct small_totals {
  std::size_t operations = 0; ///< Those whose results have been compared, or that have failed.
  std::size_t kernels = 0;    ///< Those of them that the limits permit to be one-shot kernels.
  std::size_t replays = 0;    ///< Of plans. Their operations are among these.
  std::size_t wrong = 0;
  std::size_t hung = 0;   ///< Requests that the world's deadlines or hang limits ended.
  std::size_t failed = 0; ///< Other requests that failed.
  std::string first{};    ///< The first fault or failure.

  small_totals& operator+=(const small_totals& more);
};

/// A client of one world of one process. Ends with its first wrong result or failed request.
/// Threads: the member functions are called by one thread.
class small_client {
public:
  /// Changes a request before it is sent. For tests.
  using meddling = std::function<void(std::vector<operation>& parts)>;

  /// Allocates the arenas, and captures plans if the world can. \p most is the most operations of a request.
  small_client(const world& where, const small_spec& spec, std::size_t most, meddling meddle = {});

  /// Sends requests until \p done returns true, which is called with the number of operations after each request. Then
  /// compares the last round.
  small_totals run(const std::function<bool(std::size_t operations)>& done);

private:
  using group_of_operations = std::vector<small_operation>;
  struct plan {
    std::vector<group_of_operations> steps{};
    std::shared_ptr<captured_plan> captured{};
    bool has_run = false; ///< In this round.
  };

  [[nodiscard]] std::vector<operation> request_of(const group_of_operations& group) const;
  void capture_plans();
  void send(std::vector<operation> parts);
  void await(std::size_t most_left);
  void run(const group_of_operations& group);
  void run_round(const std::function<bool(std::size_t)>& done);
  /// Compares the arenas from byte \p first.
  void compare(std::size_t first);
  /// Copies the arenas from byte \p first on, and waits until all requests have ended.
  void copy_arenas(std::size_t first, bool to_host);
  void note(std::size_t small_totals::*count, std::size_t by, const std::string& what);
  [[nodiscard]] bool is_clean() const noexcept { return totals_.wrong + totals_.hung + totals_.failed == 0; }

  world where_;
  std::size_t most_;
  one_shot_limits limits_;
  meddling meddle_;
  small_script script_;
  std::vector<buffer> arenas_, pinned_; ///< By rank.
  std::vector<plan> plans_{};
  std::deque<std::future<completion>> in_flight_{};
  small_totals totals_{};
};

/// While it exists, each device of a world is busy with other work for most of the time, in a stream of its own: fills
/// and copies of large memory, and kernels that leave no room for others.
class device_pressure {
public:
  device_pressure(const world& where, std::uint64_t seed);
  device_pressure(const device_pressure&) = delete;
  device_pressure& operator=(const device_pressure&) = delete;
  ~device_pressure();

  /// Returns how often a device was filled.
  [[nodiscard]] std::size_t turns() const noexcept { return turns_.load(std::memory_order_relaxed); }

private:
  void fill(std::size_t place, const std::stop_token& ending, std::uint64_t seed);

  world where_;
  fault_kernels_of_world kernels_;
  std::atomic<std::size_t> turns_ = 0;
  std::vector<std::jthread> threads_; ///< Destroyed first.
};

} // namespace troupe::program
