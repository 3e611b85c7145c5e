/// One actor per GPU: the only address of its rank.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/rank/known_clients.hpp>

#include <cstdint>
#include <set>

namespace troupe {

/// Shell around collective_state. What clients say is dealt with at the door, by the thread that brings it.
class collective_actor final : public collective_handle::base {
public:
  collective_actor(caf::actor_config& settings, std::shared_ptr<collective_state> state);

  using collective_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Whether \p brought was for the door, and has been taken there.
  [[nodiscard]] bool take_at_door(caf::mailbox_element& brought);
  /// Who sent a message: watched from its first request on, because its lanes end with it. 0: nobody.
  [[nodiscard]] std::uint64_t client_of(const caf::strong_actor_ptr& asker);
  void watch(const caf::actor& client);
  void leave_lanes(const leave_lane& gone);

  std::shared_ptr<collective_state> state_;
  known_clients known_;
  std::set<std::uint64_t> watched_;
  compat::watches watches_;
};

} // namespace troupe
