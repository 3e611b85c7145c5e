/// Declares the interface between world_executor and its caller, which is an actor or the simulator.
#pragma once

#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

/// Delivers notes to a world's executor, one at a time; notes from one thread keep their order. Notes are dropped when
/// the world is gone. Threads: safe from any. It outlives the world.
class world_mailbox {
public:
  world_mailbox() = default;
  world_mailbox(const world_mailbox&) = delete;
  world_mailbox& operator=(const world_mailbox&) = delete;
  virtual ~world_mailbox() = default;

  virtual void post(world_note what) = 0;
  virtual void post_after(nanoseconds delay, world_note what) = 0;
};

/// Callbacks of world_executor. They are called while the executor runs.
class world_shell {
public:
  world_shell() = default;
  world_shell(const world_shell&) = delete;
  world_shell& operator=(const world_shell&) = delete;
  virtual ~world_shell() = default;

  /// Sends \p event to all subscribers; the world_board has it already.
  virtual void announce(const world_event& event) = 0;
  /// Replaces the actor at \p place, which has ended, with a new one for rank \p self. Returns the new actor's state.
  [[nodiscard]] virtual std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) = 0;
  /// Ends the ranks' actors and the world's, because all resources have been released.
  virtual void leave() = 0;
};

} // namespace troupe
