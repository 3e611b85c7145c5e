/// Implements the process's side of the protocol between a process and its world's controller, without CAF.
#pragma once

#include <troupe/actors/world/controller_channel.hpp>
#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/peer_silence.hpp>
#include <troupe/processes/order/order_connection.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/processes/transport/shared_memory/ring_endpoint.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The services that process_link calls.
struct link_services {
  std::shared_ptr<const clock> time;
  /// Sends to the connected controller. Called from any thread; never blocks.
  std::function<void(std::string bytes)> send;
  /// Sends to the world of this process. Called from any thread; never blocks.
  std::function<void(controller_directive)> deliver;
  /// Creates a unique id for a forming and passes it, or why it could not be created, to the callback. Must return
  /// without waiting for the id, whose creation may take long.
  std::function<void(std::function<void(const error& why, const unique_id& made)>)> make_id;
  /// Reports that the process has no controller and has stopped searching for one, because of \p why.
  std::function<void(const error& why)> abandoned;
  /// Connects to the gate of this host, if its controller or an order service is there. Returns without waiting. May be
  /// empty: the process's requests then go through its control connection.
  std::function<std::optional<gate_connection>()> knock{};
  /// Reports that the process could not use the offered rings. Its requests go through its control connection.
  std::function<void(const error& why)> without_rings{};
  /// Reports how the requests of this process's rank reach the order of an epoch.
  std::function<void(epoch of, bool through_rings)> order_opened{};
  fusion_limits fused{.mode = fusion::off};  ///< Which requests may be launched together; equal at all ranks.
  wait_profile ring_wait{};                  ///< How the thread that receives decisions from the rings waits.
  std::function<void()> enter_ring_thread{}; ///< Called first by that thread.
};

/// Holds the connection state of one process. Requests and decisions of an epoch go through rings in shared memory if
/// the controller is on this host and both could set them up, else through the control connection.
/// Threads: safe from any. The functions of link_services must not call the process_link.
class process_link final : public controller_channel, public std::enable_shared_from_this<process_link> {
public:
  /// \p orphaned_for: how long the process may be without a controller before it gives up.
  process_link(join_request who, link_services services, orphan_policy policy, nanoseconds orphaned_for);

  /// Returns the first message of a connection to a controller.
  [[nodiscard]] std::string introduction();
  /// Reports that the introduction has been sent to a connected controller.
  void connected();
  void receive(std::string_view bytes);
  /// Reports that the connection has ended or could not be made.
  void disconnected(const error& why);
  /// Checks the deadlines. Call it more often than heartbeats are due. Time without calls does not count as silence of
  /// the controller or of its rings: the process was stopped or not scheduled, and messages that arrived meanwhile have
  /// not been read.
  /// Returns whether a connection is needed.
  [[nodiscard]] bool tick();
  /// Sends a heartbeat if one is due. Does not check the controller's silence.
  void beat();

  /// Sends \p what to the controller. Nothing is sent after a leave_notice.
  void tell(member_report what) override;
  /// Waits after a leave_notice until the controller has confirmed it, for at most \p at_most. If the process ended
  /// earlier, the controller would treat it as lost.
  void await_farewell(nanoseconds at_most);
  [[nodiscard]] std::shared_ptr<world_order> open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                        std::shared_ptr<exported_memory> exported = {}) override;
  /// Stops using rings permanently, and waits for the thread that reads them.
  void close_rings();
  /// Returns whether the controller has admitted the process.
  [[nodiscard]] bool is_joined() const;
  /// Returns whether the process, when it was admitted, was to stand by until a place is free.
  [[nodiscard]] bool is_spare() const;
  /// Returns whether the requests of the present epoch go through rings.
  [[nodiscard]] bool has_rings() const;

private:
  enum class state : std::uint8_t { unconnected, joining, joined, leaving, left };

  void hear(const join_welcome& welcome);
  /// Applies the controller's decisions about this rank's requests in epoch \p of. Returns whether they could be read.
  bool follow(epoch of, std::string_view decided);
  /// Reports that the decisions of an epoch are lost, to the world and to the controller.
  void lose_order(epoch of, const error& why);
  /// The same for the present epoch. Requires the lock.
  void fail_order(const error& why);
  /// Connects to the gate of this host if that is possible and there is no connection.
  void knock(running_time now);
  void accept_rings(const formation_directive& directive);
  /// Drops the rings of an epoch that has ended. A later tick() joins their thread.
  void retire_rings();
  /// Delivers \p what after `what.decided` batches of decisions have been applied. Only batches in rings can be
  /// outstanding.
  template <class Order>
  void deliver_after(Order what);
  /// Delivers the held messages whose decisions have been applied. \p all: also the others, whose decisions will not
  /// arrive.
  void release_held(bool all);
  void end(const error& why);
  void take_leave();
  /// Sends \p what if the process has been admitted. Nothing is sent after a leave_notice.
  void report(process_message what);
  void send(process_message what);
  [[nodiscard]] running_time running_now() { return running_.read(services_.time->now()); }

  /// A message that waits for decisions in the rings.
  struct held_directive {
    std::uint64_t decided = 0;
    running_time since;
    controller_directive what;
  };

  mutable std::mutex mutex_;
  condition leaving_ended_; ///< Signals the end of state::leaving.
  join_request who_;
  link_services services_;
  const orphan_policy policy_;
  const nanoseconds orphaned_for_;
  state state_ = state::unconnected;
  bool was_joined_ = false;
  bool is_spare_ = false; ///< According to the latest join_welcome.
  std::atomic<session_id> session_{0};
  nanoseconds heartbeat_{std::chrono::milliseconds{250}};
  nanoseconds suspicion_{std::chrono::seconds{10}};
  peer_silence silence_; ///< Of the controller.
  running_clock running_;
  running_time spoke_{};
  running_time orphaned_{};                   ///< Time since which it has had no controller.
  std::shared_ptr<order_connection> order_{}; ///< The order of the present epoch, if the controller keeps one.
  epoch epoch_{};                             ///< The epoch of the latest formation_directive.
  epoch opened_{};                            ///< The epoch whose order has been opened.
  std::vector<std::string> early_{};          ///< Batches of epoch_ that arrived before its order was opened.

  std::optional<gate_connection> gate_{};
  running_time knocked_{};                    ///< The time of the latest knock().
  std::optional<ring_connection> accepted_{}; ///< The rings of the present epoch, before open_order().
  std::shared_ptr<ring_endpoint> rings_{};    ///< The rings of the present epoch, after open_order().
  std::vector<std::shared_ptr<ring_endpoint>> retired_{};
  std::vector<held_directive> held_{}; ///< In the order of arrival.
  bool is_closed_to_rings_ = false;
};

} // namespace troupe
