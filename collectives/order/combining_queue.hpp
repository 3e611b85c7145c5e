/// Flat combining: tasks run one at a time, in one order, and no thread waits for another.
#pragma once

#include <troupe/completion/sources/recycling.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace troupe {

/// Flat combining: the first thread to arrive executes its own task and those that other threads enqueue meanwhile.
/// Threads that arrive later enqueue their task and return. Clients therefore share neither a lock nor a thread that
/// must be woken, and the tasks of a burst are executed together.
///
/// Order: that of submission; the tasks of one thread keep their order. Threads: submit() and run() from any thread,
/// also from inside a task.
class combining_queue {
public:
  /// Work to be executed.
  class task : public recycled {
  public:
    task() = default;
    task(const task&) = delete;
    task& operator=(const task&) = delete;
    virtual ~task() = default;

    /// \p self owns this task: keep it, or let it end.
    virtual void execute(std::unique_ptr<task> self) noexcept = 0;

  private:
    friend class combining_queue;
    task* next_ = nullptr;
  };

  /// \p after_each_round is called by the executing thread each time that it has executed all tasks enqueued so far.
  explicit combining_queue(std::function<void()> after_each_round) : after_{std::move(after_each_round)} {}
  combining_queue(const combining_queue&) = delete;
  combining_queue& operator=(const combining_queue&) = delete;
  /// Precondition: no thread submits any more.
  ~combining_queue() = default;

  /// Enqueues \p work_item. Executes it, and what else is enqueued, unless another thread is executing tasks.
  void submit(std::unique_ptr<task> work_item) noexcept {
    task* const mine = work_item.release();
    task* before = newest_.load(std::memory_order_relaxed);
    do mine->next_ = before;
    while (!newest_.compare_exchange_weak(before, mine, std::memory_order_acq_rel, std::memory_order_relaxed));
    if (before == nullptr) execute_all();
  }

  /// Submits a task that calls \p function.
  template <class Function>
  void run(Function function) {
    class call final : public task {
    public:
      explicit call(Function what) : what_{std::move(what)} {}
      void execute(std::unique_ptr<task>) noexcept override { what_(); }

    private:
      Function what_;
    };
    submit(std::make_unique<call>(std::move(function)));
  }

private:
  void execute_all() noexcept {
    task* expected = nullptr;
    do {
      task* newest = newest_.exchange(executing(), std::memory_order_acq_rel);
      task* oldest = nullptr;
      while (newest != nullptr && newest != executing()) {
        task* const next = newest->next_;
        newest->next_ = oldest;
        oldest = newest;
        newest = next;
      }
      while (oldest != nullptr) {
        std::unique_ptr<task> one{std::exchange(oldest, oldest->next_)};
        task& it = *one;
        it.execute(std::move(one));
      }
      after_();
      expected = executing();
    } while (!newest_.compare_exchange_strong(expected, nullptr, std::memory_order_acq_rel));
  }

  /// Marks that a thread executes tasks and that none has been submitted since.
  [[nodiscard]] task* executing() noexcept { return &mark_; }

  class marker final : public task {
    void execute(std::unique_ptr<task>) noexcept override {}
  };

  std::function<void()> after_;
  marker mark_;
  std::atomic<task*> newest_{nullptr}; ///< Null: no thread executes tasks.
};

} // namespace troupe
