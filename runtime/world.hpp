/// What a user holds of a world: to ask it from plain threads, and to find its actors.
#pragma once

#include <troupe/actors/caf/messages.hpp>
#include <troupe/actors/world/world_board.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/collectives/pipeline/plans/rank_capture.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

struct split_world;

/// How a world's registered memory is.
struct registered_memory_status {
  std::size_t size_bytes = 0; ///< On each rank; 0 where none has been asked for.
  std::size_t free_bytes = 0;
  std::string why_ordinary{}; ///< Why requests on it are no faster than on other memory; empty where they are.
};

/// A request's two answers. Where it is refused or fails before it is enqueued, both throw.
struct overlapped {
  std::future<troupe::enqueued> enqueued;
  std::future<completion> outcome;
};

/// A counted handle to a world. Asking never blocks; the future that it returns is answered once, when the GPU is
/// done, and throws troupe::exception on an error (ONE-1).
///
/// Lifetime: the world ends when stop() is called, when its runtime ends, or, where all its ranks live in this process,
/// with its last handle: requests that are in flight have deadlines.drain to end, as in stop(). Handles of worlds that
/// were split off it and rank lanes count as its own. Where actor() or collective() has been called the world stays for
/// those who hold its actors, and ends when a later world is formed or dropped after they have let go of them.
/// Threads: safe from any.
class world {
public:
  class core;
  /// For runtime::form_world() and split().
  explicit world(std::shared_ptr<core> shared) noexcept;

  /// Ranks of the whole world, in its present epoch: fewer than at first after some have left.
  [[nodiscard]] int size() const;
  /// Those that live in this process, ascending. Where ranks have left, those that remain are numbered anew, in their
  /// old order: status().origins says what each was called at first. Where this and what is asked next must agree, take
  /// both from one status().
  [[nodiscard]] std::vector<rank> local_ranks() const;
  /// The present epoch, which a request is for unless it says another.
  [[nodiscard]] troupe::epoch epoch() const;
  /// Where it stands now. Taken at one moment: its parts agree with each other.
  [[nodiscard]] world_event status() const;
  /// Calls \p heard at every later change of phase; it must neither block nor throw.
  void on_event(std::function<void(const world_event&)> heard);
  /// What can be asked of this world; anything else is refused with errc::unsupported and the reason given here.
  [[nodiscard]] const troupe::capabilities& capabilities() const;

  /// Device memory of \p where's device. Units: bytes. Contents: undefined. Errors: out_of_memory, invalid_argument.
  [[nodiscard]] buffer allocate(rank where, std::size_t size_bytes) const;
  /// Page-locked host memory that every local rank reaches.
  [[nodiscard]] buffer allocate_pinned(std::size_t size_bytes) const;
  /// Host memory of the client's own as an operand, pinned or ordinary; \p owner is held as long as any handle lives.
  /// The first call page-locks the chunks that ordinary memory goes through, which may wait for the GPUs: make it
  /// before you ask for anything. Errors: invalid_argument (null, or device memory), out_of_memory.
  [[nodiscard]] buffer adopt_host(void* address, std::size_t size_bytes, std::shared_ptr<void> owner) const;
  /// The device of rank \p where. Errors: invalid_argument (none of local_ranks()).
  [[nodiscard]] const std::shared_ptr<device>& device_of(rank where) const;

  /// Memory that all ranks know of, \p size_bytes on each, for requests that are the faster for it (small all_reduce,
  /// all_gather, reduce_scatter; NCCL's symmetric windows). From then on allocate_all() gives it out. Sequenced as a
  /// split is; every process of the world asks for the same. Where it is of no use, registered_memory().why_ordinary
  /// says so. Errors: out_of_memory (nothing has changed), invalid_argument, stopping, world_failed.
  void register_memory(std::size_t size_bytes);
  /// One buffer of \p size_bytes for each local rank, at one place of the registered memory where there is room, else
  /// of the ranks' pools. Contents: undefined. Errors: out_of_memory.
  [[nodiscard]] std::vector<buffer> allocate_all(std::size_t size_bytes) const;
  /// How much there is, and whether it is of use.
  [[nodiscard]] registered_memory_status registered_memory() const;

  /// Gives the device memory of its communicators back while nobody asks for anything: see suspension_request. Returns
  /// when it is free: how many bytes on each local rank's device. Requests that come wait, and their deadlines run,
  /// until resume(). Sequenced as a split is; every process of the world asks for it. (docs/suspension.md) Errors:
  /// unsupported (capabilities().find(feature::suspend) says why), invalid_argument (it is suspended already),
  /// stopping, world_failed.
  std::vector<std::size_t> suspend();
  /// Takes the memory again and serves what waits; returns when it does. Nothing where it is not suspended.
  /// Errors: world_failed (it has failed meanwhile, or there was no memory), stopping.
  void resume();

