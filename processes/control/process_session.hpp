/// Implements a rank's process in its session with the controller, without CAF.
#pragma once

#include <troupe/actors/world/controller_channel.hpp>
#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/serving_lease.hpp>
#include <troupe/processes/control/control_session.hpp>
#include <troupe/processes/control/epoch_rings.hpp>
#include <troupe/processes/order/order_connection.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// The services that process_session calls.
struct process_services {
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
  /// Called once, when the controller has admitted the process as a spare. Never blocks. May be empty.
  std::function<void()> stands_by{};
  fusion_limits fused{.mode = fusion::off};  ///< Which requests may be launched together; equal at all ranks.
  wait_profile ring_wait{};                  ///< How the thread that receives decisions from the rings waits.
  std::function<void()> enter_ring_thread{}; ///< Called first by that thread.
};

/// Takes part in the world as a rank or a spare. Requests and decisions of an epoch go through rings in shared memory
/// if the controller or an order service is on this host and both could set them up, else through the control
/// connection.
class process_session final : public controller_channel,
                              public control_session,
                              public std::enable_shared_from_this<process_session> {
public:
  process_session(session_services session, join_request who, process_services services);

  /// Sends \p what to the controller. Nothing is sent after a leave_notice. If the process ended before the controller
  /// has confirmed that (await_farewell()), it would count as lost.
  void tell(member_report what) override;
  void change(const rank_change& asked, std::shared_ptr<rank_change_promise> reply) override {
    control_session::change(asked, std::move(reply));
  }
  [[nodiscard]] std::shared_ptr<world_order> open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                        std::shared_ptr<exported_memory> exported = {}) override;
  /// Returns the lease under which the process serves.
  [[nodiscard]] std::shared_ptr<const serving_lease> lease() const noexcept { return lease_; }
  /// Ends the lease before the connection, whose end the controller takes as a proof of that.
  void end_lease() { lease_->revoke(); }
  /// Stops using rings permanently, and waits for the thread that reads them.
  void close_rings();
  /// Returns whether the requests of the present epoch go through rings.
  [[nodiscard]] bool has_rings() const;

private:
  process_message introduce() override;
  void admitted() override;
  void hear(controller_message& what) override;
  /// Applies the controller's decisions about this rank's requests in epoch \p of. Returns whether they could be read.
  bool follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view decided) override;
  void refuse(const error& why) override { end(why); }
  [[nodiscard]] nanoseconds silence_limit() const override;
  void lost(const error& why, bool was_connected) override;
  void ended(const error& why) override;
  void work(time_point now, running_time running) override;

  /// Returns whether the present epoch goes on although the process has lost its controller: it serves, the order of
  /// its requests is decided elsewhere, and its lease has not ended.
  [[nodiscard]] bool keeps_epoch() const;
  /// Returns whether the next controller learns of the connection that this process has to the gate of its host.
  [[nodiscard]] bool keeps_gate() const;
  /// Ends the lease and the present epoch, because of the loss of the controller.
  void give_up_epoch(const error& why);
  /// Reports that the decisions of an epoch are lost, to the world and to the controller.
  void lose_order(epoch of, const error& why);
  /// The same for the present epoch. Requires the lock.
  void fail_order(const error& why);
  /// Delivers \p what after `what.decided` batches of decisions have been applied. Only batches in rings can be
  /// outstanding.
  template <class Order>
  void deliver_after(Order what);
  /// Delivers the held messages whose decisions have been applied. \p all: also the others, whose decisions will not
  /// arrive.
  void release_held(bool all);
  void report(process_message what);
  /// Reports \p what now, or to a controller that is about to admit this process as one that keeps the epoch. Requires
  /// the lock.
  void report_failure(failed_report what);

  /// A message that waits for decisions in the rings.
  struct held_directive {
    std::uint64_t decided = 0;
    running_time since;
    controller_directive what;
  };

  join_request who_;
  process_services services_;
  const std::shared_ptr<serving_lease> lease_ = std::make_shared<serving_lease>();
  std::shared_ptr<order_connection> order_{}; ///< The order of the present epoch, if the controller keeps one.
  epoch epoch_{};                             ///< The epoch of the latest formation_directive; 0 before the first.
  epoch opened_{};                            ///< The epoch whose order has been opened.
  epoch serves_{};                            ///< The epoch that this rank has formed, until it fails or is to end.
  epoch holds_for_{};                         ///< See hold_wanted; 0 when it has been answered or given up.
  epoch changes_to_{};  ///< The epoch that it has prepared or holds requests for; 0 when it has begun or was given up.
  epoch outlasting_{};  ///< See lease_grant::outlasts.
  error orphaned_by_{}; ///< Why it has no controller; errc::none if it has one.
  std::optional<failed_report> unreported_{}; ///< The end of the epoch that its present join_request kept.
  std::vector<std::string> early_{};          ///< Batches of epoch_ that arrived before its order was opened.
  epoch_rings rings_;                         ///< Those of the present epoch.
  running_time knocked_{};                    ///< When a gate was looked for last.
  std::vector<held_directive> held_{};        ///< In the order of arrival.
};

} // namespace troupe
