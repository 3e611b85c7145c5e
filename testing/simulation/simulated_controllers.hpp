/// Defines the controllers of a simulated world over processes: one, or with a store two, one of which decides while
/// the other one stands by.
#pragma once

#include <troupe/processes/control/control_server.hpp>
#include <troupe/processes/store/leader_claim.hpp>
#include <troupe/processes/store/memory_store.hpp>
#include <troupe/testing/simulation/fibers.hpp>
#include <troupe/testing/simulation/machine_clock.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_trace.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::simulation {

/// The controllers, each with the clock of its machine, and their store. A controller that is elected makes a
/// control_server, as troupe::controller does. Two may have one at a time: the former one may have been stopped, or cut
/// off from the store.
/// Threads: only that of the run.
class simulated_controllers {
public:
  /// Numbers the control_servers in the order in which they were made, from 1.
  using number = std::uint64_t;

  struct callbacks {
    std::function<std::unique_ptr<control_server>(number made, controller_hooks of_store)> make;
    /// Called when one has begun to serve.
    std::function<void(control_server& made)> begun;
    /// Called when one has ended. \p is_killed: its connections break; else it has closed them.
    std::function<void(number gone, bool is_killed)> gone;
    std::function<void(const std::string& what)> wrong;                  ///< Reports a broken promise.
    std::function<bool()> is_over;                                       ///< Returns whether the run has ended.
    std::function<void(nanoseconds delay, std::function<void()>)> later; ///< Calls a function in a fiber of nobody.
  };

  simulated_controllers(const scenario& of, trace& log, callbacks with);
  ~simulated_controllers();
  simulated_controllers(const simulated_controllers&) = delete;
  simulated_controllers& operator=(const simulated_controllers&) = delete;

  /// The number of clocks that it needs: of the machines of the controllers, and of the store.
  [[nodiscard]] static std::size_t clock_count(const scenario& of) { return of.processes->has_standby ? 3 : 1; }
  /// Begins. \p clocks: as many as clock_count().
  void begin(std::vector<std::shared_ptr<machine_clock>> clocks);

  [[nodiscard]] std::size_t addresses() const noexcept { return nodes_.size(); }
  /// Returns the number of the server that listens at \p address; 0: there is none.
  [[nodiscard]] number listening_at(std::size_t address) const noexcept {
    return nodes_[address].server ? nodes_[address].made : 0;
  }
  /// Returns whether the controller at \p address does not run at present.
  [[nodiscard]] bool is_stopped(std::size_t address) const noexcept {
    return virtual_now() < nodes_[address].stopped_until;
  }
  /// Returns the server that was made last; null if it has ended.
  [[nodiscard]] control_server* present() const noexcept;
  [[nodiscard]] control_server* find(number which) const noexcept;
  /// Returns when the store has elected another controller than \p which; time_point::max() if it has not.
  [[nodiscard]] time_point replaced_at(number which) const noexcept;
  /// Returns the number of servers that were made.
  [[nodiscard]] number made() const noexcept { return made_; }
  /// Returns whether nothing here runs any more. It becomes true soon after the end of the run.
  [[nodiscard]] bool is_idle() const noexcept { return elections_ == 0 && waiting_calls_ == 0; }
  /// Returns whether a controller has reported the end of the world, or found it in the store.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

  /// Calls \p call for server \p which, when its process runs, with the clock of its machine. Does nothing if it has
  /// ended: what waited for it to run does not reach the next one.
  template <class Call>
  void call(number which, Call call);
  template <class Call>
  void call_present(Call call) {
    if (present() != nullptr) this->call(made_, std::move(call));
  }
  template <class Call>
  void call_at(std::size_t address, Call call) {
    if (nodes_[address].server) this->call(nodes_[address].made, std::move(call));
  }

  /// Kills the controller that decides, or one of them. With a standby it is started again after \p pause, else by
  /// restart(). Returns whether there was one.
  bool kill(nanoseconds pause);
  void restart();
  void stop(nanoseconds span, bool stops_clock);
  /// Lets the store answer nobody for \p span, or not the controller that decides.
  void cut_store(nanoseconds span, bool for_all);

private:
  class store_connection;
  struct node {
    std::size_t address = 0;
    std::uint64_t life = 0; ///< The number of its process, counted from 1.
    bool is_alive = false;
    number made = 0; ///< The latest server of this controller.
    std::unique_ptr<control_server> server;
    std::shared_ptr<const leader_claim> claim; ///< Its latest.
    std::optional<std::string> decision;       ///< Waits for the store.
    time_point stopped_until{};
    time_point cut_off_until{}; ///< From the store.
    std::shared_ptr<machine_clock> clock;
  };

  [[nodiscard]] fibers::group group_of(const node& one) const noexcept;
  /// Returns the one that decides, else the one that has last.
  [[nodiscard]] node& struck();
  void await_running(const node& one) const;
  /// Checks that no other claim is valid when the store elects \p of (MEM-1).
  void note_election(const node& of);
  [[nodiscard]] bool lives(const node& one, std::uint64_t life) const { return one.life == life && one.is_alive; }
  void start(node& one);
  void run_elections(node& one, std::uint64_t life);
  void lead(node& one, std::uint64_t life, const std::shared_ptr<leader_claim>& claim);
  void end_server(node& one, bool is_killed);

  const scenario& of_;
  trace& log_;
  const callbacks with_;
  prng chance_;
  std::vector<node> nodes_;
  std::shared_ptr<machine_clock> store_clock_;
  std::shared_ptr<memory_store_state> store_;
  time_point store_cut_until_{};
  std::size_t elected_ = 0; ///< The address of the controller that the store has elected last.
  time_point elected_at_{}; ///< When the store has elected that after another one.
  number made_ = 0;
  std::size_t elections_ = 0;     ///< The number of processes that stand by or decide.
  std::size_t waiting_calls_ = 0; ///< call()s of a process that is stopped.
  bool has_ended_ = false;
};

template <class Call>
void simulated_controllers::call(number which, Call call) {
  for (node& one : nodes_) {
    if (one.made != which) continue;
    ++waiting_calls_;
    await_running(one);
    --waiting_calls_;
    if (!one.server || one.made != which) return;
    const fibers::group_scope with_its_clock{group_of(one)};
    return call(*one.server);
  }
}

} // namespace troupe::simulation
