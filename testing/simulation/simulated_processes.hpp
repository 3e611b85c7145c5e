/// Defines the world of a simulated run whose ranks live in processes: their worlds, their connections, a driver, the
/// order services of their hosts, and the controller.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/processes/control/control_server.hpp>
#include <troupe/processes/launch/job_course.hpp>
#include <troupe/testing/simulation/change_ledger.hpp>
#include <troupe/testing/simulation/fibers.hpp>
#include <troupe/testing/simulation/machine_clock.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_controllers.hpp>
#include <troupe/testing/simulation/simulated_trace.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>
#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace troupe::simulation {

class simulated_link;

/// A world over processes with one rank each. The processes share only the simulated devices. A killed process sends,
/// launches and answers nothing any more, and is then torn down. A driver, a process without a rank, sends the requests
/// to the world; it is killed, stopped and disconnected like the others. A host may have an order service, and clocks
/// that run apart from those of others. If the processes do not wait for another controller, a launcher starts them.
/// Threads: only that of the run.
class simulated_processes final : public system_under_test {
public:
  simulated_processes(const scenario& of, simulated_machine& on, std::shared_ptr<fault_injector> faults,
                      simulation_ledger& ledger, trace& log);
  ~simulated_processes() override;

  /// Returns `ready` while all ranks of one epoch are ready in it.
  [[nodiscard]] world_event latest() const override;
  void ask_world(world_request asked, reply_promise reply) override;
  void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) override;
  void capture(rank by, capture_request asked, std::shared_ptr<capture_answer> reply) override;
  /// If the process is stopped, sends the request when the process continues.
  void ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) override;
  void withdraw(rank self, std::size_t lane) override;
  void end_client(rank self, std::size_t lane) override { withdraw(self, lane); }
  void end_rank(rank self) override;
  void end_world(fault_kind) override {}
  void stop() override;
  [[nodiscard]] bool is_over() const override;
  [[nodiscard]] bool has_ended() const override;
  void judge_memory() const override;
  [[nodiscard]] bool has_client(rank self, epoch of) const override;
  [[nodiscard]] std::size_t size_changes(epoch last) const override;
  [[nodiscard]] std::size_t order_moves(const std::vector<rank>& members, epoch last) const override;
  [[nodiscard]] std::uint64_t process_of(rank self) const override;
  void ask_credit(rank by, const credit_request& asked, std::shared_ptr<credit_answer> reply) override;
  void split(rank by, split_request asked, split_listener reply) override;
  void ask_sub_world(rank self, simulated_world& in, std::size_t lane, rank_request asked,
                     reply_promise reply) override;
  void stop_sub_world(rank self, simulated_world& in) override;
  [[nodiscard]] std::function<bool()> change(const planned_departure& of, rank_change_kind kind,
                                             std::function<void(const error& why)> answered) override;
  void strike(const planned_fault& one) override;

  /// Receives an event of the process with this number.
  using event_listener = std::function<void(const world_event& event, std::uint64_t process)>;
  /// Calls \p heard for each event of each process. Call it before the first turn to receive all events.
  void listen(event_listener heard) { heard_ = std::move(heard); }
  /// Returns the number of turns that wait behind a turn that cannot end, or nothing if no turn is blocked (BLK-2).
  [[nodiscard]] std::optional<std::size_t> held_up() const;

