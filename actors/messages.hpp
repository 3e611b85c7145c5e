/// What actors of troupe say to each other, and the handles they are said to.
#pragma once

#include <troupe/actors/caf_compat.hpp>
#include <troupe/actors/world_event.hpp>
#include <troupe/collectives/rank_pipeline.hpp>
#include <troupe/collectives/request.hpp>
#include <troupe/completion/answer.hpp>

#include <functional>
#include <memory>

namespace troupe {
struct adopt_pipeline;
struct close_gate;
struct leave;
struct posted_request;
struct posted_world_request;
struct rank_report;
struct status_query;
struct stop_world;
struct subscribe;
} // namespace troupe

TROUPE_LOCAL_TYPES_BEGIN(troupe, 0)
TROUPE_LOCAL_TYPE(troupe, troupe::adopt_pipeline)
TROUPE_LOCAL_TYPE(troupe, troupe::close_gate)
TROUPE_LOCAL_TYPE(troupe, troupe::completion)
TROUPE_LOCAL_TYPE(troupe, troupe::error)
TROUPE_LOCAL_TYPE(troupe, troupe::leave)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_request)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_world_request)
TROUPE_LOCAL_TYPE(troupe, troupe::rank_report)
TROUPE_LOCAL_TYPE(troupe, troupe::rank_request)
TROUPE_LOCAL_TYPE(troupe, troupe::status_query)
TROUPE_LOCAL_TYPE(troupe, troupe::stop_world)
TROUPE_LOCAL_TYPE(troupe, troupe::subscribe)
TROUPE_LOCAL_TYPE(troupe, troupe::world_event)
TROUPE_LOCAL_TYPE(troupe, troupe::world_request)
TROUPE_LOCAL_TYPES_END(troupe)

namespace troupe {

/// A request whose answer does not go to its sender: from a plain thread (a future) or from the world (a part of a
/// request to all ranks). The answer is shared only because messages must be copyable; its taker moves it out.
struct posted_request {
  rank_request what;
  std::shared_ptr<answer> reply;
};

struct posted_world_request {
  world_request what;
  std::shared_ptr<answer> reply;
};

/// World → collective: this is your way to the GPU from now on.
struct adopt_pipeline {
  std::shared_ptr<rank_pipeline> pipeline;
  nanoseconds default_deadline{0};
};

/// World → collective: reject everything from now on, for this reason, and then call \p closed: what was sent before
/// has been submitted by then.
struct close_gate {
  error reason;
  std::function<void()> closed;
};

/// World → collective: the pipeline has been given back; end.
struct leave {};

/// Asks a world for its state.
struct status_query {};

/// Asks a world to finish what is in flight and give everything back. Watch for world_phase::stopped.
struct stop_world {};

/// To the world, from helpers and pipelines: what happened to one rank of one epoch (EPO-1).
struct rank_report {
  enum class kind : std::uint8_t { formed, faulted, closed, drained, released };
  kind what = kind::formed;
  troupe::rank rank;
  troupe::epoch epoch;
  error failure; ///< errc::none when it went well.
};

using listener_handle = compat::typed_actor<caf::result<void>(world_event)>;

/// Asks a world to send its events, beginning with the present state.
struct subscribe {
  listener_handle listener;
};

/// One rank, to its clients and to its world.
using collective_handle =
    compat::typed_actor<caf::result<completion>(rank_request), caf::result<void>(posted_request),
                        caf::result<void>(adopt_pipeline), caf::result<void>(close_gate), caf::result<void>(leave)>;

/// A world, to its clients.
using world_handle =
    compat::typed_actor<caf::result<completion>(world_request), caf::result<void>(posted_world_request),
                        caf::result<world_event>(status_query), caf::result<void>(subscribe),
                        caf::result<void>(stop_world)>;

/// A world, to its own parts.
using world_inner_handle =
    compat::typed_actor<caf::result<completion>(world_request), caf::result<void>(posted_world_request),
                        caf::result<world_event>(status_query), caf::result<void>(subscribe),
                        caf::result<void>(stop_world), caf::result<void>(rank_report)>;

} // namespace troupe
