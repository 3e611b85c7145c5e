/// Defines the messages that troupe's own components send to its actors, and the actor interfaces that accept them in
/// addition to the messages of clients.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {
class admission_quota;
struct leave;
template <class Request>
struct posted;
struct posted_to_world;
class rank_directory;
struct sub_worlds_report;
struct watch_client;
class world_status;
struct world_notice;
} // namespace troupe

TROUPE_LOCAL_TYPES_BEGIN(troupe_inner, 0)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::leave)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::posted<troupe::rank_request>)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::posted_to_world)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::sub_worlds_report)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::watch_client)
TROUPE_LOCAL_TYPE(troupe_inner, troupe::world_notice)
TROUPE_LOCAL_TYPES_END(troupe_inner)
#if !TROUPE_CAF_0_17
static_assert(caf::id_block::troupe_inner::end <= caf::id_block::troupe::begin);
#endif

namespace troupe {

/// Maps a request type to the type of its reply.
template <class Request>
struct reply_to;
template <>
struct reply_to<rank_request> : std::type_identity<completion> {};
template <>
struct reply_to<split_request> : std::type_identity<split_reply> {};
template <>
struct reply_to<registration_request> : std::type_identity<registration_reply> {};
template <>
struct reply_to<suspension_request> : std::type_identity<suspension_reply> {};
template <>
struct reply_to<resumption_request> : std::type_identity<resumption_reply> {};
template <>
struct reply_to<capture_request> : std::type_identity<capture_reply> {};
template <>
struct reply_to<credit_request> : std::type_identity<credit> {};

/// The promise type for the reply to a \p Request.
template <class Request, class Reply = typename reply_to<Request>::type>
using promise_for = std::conditional_t<std::is_same_v<Reply, completion>, reply_promise, value_promise<Reply>>;

using split_answer = promise_for<split_request>;

/// A request of a plain thread, whose reply does not go to its sender. The promise is shared only because messages must
/// be copyable; the receiver moves it out.
template <class Request>
struct posted {
  Request what;
  std::shared_ptr<promise_for<Request>> reply;
};

/// A posted request to a world, except a world_request, which its sender passes to the request gate.
struct posted_to_world {
  std::variant<posted<split_request>, posted<registration_request>, posted<suspension_request>,
               posted<resumption_request>, posted<capture_request>, posted<credit_request>>
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

/// The interface of a world to its clients and to its own parts.
using world_inner_handle = compat::extended<world_handle, caf::result<void>(posted_to_world),
                                            caf::result<void>(world_notice), caf::result<void>(sub_worlds_report)>;

/// The internal objects of a sub-world that a world in this process needs besides the public handle.
struct sub_world_parts {
  world_inner_handle actor{};
  std::shared_ptr<rank_directory> ranks{}; ///< The actors of sub_world::local_ranks, in the same order.
  std::shared_ptr<world_status> status{};
  std::shared_ptr<admission_quota> pending{};
};

/// Sends a request to a world. \p reply receives the reply. Requests that are carried out by ranks need no message: a
/// world_request goes to the world's request gate (world_status::gate()), a rank_request to rank_directory::state_of().
template <class Request>
void post_request(const world_inner_handle& to, Request what, std::shared_ptr<promise_for<Request>> reply) {
  compat::post(to, posted_to_world{posted<Request>{std::move(what), std::move(reply)}});
}

} // namespace troupe
