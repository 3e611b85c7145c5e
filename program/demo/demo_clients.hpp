/// The demo's clients: plain threads with futures, and actors with messages. Each one runs several rounds of a batch.
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

/// The work of one client.
struct client_task {
  std::vector<rank> ranks{}; ///< All ranks of the world: requests go to the world. One rank: requests go to it (SPMD).
  std::shared_ptr<common_rounds> rounds{}; ///< The same for all clients of one SPMD group.
  std::size_t requests = 1;                ///< In flight at the same time, in each round.
  std::size_t count = 1024;                ///< Largest number of elements.
  std::uint64_t seed = 0;                  ///< The same for all clients of one SPMD group.
  troupe::lane lane{}; ///< The client's own lane at each rank; the same for all clients of one SPMD group.
};

/// Runs the task in the calling thread. Stops at the first failure.
void run_thread_client(world where, const client_task& task, demo_ledger& books);

/// Spawns an actor that runs the task and then counts \p ended down. \p books must outlive it.
void spawn_actor_client(caf::actor_system& system, world where, const client_task& task, demo_ledger& books,
                        std::latch& ended);

} // namespace troupe::program
