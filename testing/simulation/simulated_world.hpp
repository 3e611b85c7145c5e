/// Defines the world of a simulated run, its machine, and the interface that the clients of the run use.
/// Implementations use a world's state classes directly, or through its actors.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/sub_worlds/sub_worlds.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_trace.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

class simulated_world;

/// The interface of a world to the clients of a run. Ranks are numbered as in the first epoch. Threads: only that of
/// the run.
class system_under_test {
public:
  system_under_test() = default;
  system_under_test(const system_under_test&) = delete;
  system_under_test& operator=(const system_under_test&) = delete;
  virtual ~system_under_test() = default;

  [[nodiscard]] virtual world_event latest() const = 0;
  virtual void ask_world(world_request asked, reply_promise reply) = 0;
  virtual void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) = 0;
  /// Captures a plan. Over processes, the client in the process of \p by requests it, and the request names the plan.
  virtual void capture(rank by, capture_request asked, std::shared_ptr<capture_answer> reply) = 0;
  /// Sends a request to \p self. There is one client per rank and \p lane.
  virtual void ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) = 0;
  /// Withdraws the pending requests of \p self's client in \p lane.
  virtual void withdraw(rank self, std::size_t lane) = 0;
  /// Ends \p self's client in \p lane.
  virtual void end_client(rank self, std::size_t lane) = 0;
  /// Kills the actor of \p self.
  virtual void end_rank(rank self) = 0;
  /// Ends the world's actor in the way \p how.
  virtual void end_world(fault_kind how) = 0;

  virtual void stop() = 0;
  /// Returns whether everything has been released.
  [[nodiscard]] virtual bool is_over() const = 0;

  // Only for worlds over processes:
  /// Returns whether the world has ended, or will not serve any more.
  [[nodiscard]] virtual bool has_ended() const { return is_over(); }
  /// Checks that what the controller keeps is bounded. Call it when the world serves and all leases of lost processes
  /// have ended.
  virtual void judge_memory() const {}
  /// Returns whether the current process of \p self has taken part in epoch \p of and has not ended.
  [[nodiscard]] virtual bool has_client([[maybe_unused]] rank self, [[maybe_unused]] epoch of) const { return true; }
  /// Returns how many epochs up to \p last have begun with another number of ranks than the epoch before.
  [[nodiscard]] virtual std::size_t size_changes([[maybe_unused]] epoch last) const { return 0; }
  /// Returns how often another service began to order the requests among \p members, in the epochs up to \p last whose
  /// order was opened: the service of their host, or the controller, or one that replaced it.
  [[nodiscard]] virtual std::size_t order_moves([[maybe_unused]] const std::vector<rank>& members,
                                                [[maybe_unused]] epoch last) const {
    return 0;
  }
  /// Identifies the present process of \p self.
  [[nodiscard]] virtual std::uint64_t process_of([[maybe_unused]] rank self) const { return 0; }
  // Those who override these keep the values.
  // NOLINTBEGIN(performance-unnecessary-value-param)
  /// Reserves quota of the world of \p by's process.
  virtual void ask_credit([[maybe_unused]] rank by, [[maybe_unused]] const credit_request& asked,
                          [[maybe_unused]] std::shared_ptr<credit_answer> reply) {}
  /// Receives the part of a process in the one sub-world of a split: null if it has none, or if there is an error.
  using split_listener = std::function<void(std::shared_ptr<simulated_world> made, const error& why)>;
  /// Splits the world: the client in the process of \p by requests it.
  virtual void split([[maybe_unused]] rank by, [[maybe_unused]] split_request asked,
                     [[maybe_unused]] split_listener reply) {}
  /// Does ask_rank() for \p self's part \p in of a sub-world.
  virtual void ask_sub_world([[maybe_unused]] rank self, [[maybe_unused]] simulated_world& in,
                             [[maybe_unused]] std::size_t lane, [[maybe_unused]] rank_request asked,
                             [[maybe_unused]] reply_promise reply) {}
  // NOLINTEND(performance-unnecessary-value-param)
  /// Stops \p self's part \p in of a sub-world.
  virtual void stop_sub_world([[maybe_unused]] rank self, [[maybe_unused]] simulated_world& in) {}
  /// Asks for the change \p kind of \p of. \p answered is called once (ONE-1). Returns a function that tells whether
  /// the answer is still to come: a process or a controller that has ended cannot give it. Null: nobody answers.
  [[nodiscard]] virtual std::function<bool()> change([[maybe_unused]] const planned_departure& of,
                                                     [[maybe_unused]] rank_change_kind kind,
                                                     // NOLINTNEXTLINE(performance-unnecessary-value-param)
                                                     [[maybe_unused]] std::function<void(const error& why)> answered) {
    return nullptr;
  }
  /// Injects \p one, a fault of a process, of an order service, or of its connection.
  virtual void strike([[maybe_unused]] const planned_fault& one) {}
};

/// The settings of a simulated machine and its world.
struct simulated_terms {
  int ranks = 0;
  std::size_t memory_bytes = std::size_t{1} << 30U; ///< The memory of each device.
  completion_strategy strategy = completion_strategy::automatic;
  track_limits limits{};
  world_deadlines deadlines{};
  recovery_terms recovery{};
  fusion_limits fused{};
  sequencer_limits sequencing{};
  pending_limits pending{};
  troupe::ordering ordering = troupe::ordering::agreed;
  std::size_t one_shot_bytes = 0;      ///< The setting of that name.
  std::optional<std::uint64_t> seed{}; ///< Determines the delays of messages to the world. Empty: no delays.
};
[[nodiscard]] simulated_terms terms_of(const scenario& of);