private:
  class connected;
  class process;
  class driver;
  class host_service;
  class launcher;

  [[nodiscard]] process& at(rank self) const { return *places_[static_cast<std::size_t>(self.value())]; }
  /// Calls \p what in a fiber after \p delay, unless the run has ended.
  void later(nanoseconds delay, std::function<void()> what);
  void start(int place);
  void start_later(int place);
  void start_driver();
  void start_service(int host);
  /// Connects a process to the gate of its host's order service, if there is one.
  [[nodiscard]] std::optional<gate_connection> knock(int host);
  /// The services that order the requests of an epoch.
  struct ordering_services {
    std::uint64_t controller = 0;            ///< Counted from 1.
    std::map<int, std::uint64_t> of_hosts{}; ///< The services by the host that they serve.
  };
  /// Returns who orders the requests of epoch \p of, whose order is opened.
  ordering_services& ordering_in(epoch of);
  /// Stops all processes of a rank's host and its order service.
  void suspend_host(const planned_fault& of);
  void make_clocks();
  /// Returns the number of the next process of \p place.
  [[nodiscard]] std::uint64_t next_of(int place) const;
  /// Sends signal \p number to process \p pid.
  void signal(std::uint64_t pid, int number);
  /// Strikes the order service of a host.
  void strike_service(const planned_fault& one);
  /// Checks that the requests of a process go through the rings of its host's order service in epoch \p of, if that
  /// was found early enough and nothing disturbs it (docs/design/0077-order-per-host.md).
  void check_service(const process& one, epoch of, bool through_rings);
  /// Returns whether no fault of the run delays messages or ends a process.
  [[nodiscard]] bool is_undisturbed() const;
  /// \p of_store: what a controller with a store does besides.
  [[nodiscard]] controller_hooks make_hooks(simulated_controllers::number of, controller_hooks of_store);
  [[nodiscard]] simulated_controllers::callbacks make_callbacks();
  /// Who has sent a message, and when.
  struct sender {
    int place = -1; ///< Of a process; -1: a driver or an order service.
    fibers::group process{};
    time_point sent{};
  };
  /// Passes a message through connection \p through to controller \p to.
  void hear(const sender& from, simulated_controllers::number to, std::uint64_t through, std::string_view bytes);
  void note_message(const sender& from, std::string_view bytes);
  /// Handles a message of controller \p by to process \p to: records a welcome, and checks a grant of a lease. The
  /// lease counts from a heartbeat: a grant that was decided before another controller was elected, and is sent
  /// afterwards, prolongs nothing (MEM-1).
  void note_directive(simulated_controllers::number by, fibers::group to, std::string_view bytes);
  /// Records what \p event of a controller says about a planned change.
  void note_change(const control_event& event, const controller_state& state);
  /// Records that process \p told forms an epoch, or prepares it.
  void note_epoch(std::uint64_t told, epoch of, const unique_id& id);
  /// Injects the faults that wait for this step of a planned change.
  void reach(change_step step);
  /// Records that process \p who has ended, or is no longer part of its world.
  void note_end(std::uint64_t who);
  /// Called when process \p one has been ended. Starts another process in its place unless the world ends.
  void ended(const process& one, const launch::exit_status& how);
  /// Called when process \p one has ended by itself.
  void has_returned(const process& one, const launch::exit_status& how);
  void wanted(int place);
  void note_ready(epoch of, int world_size);
  /// Ends the controller and all connections to it. Another one is started if processes wait for it.
  void lose_controller();

  const scenario& of_;
  simulated_machine& on_;
  std::shared_ptr<fault_injector> faults_;
  /// Where the ranks of a simulated node share their scratch. All simulated processes are one, so no descriptors are
  /// passed.
  const std::shared_ptr<one_shot_meeting_place> meetings_;
  simulation_ledger& ledger_;
  change_ledger changes_;
  trace& log_;
  prng chance_;
  prng driver_chance_;
  event_listener heard_;
  simulated_controllers controllers_;
  simulated_controllers::number formed_by_ = 0;        ///< The controller that has formed the latest epoch.
  std::vector<worker> ticks_;                          ///< Of each controller.
  std::vector<std::shared_ptr<process>> places_;       ///< The present or last process of each place.
  std::vector<int> starts_;                            ///< The number of processes that were started, by place.
  std::vector<bool> is_starting_;                      ///< By place.
  std::vector<nanoseconds> delays_;                    ///< Of the links of processes, by place.
  std::vector<std::shared_ptr<machine_clock>> clocks_; ///< Of the hosts, then those of the controllers.
  std::shared_ptr<launcher> launcher_;                 ///< Null if the processes are started again by another manager.
  std::set<int> wanted_;                               ///< The places for which this rebuild needs a process.
  std::set<int> asked_;                 ///< The places for which a process starts when the last has ended.
  std::set<int> in_vain_;               ///< The places for which no process is started at present.
  std::vector<planned_fault> awaiting_; ///< Faults that wait for a step of a planned change.
  /// When the heartbeats of each session were sent, if there is another controller.
  std::map<session_id, std::map<std::uint64_t, time_point>> beats_;
  int speaker_ = 0;   ///< The place of the process whose message the controller handles.
  time_point said_{}; ///< The time at which that message was sent.
  std::map<std::uint64_t, std::weak_ptr<connected>> connections_;
  std::shared_ptr<driver> driver_;                      ///< The current or last driver.
  int drivers_ = 0;                                     ///< Number of drivers that were started.
  std::shared_ptr<driver> idle_;                        ///< A driver that asks nothing.
  std::vector<std::shared_ptr<host_service>> services_; ///< The present or last order service of each host, if any.
  std::vector<int> service_starts_;                     ///< The number of services that were started, by host.
  time_point forming_since_{};                          ///< When the controller began to form the latest epoch.
  epoch forming_{};                                     ///< That epoch.
  control_phase phase_{};                               ///< That a controller has reported last.
  int ranks_ = 0;                                       ///< Its number of ranks.
  std::vector<epoch> size_changes_; ///< The epochs that have begun with another number of ranks than the one before.
  std::map<epoch, ordering_services> ordered_by_; ///< For each epoch whose order was opened.
  std::uint64_t last_connection_ = 0;
  std::vector<std::unique_ptr<simulated_link>> closing_; ///< The links of processes that have closed their connections.
  world_event served_{};                                 ///< The latest epoch in which all ranks were ready.
  std::map<epoch, std::vector<std::weak_ptr<process>>> all_; ///< The processes of such epochs.
  std::size_t unended_ = 0; ///< Processes that have not been torn down, and calls that later() has not made.
  bool is_stopping_ = false;
  bool has_failed_ = false; ///< A controller has ended the world because of a fault, and none has formed it again.
  bool is_over_ = false;    ///< The run has ended.
  std::shared_ptr<const bool> lives_ = std::make_shared<const bool>(true); ///< For answers that come after its end.
};

} // namespace troupe::simulation
