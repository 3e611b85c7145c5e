/// All that a client of troupe needs which consists of actors, in one include: <troupe/actors.hpp>. It includes CAF.
/// Other clients include <troupe/troupe.hpp>, which does not.
#pragma once

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/messages.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/troupe.hpp>

namespace troupe {

/// Returns the actor of \p where, to which an actor of yours sends world_request and the other messages of
/// world_handle. Lifetime: see world.
[[nodiscard]] world_handle actor_of(const world& where);

/// Returns the collective actor of rank \p whom. Another actor replaces it when it ends, so look it up again after a
/// rebuild. It stays with its GPU when ranks are renumbered; the actor of a rank that has left refuses everything with
/// rank_lost. Errors: invalid_argument (not one of local_ranks()).
[[nodiscard]] collective_handle collective_of(const world& where, rank whom);

} // namespace troupe
