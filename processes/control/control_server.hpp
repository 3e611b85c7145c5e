/// Implements a controller without CAF: it connects controller_state and order_service to the connections of processes
/// and of the order services of other hosts.
#pragma once

#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/processes/control/attached_drivers.hpp>
#include <troupe/processes/control/controller_state.hpp>
#include <troupe/processes/control/session_table.hpp>
#include <troupe/processes/order/order_service.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/processes/transport/transport.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Callbacks of a controller's owner, each of which may be empty. The controller calls them while it handles a message,
/// so they must neither block nor throw.
struct controller_hooks {
  /// Sends a frame to a process. Called by the thread of the order, too.
  frame_sender send{};
  std::function<void(const control_event&)> heard{};
  /// Called when peers of an operation are late.
  std::function<void(const absence_report&)> straggling{};
  /// Called for input that is not a valid troupe message or not meant for this world.
  std::function<void(const error&)> refused{};
  /// Called when a rank cannot be given rings in shared memory although its process is on this host.
  std::function<void(const error&)> without_rings{};
  /// Called to ensure that a process is dead.
  std::function<void(const process_identity&)> kill{};
  /// Called when the order service of another host has joined.
  std::function<void(const process_identity&)> host_joined{};
  /// Called when a process has joined.
  std::function<void(const process_identity&)> joined{};
  /// Called when the world rebuilds and there is no process for this place.
  std::function<void(int place)> wanted{};
  /// Called when the world has ended. \p why is errc::none if all processes have finished their work.
  std::function<void(const error& why)> ended{};
  /// Called when a batch that arrived through a rank's control connection has been added to the order.
  std::function<void(rank self, epoch of)> batch_added{};
  /// Called before the order of an epoch is closed: no later batch of this epoch is added.
  std::function<void(epoch of)> order_closed{};
  /// Writes a decision into the store. Call decided() when the store has it; nothing that follows from the decision
  /// happens before. Set with controller_terms::has_successors.
  std::function<void(const control_record& what)> decide{};
  /// Returns until when this controller may grant leases (controller_state::claim_until()).
  std::function<boot_time()> claimed_until{};
};

/// The random numbers and the time of day that a controller uses.
struct control_sources {
  /// Returns a session that no process can guess, and that is not 0.
  std::function<session_id()> draw_session;
  /// Returns the nanoseconds since 1970.
  std::function<std::int64_t()> wall_clock;
};
/// Returns the sources of this machine.
[[nodiscard]] control_sources system_sources();

/// Passes the frames of processes (control_codec.hpp) to controller_state or to the common order, and executes the
/// effects that controller_state returns. It gives rings in shared memory to the processes that have connected to its
/// gate, and owns the thread that reads the rings ("troupe/order").
/// Threads: one call at a time. The thread of the order calls only controller_hooks::send and
/// order_service_settings::on_news.
class control_server {
public:
  /// The interval at which tick() is to be called.
  static constexpr std::chrono::milliseconds tick_interval{20};

  /// \p gate may be null: all requests then come through the control connections. After
  /// order_service_settings::on_news the owner calls hear_of_order().
  control_server(controller_terms terms, const order_service_settings& ordering, std::shared_ptr<order_gate> gate,
                 controller_hooks hooks, control_sources sources = system_sources());
  control_server(const control_server&) = delete;
  control_server& operator=(const control_server&) = delete;
  ~control_server();

  /// Takes the world over from the former controller, whose last decision was \p found. With
  /// controller_terms::has_successors, it is called first.
  void take_over(const std::optional<control_record>& found);
  /// Continues after controller_hooks::decide.
  void decided();

  /// Starts the thread of the order if there is a gate.
  void run_order();
  /// Ends this thread and drops all connections.
  void end_order();

