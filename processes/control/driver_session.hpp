/// Implements a driver, a process without a rank that sends requests to the ranks of a world, in its session with the
/// controller.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/processes/control/control_session.hpp>
#include <troupe/processes/control/epoch_rings.hpp>
#include <troupe/processes/order/attached_order.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// The services that driver_session calls.
struct driver_services {
  /// Returns a new connection to the gate of the controller on this host; nullopt if there is none.
  std::function<std::optional<gate_connection>()> knock{};
  /// Reports a change of state; the end is the last one. Must not block. Called by one thread at a time; it may call
  /// the driver_session.
  std::function<void(const world_event& now)> changed{};
  std::function<void(const error& why)> warned{};
  /// Reports an agreed value of the world, once hear_agreed() has been called. Must neither block nor throw, and must
  /// not call the driver_session.
  peer_requests::agreed_listener agreed{};
  wait_profile ring_wait{};
  nanoseconds default_deadline = std::chrono::minutes{1};
  /// Maximum number of its requests that have not been answered. Further ones are refused (busy).
  std::size_t most_pending = 1024;
  /// Identifies this driver as the holder of memory and plans at the ranks. Random, not 0.
  std::uint64_t holder = 0;
  /// Ranks release the memory and plans that this driver holds if the lease is not renewed for this long.
  nanoseconds lease = longest_lease;
};

/// Follows the world's controller, and sends requests to the ranks of the present epoch (peer_requests). A request ends
/// with its epoch: if it has been sent, its outcome is then unknown.
/// Threads: safe from any. The functions of driver_services must not call it, except `changed`.
class driver_session final : public control_session, public std::enable_shared_from_this<driver_session> {
public:
  driver_session(session_services session, process_identity who, std::string token, driver_services services);
  ~driver_session() override;

  /// Answers pending and later requests with \p why, reports the end, and joins the thread that reads rings.
  void close(const error& why);

  /// Sends \p asked to all ranks, or delivers the reason for a refusal to \p reply (ONE-1). Never blocks.
  void ask(world_request asked, reply_promise reply) noexcept;

  /// These ask the process of a rank for memory, or for its contents: see peer_requests. The lease of memory from
  /// lend() is renewed until give_back() or close().
  void find(rank target, const std::string& name, nanoseconds deadline, peer_requests::handle_promise reply);
  void lend(rank target, lent_kind what, std::size_t size_bytes, nanoseconds deadline,
            peer_requests::handle_promise reply);
  void give_back(const remote_buffer& lent);
  void read(const remote_buffer& from, nanoseconds deadline, peer_requests::bytes_promise reply);

  /// Reports the agreed values of the world from now on, in this epoch and later ones: driver_services::agreed.
  void hear_agreed();

  /// Captures a plan at all ranks (peer_requests::capture()), and renews its lease until drop_plan() or close().
  void capture(std::string name, plan_steps steps, nanoseconds deadline, reply_promise reply) noexcept;
  void drop_plan(std::string_view name);

  /// Returns the state of the world, as far as this driver knows it. world_phase::stopped: the world has ended, or the
  /// controller has refused this driver, or it has given up; no change follows.
  [[nodiscard]] world_event state() const;
  /// Returns whether requests go through rings in the present epoch.
  [[nodiscard]] bool has_rings() const;
  [[nodiscard]] std::optional<error> over() const override;

private:
  [[nodiscard]] error objection_to(const world_request& asked) const;
  [[nodiscard]] bool is_ready() const noexcept { return state_.phase == world_phase::ready; }
  [[nodiscard]] bool is_over() const noexcept { return state_.phase == world_phase::stopped; }
  /// Returns the phase in which no requests are admitted, although the world has not ended.
  [[nodiscard]] world_phase unready() const noexcept {
    return state_.epoch == epoch{} ? world_phase::forming : world_phase::rebuilding;
  }
  process_message introduce() override;
  void hear(controller_message& what) override;
  bool follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view batch) override;
  void refuse(const error& why) override { services_.warned(why); }
  void lost(const error& why, bool was_connected) override;
  void ended(const error& why) override;
  /// Renews leases, and answers requests whose ranks have not answered in time.
  void work(time_point now, running_time running) override;
  /// Answers the requests of orders that have ended, and reports changes.
  void settle() override;

  void hear(const world_report& report);
  /// Begins to use the order of the next epoch, to which the requests that are held are passed on by settle().
  void continue_in(const world_report& report);
  void open(const world_report& report);
  void end_order(const error& why);
  /// Ends the order, and reports that the world is not ready because of \p why.
  void suspend(const error& why);
  void lose_order(epoch of, const error& why);
  [[nodiscard]] std::shared_ptr<peer_requests> peers_or(error& why) const;
  /// Returns the requests to the ranks of the present epoch; null while the world is not ready.
  [[nodiscard]] std::shared_ptr<peer_requests> present_peers() const;
  /// Sets the phase and adds the state to the news. Call tell_news() afterwards, without the lock.
  void enter(world_phase to);
  /// Reports the changes of the state, in their order and without the lock: a listener may call this object.
  void tell_news();

  const process_identity who_;
  const std::string token_;
  const driver_services services_;

  world_event state_{.reason = {.code = errc::rebuilding, .text = "the controller has not been reached yet"}};
  std::shared_ptr<attached_order> order_{};                                ///< The order of the present epoch.
  epoch opened_{};                                                         ///< The epoch of order_.
  epoch_rings rings_;                                                      ///< Those of the present epoch.
  std::vector<std::pair<std::shared_ptr<attached_order>, error>> ended_{}; ///< Until settle().
  std::shared_ptr<attached_order> next_{}; ///< Replaces order_ in settle(): see continue_in().
  epoch held_for_{};                       ///< See world_report::next.
  bool is_to_hold_ = false;                ///< settle() begins to hold requests.
  bool is_held_ = false;                   ///< Requests are held, for the next epoch or until a report says otherwise.
  bool is_to_resume_ = false;              ///< settle() ends that.
  bool hears_agreed_ = false;              ///< See hear_agreed().
  std::atomic<std::uint64_t> last_ticket_{0};
  std::atomic<bool> has_lent_{false}; ///< Whether memory or a plan was requested, whose lease must be renewed.
  running_time renewed_{};
  std::deque<world_event> news_{};
  bool is_telling_ = false;                 ///< A thread is in tell_news().
  std::vector<remote_buffer> unreleased_{}; ///< Memory to give back when the world is ready again.
};

} // namespace troupe
