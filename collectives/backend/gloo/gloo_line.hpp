/// The thread on which a communicator's operations run: Gloo's calls block, and what launches must not.
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

/// Runs jobs one after the other, in the order in which they were added, each once its stream has come to it.
///
/// A job that fails is the last one: those behind it and itself stay pending, so that their completion is not taken for
/// success, until stop(). Threads: safe from any.
class gloo_line {
public:
  class job;

  /// \p cut: makes a job that is stuck throw; called from any thread, and more than once. \p engine is woken when a
  /// job has ended.
  gloo_line(std::function<void()> cut, std::shared_ptr<mock_waker> engine);
  gloo_line(const gloo_line&) = delete;
  gloo_line& operator=(const gloo_line&) = delete;
  /// stop().
  ~gloo_line();

  /// Starts the thread. Errors: communicator_failed after stop(), std::system_error.
  void start();
  [[nodiscard]] std::shared_ptr<job> add(std::function<void()> work);
  /// The stream has come to it, for the first time or again; reached when it is done, or stop() has returned.
  [[nodiscard]] progress meet(job& one);
  /// The stream will not come to it, or not wait for it. One that is not done has failed then; returns when nobody
  /// runs it.
  void drop(job& one) noexcept;
  /// Adds a job and returns when it is done. Errors: its own; communicator_failed after stop() or another's failure.
  void run(std::function<void()> work);

  /// Ends the thread: cuts what runs, and runs nothing more. When it has returned, no job's memory is touched any more.
  /// Idempotent.
  void stop() noexcept;

  /// Throws the failure that there was.
  void check() const;

private:
  void serve();
  [[nodiscard]] std::shared_ptr<job> next();
  void end(job& one, error failure) noexcept;
  [[nodiscard]] bool fail(error why) noexcept;

  const std::function<void()> cut_;
  const std::shared_ptr<mock_waker> engine_;
  mutable std::mutex guard_; ///< Guards what follows.
  condition changed_;
  std::deque<std::shared_ptr<job>> jobs_;
  std::shared_ptr<job> running_;
  std::optional<error> failure_;
  bool stopping_ = false;
  bool stopped_ = false; ///< The thread has ended, or was never there.
  worker thread_;
  std::mutex joining_; ///< Taken before guard_.
};

} // namespace troupe
