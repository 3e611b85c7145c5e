/// What runs the mock's streams: one thread for all of them, so that thousands cost nothing, or none at all, so that
/// a test or the simulator decides when (DET-1).
#pragma once

#include <troupe/device/driver.hpp>
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

/// Who progresses the streams of a mock.
enum class engine_mode : std::uint8_t {
  threaded, ///< A thread of the engine's own, in real time.
  manual,   ///< Whoever calls run_until_blocked(), in an order that depends on the calls alone.
};

/// One piece of work in a stream.
class mock_task {
public:
  mock_task() = default;
  mock_task(const mock_task&) = delete;
  mock_task& operator=(const mock_task&) = delete;
  /// Also the end of a task that is dropped; it must not call the driver.
  virtual ~mock_task() = default;

  /// Does the work, or returns pending when it cannot yet; it is then tried again. Never blocks.
  /// Errors: what it throws becomes the asynchronous error of its device.
  virtual progress step() = 0;
  /// Whether an injected fault may hit it: a wait, a record or a free is order, not work.
  [[nodiscard]] virtual bool is_work() const noexcept { return true; }
  /// Whether what it waits for comes without a notification (a word that the host writes).
  [[nodiscard]] virtual bool polls() const noexcept { return false; }
};

/// Tells an engine that something outside has changed. May outlive the engine. Threads: any.
class mock_waker {
public:
  void wake() noexcept;

private:
  friend class mock_engine;
  void expect() noexcept;
  void park(std::optional<std::chrono::microseconds> at_most);

  std::mutex guard_;
  condition rung_changed_;
  bool rung_ = false;
};

/// Streams, what is queued in them, and the errors of their devices.
///
/// Order: within a stream, first in, first out; across streams, round robin in order of creation, one task each.
/// Errors: a task that fails takes everything queued on its device with it, so that what is behind it never fires;
/// the next call on that device throws its error. A stream that lost work so throws it at every later use: what comes
/// after a gap must not look as if nothing were missing. process_poisoned is sticky: it takes all devices, for ever.
/// Lifetime: tasks that are still queued when the engine is destroyed are dropped. Not to be destroyed by a task.
/// Threads: safe from any.
class mock_engine {
public:
  mock_engine(int device_count, engine_mode mode);
  mock_engine(const mock_engine&) = delete;
  mock_engine& operator=(const mock_engine&) = delete;
  ~mock_engine();

  [[nodiscard]] native_stream create_stream(device_id id);
  [[nodiscard]] std::size_t streams(device_id id);
  /// Order: what is queued still runs.
  void destroy_stream(device_id id, native_stream handle);
  void enqueue(device_id id, native_stream handle, std::unique_ptr<mock_task> task);
  /// The same for a task that gives something back: it never reports a device's error, and where nothing runs any
  /// more the task is dropped at once.
  void enqueue_give_back(device_id id, native_stream handle, std::unique_ptr<mock_task> task);
  [[nodiscard]] progress query(device_id id, native_stream handle);
  /// Manual mode: runs this stream, and the others only if it waits for them.
  /// Errors: invalid_argument where it would wait for ever (manual mode, or called by a task).
  void synchronize(device_id id, native_stream handle);

  /// Manual mode: runs tasks until none can proceed.
  void run_until_blocked();

  /// Throws the error that the device has come to, if any; one that is not sticky is then forgotten.
  void throw_if_failed(device_id id);
  /// Throws only what is sticky: for calls that are about no device.
  void throw_if_poisoned();
  /// The next task of the device that is work fails with \p why instead of running.
  void fail_next(device_id id, error why);

  [[nodiscard]] const std::shared_ptr<mock_waker>& waker() const noexcept { return waker_; }
  /// Throws missing unless \p id is a device.
  void require(device_id id) const;

private:
  struct queue {
    std::uint64_t number;
    device_id device;
    std::deque<std::unique_ptr<mock_task>> tasks; ///< The first is empty while it is being run.
    std::uint64_t enqueued = 0;
    std::uint64_t finished = 0;     ///< Run or dropped.
    std::optional<error> failure{}; ///< Why work of this stream was dropped.
  };
  struct device_state {
    std::optional<error> failure;
    std::optional<error> armed;
  };
  struct round_outcome {
    bool moved = false;
    bool polls = false;
  };
  class running_role;
  using lock_type = std::unique_lock<std::mutex>;

  void run();
  round_outcome run_rounds();
  round_outcome step_head(lock_type& lock, queue& line);
  void fail(lock_type& lock, queue& line, error why);
  static void throw_if_failed(const queue& line);
  void drain_manually(lock_type& lock, queue& line, std::uint64_t target);
  void push(queue& line, std::unique_ptr<mock_task> task);
  void throw_if_failed_locked(device_id id);
  [[nodiscard]] device_state& state_of(device_id id);
  [[nodiscard]] std::shared_ptr<queue> find(device_id id, native_stream handle) const;

  const engine_mode mode_;
  const std::shared_ptr<mock_waker> waker_ = std::make_shared<mock_waker>();

  std::mutex runner_guard_; ///< One thread runs tasks at a time; taken before guard_.
  std::atomic<std::thread::id> runner_{};

  mutable std::mutex guard_; ///< Guards what follows; never held while a task runs or dies.
  condition finished_changed_;
  std::vector<device_state> devices_;
  std::optional<error> poison_;
  std::unordered_map<std::uint64_t, std::shared_ptr<queue>> streams_;
  std::map<std::uint64_t, std::shared_ptr<queue>> busy_; ///< Those with tasks, in order of creation.
  bool stopping_ = false;
  worker thread_;
};

} // namespace troupe