/// Simulated devices and the threads that serve them.
struct simulated_machine {
  explicit simulated_machine(const simulated_terms& of);
  /// Simulates another process on the same devices: makes new threads for \p shared, devices of \p driver.
  simulated_machine(const simulated_terms& of, std::shared_ptr<mock_driver> driver,
                    std::vector<std::shared_ptr<device>> shared);
  simulated_machine(const simulated_machine&) = delete;
  simulated_machine& operator=(const simulated_machine&) = delete;
  ~simulated_machine();

  std::shared_ptr<mock_driver> api;
  std::vector<std::shared_ptr<device>> devices;
  std::shared_ptr<deadline_pool> helpers;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::vector<std::shared_ptr<launcher>> launchers;
};

/// Returns the plan of a world over all devices of \p on. Its communicators are those of the mock with \p faults
/// injected, and it reports its phases to \p status.
[[nodiscard]] world_plan make_plan(const simulated_terms& of, const simulated_machine& on,
                                   std::shared_ptr<world_status> status, std::shared_ptr<fault_injector> faults);

/// A world without actors. Threads: only that of the run.
class simulated_world final : public system_under_test,
                              private world_shell,
                              public std::enable_shared_from_this<simulated_world> {
public:
  simulated_world(const simulated_terms& of, simulated_machine& on, std::shared_ptr<fault_injector> faults, trace& log);
  /// Makes a world of \p plan, which the trace calls \p name. \p seed: see simulated_terms.
  simulated_world(world_plan plan, std::optional<std::uint64_t> seed, trace& log, std::string name = "world");
  ~simulated_world() override;

  [[nodiscard]] world_event latest() const override { return status_->latest(); }
  void ask_world(world_request asked, reply_promise reply) override;
  void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) override;
  void capture(rank, capture_request asked, std::shared_ptr<capture_answer> reply) override;
  void ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) override;
  void withdraw(rank self, std::size_t lane) override;
  void end_client(rank self, std::size_t lane) override { withdraw(self, lane); }
  void end_rank(rank self) override;
  void ask_credit(rank by, const credit_request& asked, std::shared_ptr<credit_answer> reply) override;
  void end_world(fault_kind) override {} // there is no actor that could end
  /// Splits the world into sub-worlds, which are found by their status.
  void split_off(split_request asked, std::shared_ptr<split_answer> reply);
  [[nodiscard]] std::shared_ptr<simulated_world> find_sub_world(const world_status& status) const;
  void stop() override;
  /// Returns whether it and its sub-worlds have ended.
  [[nodiscard]] bool is_over() const override;
  /// Passes a message of the controller on to a world over processes.
  void tell(controller_directive what);
  /// Ends the world at once. What it has launched is aborted.
  void kill(const error& why);
  [[nodiscard]] epoch current_epoch() const noexcept { return executor_->current_epoch(); }
  /// Calls \p heard for each later event. Call it before the first turn to receive all events.
  void listen(world_status::listener heard) { status_->listen(std::move(heard)); }
  /// Return the request gate of the world, and the state of the rank that was numbered \p origin in the first epoch.
  [[nodiscard]] request_gate& gate() noexcept { return executor_->gate(); }
  [[nodiscard]] collective_state& rank_state(rank origin) const {
    return *states_[static_cast<std::size_t>(origin.value())];
  }

  /// Returns the number of turns that wait behind a turn that cannot end, or nothing if no turn is blocked (BLK-2).
  [[nodiscard]] std::optional<std::size_t> held_up() const;

private:
  /// Replaces the actors' mailboxes: handles messages in order, each after a delay.
  class mailbox;

  [[nodiscard]] std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) override;
  void leave() override;
  void epoch_ended(const error& why, bool for_good) override { sub_worlds_->epoch_ended(why, for_good); }
  [[nodiscard]] std::shared_ptr<latch> quiesce(const error& why) override { return sub_worlds_->quiesce(why); }
  [[nodiscard]] bool stop_sub_worlds(const stop_directive& told) override { return sub_worlds_->stop_as_told(told); }
  void formed_again() override { sub_worlds_->formed_again(); }
  [[nodiscard]] std::unique_ptr<sub_world_access> start_sub_world(std::uint64_t name, world_plan plan,
                                                                  const sub_world& made);

  [[nodiscard]] std::uint64_t client_of(rank self, std::size_t lane) const {
    return 1 + lane * states_.size() + static_cast<std::size_t>(self.value());
  }

  trace& log_;
  const std::string name_;
  std::shared_ptr<world_status> status_;
  std::vector<std::shared_ptr<collective_state>> states_;
  std::shared_ptr<mailbox> mail_;
  std::unique_ptr<world_executor> executor_;
  std::unique_ptr<sub_worlds> sub_worlds_;
  std::vector<std::shared_ptr<simulated_world>> children_; ///< Its sub-worlds, those that have ended included.
  const std::optional<std::uint64_t> seed_;
  bool over_ = false;
  worker turns_;
};

} // namespace troupe::simulation
