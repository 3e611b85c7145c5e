/// The control connection of a process without a rank, which sends requests to the ranks of a world.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/peer_silence.hpp>
#include <troupe/processes/order/attached_order.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/processes/transport/shared_memory/ring_endpoint.hpp>

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

/// The services that driver_link calls.
struct driver_services {
  std::shared_ptr<const clock> time;
  /// Sends to the connected controller. Called from any thread; never blocks.
  std::function<void(std::string bytes)> send;
  /// Returns a new connection to the gate of the controller on this host; nullopt if there is none.
  std::function<std::optional<gate_connection>()> knock{};
  /// Reports a change of state; the end is the last one. Must not block. Called by one thread at a time; it may call
  /// the driver_link.
  std::function<void(const world_driver_event& now)> changed{};
  std::function<void(const error& why)> warned{};
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
class driver_link : public std::enable_shared_from_this<driver_link> {
public:
  driver_link(process_identity who, std::string token, driver_services services);
  ~driver_link();

  /// Returns the first message to a controller.
  [[nodiscard]] std::string introduction();
  void receive(std::string_view bytes);
  /// Reports that the connection has ended or could not be made.
  void disconnected(const error& why);
  /// Sends a heartbeat if one is due, and answers requests whose ranks have not answered in time. Returns true if the
  /// controller has been silent for the suspicion time: the caller must then connect again. Call it more often than
  /// heartbeats are due. Time without calls does not count as silence of the controller: see process_link::tick().
  [[nodiscard]] bool tick();
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

  /// Captures a plan at all ranks (peer_requests::capture()), and renews its lease until drop_plan() or close().
  void capture(std::string name, plan_steps steps, nanoseconds deadline, reply_promise reply) noexcept;
  void drop_plan(std::string_view name);

  [[nodiscard]] world_driver_event state() const;

private:
  [[nodiscard]] error objection_to(const world_request& asked) const;
  void hear(const controller_message& what);
  void hear(const world_report& report);
  /// Prepares to attach again, after the controller has detached this process because of its silence.
  void detach(const error& why);
  [[nodiscard]] bool is_to_attach();
  void open(const world_report& report);
  void end_order(const error& why);
  /// Ends the order, and reports that the world is not ready because of \p why.
  void suspend(const error& why);
  /// Answers the requests of orders that have ended.
  void answer_ended();
  void follow(epoch of, std::string_view batch);
  void lose_order(epoch of, const error& why);
  /// Returns the requests to the ranks of the present epoch, or null and the reason why none are admitted.
  [[nodiscard]] std::shared_ptr<peer_requests> peers_or(error& why) const;
  /// Returns the requests to the ranks of the present epoch; null while the world is not ready.
  [[nodiscard]] std::shared_ptr<peer_requests> present_peers() const;
  /// Adds the state to the news. Call tell_news() afterwards, without the lock.
  void change() { news_.push_back(state_); }
  /// Reports the changes of the state, in their order and without the lock: a listener may call this object.
  void tell_news();
  [[nodiscard]] running_time running_now() { return running_.read(services_.time->now(), admitted_.heartbeat); }

  const process_identity who_;
  const std::string token_;
  const driver_services services_;

  mutable std::mutex mutex_;
  join_welcome admitted_{};  ///< Its session is 0 while it is not admitted.
  bool is_detached_ = false; ///< Until it has introduced itself again.
  running_time spoke_{};
  peer_silence silence_; ///< Of the controller.
  running_clock running_;
  world_driver_event state_{.reason = {.code = errc::rebuilding, .text = "the controller has not been reached yet"}};
  std::shared_ptr<attached_order> order_{}; ///< The order of the present epoch.
  epoch opened_{};                          ///< The epoch of order_.
  std::optional<gate_connection> gate_{};
  std::shared_ptr<ring_endpoint> rings_{};
  std::vector<std::shared_ptr<ring_endpoint>> retired_{};                  ///< tick() and close() join their threads.
  std::vector<std::pair<std::shared_ptr<attached_order>, error>> ended_{}; ///< Until answer_ended().
  std::atomic<std::uint64_t> last_ticket_{0};
  std::atomic<bool> has_lent_{false}; ///< Whether memory or a plan was requested, whose lease must be renewed.
  running_time renewed_{};
  std::deque<world_driver_event> news_{};
  bool is_telling_ = false;                 ///< A thread is in tell_news().
  std::vector<remote_buffer> unreleased_{}; ///< Memory to give back when the world is ready again.
};

} // namespace troupe
