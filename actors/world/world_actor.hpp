/// The actor that forms a world, orders requests to all of it, watches its ranks and ends it.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/world/rank_directory.hpp>
#include <troupe/actors/world/sub_worlds.hpp>
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/actors/world/world_plan.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe {

/// Gives a world_executor its turns, and has the world's children. Requests to all ranks are dealt with at the door,
/// by the thread that brings them.
class world_actor final : public world_inner_handle::base, private world_shell {
public:
  /// \p actors are the local ranks', which \p ranks tells others of, and \p states what they decide by, in the order of
  /// \p plan's locals.
  world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_handle> actors,
              std::shared_ptr<rank_directory> ranks, std::vector<std::shared_ptr<collective_state>> states);

  using world_inner_handle::base::enqueue;
  compat::enqueue_result enqueue(caf::mailbox_element_ptr what, compat::enqueue_host* host) override;
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  void announce(const world_event& event) override;
  [[nodiscard]] std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) override;
  void leave() override;
  void watch_rank(std::size_t place);
  void dismiss_ranks();
  void split(split_request asked, std::shared_ptr<split_answer> reply);
  void stop();

  world_executor conductor_;
  std::vector<collective_handle> actors_; ///< Of the local ranks. Its own, since ranks_ may be cleared at any time.
  std::shared_ptr<rank_directory> ranks_;
  std::vector<listener_handle> listeners_;
  sub_worlds sub_worlds_;
  compat::watches watches_;
  bool stopping_ = false;
  bool left_ = false;
  /// Perhaps because nobody holds it any more: a message that named it as sender would hold what is being destroyed.
  bool ending_ = false;
};

/// Spawns a world and one collective actor per local rank. Its phases appear on \p plan's board.
struct spawned_world {
  world_inner_handle world;
  std::shared_ptr<rank_directory> ranks;
};
[[nodiscard]] spawned_world spawn_world(caf::actor_system& system, world_plan plan);

} // namespace troupe
