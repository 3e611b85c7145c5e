/// Defines the messages of troupe's actors and the handles that accept them.
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/actors/world/world_notes.hpp>
#include <troupe/actors/world/world_status.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/reply/overlap.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/reply/value_promise.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {
struct cancel_request;
struct capabilities_query;
struct capture_reply;
struct capture_request;
struct credit_request;
struct controller_note;
struct guidance;
struct leave;
struct leave_lane;
struct sub_worlds_report;
struct outcome_request;
struct overlapped_request;
struct overlapped_world_request;
struct posted_capture;
struct posted_credit;
struct posted_registration;
struct posted_request;
struct posted_resumption;
struct posted_split;
struct posted_suspension;
struct posted_world_request;
struct process_note;
struct rank_report;
struct rebuild_due;
class rank_directory;
struct registration_reply;
struct registration_request;
struct restored_report;
struct resumption_reply;
struct resumption_request;
struct split_reply;
struct split_request;
struct status_query;
struct stop_world;
struct straggling_report;
struct subscribe;
struct suspension_reply;
struct suspension_request;
struct watch_client;
} // namespace troupe

TROUPE_LOCAL_TYPES_BEGIN(troupe, 0)
TROUPE_LOCAL_TYPE(troupe, troupe::cancel_request)
TROUPE_LOCAL_TYPE(troupe, troupe::capabilities)
TROUPE_LOCAL_TYPE(troupe, troupe::capabilities_query)
TROUPE_LOCAL_TYPE(troupe, troupe::capture_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::capture_request)
TROUPE_LOCAL_TYPE(troupe, troupe::completion)
TROUPE_LOCAL_TYPE(troupe, troupe::controller_note)
TROUPE_LOCAL_TYPE(troupe, troupe::credit)
TROUPE_LOCAL_TYPE(troupe, troupe::credit_request)
TROUPE_LOCAL_TYPE(troupe, troupe::enqueued)
TROUPE_LOCAL_TYPE(troupe, troupe::error)
TROUPE_LOCAL_TYPE(troupe, troupe::guidance)
TROUPE_LOCAL_TYPE(troupe, troupe::leave)
TROUPE_LOCAL_TYPE(troupe, troupe::leave_lane)
TROUPE_LOCAL_TYPE(troupe, troupe::sub_worlds_report)
TROUPE_LOCAL_TYPE(troupe, troupe::outcome_request)
TROUPE_LOCAL_TYPE(troupe, troupe::overlapped_request)
TROUPE_LOCAL_TYPE(troupe, troupe::overlapped_world_request)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_capture)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_credit)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_registration)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_request)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_resumption)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_split)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_suspension)
TROUPE_LOCAL_TYPE(troupe, troupe::posted_world_request)
TROUPE_LOCAL_TYPE(troupe, troupe::process_note)
TROUPE_LOCAL_TYPE(troupe, troupe::rank_report)
TROUPE_LOCAL_TYPE(troupe, troupe::rank_request)
TROUPE_LOCAL_TYPE(troupe, troupe::rebuild_due)
TROUPE_LOCAL_TYPE(troupe, troupe::registration_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::registration_request)
TROUPE_LOCAL_TYPE(troupe, troupe::restored_report)
TROUPE_LOCAL_TYPE(troupe, troupe::resumption_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::resumption_request)
TROUPE_LOCAL_TYPE(troupe, troupe::split_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::split_request)
TROUPE_LOCAL_TYPE(troupe, troupe::status_query)
TROUPE_LOCAL_TYPE(troupe, troupe::stop_world)
TROUPE_LOCAL_TYPE(troupe, troupe::straggling_report)
TROUPE_LOCAL_TYPE(troupe, troupe::subscribe)
TROUPE_LOCAL_TYPE(troupe, troupe::suspension_reply)
TROUPE_LOCAL_TYPE(troupe, troupe::suspension_request)
TROUPE_LOCAL_TYPE(troupe, troupe::watch_client)
TROUPE_LOCAL_TYPE(troupe, troupe::world_event)
TROUPE_LOCAL_TYPE(troupe, troupe::world_request)
TROUPE_LOCAL_TYPES_END(troupe)

