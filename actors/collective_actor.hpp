/// One actor per GPU: the only address of its rank.
#pragma once

#include <troupe/actors/collective_state.hpp>
#include <troupe/actors/messages.hpp>

#include <cstdint>
#include <set>

namespace troupe {

/// Shell around collective_state. Not ready before it has adopted a pipeline.
class collective_actor final : public collective_handle::base {
public:
  collective_actor(caf::actor_config& settings, rank self);

  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Who sent the message being handled: watched from its first request on, because its lanes end with it. 0: nobody.
  [[nodiscard]] std::uint64_t known_client();

  collective_state state_;
  std::set<std::uint64_t> clients_;
  compat::watches watches_;
};

} // namespace troupe
