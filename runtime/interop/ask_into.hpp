/// Sends requests whose answers go to a reply promise. Futures, coroutines and senders are built on it.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe {

/// A function call that must be made exactly once, on any thread. Cheap to copy; all copies stand for the same call.
class continuation {
public:
  using function = void (*)(void*);

  /// Creates a continuation that calls \p run with the pointer in \p with.
  continuation(function run, std::shared_ptr<void> with) noexcept : run_{run}, with_{std::move(with)} {}
  void operator()() const { run_(with_.get()); }

private:
  function run_;
  std::shared_ptr<void> with_;
};

/// Decides where to continue: a function that gets a continuation and arranges for it to be called, at once or later.
/// It runs on the thread that answers: mostly the poller's; for an agree, the one that carries out the order, which may
/// be that of a client or a connection. It must neither block nor throw. For an io_context of Asio:
///   [&](troupe::continuation next) { asio::post(context, std::move(next)); }
template <class T>
concept resumer = std::copy_constructible<T> && std::invocable<T&, continuation>;

/// Continues at once, on the thread that answers. Use it only for work as short as setting a flag: while it runs, no
/// other reply is delivered and no deadline is noticed. An exception from it ends the process.
struct inline_resumer {
  void operator()(const continuation& next) const { next(); }
};

/// A queue of continuations for the threads that call run(). They run in the order of arrival. Lifetime: it must
/// outlive the requests whose replies it receives.
class resume_queue {
public:
  resume_queue();
  resume_queue(const resume_queue&) = delete;
  resume_queue& operator=(const resume_queue&) = delete;
  ~resume_queue();

  /// Appends \p next. Threads: any.
  void post(continuation next);
  /// Calls continuations until close() is called and the queue is empty. An exception of a continuation leaves run().
  void run();
  /// Lets run() return. Call it when no more replies can arrive: a later one is kept until run() is called again.
  void close();
  /// Returns a resumer for reply_on() and request_sender.
  [[nodiscard]] auto resumer() noexcept {
    return [this](continuation next) { post(std::move(next)); };
  }

private:
  struct state;
  std::unique_ptr<state> state_;
};

class world;

/// Returns the request to \p where for \p parts, one for each rank. If the options name no epoch, it is for the current
/// one. Errors: those of request_options.
[[nodiscard]] world_request make_request(const world& where, std::vector<operation>&& parts, request_options options,
                                         call_site from);

/// Asks all ranks, as world::ask() does. Never blocks. \p to is delivered once, when the GPUs are done or with the
/// error. The delivering thread is often the poller's, so the promise must return quickly. Threads: any.
void ask_into(const world& where, world_request asked, reply_promise&& to);
/// Asks one rank (SPMD), as world::ask() does. \p client: see rank_lane::client(); 0: no particular client. Errors,
/// thrown: invalid_argument (\p target is in another process); the caller then still owns \p to.
void ask_into(const world& where, rank target, rank_request asked, reply_promise&& to, std::uint64_t client = 0);

/// Returns a new client number, which no other client in this process has, actors included.
[[nodiscard]] std::uint64_t next_client() noexcept;
/// Ends \p client of ask_into(where, target, …), at the rank that has the number \p target now: withdraws its requests
/// that wait for their peers (errc::cancelled), and frees its lanes. No effect if there is no such rank. Threads: any.
void leave_lanes(const world& where, rank target, std::uint64_t client) noexcept;

/// Asks rank \p target to withdraw the request at \p position of lane \p which in epoch \p of, as rank_lane::cancel()
/// does. The request is answered with errc::cancelled if it still waits for its peers, else with its outcome. Call it
/// after the request has been sent. Threads: any.
void take_back(const world& where, rank target, lane which, std::uint64_t position, epoch of) noexcept;

} // namespace troupe
