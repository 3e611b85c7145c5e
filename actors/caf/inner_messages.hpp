/// Defines the messages that troupe's own components send to its actors, and the actor interfaces that accept them in
/// addition to the messages of clients.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

namespace troupe {
class admission_quota;
struct leave;
struct posted_to_world;
class rank_directory;
struct sub_worlds_report;
struct watch_client;
class world_status;
struct world_notice;
} // namespace troupe

TROUPE_LOCAL_TYPES_BEGIN(troupe_inner, 0)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::leave)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::posted_to_world)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::sub_worlds_report)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::watch_client)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::world_notice)
TROUPE_LOCAL_TYPES_END(troupe_inner)
#if !TROUPE_CAF_0_17
static_assert(caf::id_block::troupe_inner::end <= caf::id_block::troupe::begin);
#endif

namespace troupe {

using split_answer = value_promise<split_reply>;

/// A request from a thread that is not an actor: the reply goes to the promise, not to the message's sender. The
/// promise is shared only because messages must be copyable; the receiver moves it out.
template <class Request, class Reply>
struct posted {
  Request what;
  std::shared_ptr<value_promise<Reply>> reply;
};

/// A posted request to a world, except a world_request, which its sender passes to the request gate.
struct posted_to_world {
  std::variant<posted<split_request, split_reply>, posted<registration_request, registration_reply>,
               posted<suspension_request, suspension_reply>, posted<resumption_request, resumption_reply>,
               posted<capture_request, capture_reply>, posted<leave_request, leave_reply>,
               posted<credit_request, credit>>
      what;
};

/// Sent by a collective actor to itself when a client's first request has arrived.
struct watch_client {
  caf::actor client;
};

/// Sent by the world to a collective actor: the pipeline has been released, so the actor must end.
struct leave {};

/// Sent to a world by one of its own components (helpers, pipelines, arbiter, controller connection).
struct world_notice {
  world_note what;
};

/// Sent to a world by one of its sub-worlds.
struct sub_worlds_report {
  std::uint64_t child = 0;
  world_event event;
};

/// The interface of one rank to its clients and to its world.
using collective_inner_handle =
    compat::extended<collective_handle, caf::result<void>(watch_client), caf::result<void>(leave)>;

/// The interface of a world to its clients and to its own components.
using world_inner_handle = compat::extended<world_handle, caf::result<void>(posted_to_world),
                                            caf::result<void>(world_notice), caf::result<void>(sub_worlds_report)>;

/// The internal objects of a sub-world that a world in this process needs besides the public handle.
struct sub_world_parts {
  world_inner_handle actor{};
  std::shared_ptr<rank_directory> ranks{}; ///< The actors of sub_world::local_ranks, in the same order.
  std::shared_ptr<world_status> status{};
  std::shared_ptr<admission_quota> pending{};
};

/// Sends a request to a world; \p reply receives the reply. Operations need no message: pass a world_request to the
/// world's request gate (world_status::gate()), a rank_request to rank_directory::state_of().
template <class Request, class Reply>
void post_request(const world_inner_handle& to, Request what, std::shared_ptr<value_promise<Reply>> reply) {
  reply->set_may_have_run(false); // before the world takes it from its mailbox
  compat::post(to, posted_to_world{posted<Request, Reply>{std::move(what), std::move(reply)}});
}

} // namespace troupe