  void tick();
  /// Handles a frame from a connection.
  void hear(peer_id from, std::string_view bytes);
  /// Handles the end of a connection.
  void lose(peer_id process, session_end how);
  /// Handles the end of a process, as observed by the program that started it.
  void process_ended(std::string_view name, std::int64_t pid, const std::string& how);
  /// Asks all processes to finish their work and end, as soon as the order can be closed.
  void stop();
  /// Changes the ranks (controller_state::on_change_asked()). \p answered is called once.
  void change(const rank_change& asked, std::optional<session_id> asker,
              std::function<void(const error& why)> answered);
  /// Handles the findings of the order service: lost ranks and late peers.
  void hear_of_order();
  /// Reports that the world has failed because the controller itself has. No other function may be called afterwards.
  void fail(const error& why) const;

  [[nodiscard]] const controller_state& state() const noexcept { return state_; }

private:
  [[nodiscard]] running_time running_now() { return state_.read_clock(boot_clock::now()); }
  struct process_connection {
    peer_id to{};
    std::optional<gate_connection> gate{}; ///< Set if the process has connected to the gate.
    std::optional<ring_session> nonce{};   ///< Set if it has connected to the gate of another host.
    /// Whether an order service has been told the nonce, or an epoch has waited for one.
    bool was_claimable = false;
  };

  /// An order service of another host.
  struct order_host : peer_session {
    process_identity who{};
    bool is_asked = false;                         ///< Its answer to serve_directive is outstanding.
    epoch served{};                                ///< The last epoch that it serves.
    std::size_t index = 0;                         ///< Its number in order_ in that epoch.
    std::vector<rank> ranks{};                     ///< The ranks that it serves in that epoch.
    bool decides = false;                          ///< They are all ranks, so it decides their order.
    std::shared_ptr<const resume_points> resume{}; ///< See serving_report.
    std::optional<serving_report> unproven{};      ///< Waits for note_kept().
    std::vector<std::string> early{};              ///< The batches behind it.
  };

  void admit(peer_id from, const join_request& asked);
  /// Handles a request of a process or a driver.
  void hear_of_change(session_id from, const change_request& asked);
  void carry_out(const control_effects& effects);
  void decide(control_record what);
  void send(session_id to, const controller_message& what);
  void announce(control_event event);
  void admit(peer_id from, const attach_request& asked);
  /// Tells drivers the state of the world.
  void tell_drivers(const control_event& event);
  /// Begins the order of an epoch: creates rings for the ranks whose processes have connected to the gate. If other
  /// hosts have order services, first asks these to create rings for their ranks. Until they answer, messages to
  /// processes are held back. So they are until a service joins whose gate processes have found before it did.
  void open_order(const control_effect::open_order& begun);
  /// Opens the order, together with those services of other hosts that have answered.
  void finish_opening();
  void finish_opening_if_answered();
  void close_order(const error& why);
  /// Returns the order service that decides the order of all ranks in the present epoch; null: it is decided here, or
  /// at several places.
  [[nodiscard]] session_table<order_host>::value_type* find_decider();
  /// Returns whether all processes have connected to one gate, as far as is known.
  [[nodiscard]] bool are_at_one_gate() const;
  /// Returns whether the present order is decided at one place, which can decide that of the next epoch, too.
  [[nodiscard]] bool can_hold_order();
  void note_order_held(session_table<order_host>::value_type& by, const order_held_report& report);
  /// Holds the order as soon as the drivers hold their requests.
  void hold_if_quiet();
  /// Handles the nonce that a process has sent to the gate of its host.
  void note_gate(session_id from, const ring_session& nonce);
  /// Handles that the process with this nonce has left the gate of its host.
  void note_departure(const ring_session& nonce);
  void refresh_claim();
  /// Goes on with the order of an epoch that a former controller has opened, if the service \p host decides it for all
  /// ranks. Returns true if it does, and if its report is kept until note_kept() proves it: a service whose answer came
  /// too late reports an epoch that the former controller has opened without it.
  bool adopt_order(session_table<order_host>::value_type& host, const serving_report& report);
  void adopting(bool is_adopting);
  /// Handles that process \p from has joined, and has not given up epoch \p kept. Processes keep only an epoch whose
  /// order one service decides for all ranks, so the service's report is true.
  void note_kept(session_id from, epoch kept);
  /// Fails the present epoch if its service has not joined in time: nobody else would notice that it hangs (TIM-1).
  void fail_unadopted(running_time now);
  /// Fails the present epoch, whose order cannot be decided, because of \p why.
  void fail_opened(std::string why);
  void add_host(peer_id from, const process_identity& who, const join_welcome& welcome);
  void hear_of_host(session_table<order_host>::value_type& from, const process_message& what);
  void hear_batch(const order_host& from, std::string_view bytes);
  /// Fails the epoch if the host serves it.
  void fail_host(const order_host& host, error why);
  void lose_host(session_id which);
  [[nodiscard]] bool is_any_host_asked();
  /// Sends heartbeats to drivers and order services, drops those that are silent, and stops waiting for services that
  /// are late with rings.
  void watch_attached(running_time now);
  [[nodiscard]] std::optional<ring_connection> offer_rings(process_connection& to, rank self, epoch of);
  /// Returns \p what with the number of decisions that precede it.
  [[nodiscard]] controller_message mark(session_id to, const controller_message& what) const;
  /// Keeps how many requests of a rank have succeeded, for the order that goes on in the next epoch.
  void note_successes(rank from, const drained_report& drained);
  /// If \p report is about an operation that did not end in time, adds which operation hangs, considering all processes
  /// (judge_hang()).
  void complete(session_id from, failed_report& report);
  /// Adds the requests of a process's rank to the common order.
  void take(session_id from, const order_batch& asked);

