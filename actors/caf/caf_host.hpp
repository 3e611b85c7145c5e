/// Registers message types, creates actor systems, and reads the configuration of a client's actor system, for both
/// lines of CAF.
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// Registers troupe's message types. Call it before the first actor system in which troupe's actors live, because CAF
/// 1.x keeps a table of types. A runtime does so itself. Idempotent. Threads: any.
void register_message_types();

} // namespace troupe

namespace troupe::compat {

/// Drops the reference of the calling thread to the logger of an actor system. A thread refers to it from the time when
/// it creates the system, spawns an actor there or makes a scoped_actor, and the destructor of 0.17's actor_system
/// waits until no thread does.
void release_logger() noexcept;

/// Owns an actor system. Threads: any may destroy it.
class own_actor_system {
public:
  /// Creates the system. First starts and ends as many threads as the system will start, because CAF cannot recover
  /// from a thread that fails to start: it destroys the workers that are already running. \p longest_end is how long
  /// the destructor waits. Errors: out_of_memory if the threads cannot be started, std::bad_alloc if they have no
  /// memory.
  own_actor_system(std::unique_ptr<caf::actor_system_config> settings, std::chrono::nanoseconds longest_end);
  own_actor_system(const own_actor_system&) = delete;
  own_actor_system& operator=(const own_actor_system&) = delete;
  /// Destroys the system on a thread of its own, and waits for that thread. What can delay it is a client's actor that
  /// lives in the system and, on 0.17, a thread that has spawned an actor there and still runs (release_logger()): the
  /// system is reported as a leak when the time has passed, and ends later. Left to the operating system if the process
  /// is ending, because CAF's static objects may have been destroyed.
  ~own_actor_system();

  [[nodiscard]] caf::actor_system& get() noexcept;

private:
  struct parts;
  std::shared_ptr<parts> parts_;
  std::chrono::nanoseconds longest_end_;
};

/// Returns the configured number of workers, or nullopt if it is left to CAF's default (one per core, at least four).
[[nodiscard]] std::optional<std::size_t> worker_count_of(const caf::actor_system_config& settings);
/// Returns the value of set_messages_per_turn(), or nullopt if an actor handles all messages that it has.
[[nodiscard]] std::optional<std::size_t> messages_per_turn_of(const caf::actor_system_config& settings);
/// Returns roughly how long a worker polls for work before it sleeps between two polls.
[[nodiscard]] std::chrono::nanoseconds worker_spin_of(const caf::actor_system_config& settings);
/// Returns whether troupe's message types are registered. 0.17 does not need that.
[[nodiscard]] bool knows_messages();
/// Returns whether the clock of \p system stands still until a test advances it. CAF's fixtures for tests have such a
/// clock, and their actors run only when the test steps them.
[[nodiscard]] bool is_stepped(caf::actor_system& system);

/// Waits until all of \p actors have ended, without keeping them alive. Returns false if some have not ended after \p
/// longest.
[[nodiscard]] bool await_end(const std::vector<caf::weak_actor_ptr>& actors, std::chrono::nanoseconds longest);

} // namespace troupe::compat
