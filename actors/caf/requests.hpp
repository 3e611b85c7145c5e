/// Defines what clients can request from ranks and worlds besides operations.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Withdraws a request that waits for its peers. The request is answered with errc::cancelled, and its peers are
/// notified. A request that has already been released keeps its outcome.
struct cancel_request {
  troupe::lane lane;
  std::uint64_t position = 0; ///< Index from 0 among the requests of this rank in the lane in `epoch`.
  troupe::epoch epoch{};      ///< The epoch of the request. In any other epoch nothing happens (EPO-1).
};

/// Asks a world to register memory on every local rank. Every process must ask for the same size, at the same place
/// among its requests. Later requests wait meanwhile, as for a split.
struct registration_request {
  std::size_t size_bytes = 0; ///< Size on each rank.
  troupe::epoch epoch;
};

/// The answer to a registration_request. Requests on memory of this pool use registered windows automatically. If
/// windows are not available, the pool's why_ordinary() gives the reason.
struct registration_reply {
  std::shared_ptr<registered_pool> pool;
};

/// Asks an idle world to release the device memory of its communicators. Requests that arrive while it is suspended
/// wait until it is resumed, and their deadlines keep running. Memory of clients, registered memory included, keeps its
/// contents and addresses. Every process must ask for it, at the same place among its requests. Stopping the world
/// resumes it first. An epoch that follows a fault is not suspended.
/// Errors: unsupported (the backend lacks a feature), invalid_argument (already suspended), stale_epoch, stopping,
/// world_failed.
struct suspension_request {
  troupe::epoch epoch;
};

/// The answer to a suspension_request, sent when the memory is free.
struct suspension_reply {
  std::vector<std::size_t> bytes; ///< Bytes released on each local rank's device, in rank order.
};

/// Asks a suspended world to allocate that memory again and to serve the waiting requests. Does nothing if the world is
/// not suspended. Every process must ask for it. Errors: world_failed (out of memory: the world fails or is rebuilt).
struct resumption_request {};

/// The answer to a resumption_request, sent when requests are served again.
struct resumption_reply {};

/// Asks a world to capture a plan from exactly one of two sources: \p function, which is called once for each rank of
/// this process and launches the work, or \p steps, which are requests only. Over processes every process must ask
/// (plan_options::name). The capture has a place in the order of requests, and later requests wait for it. A failed
/// capture has no effect, and the world continues.
/// Errors: invalid_argument, unsupported (host memory; ranks in other processes without a controller that keeps their
/// order), mismatch (ranks ask for different things), deadline_exceeded, stale_epoch, stopping, world_failed, and any
/// error that the function throws (exceptions of other types become cancelled).
struct capture_request {
  capture_function function{};
  plan_steps steps{};
  plan_options options{};
  troupe::epoch epoch; ///< The world's epoch as the client knows it (EPO-1).
};

/// The answer to a capture_request.
struct capture_reply {
  std::shared_ptr<captured_plan> plan; ///< For replay requests; valid as long as the world lives.
};

/// Asks a world to reserve quota. It is answered when the quota is available and all earlier credit requests have been
/// served (first come, first served). Requests that name the credit are never refused because of what others have
/// pending. Reserve everything that an operation needs in one request, for all its ranks: clients that each hold a part
/// and wait for the rest would block each other until their deadlines.
struct credit_request {
  std::size_t operations = 1; ///< Number of requests that may be pending under the credit at once.
  std::size_t bytes = 0;      ///< Bytes of the buffers that they name; used only if limits.pending_bytes is set.
  troupe::epoch epoch;
  nanoseconds deadline = world_default_deadline; ///< Maximum time to wait for quota.
};

/// Asks a world over processes to let this process leave as planned, for maintenance: a process that stands by takes
/// its place, or the others go on with fewer ranks. They lose no request (docs/processes.md). It is answered when the
/// process is no rank any more; the world then stops here. Errors: those of rank_change; unsupported (a sub-world, a
/// world without a controller). A process joins by forming its world.
struct leave_request {
  bool renumbers = false; ///< Whether the ranks behind this one may get other numbers.
};

/// The answer to a leave_request.
struct leave_reply {};

using leave_answer = value_promise<leave_reply>;
using registration_promise = value_promise<registration_reply>;
using suspension_answer = value_promise<suspension_reply>;
using resumption_answer = value_promise<resumption_reply>;
using capture_answer = value_promise<capture_reply>;
using credit_answer = value_promise<credit>;

} // namespace troupe