  /// Asks all ranks with one message: parts[i] is for the i-th rank. Needs all ranks in this process.
  [[nodiscard]] std::future<completion> ask(std::vector<operation> parts, nanoseconds deadline = world_default_deadline,
                                            call_site from = call_site::current());
  [[nodiscard]] std::future<completion> ask(world_request asked);
  /// Asks one rank (SPMD): every rank must be asked for the same collectives in the same order. A request that names no
  /// epoch is for the one that the world was ready in first, here. After a rebuild it is refused with stale_epoch,
  /// since ranks may differ in which requests they saw succeed: bring them to one state, then name the epoch that they
  /// go on in (rank_request::epoch, rank_lane::acknowledge()). Errors: invalid_argument, thrown (none of
  /// local_ranks()).
  [[nodiscard]] std::future<completion> ask(rank whom, operation what, nanoseconds deadline = world_default_deadline,
                                            call_site from = call_site::current());
  [[nodiscard]] std::future<completion> ask(rank whom, rank_request asked);
  /// The same, marked: may be run again after a fault instead of being answered with it. See rank_request::retry_safe.
  [[nodiscard]] std::future<completion> ask(retry_safe_mark mark, std::vector<operation> parts,
                                            nanoseconds deadline = world_default_deadline,
                                            call_site from = call_site::current());
  [[nodiscard]] std::future<completion> ask(retry_safe_mark mark, rank whom, operation what,
                                            nanoseconds deadline = world_default_deadline,
                                            call_site from = call_site::current());
  /// What has become of requests so marked, by now.
  [[nodiscard]] retry_counts retries() const;

  /// The same in two steps, for kernels of your own that follow without the CPU: first when the request is in the GPUs'
  /// queues, with an event behind it on each, then its outcome. (docs/overlap.md) Errors: both futures throw.
  [[nodiscard]] overlapped ask_overlapped(std::vector<operation> parts, nanoseconds deadline = world_default_deadline,
                                          call_site from = call_site::current());
  [[nodiscard]] overlapped ask_overlapped(world_request asked);
  [[nodiscard]] overlapped ask_overlapped(rank whom, operation what, nanoseconds deadline = world_default_deadline,
                                          call_site from = call_site::current());
  [[nodiscard]] overlapped ask_overlapped(rank whom, rank_request asked);

  /// Room for \p operations requests at once, that name \p bytes in all (looked at only where limits.pending_bytes is
  /// set), for rank_request::credit and world_request::credit. First come, first served; take what an operation needs
  /// at once, for all its ranks. Errors: invalid_argument (more than may be pending at all), deadline_exceeded (no room
  /// within \p deadline), stopping, world_failed.
  [[nodiscard]] std::future<troupe::credit> credit(std::size_t operations, std::size_t bytes = 0,
                                                   nanoseconds deadline = world_default_deadline);
  /// What is pending now beyond the first request of each lane, or set aside as credit; bytes only where they are
  /// bounded. What limits.pending_operations and limits.pending_bytes bound.
  [[nodiscard]] pending_amount pending() const;

  /// One all_reduce for all ranks: rank i reduces send[i] into recv[i], \p count elements of \p type.
  [[nodiscard]] std::future<completion> all_reduce(std::span<const buffer> send, std::span<const buffer> recv,
                                                   std::size_t count, dtype type, reduction op,
                                                   call_site from = call_site::current());
  /// Answered when every rank's stream has reached it.
  [[nodiscard]] std::future<completion> barrier(call_site from = call_site::current());
  /// Copies on \p whom's stream, in the present epoch: see troupe::copy.
  [[nodiscard]] std::future<completion> copy(rank whom, buffer from, buffer to, call_site site = call_site::current());

  /// Splits off a world for each group of ranks, each named once in it, in the order of its ranks there; a rank may be
  /// in several groups. Returns when all are ready, in the order of \p groups. Every process of the world asks for
  /// the same, at the same place among its requests: those in flight end first, those that come meanwhile wait.
  /// Lifetime: stopping this world stops them first. Memory of this world's pools serves them too.
  /// Errors: invalid_argument (a group), stopping, world_failed, deadline_exceeded.
  [[nodiscard]] std::vector<split_world> split(std::vector<rank_group> groups);

  /// Captures a plan on every rank: \p function is called for each, at the same time, on their GPUs' launcher threads.
  /// Returns when it is captured. Sequenced as a request is. See capture_request for the rules and errors, and
  /// docs/plans.md. Lifetime: the plan can be replayed until this world ends.
  [[nodiscard]] std::shared_ptr<captured_plan> capture(capture_function function, plan_options options = {});
  /// The same of requests alone: steps[k][r] is rank r's part of the k-th.
  [[nodiscard]] std::shared_ptr<captured_plan> capture(plan_steps steps, plan_options options = {});
  /// Asks all ranks to launch \p plan: see troupe::replay.
  [[nodiscard]] std::future<completion> replay(const std::shared_ptr<captured_plan>& plan,
                                               nanoseconds deadline = world_default_deadline,
                                               call_site from = call_site::current());

  /// For actors: the world, and one rank's collective actor, which another one follows where it has ended: look it up
  /// again after a rebuild. It stays that of its GPU when ranks are numbered anew; that of a rank that has left refuses
  /// everything with rank_lost.
  [[nodiscard]] world_handle actor() const;
  /// The actor of rank \p whom. Errors: invalid_argument (none of local_ranks()).
  [[nodiscard]] const collective_handle& collective(rank whom) const;

  /// Lets requests in flight finish, gives everything back and returns when that has ended. Idempotent.
  /// Errors: deadline_exceeded when it took longer than all its phases may.
  void stop();

  /// Whether both are handles to one world.
  friend bool operator==(const world& one, const world& other) noexcept { return one.core_ == other.core_; }

private:
  friend class rank_lane;
  friend void ask_into(const world& where, rank whom, rank_request asked, reply_promise&& to, std::uint64_t client);
  [[nodiscard]] std::shared_ptr<captured_plan> capture(capture_request asked);
  [[nodiscard]] std::future<completion> ask_each(const operation& part, nanoseconds deadline, call_site from);

  std::shared_ptr<core> core_;
};

/// A group of ranks and its world; none where no rank of it lives in this process.
struct split_world {
  rank_group group;
  std::optional<world> handle{};
};

} // namespace troupe
