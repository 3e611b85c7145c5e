/// What is to go on when a reply has come, and where.
#pragma once

#include <concepts>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// To be called once, on whatever thread shall go on. Cheap to copy; every copy is the same call.
class continuation {
public:
  using function = void (*)(void*);

  /// Calls \p run with what \p with holds.
  continuation(function run, std::shared_ptr<void> with) noexcept : run_{run}, with_{std::move(with)} {}
  void operator()() const { run_(with_.get()); }

private:
  function run_;
  std::shared_ptr<void> with_;
};

/// Where to go on: takes a continuation and sees to it that it is called, at once or later. It is called by the thread
/// that answers, often the poller's, which must neither be held nor be thrown at. For an io_context of Asio:
///   [&](troupe::continuation next) { asio::post(context, std::move(next)); }
template <class T>
concept resumer = std::copy_constructible<T> && std::invocable<T&, continuation>;

/// Goes on at once, on the thread that answers. Only for what is as short as setting a flag: while it runs, no other
/// reply comes and no deadline is seen. An exception out of it ends the process.
struct on_answering_thread {
  void operator()(const continuation& next) const { next(); }
};

/// Continuations in the order in which they came, for the threads that call run().
/// Lifetime: it outlives the requests whose replies come here.
class resume_queue {
public:
  /// Puts \p next behind what waits. Threads: any.
  void post(continuation next) {
    {
      const std::lock_guard lock{guard_};
      waiting_.push_back(std::move(next));
    }
    changed_.notify_one();
  }
  /// Calls what comes until close(), and then what is left. What a continuation throws leaves run().
  void run() {
    std::unique_lock lock{guard_};
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
  /// Lets run() return. Call it when no reply is to come any more: one that comes later is kept until run() is called
  /// again.
  void close() {
    {
      const std::lock_guard lock{guard_};
      closed_ = true;
    }
    changed_.notify_all();
  }
  /// For reply_on() and request_sender.
  [[nodiscard]] auto resumer() noexcept {
    return [this](continuation next) { post(std::move(next)); };
  }

private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<continuation> waiting_;
  bool closed_ = false;
};

} // namespace troupe
