/// Defines the controller actor of a world that spans processes. All processes of the world send to this actor.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/control/controller_state.hpp>
#include <troupe/collectives/order/distributed/order_service.hpp>
#include <troupe/collectives/transport/shared_memory/order_gate.hpp>
#include <troupe/collectives/transport/transport.hpp>
#include <troupe/device/threads/worker.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Callbacks of a controller's owner. The controller's actor calls them while it handles a message, so they must
/// neither block nor throw.
struct controller_hooks {
  /// Sends a frame to a process. Called by the thread of the order, too.
  std::function<void(peer_id to, std::string bytes)> send;
  std::function<void(const control_event&)> heard;
  /// Called when peers of an operation are late.
  std::function<void(const absence_report&)> straggling;
  /// Called for input that is not a valid troupe message or not meant for this world.
  std::function<void(const error&)> refused;
  /// Called when a rank cannot be given rings in shared memory although its process is on this host.
  std::function<void(const error&)> without_rings;
  /// Called to ensure that a process is dead.
  std::function<void(const process_identity&)> kill;
  /// Called when the order service of another host has joined.
  std::function<void(const process_identity&)> host_joined;
  /// Called when a process has joined.
  std::function<void(const process_identity&)> joined;
  /// Called when the world rebuilds and there is no process for this place.
  std::function<void(int place)> wanted;
  /// Called when the world has ended. \p why is errc::none if all processes have finished their work.
  std::function<void(const error& why)> ended;
};

using controller_inner_handle = compat::typed_actor<caf::result<void>(controller_note)>;

/// Connects controller_state to the transport and to CAF: it passes on frames of processes (control_codec.hpp) and
/// ticks, and executes the returned effects. It hands rings in shared memory to the processes that have come to its
/// gate, and owns the thread that reads them ("troupe/order"). It ends on quit_control. If an exception in a handler
/// ends it, its hooks report that the world has failed.
class controller_actor final : public controller_inner_handle::base {
public:
  /// \p gate may be null: all requests then come through the control connections. \p wait: of the order's thread.
  controller_actor(caf::actor_config& settings, controller_terms terms, sequencer_limits limits,
                   const wait_profile& wait, std::shared_ptr<order_gate> gate, controller_hooks hooks);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void hear(peer_id from, std::string_view bytes);
  void admit(peer_id from, const join_request& asked);
  void lose(peer_id process);
  void carry_out(const control_effects& effects);
  void send(link_id to, const controller_message& what);
  void announce(control_event event);
  /// Begins the order of an epoch: makes rings for the ranks whose processes can have them. Where other hosts have
  /// order services, first asks these to make rings for their ranks, and holds back what it has to tell processes
  /// meanwhile.
  void open_order(epoch of, int world_size);
  /// Opens the order, with the services of other hosts that have answered.
  void finish_opening();
  void admit_host(peer_id from, const host_join_request& asked);
  void hear_of_host(link_id from, const process_message& what);
  void tell_host(link_id which, const controller_message& what);
  /// Fails the epoch if the host serves it.
  void fail_host(link_id which, error why);
  void lose_host(link_id which);
  /// Finds hosts that are silent, or too late with rings.
  void watch_hosts(time_point now);
  [[nodiscard]] std::optional<ring_connection> offer_rings(link_id to, rank self, epoch of);
  /// Returns \p what with the number of decisions that precede it.
  [[nodiscard]] controller_message mark(link_id to, const controller_message& what) const;
  /// Adds to the report of an operation that did not end in time which operation of all processes hangs.
  void complete(link_id from, failed_report& report) const;
  /// Adds the requests of a process's rank to the common order.
  void take(link_id from, const order_batch& asked);
  /// Handles what the order has found: lost ranks and late peers.
  void hear_of_order();
  void forget(link_id which);
  void tick_later();

  /// An order service of another host.
  struct order_host {
    peer_id to{};
    process_identity who{};
    time_point heard{};
    bool is_asked = false;                         ///< To serve the epoch that is about to begin.
    epoch served{};                                ///< The last epoch that it serves.
    std::vector<rank> ranks{};                     ///< Those that it serves there.
    std::shared_ptr<const resume_points> resume{}; ///< See serving_report.
  };
  /// An epoch whose order is about to begin.
  struct opening {
    epoch of;
    std::vector<order_route> routes{};
    std::vector<rank> candidates{};
    time_point until{};
    error closed{}; ///< Why it has ended before it began.
  };

  controller_state state_;
  std::shared_ptr<order_service> order_;
  const sequencer_limits limits_;
  std::shared_ptr<order_gate> gate_;
  controller_hooks hooks_;
  epoch opened_{}; ///< The epoch of the order.
  bool is_ordering_ = false;
  bool is_told_to_quit_ = false;
  std::map<link_id, peer_id> links_;
  std::map<link_id, gate_connection> rings_; ///< The processes that have come to the gate.
  std::map<link_id, ring_session> nonces_;   ///< Of the other processes that have come to a gate, on another host.
  std::map<link_id, order_host> hosts_;
  std::vector<link_id> serving_; ///< The hosts in the order in which order_ knows them.
  std::optional<opening> opening_;
  std::vector<std::pair<link_id, controller_message>> held_; ///< For processes, while opening_ is set.
  std::vector<link_id> held_closes_;                         ///< Links to close afterwards.
  std::shared_ptr<const resume_points> resume_{};            ///< Of opened_, if only a host knows it.
  time_point ticked_{};
  std::map<peer_id, link_id> latest_; ///< The latest link of each connected process, which may join several times.
  worker ordering_;                   ///< Runs order_. Ended by on_exit().
};

} // namespace troupe
