/// Defines a client with which a plain thread sends requests in one lane of one rank. The lane keeps them in order.
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/runtime/world.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// The client of a lane at one rank. Each rank of an operation has a client of its own, in lanes of the same name: the
/// k-th calls of all these clients form one operation. Collectives are its methods (collective_methods); their results
/// and errors are those of ask(). An epoch or a credit in their options is used in place of the lane's.
///
/// Lifetime: its destructor withdraws requests that wait for their peers (errc::cancelled) and informs the peers. The
/// lane is then free for another client, which continues at the next position.
/// Threads: one at a time.
class rank_lane : public collective_methods<rank_lane, arguments_of_one, std::future<completion>> {
public:
  /// Creates a client of lane \p which at rank \p target. The first request occupies the lane; it fails with
  /// invalid_argument if another client has it. Requests are for the epoch in which the world was first ready, until
  /// acknowledge() names another.
  rank_lane(world where, rank target, lane which);
  rank_lane(rank_lane&& other) noexcept;
  rank_lane& operator=(rank_lane&& other) noexcept;
  ~rank_lane();

  /// Enqueues \p what. Never blocks. Order: that of the calls, also on the rank's GPU. The future is answered once, and
  /// throws troupe::exception on an error: deadline_exceeded, with a report of the missing ranks (error::absence), if
  /// peers did not ask; busy if too many requests wait for their peers; mismatch if peers ask for something else.
  [[nodiscard]] std::future<completion> ask(operation what, request_options options = {},
                                            call_site from = call_site::current());
  /// Asks as ask() does, but returns two futures: see world::ask_overlapped().
  [[nodiscard]] overlapped ask_overlapped(operation what, request_options options = {},
                                          call_site from = call_site::current());

  /// Sends \p count elements to rank \p peer, which calls recv() with the same count, dtype and tag: see troupe::send.
  [[nodiscard]] std::future<completion> send(operand memory, std::size_t count, dtype type, rank peer, int tag = 0,
                                             request_options options = {}, call_site from = call_site::current());
  /// Receives from rank \p peer: see troupe::recv.
  [[nodiscard]] std::future<completion> recv(operand memory, std::size_t count, dtype type, rank peer, int tag = 0,
                                             request_options options = {}, call_site from = call_site::current());
  /// Copies all of \p source to the front of \p destination: see troupe::copy. No peer takes part.
  [[nodiscard]] std::future<completion> copy(operand source, operand destination, request_options options = {},
                                             call_site from = call_site::current());

  /// Copies \p from, host memory of the client, to the front of \p to, in the order of the lane: see world::write().
  template <class Range>
  requires requires(const Range& from) { std::as_bytes(std::span{from}); }
  [[nodiscard]] std::future<completion> write(const Range& from, operand to, request_options options = {},
                                              call_site site = call_site::current()) {
    return copy(world_.host_copy(world::bytes_of(from)), std::move(to), std::move(options), site);
  }
  /// Returns the contents of \p from as elements of type \p T, in the order of the lane: see world::read().
  template <class T>
  [[nodiscard]] std::future<std::vector<T>> read(operand from, request_options options = {},
                                                 call_site site = call_site::current()) {
    const auto into = world::make_elements<T>(from.memory.size_bytes());
    auto [reply, future] = world::make_read_promise(into);
    buffer to = world_.adopt_host(into->data(), from.memory.size_bytes(), into);
    post(troupe::copy{std::move(from), std::move(to)}, std::move(options), site, std::move(reply));
    return std::move(future);
  }

  /// Sets the epoch of later requests to \p now. After a rebuild all requests are refused (stale_epoch) until the owner
  /// calls this. Ranks may differ in which requests they saw succeed, and positions in the lane count from 0 again. The
  /// owners therefore first bring their ranks to one state, for example that of a checkpoint (CUT-1, docs/recovery.md).
  void acknowledge(epoch now) noexcept { acknowledged_ = now; }
  /// Returns the epoch that was acknowledged last. 0: none yet, so requests are for the world's first epoch.
  [[nodiscard]] epoch acknowledged() const noexcept { return acknowledged_; }
  /// Charges later requests to \p given (world::credit()), or, if it is empty, to the quota that all clients share.
  void use(credit given) noexcept { credit_ = std::move(given); }
  /// Withdraws the request with index \p position, counted from 0 in the acknowledged epoch, unless all its peers have
  /// asked.
  void cancel(std::uint64_t position);
  /// Returns the world of the lane.
  [[nodiscard]] const world& where() const noexcept { return world_; }
  /// Returns the rank of the lane, as it was numbered when the lane was made. The lane stays with its GPU when ranks
  /// are renumbered. Once the rank has left, requests are refused with rank_lost.
  [[nodiscard]] rank target() const noexcept { return target_; }
  /// Returns the number that the lane's rank has in the state \p now of the world. Errors: rank_lost.
  [[nodiscard]] rank rank_in(const world_event& now) const;
  /// Returns which lane it is.
  [[nodiscard]] lane which() const noexcept { return lane_; }
  /// Returns the client number of its requests. It is unique in the process, actors included.
  [[nodiscard]] std::uint64_t client() const noexcept { return client_; }

private:
  void leave() noexcept;
  void post(operation what, request_options options, call_site from, reply_promise reply);

  world world_;
  rank target_;
  std::size_t place_; ///< The index of the rank's actor.
  lane lane_;
  epoch acknowledged_{};
  credit credit_;
  std::uint64_t client_ = 0; ///< 0 after a move.
};
extern template class collective_methods<rank_lane, arguments_of_one, std::future<completion>>;

} // namespace troupe