namespace troupe {

/// A request whose answer does not go to its sender. It comes from a plain thread (a future) or from the world (a part
/// of a request to all ranks). The answer is shared only because messages must be copyable; the receiver moves it out.
struct posted_request {
  rank_request what;
  std::shared_ptr<reply_promise> reply;
  std::uint64_t client = 0; ///< The owner of the lane; 0: no particular owner.
};

/// A request that is answered when it is in the GPU's queue, with an event that follows it. The client can chain its
/// own kernels to that event without the CPU. (docs/overlap.md)
struct overlapped_request {
  rank_request what;
};
/// A request to all ranks that is answered when it is in the queue of each of their GPUs.
struct overlapped_world_request {
  world_request what;
};

/// Asks for the final outcome of an overlapped request. It goes to the actor that received the request, at any time
/// after the first reply.
struct outcome_request {
  outcome_claim outcome;
};

/// Tells a rank that a client sends no more requests in its lanes. Its waiting requests are withdrawn and the lanes
/// become free. A client actor that ends need not send it.
struct leave_lane {
  std::uint64_t client = 0;
};

/// A world_request whose answer does not go to its sender: see posted_request.
struct posted_world_request {
  world_request what;
  std::shared_ptr<reply_promise> reply;
};

/// Sent by a collective actor to itself when a client's first request has arrived.
struct watch_client {
  caf::actor client;
};

/// Sent by the world to a collective actor: the pipeline has been released, so the actor must end.
struct leave {};

/// Asks a world for its state.
struct status_query {};

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

/// The interface of one rank to its clients and to its world.
using collective_handle =
    compat::typed_actor<caf::result<completion>(rank_request), caf::result<void>(posted_request),
                        caf::result<enqueued>(overlapped_request), caf::result<completion>(outcome_request),
                        caf::result<void>(cancel_request), caf::result<void>(leave_lane),
                        caf::result<void>(watch_client), caf::result<void>(leave)>;

/// The interface of a world to its clients.
using world_handle =
    compat::typed_actor<caf::result<completion>(world_request), caf::result<void>(posted_world_request),
                        caf::result<enqueued>(overlapped_world_request), caf::result<completion>(outcome_request),
                        caf::result<split_reply>(split_request), caf::result<void>(posted_split),
                        caf::result<registration_reply>(registration_request), caf::result<void>(posted_registration),
                        caf::result<suspension_reply>(suspension_request), caf::result<void>(posted_suspension),
                        caf::result<resumption_reply>(resumption_request), caf::result<void>(posted_resumption),
                        caf::result<capture_reply>(capture_request), caf::result<void>(posted_capture),
                        caf::result<credit>(credit_request), caf::result<void>(posted_credit),
                        caf::result<world_event>(status_query), caf::result<capabilities>(capabilities_query),
                        caf::result<void>(subscribe), caf::result<void>(stop_world)>;

/// The interface of a world to its own parts.
using world_inner_handle = compat::typed_actor<
    caf::result<completion>(world_request), caf::result<void>(posted_world_request),
    caf::result<enqueued>(overlapped_world_request), caf::result<completion>(outcome_request),
    caf::result<split_reply>(split_request), caf::result<void>(posted_split),
    caf::result<registration_reply>(registration_request), caf::result<void>(posted_registration),
    caf::result<suspension_reply>(suspension_request), caf::result<void>(posted_suspension),
    caf::result<resumption_reply>(resumption_request), caf::result<void>(posted_resumption),
    caf::result<capture_reply>(capture_request), caf::result<void>(posted_capture), caf::result<credit>(credit_request),
    caf::result<void>(posted_credit), caf::result<world_event>(status_query),
    caf::result<capabilities>(capabilities_query), caf::result<void>(subscribe), caf::result<void>(stop_world),
    caf::result<void>(rank_report), caf::result<void>(rebuild_due), caf::result<void>(sub_worlds_report),
    caf::result<void>(straggling_report), caf::result<void>(restored_report), caf::result<void>(guidance)>;

/// Asks a world to split off one sub-world per group. Every process of the world must ask for the same groups, at the
/// same place among its requests. Requests in flight end first; requests that arrive meanwhile wait. A sub-world ends
/// when its parent stops, or earlier by its own stop.
struct split_request {
  std::vector<rank_group> groups;
  troupe::epoch epoch; ///< The world's epoch as the client knows it (EPO-1).
};

/// One sub-world. If none of its ranks live in this process, only \p group is set.
struct sub_world {
  rank_group group;
  std::vector<rank> local_ranks{}; ///< Rank numbers in the sub-world, ascending.
  world_handle world{};
  std::shared_ptr<rank_directory> ranks{}; ///< The actors of local_ranks, in the same order.
  std::shared_ptr<world_status> status{};
  std::shared_ptr<admission_quota> pending{};
  std::shared_ptr<retry_queue> retries{};
};

/// The sub-worlds in the order of the requested groups. All of them are ready.
struct split_reply {
  std::vector<sub_world> worlds;
};

using split_answer = value_promise<split_reply>;

/// A split_request from a plain thread: see posted_request.
struct posted_split {
  split_request what;
  std::shared_ptr<split_answer> reply;
};

/// A capture_request from a plain thread: see posted_request.
struct posted_capture {
  capture_request what;
  std::shared_ptr<capture_answer> reply;
};

/// A registration_request from a plain thread: see posted_request.
struct posted_registration {
  registration_request what;
  std::shared_ptr<registration_promise> reply;
};

/// A suspension_request from a plain thread: see posted_request.
struct posted_suspension {
  suspension_request what;
  std::shared_ptr<suspension_answer> reply;
};

/// A resumption_request from a plain thread: see posted_request.
struct posted_resumption {
  std::shared_ptr<resumption_answer> reply;
};

/// A credit_request from a plain thread: see posted_request.
struct posted_credit {
  credit_request what;
  std::shared_ptr<credit_answer> reply;
};

/// Sent to a world by one of its sub-worlds.
struct sub_worlds_report {
  std::uint64_t child = 0;
  world_event event;
};

} // namespace troupe
