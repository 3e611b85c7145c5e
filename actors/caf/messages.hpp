/// Defines the messages that clients send to troupe's actors, the handles of these actors, and helper functions for
/// client actors that work with both release lines of CAF.
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/actors/caf/remote_messages.hpp>
#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/overlap.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {
struct cancel_request;
struct capabilities_query;
struct leave_lane;
struct outcome_request;
struct overlapped_request;
struct overlapped_world_request;
struct split_reply;
struct split_request;
struct status_query;
struct stop_world;
struct subscribe;
} // namespace troupe

// The type ids before 32 belong to the messages that troupe's actors send to each other (inner_messages.hpp).
TROUPE_LOCAL_TYPES_BEGIN(troupe, 32)
TROUPE_LOCAL_TYPE(troupe, troupe::cancel_request)
TROUPE_LOCAL_TYPE(troupe, troupe::capabilities)
TROUPE_LOCAL_TYPE(troupe, troupe::capabilities_query)
TROUPE_LOCAL_TYPE(troupe, troupe::capture_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::capture_request)
TROUPE_SENT_TYPE(troupe, troupe::completion)
TROUPE_LOCAL_TYPE(troupe, troupe::credit)
TROUPE_LOCAL_TYPE(troupe, troupe::credit_request)
TROUPE_LOCAL_TYPE(troupe, troupe::enqueued)
TROUPE_SENT_TYPE(troupe, troupe::error)
TROUPE_SENT_TYPE(troupe, troupe::find_memory_request)
TROUPE_LOCAL_TYPE(troupe, troupe::leave_lane)
TROUPE_LOCAL_TYPE(troupe, troupe::leave_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::leave_request)
TROUPE_LOCAL_TYPE(troupe, troupe::outcome_request)
TROUPE_LOCAL_TYPE(troupe, troupe::overlapped_request)
TROUPE_LOCAL_TYPE(troupe, troupe::overlapped_world_request)
TROUPE_LOCAL_TYPE(troupe, troupe::rank_request)
TROUPE_SENT_TYPE(troupe, troupe::ready_query)
TROUPE_LOCAL_TYPE(troupe, troupe::registration_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::registration_request)
TROUPE_SENT_TYPE(troupe, troupe::remote_buffer)
TROUPE_SENT_TYPE(troupe, troupe::remote_request)
TROUPE_LOCAL_TYPE(troupe, troupe::resumption_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::resumption_request)
TROUPE_LOCAL_TYPE(troupe, troupe::split_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::split_request)
TROUPE_SENT_TYPE(troupe, troupe::status_query)
TROUPE_LOCAL_TYPE(troupe, troupe::stop_world)
TROUPE_SENT_TYPE(troupe, troupe::subscribe)
TROUPE_LOCAL_TYPE(troupe, troupe::suspension_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::suspension_request)
TROUPE_SENT_TYPE(troupe, troupe::world_event)
TROUPE_LOCAL_TYPE(troupe, troupe::world_request)
TROUPE_LOCAL_TYPES_END(troupe)

namespace troupe {

// Helpers for client actors, for both release lines of CAF. Clients declare their own message types with
// TROUPE_LOCAL_TYPES_AFTER.

/// An actor's handle: typed_actor<caf::result<Reply>(Request)...>.
using compat::typed_actor;
/// post(handle, message) sends a message without a sender, also from a thread that is not an actor. Never blocks.
using compat::post;
/// request_unbounded(self, handle, message) sends a request without CAF's own timeout: every request carries a
/// deadline.
using compat::request_unbounded;

/// A request to one rank that is answered as soon as it is enqueued on the GPU, with an event recorded behind it. The
/// client can make its own kernels wait for that event without the CPU. (docs/overlap.md)
struct overlapped_request {
  rank_request what;
};
/// A request to all ranks that is answered as soon as it is enqueued on the GPU of every rank.
struct overlapped_world_request {
  world_request what;
};

/// Asks for the final outcome of an overlapped request. It goes to the actor that received the request, at any time
/// after the first reply.
struct outcome_request {
  outcome_claim outcome;
};

/// Notifies a rank that a client will send no more requests in its lanes. The client's waiting requests are withdrawn
/// and the lanes become free. A client actor that ends need not send it.
struct leave_lane {
  std::uint64_t client = 0;
};

/// Asks a world for its state.
struct status_query {};

/// Lets CAF serialize a status_query, which is empty.
template <class Inspector>
auto inspect(Inspector& with, status_query& one) {
#if TROUPE_CAF_0_17
  static_cast<void>(one);
  return with(caf::meta::type_name("troupe::status_query"));
#else
  return with.object(one).fields();
#endif
}

/// Asks a world for its capabilities, so that a client knows beforehand which requests would be refused.
struct capabilities_query {};

/// Asks a world to finish the requests in flight and to release all resources. The end is reported as
/// world_phase::stopped.
struct stop_world {};

using listener_handle = compat::typed_actor<caf::result<void>(world_event)>;

/// Asks a world to send its events, beginning with the present state.
struct subscribe {
  listener_handle listener;
};

/// Lets CAF serialize a subscribe.
template <class Inspector>
auto inspect(Inspector& with, subscribe& one) {
#if TROUPE_CAF_0_17
  return with(caf::meta::type_name("troupe::subscribe"), one.listener);
#else
  return with.object(one).fields(with.field("listener", one.listener));
#endif
}

/// The interface of one rank to its clients.
using collective_handle = typed_actor<caf::result<completion>(rank_request), caf::result<enqueued>(overlapped_request),
                                      caf::result<completion>(outcome_request), caf::result<void>(cancel_request),
                                      caf::result<void>(leave_lane)>;

/// The interface of a world to its clients.
using world_handle =
    typed_actor<caf::result<completion>(world_request), caf::result<enqueued>(overlapped_world_request),
                caf::result<completion>(remote_request), caf::result<remote_buffer>(find_memory_request),
                caf::result<completion>(outcome_request), caf::result<split_reply>(split_request),
                caf::result<registration_reply>(registration_request),
                caf::result<suspension_reply>(suspension_request), caf::result<resumption_reply>(resumption_request),
                caf::result<capture_reply>(capture_request), caf::result<leave_reply>(leave_request),
                caf::result<credit>(credit_request), caf::result<world_event>(status_query),
                caf::result<world_event>(ready_query), caf::result<capabilities>(capabilities_query),
                caf::result<void>(subscribe), caf::result<void>(stop_world)>;

/// Asks a world to split off one sub-world per group. Every process of the world must ask for the same groups, at the
/// same place among its requests. Requests in flight end first; requests that arrive meanwhile wait. A sub-world ends
/// when its parent stops, or earlier by its own stop.
struct split_request {
  std::vector<rank_group> groups;
  troupe::epoch epoch; ///< The world's epoch as the client knows it (EPO-1).
};

struct sub_world_parts;

/// One sub-world. If none of its ranks live in this process, only \p group is set.
struct sub_world {
  rank_group group;
  std::vector<rank> local_ranks{}; ///< Rank numbers in the sub-world, ascending.
  world_handle world{};
  std::shared_ptr<sub_world_parts> parts{}; ///< Internal, not for users.
};

/// Returns the collective actor of rank \p target of \p where. Another actor replaces it when it ends. Errors:
/// invalid_argument (\p target is not one of its local_ranks).
[[nodiscard]] collective_handle collective_of(const sub_world& where, rank target);

/// The answer to a split_request: the sub-worlds in the order of the requested groups. All of them are ready.
struct split_reply {
  std::vector<sub_world> worlds;
};

} // namespace troupe
