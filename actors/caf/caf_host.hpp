/// What troupe wants to know of an actor system that is not its own, for both lines of CAF.
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace troupe::compat {

/// As its configuration says; none where that leaves it to CAF, which then takes one for each core, four at least.
[[nodiscard]] std::optional<std::size_t> worker_count_of(const caf::actor_system_config& settings);
/// As set_messages_per_turn(); none: all that an actor has.
[[nodiscard]] std::optional<std::size_t> messages_per_turn_of(const caf::actor_system_config& settings);
/// About how long its workers look for work before they begin to sleep between two looks.
[[nodiscard]] std::chrono::nanoseconds worker_spin_of(const caf::actor_system_config& settings);
/// Whether CAF knows troupe's message types; 0.17 needs not.
[[nodiscard]] bool knows_messages();

/// Waits until all of \p actors have ended; they are not kept alive for that. False where some have not in time.
[[nodiscard]] bool await_end(const std::vector<caf::weak_actor_ptr>& actors, std::chrono::nanoseconds longest);

} // namespace troupe::compat
