/// The controller of a world that spans processes: one actor, to which each process speaks.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/control/controller_state.hpp>
#include <troupe/collectives/order/distributed/order_keeper.hpp>

#include <caf/actor.hpp>
#include <caf/actor_addr.hpp>

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace troupe {

/// What a controller's owner hears and does. Called in the controller's turns: must neither block nor throw.
struct controller_hooks {
  std::function<void(const control_event&)> heard;
  /// An operation's peers are late.
  std::function<void(const absence_report&)> straggling;
  /// Something came that is no message of troupe's, or not for this world.
  std::function<void(const error&)> refused;
  /// A process is to be made sure of being dead.
  std::function<void(const process_identity&)> kill;
  /// A process has joined.
  std::function<void(const process_identity&)> joined;
  /// The world rebuilds, and no process is there for this place.
  std::function<void(int place)> wanted;
  /// Nothing is left to control; errc::none: all processes have done their work.
  std::function<void(const error& why)> ended;
};

/// Frames come from processes (control_codec.hpp), by whatever thread of theirs: the session in each says whose it is.
using controller_inner_handle = compat::typed_actor<caf::result<void>(std::string), caf::result<void>(controller_note)>;

/// A controller_state, told what comes over connections and from the clock, and doing what it decides. It ends when it
/// is told quit_control, and by nothing that another system can send. Where a handler's exception ends it, its hooks
/// hear that the world has failed.
class controller_actor final : public controller_inner_handle::base {
public:
  controller_actor(caf::actor_config& settings, controller_terms terms, sequencer_limits limits,
                   controller_hooks hooks);

  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void hear(std::string_view bytes);
  void admit(const join_request& asked);
  void lose(const caf::actor_addr& process);
  void carry_out(const control_effects& effects);
  /// Requests of a process's rank.
  void take(link_id from, const order_batch& asked);
  /// To every rank what the order has for it.
  void hand_out();
  void tick_later();

  controller_state state_;
  order_keeper order_;
  controller_hooks hooks_;
  int ordered_ = 0; ///< Ranks whose requests it orders.
  bool is_told_to_quit_ = false;
  std::map<link_id, caf::actor> links_;
  std::map<caf::actor_addr, link_id> latest_; ///< Of each process that is watched: once, however often it joins.
  compat::watches watches_;
};

} // namespace troupe
