/// Executes the mock's streams. Either one thread runs all of them, so that thousands of streams are cheap (the thread
/// that enqueues a brief task may begin it), or no thread does, so that a test or the simulator decides when they run
/// (DET-1).
#pragma once

#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

namespace troupe {

/// One piece of work in a stream.
class mock_task {
public:
  mock_task() = default;
  mock_task(const mock_task&) = delete;
  mock_task& operator=(const mock_task&) = delete;
  /// Also runs for a task that is dropped. Must not call the driver.
  virtual ~mock_task() = default;

  /// Does the work, or returns pending if it cannot proceed yet; it is then called again later. Never blocks.
  /// Errors: an exception becomes the asynchronous error of the device.
  virtual progress step() = 0;
  /// Returns whether the last step() returned pending but changed something that other tasks may wait for.
  [[nodiscard]] virtual bool advanced() const noexcept { return false; }
  /// Returns whether an injected fault may hit the task. A wait, a record or a free is ordering, not work.
  [[nodiscard]] virtual bool is_work() const noexcept { return true; }
  /// Returns whether the task waits for a change that no wake() announces (a word that the host writes).
  [[nodiscard]] virtual bool polls() const noexcept { return false; }
  /// Returns whether the thread that enqueues the task may call step(), and destroy the task if step() has ended it.
  /// Both must be short, run no code of a user, and take no lock that a caller of enqueue() may hold.
  [[nodiscard]] virtual bool is_brief() const noexcept { return false; }
};

/// Notifies an engine that something outside of it has changed. May outlive the engine. Threads: any.
class mock_waker {
public:
  void wake() noexcept;
  /// Notifies all engines of this process that have a thread, in a simulation those of the simulation.
  static void wake_all() noexcept;

private:
  friend class mock_engine;
  void expect() noexcept;
  void park(std::optional<std::chrono::microseconds> at_most);

  std::mutex mutex_;
  condition rung_changed_;
  bool rung_ = false;
};

/// Streams, their queued tasks, and the errors of their devices.
///
/// Order: first in, first out within a stream; across streams, round robin in order of creation, one task each.
/// Errors: a failing task drops everything that is queued on its device, so that work behind it never completes. The
/// next call on that device throws its error. A stream that lost work throws the error at every later use, because work
/// after a gap must not look as if nothing were missing. process_poisoned is sticky: it affects all devices and is
/// never cleared.
/// Lifetime: tasks that are still queued when the engine is destroyed are dropped. A task must not destroy the engine.
/// Threads: all functions may be called from any thread.
class mock_engine {
public:
  mock_engine(int device_count, engine_mode mode);
  mock_engine(const mock_engine&) = delete;
  mock_engine& operator=(const mock_engine&) = delete;
  ~mock_engine();

  /// Returns whether this process is a fork, so that the engine's thread is the parent's: it must not be destroyed
  /// then.
  [[nodiscard]] bool is_inherited() const noexcept { return made_.is_inherited(); }
  [[nodiscard]] native_stream create_stream(device_id id);
  [[nodiscard]] std::size_t streams(device_id id);
  /// Destroys a stream. Order: queued tasks still run.
  void destroy_stream(device_id id, native_stream handle);
  void enqueue(device_id id, native_stream handle, std::unique_ptr<mock_task> task);
  /// Enqueues a task that releases something. Never throws a device's error. After a sticky error, the task is dropped
  /// at once.
  void enqueue_give_back(device_id id, native_stream handle, std::unique_ptr<mock_task> task);
  [[nodiscard]] progress query(device_id id, native_stream handle);
  /// Waits until the tasks queued so far have finished. In manual mode it runs this stream, and the others only if this
  /// stream waits for them.
  /// Errors: invalid_argument if it would wait indefinitely (in manual mode, or when called by a task).
  void synchronize(device_id id, native_stream handle);

  /// Runs tasks until none can proceed. For manual mode.
  void run_until_blocked();

  /// Throws the error of the device, if any. An error that is not sticky is then cleared.
  void throw_if_failed(device_id id);
  /// Throws the sticky error, if any. For calls that refer to no device.
  void throw_if_poisoned();
  /// Makes the next task of the device that is work fail with \p why instead of running.
  void fail_next(device_id id, error why);

  [[nodiscard]] const std::shared_ptr<mock_waker>& waker() const noexcept { return waker_; }
  /// Throws missing unless \p id is a device.
  void require(device_id id) const;

private:
  struct queue {
    std::uint64_t number;
    device_id device;
    std::deque<std::unique_ptr<mock_task>> tasks; ///< The first entry is null while that task runs.
    std::uint64_t enqueued = 0;
    std::uint64_t finished = 0;     ///< Number of tasks that have run or were dropped.
    std::optional<error> failure{}; ///< The error because of which work of this stream was dropped.
  };
  struct device_state {
    std::optional<error> failure;
    std::optional<error> armed;
  };
  struct round_outcome {
    bool moved = false; ///< A task has ended or advanced.
    bool polls = false;
  };
  class running_role;
  using lock_type = std::unique_lock<std::mutex>;

  void run();
  round_outcome run_rounds();
  round_outcome step_head(lock_type& lock, queue& line);
  /// Steps the brief task \p number of \p line where it is the first, unless a thread runs tasks. Returns whether a
  /// thread that runs them is still needed.
  [[nodiscard]] bool needs_runner(queue& line, std::uint64_t number);
  void fail(lock_type& lock, queue& line, error why);
  static void throw_if_failed(const queue& line);
  void drain_manually(lock_type& lock, queue& line, std::uint64_t target);
  /// Appends \p task and returns its number in the queue. The first task of a queue has number 1.
  std::uint64_t push(const std::shared_ptr<queue>& line, std::unique_ptr<mock_task> task);
  void throw_if_failed_locked(device_id id);
  [[nodiscard]] device_state& state_of(device_id id);
  [[nodiscard]] std::shared_ptr<queue> find(device_id id, native_stream handle) const;

  const process_mark made_;
  const engine_mode mode_;
  const std::shared_ptr<mock_waker> waker_ = std::make_shared<mock_waker>();

  std::mutex runner_guard_; ///< One thread runs tasks at a time; locked before mutex_.
  std::atomic<std::thread::id> runner_{};

  mutable std::mutex mutex_; ///< Protects the following members; never held while a task runs or is destroyed.
  condition finished_changed_;
  std::vector<device_state> devices_;
  std::optional<error> poison_;
  std::unordered_map<std::uint64_t, std::shared_ptr<queue>> streams_;
  std::map<std::uint64_t, std::shared_ptr<queue>> busy_; ///< Queues with tasks, in order of creation.
  bool stopping_ = false;
  worker thread_;
};

} // namespace troupe
