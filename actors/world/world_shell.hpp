/// Declares what a world's executor needs from the code that runs it: an actor, or a test.
#pragma once

#include <troupe/actors/rank/collective_state.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

/// Delivers notes to a world's executor, one at a time; notes from one thread keep their order. Notes are dropped after
/// the world has ended. Threads: safe from any. It outlives the world.
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

  /// Called when the epoch has ended with \p why, before its pipelines are aborted. \p for_good: no other follows.
  virtual void epoch_ended([[maybe_unused]] const error& why, [[maybe_unused]] bool for_good) {}
  /// Called when the epoch is to end without a fault. The latch opens when the sub-worlds have no operation in flight;
  /// null if there are no sub-worlds.
  [[nodiscard]] virtual std::shared_ptr<latch> quiesce([[maybe_unused]] const error& why) { return nullptr; }
  /// Called when the controller stops the world: stops its sub-worlds, too. Returns whether there are any. Then the
  /// executor's stop() is called when they have ended, because they serve under the lease of the world.
  [[nodiscard]] virtual bool stop_sub_worlds([[maybe_unused]] const stop_directive& told) { return false; }
  /// Called when an epoch is ready, with ordering::agreed.
  virtual void formed_again() {}
  /// Replaces the actor at \p place, which has ended, with a new one for rank \p self. Returns the new actor's state.
  [[nodiscard]] virtual std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) = 0;
  /// Ends the ranks' actors and the world's, because all resources have been released.
  virtual void leave() = 0;
};

} // namespace troupe
