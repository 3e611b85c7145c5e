/// The demo's clients: plain threads with futures, and actors with messages. Each runs rounds of a batch.
#pragma once

#include <troupe/program/demo/demo_ledger.hpp>
#include <troupe/program/support/interruption.hpp>

#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <vector>

namespace troupe::program {

/// What one client is to do.
struct client_task {
  std::vector<rank> ranks{}; ///< All of the world's: requests to the world. One: requests to that rank (SPMD).
  std::shared_ptr<common_rounds> rounds{}; ///< The same for all clients of one SPMD group.
  std::size_t requests = 1;                ///< All in flight at once, in each round.
  std::size_t count = 1024;                ///< Largest number of elements.
  std::uint64_t seed = 0;                  ///< The same for all clients of one SPMD group.
  troupe::lane lane{};                     ///< The client's own at each rank; the same for all of one SPMD group.
};

/// Asks from the calling thread until the task is done. Stops at the first failure.
void run_thread_client(world where, const client_task& task, demo_ledger& books);

/// Spawns an actor that asks until the task is done, then counts \p ended down. \p books outlives it.
void spawn_actor_client(caf::actor_system& system, world where, const client_task& task, demo_ledger& books,
                        std::latch& ended);

} // namespace troupe::program
