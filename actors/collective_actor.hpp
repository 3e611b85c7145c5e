/// One actor per GPU: the only address of its rank.
#pragma once

#include <troupe/actors/collective_state.hpp>
#include <troupe/actors/messages.hpp>

namespace troupe {

/// Shell around collective_state. Not ready before it has adopted a pipeline.
class collective_actor final : public collective_handle::base {
public:
  collective_actor(caf::actor_config& settings, rank self);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  collective_state state_;
};

} // namespace troupe
