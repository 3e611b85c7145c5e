/// Defines the actor that represents one rank (one GPU). It is the only address of that rank.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/rank/known_clients.hpp>

#include <cstdint>
#include <set>

namespace troupe {

/// Connects collective_state to CAF. Client messages are handled in enqueue(), on the sender's thread, and do not enter
/// the mailbox.
class collective_actor final : public collective_handle::base {
public:
  collective_actor(caf::actor_config& settings, std::shared_ptr<collective_state> state);

  using collective_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  /// Handles \p brought on the sender's thread if it is a client message. Returns whether it was.
  [[nodiscard]] bool take_at_door(caf::mailbox_element& brought);
  /// Returns the client number of \p asker, or 0 if there is none. From its first request on, the client is watched,
  /// because its lanes end with it.
  [[nodiscard]] std::uint64_t client_of(const caf::strong_actor_ptr& asker);
  void watch(const caf::actor& client);
  void leave_lanes(const leave_lane& gone);

  std::shared_ptr<collective_state> state_;
  known_clients known_;
  std::set<std::uint64_t> watched_;
  compat::watches watches_;
};

} // namespace troupe
