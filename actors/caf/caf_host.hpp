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

/// Creates an actor system. First starts and ends as many threads as the system will start, because CAF cannot recover
/// from a thread that fails to start: it destroys the workers that are already running. \p settings must outlive the
/// system. Errors: out_of_memory if the threads cannot be started, std::bad_alloc if they have no memory.
[[nodiscard]] std::unique_ptr<caf::actor_system> make_actor_system(caf::actor_system_config& settings);

/// Returns the configured number of workers, or nullopt if it is left to CAF's default (one per core, at least four).
[[nodiscard]] std::optional<std::size_t> worker_count_of(const caf::actor_system_config& settings);
/// Returns the value of set_messages_per_turn(), or nullopt if an actor handles all messages that it has.
[[nodiscard]] std::optional<std::size_t> messages_per_turn_of(const caf::actor_system_config& settings);
/// Returns roughly how long a worker polls for work before it sleeps between two polls.
[[nodiscard]] std::chrono::nanoseconds worker_spin_of(const caf::actor_system_config& settings);
/// Returns whether troupe's message types are registered. 0.17 does not need that.
[[nodiscard]] bool knows_messages();

/// Waits until all of \p actors have ended, without keeping them alive. Returns false if some have not ended after \p
/// longest.
[[nodiscard]] bool await_end(const std::vector<caf::weak_actor_ptr>& actors, std::chrono::nanoseconds longest);

} // namespace troupe::compat
