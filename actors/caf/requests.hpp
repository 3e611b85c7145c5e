/// What clients ask of ranks and worlds beside operations.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/reply/value_promise.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Takes back a request that waits for its peers: it is answered with errc::cancelled, and they are told. One that has
/// been released has its outcome all the same.
struct cancel_request {
  troupe::lane lane;
  std::uint64_t position = 0; ///< Among the requests of this rank in the lane, in `epoch`, from 0.
  troupe::epoch epoch{};      ///< As the request's. Nothing happens in another (EPO-1).
};

/// Asks a world to register memory on every local rank. Every process asks for the same, at the same place among its
/// requests, which wait meanwhile as for a split.
struct registration_request {
  std::size_t size_bytes = 0; ///< On each rank.
  troupe::epoch epoch;
};

/// Memory that requests use through registered windows by themselves; its why_ordinary() says where they do not.
struct registration_reply {
  std::shared_ptr<registered_pool> pool;
};

/// Asks an idle world to give back the device memory of its communicators, which requests need: those that come wait,
/// and their deadlines run, until it is resumed. What clients hold, registered memory too, keeps its contents and
/// addresses. Every process asks for it, at the same place among its requests. Stopping the world resumes it first; an
/// epoch that follows a fault has its memory. Errors: unsupported (what the backend lacks), invalid_argument (it is
/// suspended already), stale_epoch, stopping, world_failed.
struct suspension_request {
  troupe::epoch epoch;
};

/// The answer to a suspension_request, when the memory is free.
struct suspension_reply {
  std::vector<std::size_t> bytes; ///< Given back on each local rank's device, in the order of the ranks.
};

/// Asks a world to take that memory again, and to serve what waits. Does nothing to one that is not suspended. Every
/// process asks for it. Errors: world_failed (there was no memory: the world fails or is rebuilt).
struct resumption_request {};

/// The answer to a resumption_request, when requests are served.
struct resumption_reply {};

/// Asks a world to capture a plan: what \p function launches, called once for each rank, or \p steps, requests alone;
/// one of the two. It takes its place in the order of requests, and those behind it wait for it. A capture that fails
/// has done nothing, and the world goes on. Errors: invalid_argument, unsupported (ranks in other processes), mismatch
/// (ranks ask for different things), deadline_exceeded, stale_epoch, stopping, world_failed, and what the function
/// throws (else than troupe's: cancelled).
struct capture_request {
  capture_function function{};
  plan_steps steps{};
  plan_options options{};
  troupe::epoch epoch; ///< The world's epoch as the client knows it (EPO-1).
};

/// The answer to a capture_request.
struct capture_reply {
  std::shared_ptr<captured_plan> plan; ///< For replay requests, as long as the world lives.
};

/// Asks a world to set room aside: answered when that much is there and all who asked before have theirs, first come,
/// first served. Requests that name the credit are then never refused for what others leave pending. Take what an
/// operation needs at once, for all its ranks: clients that each hold a part, and wait for the rest, wait for each
/// other until their deadlines.
struct credit_request {
  std::size_t operations = 1; ///< Requests that may be pending under it at once.
  std::size_t bytes = 0;      ///< Of the buffers that they name; looked at only where limits.pending_bytes is set.
  troupe::epoch epoch;
  nanoseconds deadline = world_default_deadline; ///< To wait for room.
};

using registration_promise = value_promise<registration_reply>;
using suspension_answer = value_promise<suspension_reply>;
using resumption_answer = value_promise<resumption_reply>;
using capture_answer = value_promise<capture_reply>;
using credit_answer = value_promise<credit>;

} // namespace troupe
