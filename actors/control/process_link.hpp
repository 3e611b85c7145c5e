/// A process's side of what it and its world's controller say to each other, without CAF.
#pragma once

#include <troupe/actors/control/control_messages.hpp>
#include <troupe/actors/world/world_guide.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// What a process does when it has lost its controller.
enum class orphan_policy : std::uint8_t {
  leave,  ///< Its world ends.
  rejoin, ///< It waits for the controller to come back at its address, and joins again.
};
[[nodiscard]] std::string_view to_string(orphan_policy policy) noexcept;
/// Errors: invalid_argument, naming the choices.
[[nodiscard]] orphan_policy parse_orphan_policy(std::string_view name);

/// Where what a process says goes, and what it hears from.
struct link_services {
  std::shared_ptr<const clock> time;
  /// To the controller that it is connected with. Any thread; never blocks.
  std::function<void(std::string bytes)> send;
  /// To the world of this process. Any thread; never blocks.
  std::function<void(guidance)> deliver;
  /// A fresh name for a forming, given to whom it is passed; may take its time, so not here.
  std::function<void(std::function<void(unique_id)>)> make_id;
  /// There is no controller any more, and there will be no other: \p why.
  std::function<void(const error& why)> abandoned;
};

/// Threads: safe from any; what it calls must not call back.
class process_link final : public world_guide, public std::enable_shared_from_this<process_link> {
public:
  /// \p orphaned_for: how long it may be without a controller before it is abandoned.
  process_link(join_request who, link_services services, orphan_policy policy, nanoseconds orphaned_for);

  /// What a controller is to be told first, by whoever its answers shall go to.
  [[nodiscard]] std::string introduction();
  /// It is connected with a controller, which has been sent the introduction.
  void connected();
  void receive(std::string_view bytes);
  /// The connection has ended, or could not be made.
  void disconnected(const error& why);
  /// Time passes: to be called more often than heartbeats are due. Time in which it was not called counts for nothing:
  /// the process was stopped, or had no processor, and what came meanwhile is still to be read. Returns whether a
  /// connection is wanted.
  [[nodiscard]] bool tick();
  /// Says that the process lives, where that is due. Does not judge the controller.
  void beat();

  /// Nothing more is said after a leave_notice.
  void tell(process_message what) override;
  /// After a leave_notice: waits until the controller has heard it, at most \p at_most; whoever ends the process before
  /// would be taken for lost.
  void await_farewell(nanoseconds at_most);
  [[nodiscard]] std::shared_ptr<distributed_order> open_order(std::shared_ptr<rank_pipeline> pipeline) override;

private:
  enum class state : std::uint8_t { unconnected, joining, joined, leaving, left };

  void forgive_sleep(time_point now);
  void hear(const join_welcome& welcome);
  /// What the controller has decided of this rank's requests.
  void follow(const order_batch& decided);
  void end(const error& why);
  void take_leave();
  void send(process_message what);

  std::mutex guard_;
  condition heard_out_; ///< It is no longer leaving.
  join_request who_;
  link_services services_;
  const orphan_policy policy_;
  const nanoseconds orphaned_for_;
  state state_ = state::unconnected;
  bool was_joined_ = false;
  std::atomic<session_id> session_{0};
  nanoseconds heartbeat_{std::chrono::milliseconds{250}};
  nanoseconds suspicion_{std::chrono::seconds{10}};
  time_point heard_{};
  bool is_silent_ = false; ///< The controller, for too long, at the last tick.
  time_point ticked_;
  time_point spoke_{};
  time_point orphaned_{};                      ///< Since when it is without a controller.
  std::shared_ptr<distributed_order> order_{}; ///< Of the present epoch, where the controller keeps one.
  epoch epoch_{};                              ///< The latest that it was told to form.
};

} // namespace troupe
