/// The member's end of a session with the controller of a world.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/control_messages.hpp>
#include <troupe/processes/control/peer_silence.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// What all sessions need, whatever the member's role.
struct session_services {
  std::shared_ptr<const clock> time;
  /// Sends to the connected controller. Called from any thread; never blocks.
  std::function<void(std::string bytes)> send;
  /// How long the member may be without an answer of a controller before it gives up.
  nanoseconds patience = nanoseconds::max();
  /// Whether it gives up as soon as a controller that has admitted it is lost, unless that has successors.
  bool ends_with_controller = false;
};

/// One authenticated, heartbeating connection between a member of a world and its controller. It introduces the member
/// on each connection, hears only messages of the session that the controller has then given it (EPO-1), keeps it alive
/// by heartbeats, notices a controller that is silent or does not answer, and gives up after its patience. The roles
/// (rank, driver, order service) derive from it and handle their messages.
///
/// All times are those of a running_clock, which each message and each tick() read: in time without them the process
/// was stopped or not scheduled, and messages that arrived meanwhile have not been read.
///
/// Threads: safe from any. Services must not call the session unless they say so.
class control_session {
public:
  control_session(const control_session&) = delete;
  control_session& operator=(const control_session&) = delete;
  virtual ~control_session() = default;

  /// Begins a session over a new connection. Returns its first message, which the controller answers.
  [[nodiscard]] std::string introduction();
  void receive(std::string_view bytes);
  /// Reports that the connection has ended or could not be made. invalid_argument means that no other attempt can
  /// succeed.
  void disconnected(const error& why);
  /// Checks the deadlines, and sends a heartbeat if one is due. Call it more often than heartbeats are due. Returns
  /// whether a connection is needed: there is none, or the controller is silent.
  [[nodiscard]] bool tick();
  /// Asks the controller for a change of the ranks. \p reply is answered once, by any thread without a lock of this
  /// object. Errors: those of rank_change; rebuilding (no controller has admitted the member now), busy; with an
  /// unknown outcome: communicator_failed (the controller is lost), stopping.
  void change(const rank_change& asked, std::shared_ptr<value_promise<world_processes>> reply);
  /// Reports that no controller is searched for any more.
  void give_up(const error& why);
  /// Returns why the member needs no session any more, if its owner is to stop searching for a controller.
  [[nodiscard]] virtual std::optional<error> over() const { return std::nullopt; }
  /// Waits after the last message until the controller, or its successor, has confirmed it, for at most \p at_most.
  void await_farewell(nanoseconds at_most);
  /// Returns whether the controller has admitted the member.
  [[nodiscard]] bool is_joined() const;
  /// Returns whether the member, when it was admitted, was to stand by until a place is free.
  [[nodiscard]] bool is_spare() const;

protected:
  explicit control_session(session_services services);

  // A role implements these. They are called with mutex_ locked, except the last two.
  /// Returns the first message of a connection.
  [[nodiscard]] virtual process_message introduce() = 0;
  /// Handles a message of the present session. Heartbeats and answers to introductions are not passed.
  virtual void hear(controller_message& what) = 0;
  /// Handles a batch of the order of an epoch, from the connection or from rings. May unlock \p lock. Returns whether
  /// it could be read. No settle() follows.
  virtual bool follow(std::unique_lock<std::mutex>& lock, epoch of, std::string_view batch) = 0;
  /// Handles a message that is none.
  virtual void refuse(const error& why) = 0;
  /// Called when a controller has admitted the member.
  virtual void admitted() {}
  /// Returns the silence after which the controller is searched for again.
  [[nodiscard]] virtual nanoseconds silence_limit() const { return terms_.suspicion; }
  /// Handles the loss of the controller, which may come back. \p was_connected: false if an attempt to connect failed.
  virtual void lost(const error& why, bool was_connected) = 0;
  /// Handles the end of all sessions: the controller has refused the member, the member has given up, or, if \p why is
  /// errc::none, its last message has been confirmed.
  virtual void ended(const error& why) = 0;
  /// Called at each tick, without the lock. \p now is real time, \p running that of the running_clock.
  virtual void work([[maybe_unused]] time_point now, [[maybe_unused]] running_time running) {}
  /// Called after each of the above, without the lock.
  virtual void settle() {}

