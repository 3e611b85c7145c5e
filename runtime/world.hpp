/// Defines the user's handle to a world, which sends requests from plain threads and gives access to the world's memory
/// and status.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/overlap.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/per_rank.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

struct capture_request;
struct leave_reply;
struct split_world;

/// The state of a world's registered memory.
struct registered_memory_status {
  std::size_t size_bytes = 0; ///< Size per rank; 0 if no memory has been registered.
  std::size_t free_bytes = 0;
  std::string why_ordinary{}; ///< Why requests on it are no faster than on other memory. Empty if they are faster.
};

/// The two answers of a request. If it is refused or fails before it is enqueued, both throw.
struct overlapped {
  std::future<troupe::enqueued> enqueued;
  std::future<completion> outcome;
};

/// A reference-counted handle to a world. Asking never blocks. The future that it returns is answered once, when the
/// GPU is done, and throws troupe::exception on an error (ONE-1).
///
/// Lifetime: the world ends when stop() is called, when its runtime ends, or, if all its ranks are in this process,
/// with its last handle. Requests in flight then have deadlines.drain to finish, as in stop(). Handles of its
/// sub-worlds (split()) and rank lanes count as handles of the world. Once actor_of() or collective_of() has been
/// called, the world also lives as long as other holders keep its actors. It then ends when a later world is formed or
/// dropped after they have released the actors.
/// Collectives are its methods (collective_methods): each asks all ranks with one request. One rank is asked through
/// rank_lane, or by ask() with the rank. In a fork of its process, requests and questions for its state are refused
/// (unsupported), and the fork's handles end nothing. Threads: safe from any.
class world : public collective_methods<world, arguments_of_all, std::future<completion>> {
public:
  class core;
  /// Creates a handle; used by runtime::form_world() and split().
  explicit world(std::shared_ptr<core> shared) noexcept;

  /// Returns the number of ranks of the whole world in the current epoch. It is lower than at first after ranks have
  /// left.
  [[nodiscard]] int size() const;
  /// Returns the ranks that are in this process, in ascending order. After ranks have left, the remaining ones are
  /// renumbered in their old order; status().origins has their first numbers. To use this together with other parts of
  /// the state, take all of them from one status().
  [[nodiscard]] std::vector<rank> local_ranks() const;
  /// Returns the current epoch. A request to all ranks is for this epoch unless it names another. For requests to one
  /// rank see ask().
  [[nodiscard]] troupe::epoch epoch() const;
  /// Returns the current state. It is a snapshot: its parts agree with each other.
  [[nodiscard]] world_event status() const;
  /// Waits until the world is ready in an epoch later than \p after, has failed or stops, or \p at_most has passed.
  /// Returns the state. After an error, pass the epoch of the request that failed: the world may not have noticed the
  /// fault yet. Not for actors, which send a ready_query instead, nor for on_event().
  world_event wait_ready(troupe::epoch after, nanoseconds at_most) const; // NOLINT(modernize-use-nodiscard)
  /// Does the same in any epoch.
  world_event wait_ready(nanoseconds at_most) const; // NOLINT(modernize-use-nodiscard)
  /// Does the same without blocking or a limit: delivers the state to \p reply, whose sink must neither block nor
  /// throw.
  void wait_ready(troupe::epoch after, std::shared_ptr<value_promise<world_event>> reply) const;
  /// Calls \p heard for every later event: changes of phase, and reports. It runs on the thread of the world's actor
  /// and must neither block nor throw.
  void on_event(std::function<void(const world_event&)> heard);
  /// Returns what this world supports. Anything else is refused with errc::unsupported and the reason given here.
  [[nodiscard]] const troupe::capabilities& capabilities() const;

