/// A world as the runtime makes it, but for its actors: the same states, order, pipelines, launchers, poller and
/// helpers over the mock, all of them fibers.
#pragma once

#include <troupe/actors/world_conductor.hpp>
#include <troupe/collectives/faults/fault_injector.hpp>
#include <troupe/device/condition.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/worker.hpp>
#include <troupe/runtime/simulation/scenario.hpp>
#include <troupe/runtime/simulation/simulated_trace.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// How a simulated machine and its world are made.
struct simulated_terms {
  int ranks = 0;
  std::size_t memory_bytes = std::size_t{1} << 30U; ///< Of each device.
  completion_strategy strategy = completion_strategy::automatic;
  track_limits limits{};
  world_deadlines deadlines{};
  recovery_terms recovery{};
  fusion_limits fused{};
  sequencer_limits sequencing{};
  pending_limits pending{};
  troupe::ordering ordering = troupe::ordering::agreed;
  std::optional<std::uint64_t> seed{}; ///< Of what messages to the world are late by; none: never.
};
[[nodiscard]] simulated_terms terms_of(const scenario& of);

/// Devices, and the threads that serve them.
struct simulated_machine {
  explicit simulated_machine(const simulated_terms& of);
  simulated_machine(const simulated_machine&) = delete;
  simulated_machine& operator=(const simulated_machine&) = delete;
  ~simulated_machine();

  std::shared_ptr<mock_driver> api;
  std::vector<std::shared_ptr<device>> devices;
  std::shared_ptr<helper_crew> helpers;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::vector<std::shared_ptr<launcher>> launchers;
};

/// Threads: the run's.
class simulated_world final : private world_shell {
public:
  simulated_world(const simulated_terms& of, simulated_machine& on, std::shared_ptr<fault_injector> faults, trace& log);
  ~simulated_world() override;

  void stop();
  /// As if the actor of \p self had been killed.
  void end_rank(rank self);
  [[nodiscard]] world_event latest() const { return board_->latest(); }
  [[nodiscard]] bool is_over() const { return over_; }
  /// Calls \p heard at each later event; to be called before the first turn, where all are to be heard.
  void listen(world_board::listener heard) { board_->listen(std::move(heard)); }
  /// What its clients find at its door, and at a rank's.
  [[nodiscard]] world_entrance& entrance() noexcept { return conductor_->entrance(); }
  [[nodiscard]] collective_state& rank_state(rank one) const { return *states_[static_cast<std::size_t>(one.value())]; }

private:
  /// What actors have between them: first come, first served, each after a while.
  class mailbox;

  void announce(const world_event& event) override;
  void leave() override { over_ = true; }

  trace& log_;
  std::shared_ptr<world_board> board_ = std::make_shared<world_board>();
  std::vector<std::shared_ptr<collective_state>> states_;
  std::shared_ptr<mailbox> mail_;
  std::unique_ptr<world_conductor> conductor_;
  bool over_ = false;
  worker turns_;
};

} // namespace troupe::simulation
