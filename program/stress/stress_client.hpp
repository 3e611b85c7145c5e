/// One rank's end of a stress run's client: an actor that asks in lanes of its own, at moments of its own.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/program/stress/stress_script.hpp>
#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <atomic>
#include <cstddef>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

/// Threads: safe from any, but disorder() when nobody enters anything any more.
class stress_ledger {
public:
  explicit stress_ledger(std::size_t ranks) : logs_(ranks) {}

  void asked(std::size_t requests) noexcept { asked_ += requests; }
  void answered() noexcept { ++answered_; }
  /// Where in the order of its launches \p self had its part of the operation.
  void launched(rank self, const stress_step& step, std::uint64_t launch);
  void answered(const error& failure);
  /// Busy, or behind one that was: to be asked again.
  void refused() noexcept {
    ++answered_;
    ++refused_;
  }
  /// \p fault is empty where all elements were right.
  void verified(const stress_step& step, const std::string& fault);

  struct totals {
    std::size_t asked = 0;
    std::size_t answered = 0;
    std::size_t failed = 0;
    std::size_t refused = 0;  ///< And asked again.
    std::size_t verified = 0; ///< Parts of ranks, of operations.
    std::size_t wrong = 0;
    std::string first{}; ///< Of what went wrong.
  };
  [[nodiscard]] totals sum() const;
  /// What two ranks launched in different orders, in one line; empty where all agree. \p compared is how many
  /// operations were compared, over all pairs of ranks.
  [[nodiscard]] std::string disorder(std::size_t& compared);

private:
  struct entry {
    stress_step step;
    std::uint64_t launch = 0;
  };
  /// Of one rank.
  struct log {
    std::mutex guard;
    std::vector<entry> entries;
  };
  void note(const std::string& what);

  std::atomic<std::size_t> asked_{0}, answered_{0}, failed_{0}, refused_{0}, verified_{0}, wrong_{0};
  mutable std::mutex guard_;
  std::string first_;
  std::vector<log> logs_;
};

/// The same for all ranks of a client.
struct stress_task {
  std::size_t client = 0;
  std::size_t lanes = 1;
  std::size_t steps = 1; ///< In each lane.
  std::uint64_t seed = 0;
  credit under{}; ///< What its requests are charged to; none: what all share.
};

/// What all clients share. Outlives them.
struct stress_scene {
  world where;
  stress_script script;
  stress_ledger ledger;
  std::map<value_source, std::shared_ptr<const reference_values>> values;
  bool bounded = false; ///< Requests may be answered busy, and are then asked again.
};

/// Its memory: takes a place in each lane, so that several operations of a lane are under way.
inline constexpr std::size_t stress_window = 3;
inline constexpr std::size_t requests_of_a_step = 3; ///< At most, at each rank.

/// Spawns an actor that asks \p self for its part of each step of the task: to copy the inputs to the device, to do the
/// operation and to copy the results back, all in the lane at once, so that the lane's order is tried too. It then
/// verifies the memory. Between, it chooses the lane and how long it waits at random, by the rank. Counts \p ended down
/// when all is done, or at the first failure. Where requests may be busy, a lane has one step under way, whose requests
/// name their positions: behind one that was refused the others are too, and all of these are asked again.
void spawn_stress_client(caf::actor_system& system, const stress_task& task, rank self, stress_scene& scene,
                         std::latch& ended);

/// Spawns an actor that asks the world for all ranks' parts of each step, in one request each, and verifies the memory.
void spawn_stress_world_client(caf::actor_system& system, const stress_task& task, stress_scene& scene,
                               std::latch& ended);

} // namespace troupe::program
