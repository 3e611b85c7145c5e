/// What a world's decisions need of whoever gives them their turns: an actor, or the simulator.
#pragma once

#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

/// Brings notes to a world's conductor, one at a time, those of one thread in the order sent. Nothing happens once the
/// world is gone. Threads: safe from any; it outlives the world.
class world_mailbox {
public:
  world_mailbox() = default;
  world_mailbox(const world_mailbox&) = delete;
  world_mailbox& operator=(const world_mailbox&) = delete;
  virtual ~world_mailbox() = default;

  virtual void post(world_note what) = 0;
  virtual void post_after(nanoseconds delay, world_note what) = 0;
};

/// Called in the conductor's turns.
class world_shell {
public:
  world_shell() = default;
  world_shell(const world_shell&) = delete;
  world_shell& operator=(const world_shell&) = delete;
  virtual ~world_shell() = default;

  /// To all who listen; the board has it already.
  virtual void announce(const world_event& event) = 0;
  /// The actor at \p place has ended: another takes its place, as that of \p self, and decides by what is returned.
  [[nodiscard]] virtual std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) = 0;
  /// Everything has been given back: the ranks' actors and the world's end.
  virtual void leave() = 0;
};

} // namespace troupe