  /// An epoch whose order is about to begin.
  struct opening {
    epoch of;
    std::vector<order_route> routes{};
    std::vector<rank> candidates{};
    std::vector<std::optional<rank>> before{}; ///< See control_effect::open_order.
    std::optional<session_id> holder{};        ///< See holder_.
    running_time until{};
    std::optional<serve_directive> first_asked{}; ///< For the first order service that joins; waits for that.
    error closed{}; ///< Why the epoch ended before its order began; errc::none if it has not.
  };

  controller_state state_;
  order_service order_;
  const sequencer_limits limits_;
  std::shared_ptr<order_gate> gate_;
  const controller_hooks hooks_;
  const control_sources sources_;
  epoch opened_{}; ///< The epoch of the order.
  bool is_ordering_ = false;
  std::map<change_id, std::function<void(const error& why)>> changing_; ///< The answers to change().
  change_id last_change_ = 0;
  bool is_holding_ = false; ///< hold_if_quiet() waits for drivers.
  epoch holds_for_{};       ///< The epoch that is to follow when the order is held.
  /// The order service that has held the present order, also if it is lost since (order_held_report). If there is none,
  /// and the next epoch goes on with the order, it was held here.
  std::optional<session_id> holder_{};
  std::vector<std::uint64_t> successes_{}; ///< Then of each rank, when it has drained.
  std::map<session_id, process_connection> sessions_;
  session_table<order_host> hosts_{hooks_.send};
  /// The order services that serve the present order and have lost their connection. They keep its resume points.
  std::vector<process_identity> away_hosts_;
  attached_drivers drivers_{order_, hooks_.send};
  /// Whether the present epoch goes on without a controller: a host decides the order of all ranks, or there is one.
  bool outlasts_ = false;
  bool is_adopting_ = false; ///< A former controller has opened the present epoch.
  bool is_kept_ = false;     ///< Since then a process has joined that keeps this epoch.
  running_time adopting_until_{};
  bool is_stop_due_ = false; ///< stop() waits for the end of is_adopting_.
  bool is_deciding_ = false;
  control_effects undecided_; ///< Effects that wait for decided().
  std::map<session_id, ring_session> nonces_;
  std::set<session_id> gone_; ///< Those of nonces_ whose processes have left the gate of their host.
  std::optional<opening> opening_;
  control_effects held_;                          ///< Effects for processes, held while opening_ is set.
  std::shared_ptr<const resume_points> resume_{}; ///< Set if only a host knows the points of opened_.
  bool is_on_one_node_ = false;                   ///< See formation_directive. Of opened_.
  running_time beat_{};                           ///< The time of the latest heartbeat to order services and drivers.
  std::map<peer_id, session_id> latest_; ///< The latest session of each connected process; it may join several times.
  worker ordering_;                      ///< Runs order_. Ended by end_order().
};

} // namespace troupe
