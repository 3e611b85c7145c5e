/// A thread pool for work that may take long or hang: forming, aborting and destroying communicators. Each job has a
/// deadline (TIM-1). A job that exceeds it is abandoned, and its owner is notified.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Threads are needed most when none can be started: after a fault, on a machine at its limits. Therefore threads are
/// reserved in advance, and a job that gets no new thread waits for a reserved one.
/// (docs/design/0055-recovery-reserves.md)
///
/// Threads: run() may be called from any thread.
class deadline_pool {
public:
  using work = std::function<void()>;
  /// Receives errc::none; the error that the work threw; errc::deadline_exceeded if the job was abandoned; or the
  /// reason why it did not start. Called once.
  using done = std::function<void(error)>;

  /// A task and its longest duration. Time in which this process did not run does not count.
  struct job {
    std::string name;
    nanoseconds deadline;
    work task;
    done on_done;
  };

  /// \p grace is how long stop() waits for abandoned jobs.
  explicit deadline_pool(nanoseconds grace = std::chrono::seconds{2});
  deadline_pool(const deadline_pool&) = delete;
  deadline_pool& operator=(const deadline_pool&) = delete;
  ~deadline_pool() { stop(); }

  /// Keeps at least \p count threads ready from now on. Threads lost to jobs that never return are replaced if
  /// possible. Errors: out_of_memory (they cannot be started); the earlier reserve is then kept.
  void reserve(std::size_t count);

  /// Waits for all jobs and their reports, for each at most until its deadline. Then waits at most the grace time for
  /// abandoned jobs, because a thread that is inside a library when the process exits can crash it. Jobs that still run
  /// are reported as leaks. No job starts afterwards. Idempotent. Must not be called from a job.
  void stop();

  /// Runs \p jobs, each on its own thread, in the given order: on reserved threads, on new ones or, if none can be
  /// started, on the next that becomes free. Jobs of one call may wait for each other: they get their threads before
  /// the jobs of a later call, so at least as many as are reserved run at the same time.
  /// on_done is called on the job's thread, or on a thread of the pool if the job is abandoned. An abandoned task
  /// continues, so it must own what it uses. A job that cannot start before its deadline is reported with out_of_memory
  /// (no thread, no memory) or stopping, as rejected, possibly on the caller's thread. Never throws.
  void run(std::vector<job> jobs) noexcept;
  void run(std::string name, nanoseconds deadline, work task, done on_done) noexcept;

  /// Returns the number of jobs that exceeded their deadline and have not returned since.
  [[nodiscard]] std::size_t abandoned_count() const noexcept;

private:
  struct shared_state;
  std::shared_ptr<shared_state> shared_;
  nanoseconds grace_;
};

} // namespace troupe