  /// Allocates \p size_bytes of device memory on the device of rank \p where. Contents: undefined. Errors:
  /// out_of_memory, invalid_argument. Freed memory stays with the pool up to pool_keep_bytes.
  [[nodiscard]] buffer allocate(rank where, std::size_t size_bytes) const;
  /// Returns the memory that the pools of the local ranks' devices keep unused to these devices, where other users of
  /// the GPU can have it, and the number of its bytes. Does not wait for requests in flight. Later allocations take
  /// memory from the device again, which takes longer. Errors: those of a device.
  std::size_t release_unused() const; // NOLINT(modernize-use-nodiscard)
  /// Allocates \p size_bytes of page-locked host memory that every local rank can access. Contents: undefined.
  /// Lifetime: requests hold it; for a stream of your own, keep a handle until the stream has finished with it. Errors:
  /// out_of_memory.
  [[nodiscard]] buffer allocate_pinned(std::size_t size_bytes) const;
  /// Makes the client's own host memory, pinned or pageable, usable as an operand. \p owner is held as long as any
  /// handle to it. The first call for pageable memory page-locks the chunks that such memory is staged through. This
  /// may wait for the GPUs, so call it before the first request. Errors: invalid_argument (null, or device memory),
  /// out_of_memory.
  [[nodiscard]] buffer adopt_host(void* address, std::size_t size_bytes, std::shared_ptr<void> owner) const;
  /// Exports \p memory, which rank \p where of this process uses: requests to the whole world, made in any process of
  /// the world, may name the handle as the operand of this rank (remote_buffer). The memory is held until unexport().
  /// The handle is valid in all epochs, and in all sub-worlds of the world. Errors: invalid_argument (not one of
  /// local_ranks(), an empty buffer).
  /// \p name: other processes can ask for the handle by this name (find_memory()); used again, it refers to the new
  /// memory.
  [[nodiscard]] remote_buffer export_memory(rank where, buffer memory, const std::string& name = {}) const;
  /// Asks the process of rank \p target for the handle of the memory that it has exported under \p name. Errors:
  /// missing (it has not), deadline_exceeded (its process has not answered), invalid_argument (not a rank of the
  /// world).
  [[nodiscard]] std::future<remote_buffer> find_memory(rank target, const std::string& name,
                                                       nanoseconds deadline = std::chrono::seconds{10}) const;
  /// Does the same, and delivers the answer to \p reply, whose sink must neither block nor throw.
  void find_memory(rank target, const std::string& name, nanoseconds deadline,
                   std::shared_ptr<value_promise<remote_buffer>> reply) const;
  /// Releases exported memory. Requests in flight still hold it. Does nothing if it is not exported here.
  void unexport(const remote_buffer& exported) const;
  /// Returns the device of rank \p where. Errors: invalid_argument (not one of local_ranks()).
  [[nodiscard]] const std::shared_ptr<device>& device_of(rank where) const;

  /// Registers \p size_bytes of memory on each rank with all ranks, which makes some requests faster (small all_reduce,
  /// all_gather, reduce_scatter; NCCL's symmetric windows). allocate_all() then allocates from it. Order: as split();
  /// every process of the world makes the same call. If registration brings no advantage,
  /// registered_memory().why_ordinary says why. Errors: out_of_memory (nothing has changed), invalid_argument,
  /// stopping, world_failed, deadline_exceeded (not all processes have made the call).
  void register_memory(std::size_t size_bytes);
  /// Allocates one buffer of \p size_bytes per local rank: at the same offset of the registered memory if there is
  /// room, else from the ranks' pools. Contents: undefined. Errors: out_of_memory.
  [[nodiscard]] per_rank<buffer> allocate_all(std::size_t size_bytes) const;
  /// Returns the size of the registered memory, and whether it makes requests faster.
  [[nodiscard]] registered_memory_status registered_memory() const;

  /// Releases the device memory of the world's communicators while the world is idle: see suspension_request. Returns,
  /// when the memory is free, the number of bytes released on each local rank's device. Requests that arrive later wait
  /// until resume(), and their deadlines run meanwhile. Order: as split(); every process of the world makes the same
  /// call. (docs/suspension.md) Errors: unsupported (capabilities().find(feature::suspend) says why), invalid_argument
  /// (already suspended), stopping, world_failed.
  std::vector<std::size_t> suspend();
  /// Allocates the memory again and serves the requests that wait. Returns when the world serves again. Does nothing if
  /// it is not suspended. Errors: world_failed (it has failed meanwhile, or there was no memory), stopping.
  void resume();

  /// Asks all ranks with one request: parts[i] is for the i-th rank. If not all ranks are in this process, this
  /// requires a controller and ordering::agreed, and operands of other processes' ranks are remote buffers
  /// (docs/drivers.md). If the options name no epoch, the request is for the current one.
  [[nodiscard]] std::future<completion> ask(std::vector<operation> parts, request_options options = {},
                                            call_site from = call_site::current());
  [[nodiscard]] std::future<completion> ask(world_request asked);
  /// Registers a function of the user's own for the ranks of this process, in this world and its sub-worlds, in place
  /// of an earlier one of its name. Requests call it by the result (troupe::call); other processes by its name.
  /// Lifetime: that of the world. Errors: invalid_argument (the name).
  std::shared_ptr<const rank_function> register_function(std::string name, rank_function::work what);

