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

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::adopt_pipeline)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::close_gate)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::completion)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::error)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::leave)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::posted_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::posted_world_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::rank_report)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::rank_request)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::status_query)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::stop_world)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::subscribe)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::world_event)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::world_request)