  // For roles, with mutex_ locked:
  [[nodiscard]] const std::shared_ptr<const clock>& time() const noexcept { return services_.time; }
  [[nodiscard]] time_point now() const { return services_.time->now(); }
  /// Reads the running_clock by which the silence and slowness of the controller are judged.
  [[nodiscard]] running_time running_now() { return running_.read(now()); }
  [[nodiscard]] bool is_in_session() const noexcept { return state_ == state::joined; }
  /// Returns whether a controller has ever admitted the member.
  [[nodiscard]] bool was_joined() const noexcept { return was_joined_; }
  /// Sends \p what if the controller has admitted the member.
  void send(process_message what);
  /// Sends the last message; nothing is sent after it. \p is_confirmed: await_farewell() waits until the controller
  /// has answered with a stop_directive or a fence_notice. If there is no controller, and the lost one has successors,
  /// the message waits for the next.
  void leave(leave_notice what, bool is_confirmed);
  /// Returns a function that sends batches of an epoch in the present session, from any thread and without the lock.
  [[nodiscard]] std::function<void(std::string)> batch_sender(epoch of) const;
  /// As batch_sender(), in whichever session is the present one when it is called.
  [[nodiscard]] std::function<void(std::string)> lasting_batch_sender(epoch of) const;
  /// Returns the time since boot at which heartbeat \p number of this session, or with 0 the introduction, was sent;
  /// nullopt if that is not known. Forgets the earlier ones.
  [[nodiscard]] std::optional<boot_time> sent_at(std::uint64_t number);
  /// Sends a heartbeat now.
  void beat();
  /// Return what the controller has said when it admitted the member.
  [[nodiscard]] bool grants_leases() const noexcept { return terms_.grants_leases; }
  [[nodiscard]] nanoseconds heartbeat_period() const noexcept { return terms_.heartbeat; }
  [[nodiscard]] nanoseconds suspicion() const noexcept { return terms_.suspicion; }
  [[nodiscard]] bool has_successors() const noexcept { return terms_.has_successors; }
  [[nodiscard]] bool stands_by() const noexcept { return terms_.is_spare; }
  [[nodiscard]] epoch latest_epoch() const noexcept { return terms_.latest; }
  /// Introduces the member again over the same connection, because the controller has ended its session.
  void rejoin();
  /// Ends all sessions, because of \p why.
  void end(const error& why);

  /// Delivers the answers to change() that have come. Without the lock.
  void answer_changes();

  /// Handles a batch from rings, which is a sign of life of the controller. Without the lock.
  bool follow_ring(epoch of, std::string_view batch);

  mutable std::mutex mutex_;

private:
  enum class state : std::uint8_t { unconnected, joining, joined, leaving, left };

  [[nodiscard]] std::string begin();
  void answer(const controller_message& what);
  void lose(const error& why);
  /// Answers all of change() that wait with \p why and an unknown outcome.
  void fail_changes(error why);
  /// Does what follows each call, without the lock.
  void finish();

  struct change_answer {
    std::shared_ptr<value_promise<world_processes>> to;
    std::variant<world_processes, error> with;
  };

  const session_services services_;
  std::map<std::uint64_t, std::shared_ptr<value_promise<world_processes>>>
      changes_; ///< Those that wait for answers, by number.
  std::uint64_t last_change_ = 0;
  std::vector<change_answer> answers_; ///< For answer_changes().
  condition leaving_ended_;            ///< Signals the end of state::leaving.
  state state_ = state::unconnected;
  bool was_joined_ = false;
  std::optional<leave_notice> farewell_{}; ///< The last message, which waits for a controller.
  /// The number of the present session, for threads without the lock.
  const std::shared_ptr<std::atomic<session_id>> session_ = std::make_shared<std::atomic<session_id>>(0);
  join_welcome terms_{.heartbeat = std::chrono::milliseconds{250}, .suspicion = std::chrono::seconds{10}};
  peer_silence silence_; ///< Of the controller.
  running_clock running_;
  running_time beat_{};     ///< The time of the latest heartbeat.
  std::uint64_t beats_ = 0; ///< The number of heartbeats in this session.
  /// When the introduction and those heartbeats were sent that have not been answered, by number.
  std::map<std::uint64_t, boot_time> unanswered_;
  running_time orphaned_; ///< Time since which it has had no controller.
};

} // namespace troupe