  /// Asks one rank (SPMD). Every rank must be asked for the same collectives in the same order. A request without an
  /// epoch is for the one in which the world was first ready in this process. After a rebuild it is refused with
  /// stale_epoch, because ranks may differ in which requests they saw succeed: bring them to one state, then name the
  /// epoch in which they continue (rank_request::epoch, rank_lane::acknowledge()). Errors, thrown at once:
  /// invalid_argument (not one of local_ranks()).
  [[nodiscard]] std::future<completion> ask(rank target, operation what, request_options options = {},
                                            call_site from = call_site::current());
  [[nodiscard]] std::future<completion> ask(rank target, rank_request asked);

  /// Asks as ask() does, but returns two futures, so that your own kernels can follow the request without the CPU. The
  /// first is answered when the request is in the GPUs' queues, with an event recorded behind it on each GPU; the
  /// second has its outcome. (docs/overlap.md) Errors: both futures throw.
  [[nodiscard]] overlapped ask_overlapped(std::vector<operation> parts, request_options options = {},
                                          call_site from = call_site::current());
  [[nodiscard]] overlapped ask_overlapped(world_request asked);
  [[nodiscard]] overlapped ask_overlapped(rank target, operation what, request_options options = {},
                                          call_site from = call_site::current());
  [[nodiscard]] overlapped ask_overlapped(rank target, rank_request asked);

  /// Reserves room for \p operations requests at a time that name \p bytes in all, for rank_request::credit and
  /// world_request::credit. \p bytes is used only if limits.pending_bytes is set. First come, first served. Reserve
  /// what an operation needs for all its ranks in one call. Errors: invalid_argument (more than the limits),
  /// deadline_exceeded (no room within \p deadline), stopping, world_failed.
  [[nodiscard]] std::future<troupe::credit> credit(std::size_t operations, std::size_t bytes = 0,
                                                   nanoseconds deadline = world_default_deadline);
  /// Returns the amount that limits.pending_operations and limits.pending_bytes bound: requests that are pending beyond
  /// the first of each lane, and room reserved as credit. Bytes are counted only if they are bounded.
  [[nodiscard]] pending_amount pending() const;

  /// Copies \p from to \p to on the stream of rank \p target: see troupe::copy. If the options name no epoch, the
  /// request is for the current one.
  [[nodiscard]] std::future<completion> copy(rank target, operand from, operand to, request_options options = {},
                                             call_site site = call_site::current());

  /// Copies \p from, host memory of the client, to the front of \p to, memory of rank \p target. The range holds
  /// elements that can be copied byte by byte: a std::vector, std::span or array. Its bytes are read before the call
  /// returns, so it need not live longer. Order: if \p target is in this process, that of copy(). If it is not, \p to
  /// is a remote buffer, and the request is a transfer() from the first of local_ranks(): in the order of the requests
  /// to all ranks, and with their conditions. Large memory is copied once more than by copy() from memory of
  /// allocate_pinned(); the first call page-locks chunks, as adopt_host() does. If the options name no epoch, the
  /// request is for the current one. Errors: those of copy() and transfer(); thrown: invalid_argument (a rank of
  /// another process, and no remote buffer).
  template <class Range>
  requires requires(const Range& from) { std::as_bytes(std::span{from}); }
  [[nodiscard]] std::future<completion> write(rank target, const Range& from, operand to, request_options options = {},
                                              call_site site = call_site::current()) {
    return write_bytes(target, bytes_of(from), std::move(to), std::move(options), site);
  }
  /// Does the same, and delivers the outcome, errors included, to \p reply.
  void write(rank target, std::span<const std::byte> from, operand to, reply_promise reply,
             request_options options = {}, call_site site = call_site::current());
  /// Returns the contents of \p from, memory of rank \p target, as elements of type \p T. Nothing that the caller owns
  /// is written, so an answer may be dropped at any time. Order, options and errors: those of write(). Thrown too:
  /// invalid_argument (the size is not a multiple of T's).
  template <class T>
  [[nodiscard]] std::future<std::vector<T>> read(rank target, operand from, request_options options = {},
                                                 call_site site = call_site::current()) {
    const auto into = make_elements<T>(from.memory.size_bytes());
    auto [reply, future] = make_read_promise(into);
    read_into(target, std::move(from), into->data(), into, std::move(reply), std::move(options), site);
    return std::move(future);
  }
  /// Does the same for bytes, and delivers them, or the error, to \p reply, whose sink must neither block nor throw.
  void read(rank target, operand from, std::shared_ptr<value_promise<std::vector<std::byte>>> reply,
            request_options options = {}, call_site site = call_site::current());

  /// Splits off a sub-world for each group of ranks. A group names a rank once; the order in it is the order of the
  /// ranks of the sub-world. A rank may be in several groups. Returns when all are ready, in the order of \p groups.
  /// Order: every process of the world makes the same call; its place among their requests is the same for all.
  /// Requests before it finish first; later ones wait. Lifetime: stopping this world stops its sub-worlds first. Over
  /// processes they have its epochs: see docs/processes.md. Memory of this world's pools can be used in them too.
  /// Errors: invalid_argument (a group), stopping, world_failed, deadline_exceeded (also: not all processes have made
  /// the call).
  [[nodiscard]] std::vector<split_world> split(std::vector<rank_group> groups);

