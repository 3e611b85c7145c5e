/// What clients send: an operation, the epoch it is meant for, and how long they are willing to wait.
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/completion/clock.hpp>

#include <vector>

namespace troupe {

/// How long a request may take when it does not say.
inline constexpr nanoseconds world_default_deadline{0};

/// One rank's request (SPMD): each rank's client asks its own rank, and all ask for the same operations in the same
/// order (`ordering::caller`).
struct rank_request {
  operation what;
  troupe::epoch epoch;                           ///< The world's epoch as the client knows it (EPO-1).
  nanoseconds deadline = world_default_deadline; ///< From acceptance to the reply.
};

/// One request for all ranks of a world that live in this process: parts[i] is rank i's. The world orders it (ORD-1)
/// and answers once, when the last rank is done.
struct world_request {
  std::vector<operation> parts;
  troupe::epoch epoch;
  nanoseconds deadline = world_default_deadline;
};

} // namespace troupe
