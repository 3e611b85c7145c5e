/// Those who ask in a simulated run, and the faults that lie outside the communicators.
#pragma once

#include <troupe/completion/reply/value_promise.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/runtime/simulation/simulated_faults.hpp>
#include <troupe/runtime/simulation/simulated_memory.hpp>
#include <troupe/runtime/simulation/simulated_stage.hpp>
#include <troupe/runtime/simulation/simulated_world.hpp>
#include <troupe/runtime/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace troupe::simulation {

/// Each is a fiber. Threads: the run's.
class simulated_cast {
public:
  /// Whether ranks are asked, too, when the world is not ready, and must refuse.
  enum class manners : std::uint8_t { waits_for_ready, asks_any_time };

  simulated_cast(const scenario& of, simulated_machine& on, simulated_stage& where, simulated_memory& memory,
                 simulation_ledger& ledger, simulated_faults& faults, manners how = manners::waits_for_ready);
  simulated_cast(const simulated_cast&) = delete;
  simulated_cast& operator=(const simulated_cast&) = delete;
  ~simulated_cast();

  [[nodiscard]] bool all_asked() const noexcept { return busy_ == 0; }

private:
  void begin(std::function<void()> part);
  void ask_world();
  void ask_in(std::size_t lane, rank self);
  void ask_registration(const planned_request& one);
  /// And for its replays, one after the other, for all are on the same memory.
  void ask_capture(const planned_request& one);
  void ask_replay(const planned_request& one, std::shared_ptr<captured_plan> plan);
  /// Of the one answer to \p what, asked of the world now.
  template <class Reply>
  [[nodiscard]] std::shared_ptr<value_promise<Reply>> expect(const planned_request& what, epoch now,
                                                             std::function<void(Reply&)> keep);
  /// Gives its turn away until \p what has been answered, or should have been.
  void wait_for(const planned_request& what) const;
  /// Whoever asks first for something decides which epoch it is for, so that all mean the same.
  [[nodiscard]] epoch epoch_of(const planned_request& what);
  /// When it is to be asked.
  void wait_for_time_of(const planned_request& what) const;
  /// By their names of the first epoch.
  [[nodiscard]] std::vector<rank> ranks_in(const world_event& now) const;
  void raise(const planned_fault& one);
  /// From here on it asks in later epochs alone.
  void silence(std::size_t lane, rank self);

  const scenario& of_;
  simulated_machine& on_;
  simulated_stage& where_;
  simulated_memory& memory_;
  simulation_ledger& ledger_;
  simulated_faults& faults_;
  manners how_;
  time_point began_ = steady_now();
  std::map<std::size_t, epoch> epochs_;
  std::vector<std::vector<epoch>> silent_until_; ///< By lane, then by rank.
  std::size_t busy_ = 0;
  std::vector<worker> cast_;
};

/// By when whatever was asked must have been answered, and a world that is told to stop have ended: everything that can
/// take long, one behind the other, for each rebuild.
[[nodiscard]] nanoseconds longest(const scenario& of);

/// Until everything has been asked and answered and the world has ended, or should have (TIM-1). From outside the
/// fibers.
void play_out(const scenario& of, simulated_cast& cast, simulated_stage& where, simulation_ledger& ledger, trace& log);

} // namespace troupe::simulation
