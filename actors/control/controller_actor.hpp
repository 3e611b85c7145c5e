/// Defines the controller actor of a world that spans processes. All processes of the world send to this actor.
#pragma once

#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/control/control_server.hpp>

#include <memory>

namespace troupe {

using controller_inner_handle = compat::typed_actor<caf::result<void>(controller_note)>;

/// Connects control_server to CAF: it passes on frames, ticks and the news of the order. It ends on quit_control. If an
/// exception in a handler ends it, its hooks report that the world has failed.
class controller_actor final : public controller_inner_handle::base {
public:
  /// \p gate may be null: all requests then come through the control connections. \p wait: of the order's thread.
  controller_actor(caf::actor_config& settings, controller_terms terms, sequencer_limits limits,
                   const wait_profile& wait, std::shared_ptr<order_gate> gate, controller_hooks hooks);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void tick_later();

  control_server server_;
  bool is_told_to_quit_ = false;
};

} // namespace troupe
