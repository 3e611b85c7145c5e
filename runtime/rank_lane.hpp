/// A lane at one rank, for a plain thread: where its requests are asked in order.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/runtime/world.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <utility>

namespace troupe {

/// The client of a lane at a rank. Each rank of an operation is asked by a client of its own, in lanes of one name:
/// what the k-th call of each asks for is one operation of all.
///
/// Lifetime: what waits for its peers when this ends is taken back (errc::cancelled), and they are told; the lane is
/// then free for another client, which goes on at the next position.
/// Threads: one at a time.
class rank_lane {
public:
  /// Takes the lane with its first request: where another client has it, that is refused with invalid_argument.
  /// Its requests are for the epoch that the world was ready in first, until acknowledge() says another.
  rank_lane(world where, rank whom, lane which);
  rank_lane(rank_lane&& other) noexcept;
  rank_lane& operator=(rank_lane&& other) noexcept;
  ~rank_lane();

  /// Never blocks. Order: that of the calls, on the rank's GPU too. The future is answered once, and throws
  /// troupe::exception on an error: deadline_exceeded with a report of who is missing (error::absence) where peers did
  /// not ask, busy where too many wait for them, mismatch where they ask for something else.
  [[nodiscard]] std::future<completion> ask(operation what, nanoseconds deadline = world_default_deadline,
                                            call_site from = call_site::current());
  /// The same, marked: may be run again after a fault instead of being answered with it. See rank_request::retry_safe.
  [[nodiscard]] std::future<completion> ask(retry_safe_mark mark, operation what,
                                            nanoseconds deadline = world_default_deadline,
                                            call_site from = call_site::current());
  /// The same in two steps: see world::ask_overlapped().
  [[nodiscard]] overlapped ask_overlapped(operation what, nanoseconds deadline = world_default_deadline,
                                          call_site from = call_site::current());
  /// Later requests are for \p now. After a rebuild all requests are refused (stale_epoch) until its owner has said so
  /// here: ranks may differ in which requests they saw succeed, and places in the lane count from 0 again, so that the
  /// owners first bring their ranks to one state, as the one of a checkpoint (CUT-1, docs/recovery.md).
  void acknowledge(epoch now) noexcept { acknowledged_ = now; }
  /// What was acknowledged last; 0: nothing yet, so that requests are for the world's first epoch.
  [[nodiscard]] epoch acknowledged() const noexcept { return acknowledged_; }
  /// Later requests are charged to \p given (world::credit()), or, where that is none, to what all share.
  void use(credit given) noexcept { credit_ = std::move(given); }
  /// Takes back the request that was asked \p position calls after the first of the acknowledged epoch, unless all its
  /// peers have asked.
  void cancel(std::uint64_t position);
  /// The world that it asks.
  [[nodiscard]] const world& where() const noexcept { return world_; }
  /// The rank that it asks, as the world called it when the lane was made. The lane stays that of its GPU when ranks
  /// are numbered anew, and is refused with rank_lost once its rank has left.
  [[nodiscard]] rank whom() const noexcept { return whom_; }
  /// As who it asks: no other client of the process has the number, actors included.
  [[nodiscard]] std::uint64_t client() const noexcept { return client_; }

private:
  void leave() noexcept;
  [[nodiscard]] const collective_handle& actor() const;
  void post(operation what, nanoseconds deadline, bool is_retry_safe, call_site from,
            std::shared_ptr<reply_promise> reply);

  world world_;
  rank whom_;
  std::size_t place_; ///< Of its actor.
  lane lane_;
  epoch acknowledged_{};
  credit credit_;
  std::uint64_t client_ = 0; ///< 0: moved from.
};

} // namespace troupe
