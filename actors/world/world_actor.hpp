/// Defines the actor that forms a world, receives requests to the whole world, monitors the ranks' actors, and ends the
/// world.
#pragma once

#include <troupe/actors/caf/exit_note.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/world/rank_directory.hpp>
#include <troupe/actors/world/sub_worlds/sub_worlds.hpp>
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/actors/world/world_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// Connects a world_executor to CAF and holds the sub-worlds. Requests to all ranks are handled in enqueue(), on the
/// sender's thread.
class world_actor final : public world_inner_handle::base, private world_shell {
public:
  /// \p actors are the local ranks' actors, which \p ranks publishes to others, and \p states their states. All are in
  /// the order of \p plan's locals.
  world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_inner_handle> actors,
              std::shared_ptr<rank_directory> ranks, std::vector<std::shared_ptr<collective_state>> states);

  using world_inner_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  [[nodiscard]] std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) override;
  void leave() override;
  void epoch_ended(const error& why, bool for_good) override;
  [[nodiscard]] std::shared_ptr<latch> quiesce(const error& why) override;
  [[nodiscard]] bool stop_sub_worlds(const stop_directive& told) override;
  void formed_again() override;
  void watch_rank(std::size_t place);
  void dismiss_ranks();
  // Each perform() executes one kind of client request, sent by an actor or posted by a thread.
  void perform(world_request asked, reply_promise reply, std::uint64_t client = 0);
  void perform(const remote_request& asked, reply_promise reply);
  void perform(split_request asked, const std::shared_ptr<split_answer>& reply) {
    sub_worlds_.perform(std::move(asked), reply);
  }
  /// Passes a request of any other kind to the executor.
  template <class Request, class Promise>
  void perform(Request asked, std::shared_ptr<Promise> reply) {
    executor_.perform(std::move(asked), std::move(reply));
  }
  /// Performs the request that is being handled, and answers it later.
  template <class Reply, class Request>
  [[nodiscard]] caf::result<Reply> answer_later(Request& asked);
  [[nodiscard]] std::unique_ptr<sub_world_access> spawn_sub_world(std::uint64_t name, world_plan plan, sub_world& made);

  const std::shared_ptr<world_mailbox> mail_;
  world_executor executor_;
  /// The local ranks' actors. A separate copy, because ranks_ may be cleared at any time.
  std::vector<collective_inner_handle> actors_;
  std::shared_ptr<rank_directory> ranks_;
  sub_worlds sub_worlds_;
  compat::watches watches_;
  exit_note exit_;
  bool left_ = false;
  /// Set in on_exit(). The actor may be in destruction because its last handle was released: no message may name it as
  /// sender, because that would create a new reference.
  bool ending_ = false;
};

/// The result of spawn_world().
struct spawned_world {
  world_inner_handle world;
  std::shared_ptr<rank_directory> ranks;
};
/// Spawns a world and one collective actor per local rank. The phases of the world are published on \p plan's status.
[[nodiscard]] spawned_world spawn_world(caf::actor_system& system, world_plan plan);

} // namespace troupe
