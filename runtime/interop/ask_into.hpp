/// Sends requests whose answers go to a reply promise. Futures, coroutines and senders are built on it.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

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
/// It runs on the thread that answers, often the poller's. It must neither block nor throw. For an io_context of Asio:
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
  /// Appends \p next. Threads: any.
  void post(continuation next) {
    {
      const std::lock_guard lock{mutex_};
      waiting_.push_back(std::move(next));
    }
    changed_.notify_one();
  }
  /// Calls continuations until close() is called and the queue is empty. An exception of a continuation leaves run().
  void run() {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const continuation next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
  }
  /// Lets run() return. Call it when no more replies can arrive: a later one is kept until run() is called again.
  void close() {
    {
      const std::lock_guard lock{mutex_};
      closed_ = true;
    }
    changed_.notify_all();
  }
  /// Returns a resumer for reply_on() and request_sender.
  [[nodiscard]] auto resumer() noexcept {
    return [this](continuation next) { post(std::move(next)); };
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<continuation> waiting_;
  bool closed_ = false;
};

class world;

/// Asks all ranks, as world::ask() does. Never blocks. \p to is delivered once, when the GPUs are done or with the
/// error. The delivering thread is often the poller's, so the promise must return quickly. Threads: any.
void ask_into(const world& where, world_request asked, reply_promise&& to);
/// Asks one rank (SPMD), as world::ask() does. \p client: see rank_lane::client(); 0: no particular client. Errors,
/// thrown: invalid_argument (\p whom is in another process); the caller then still owns \p to.
void ask_into(const world& where, rank target, rank_request asked, reply_promise&& to, std::uint64_t client = 0);

/// Asks rank \p whom to withdraw the request at \p position of lane \p which in epoch \p of, as rank_lane::cancel()
/// does. The request is answered with errc::cancelled if it still waits for its peers, else with its outcome. Call it
/// after the request has been sent. Threads: any.
void take_back(const world& where, rank target, lane which, std::uint64_t position, epoch of) noexcept;

} // namespace troupe