  /// Captures a plan on every rank. \p function is called for each rank of this process at the same time, on the
  /// launcher threads of their GPUs. Over processes every process makes the call. Returns when the plan is captured.
  /// Order: that of a request. See capture_request for the rules and errors, and docs/plans.md. Lifetime: the plan can
  /// be replayed until this world ends.
  [[nodiscard]] std::shared_ptr<captured_plan> capture(capture_function function, plan_options options = {});
  /// Captures a plan that consists of requests: steps[k][r] is the part of rank r in step k; over processes steps[k][0]
  /// is that of this process's rank.
  [[nodiscard]] std::shared_ptr<captured_plan> capture(plan_steps steps, plan_options options = {});

  /// Lets this process leave its world over processes as planned (leave_request): a process that stands by takes its
  /// place, or the others go on with fewer ranks, and lose no request. The future is ready when the process is no rank
  /// any more; the world then stops here. \p renumbers: whether the ranks behind this one may get other numbers.
  /// Errors: those of rank_change; unsupported (a sub-world, a world without a controller).
  [[nodiscard]] std::future<void> leave(bool renumbers = false);
  /// Does the same, and delivers the answer to \p reply, whose sink must neither block nor throw.
  void leave(bool renumbers, std::shared_ptr<value_promise<leave_reply>> reply);

  /// Lets requests in flight finish, releases all resources, and returns when that is done. Idempotent. Errors:
  /// deadline_exceeded if it took longer than the deadlines of all its phases together. In a function that troupe calls
  /// (on_event(), a rank's function) it returns at once: the world cannot end while it waits for that function. In a
  /// fork of its process it does nothing.
  void stop();

  /// Returns whether both are handles to one world.
  friend bool operator==(const world& one, const world& other) noexcept { return one.core_ == other.core_; }

private:
  friend class rank_lane;
  friend core& core_of(const world& where) noexcept;
  [[nodiscard]] std::shared_ptr<captured_plan> capture(capture_request asked);
  [[nodiscard]] std::future<completion> write_bytes(rank target, std::span<const std::byte> from, operand to,
                                                    request_options options, call_site site);
  /// Copies \p from to host memory at \p to, which \p owner holds and which is as large.
  void read_into(rank target, operand from, void* to, std::shared_ptr<void> owner, reply_promise&& reply,
                 request_options options, call_site site);
  /// Copies between memory of \p target and host memory of this process: one end is each.
  void exchange(rank target, operand from, operand to, reply_promise&& reply, request_options options, call_site site);
  /// Returns a copy of \p from as an operand.
  [[nodiscard]] buffer host_copy(std::span<const std::byte> from) const;

  template <class Range>
  [[nodiscard]] static std::span<const std::byte> bytes_of(const Range& from) {
    const std::span all{from};
    static_assert(std::is_trivially_copyable_v<typename decltype(all)::value_type>, "its bytes are copied");
    return std::as_bytes(all);
  }
  template <class T>
  [[nodiscard]] static std::shared_ptr<std::vector<T>> make_elements(std::size_t size_bytes) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>, "its bytes are copied");
    if (size_bytes % sizeof(T) != 0) refuse_size(size_bytes, sizeof(T));
    return std::make_shared<std::vector<T>>(size_bytes / sizeof(T));
  }
  [[noreturn]] static void refuse_size(std::size_t size_bytes, std::size_t element_bytes);
  /// Returns a promise that moves \p read into the future when the request has succeeded.
  template <class T>
  [[nodiscard]] static std::pair<reply_promise, std::future<std::vector<T>>>
  make_read_promise(std::shared_ptr<std::vector<T>> read) {
    std::promise<std::vector<T>> promise;
    auto future = promise.get_future();
    auto deliver = [read = std::move(read), promise = std::move(promise)](outcome result) mutable {
      if (const error* const failure = failure_of(result))
        promise.set_exception(std::make_exception_ptr(exception{*failure}));
      else
        promise.set_value(std::move(*read));
    };
    return {make_reply_promise(std::move(deliver)), std::move(future)};
  }

  std::shared_ptr<core> core_;
};
extern template class collective_methods<world, arguments_of_all, std::future<completion>>;

/// A group of ranks and its world. The handle is empty if no rank of the group is in this process.
struct split_world {
  rank_group group;
  std::optional<world> handle{};
};

} // namespace troupe
