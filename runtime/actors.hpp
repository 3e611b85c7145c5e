/// Includes everything that a client made of actors needs, as <troupe/actors.hpp>. This header includes CAF. Other
/// clients include <troupe/troupe.hpp>, which does not include CAF.
#pragma once

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/messages.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/troupe.hpp>

namespace troupe {

/// Returns the actor of \p where, to which a client's actor sends world_request and the other messages of world_handle.
/// Lifetime: see world.
[[nodiscard]] world_handle actor_of(const world& where);

/// Returns the collective actor of rank \p target. Another actor replaces it when it ends, so look it up again after a
/// rebuild. The actor stays with its GPU when ranks are renumbered; the actor of a rank that has left refuses all
/// requests with rank_lost. Errors: invalid_argument (\p target is not one of local_ranks()).
[[nodiscard]] collective_handle collective_of(const world& where, rank target);

} // namespace troupe
