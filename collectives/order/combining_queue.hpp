/// Flat combining: tasks run one at a time, in one order, and no thread waits for another.
#pragma once

#include <troupe/completion/sources/recycling.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace troupe {

/// Flat combining: the first thread to arrive executes its own task and those that other threads enqueue meanwhile.
/// Threads that arrive later enqueue their task and return. Clients therefore share neither a lock nor a thread that
/// must be woken, and the tasks of a burst are executed together.
///
/// A thread executes at most \ref most_tasks tasks in one call. The remaining tasks are handed over: the next thread
/// that arrives continues with them, or the thread that the hand-over callback has notified
/// (docs/design/0064-bounded-combining.md).
///
/// Order: that of submission; the tasks of one thread keep their order. Threads: submit(), run() and take_over() from
/// any thread, also from inside a task.
class combining_queue {
public:
  /// Number of tasks that a thread executes in one call if the rest can be handed over. A task of the arbiter takes 1
  /// to 2 µs, so a call takes about 100 µs.
  static constexpr std::size_t most_tasks = 64;

  /// Work to be executed.
  class task : public recycled {
  public:
    task() = default;
    task(const task&) = delete;
    task& operator=(const task&) = delete;
    virtual ~task() = default;

    /// Executes the task. \p self owns this object, so the function may keep it.
    virtual void execute(std::unique_ptr<task> self) noexcept = 0;

  private:
    friend class combining_queue;
    task* next_ = nullptr;
  };

  /// \p after_each_round is called by the executing thread each time that it has executed all tasks enqueued so far.
  /// \p hand_over is called when a thread leaves tasks behind. It makes another thread call take_over(), and returns
  /// false if there is no such thread; the calling thread then continues itself. Without \p hand_over a thread executes
  /// all tasks. Both functions must not throw.
  explicit combining_queue(std::function<void()> after_each_round, std::function<bool()> hand_over = {})
    : after_{std::move(after_each_round)}, hand_over_{std::move(hand_over)} {}
  combining_queue(const combining_queue&) = delete;
  combining_queue& operator=(const combining_queue&) = delete;
  /// Executes the tasks that were handed over and not taken. Precondition: no thread submits any more.
  ~combining_queue() {
    hand_over_ = nullptr;
    take_over();
  }

  /// Enqueues \p work_item. Executes it and other enqueued tasks, unless another thread is executing tasks.
  void submit(std::unique_ptr<task> work_item) noexcept {
    task* const mine = work_item.release();
    task* before = newest_.load(std::memory_order_relaxed);
    do {
      if (before == retired()) {
        newest_.load(std::memory_order_acquire); // sees what the last task has left
        return mine->execute(std::unique_ptr<task>{mine});
      }
      mine->next_ = before;
    } while (!newest_.compare_exchange_weak(before, mine, std::memory_order_acq_rel, std::memory_order_relaxed));
    if (before == nullptr)
      execute();
    else
      take_over();
  }

  /// Continues with the tasks that a thread has handed over, unless another thread does so. Returns whether it did.
  bool take_over() noexcept {
    if (!is_handed_over() || !handed_over_.exchange(false)) return false;
    execute();
    return true;
  }
  /// Returns whether tasks wait for a thread that calls take_over().
  [[nodiscard]] bool is_handed_over() const noexcept { return handed_over_.load(); }

  /// Ends the queue as soon as no task is left: calls \p done, and from then on each submit() executes its task itself,
  /// at the same time as other threads do theirs. So a task whose submit() has returned was executed before \p done is
  /// called, or before submit() has returned. Call it once, from a task.
  void retire(std::function<void()> done) { retiring_ = std::move(done); }

  /// Submits a task that calls \p function.
  template <class Function>
  void run(Function function) {
    class called final : public task {
    public:
      explicit called(Function what) : what_{std::move(what)} {}
      void execute(std::unique_ptr<task>) noexcept override { what_(); }

    private:
      Function what_;
    };
    submit(std::make_unique<called>(std::move(function)));
  }

private:
  /// Only one thread at a time is in this function: the one that has changed newest_ from null, or handed_over_ from
  /// true to false.
  void execute() noexcept {
    for (std::size_t left = most_tasks;;) {
      if (rest_ == nullptr) rest_ = take_all();
      for (; rest_ != nullptr && (left > 0 || !hand_over_); left -= left > 0 ? 1 : 0) {
        std::unique_ptr<task> one{std::exchange(rest_, rest_->next_)};
        task& it = *one;
        it.execute(std::move(one));
      }
      after_();
      task* expected = executing();
      task* const idle = retiring_ ? retired() : nullptr;
      if (rest_ == nullptr && newest_.compare_exchange_strong(expected, idle, std::memory_order_acq_rel)) {
        if (idle != nullptr) std::exchange(retiring_, nullptr)();
        return;
      }
      if (left > 0 || !hand_over_) continue;
      // Set before the call, because the notified thread may check it immediately.
      handed_over_.store(true);
      if (hand_over_() || !handed_over_.exchange(false)) return;
      left = most_tasks;
    }
  }

  /// Returns the tasks enqueued since the last call, the oldest first.
  [[nodiscard]] task* take_all() noexcept {
    task* newest = newest_.exchange(executing(), std::memory_order_acq_rel);
    task* oldest = nullptr;
    while (newest != nullptr && newest != executing()) {
      task* const next = newest->next_;
      newest->next_ = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

  /// Marks that a thread executes tasks and that none has been submitted since.
  [[nodiscard]] task* executing() noexcept { return &mark_; }
  /// Marks that the queue has ended: see retire().
  [[nodiscard]] task* retired() noexcept { return &end_; }

  class marker final : public task {
    void execute(std::unique_ptr<task>) noexcept override {}
  };

  std::function<void()> after_;
  std::function<bool()> hand_over_;
  marker mark_, end_;
  std::function<void()> retiring_;     ///< See retire(). Accessed only by tasks and in execute().
  task* rest_ = nullptr;               ///< Taken from newest_, the oldest first. Accessed only in execute().
  std::atomic<task*> newest_{nullptr}; ///< Null: no tasks are enqueued or executed.
  /// On its own cache line, because the poller reads it all the time.
  alignas(64) std::atomic<bool> handed_over_{false};
};

} // namespace troupe
