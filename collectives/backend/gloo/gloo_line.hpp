/// The thread that runs a communicator's operations. Gloo's calls block, and a launch must not block.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace troupe {

/// Runs jobs one after the other, in the order in which they were added. Each job starts once its stream has reached
/// it.
///
/// After a job has failed, no other job runs. The failed job and those behind it stay pending until stop(), so that
/// their completion is not taken for success. Threads: safe from any.
class gloo_line {
public:
  class job;

  /// \p cut: makes a stuck job throw. It is called from any thread, and more than once. \p engine is woken when a job
  /// has ended.
  gloo_line(std::function<void()> cut, std::shared_ptr<mock_waker> engine);
  gloo_line(const gloo_line&) = delete;
  gloo_line& operator=(const gloo_line&) = delete;
  /// Calls stop().
  ~gloo_line();

  /// Starts the thread. Errors: communicator_failed after stop(), std::system_error.
  void start();
  [[nodiscard]] std::shared_ptr<job> add(std::function<void()> work);
  /// Reports that the stream has reached \p one, for the first time or again. Returns reached if the job is done or
  /// stop() has returned.
  [[nodiscard]] progress meet(job& one);
  /// Reports that the stream will not reach \p one, or does not wait for it any more. If the job is not done, it counts
  /// as failed. Returns when no thread runs the job.
  void drop(job& one) noexcept;
  /// Adds a job and waits until it is done. Errors: those of the job; communicator_failed after stop() or after the
  /// failure of another job.
  void run(std::function<void()> work);

  /// Ends the thread: cuts the running job and starts no other one. When stop() has returned, no job's memory is
  /// touched any more. Idempotent.
  void stop() noexcept;

  /// Throws the failure, if there was one.
  void check() const;

private:
  void serve();
  [[nodiscard]] std::shared_ptr<job> next();
  void end(job& one, error failure) noexcept;
  [[nodiscard]] bool fail(error why) noexcept;

  const std::function<void()> cut_;
  const std::shared_ptr<mock_waker> engine_;
  mutable std::mutex guard_; ///< Protects the members below.
  condition changed_;
  std::deque<std::shared_ptr<job>> jobs_;
  std::shared_ptr<job> running_;
  std::optional<error> failure_;
  bool stopping_ = false;
  bool stopped_ = false; ///< The thread has ended, or was never started.
  worker thread_;
  std::mutex joining_; ///< Locked before guard_.
};

} // namespace troupe
