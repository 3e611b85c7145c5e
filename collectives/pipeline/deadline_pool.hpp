/// Threads for whatever may take long or for ever: forming, aborting, destroying. Each job has a deadline (TIM-1);
/// one that outstays it is abandoned, and its owner is told.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// A thread is needed most when none can be made: after a fault, on a machine at its limits. So threads are reserved in
/// advance, and a job that gets none waits for one of them. (docs/design/0055-limits.md)
///
/// Threads: run() from any.
class deadline_pool {
public:
  using work = std::function<void()>;
  /// Gets errc::none, what the work threw, errc::deadline_exceeded when it was abandoned, or why it did not begin.
  /// Called once.
  using done = std::function<void(error)>;

  /// What is run, and for how long at most.
  struct job {
    std::string name;
    nanoseconds deadline;
    work task;
    done on_done;
  };

  /// \p grace is how long the crew's end waits for those it has abandoned.
  explicit deadline_pool(nanoseconds grace = std::chrono::seconds{2});
  deadline_pool(const deadline_pool&) = delete;
  deadline_pool& operator=(const deadline_pool&) = delete;
  ~deadline_pool() { stop(); }

  /// Keeps at least \p count threads ready from now on. Those lost to jobs that never return are replaced where that is
  /// possible. Errors: out_of_memory (they cannot be started); what was reserved before stays reserved.
  void reserve(std::size_t count);

  /// Waits for all jobs and their reports, each at most until its deadline, and then a little for abandoned ones: a
  /// thread that is still inside a library when the process ends crashes it. What does not return is reported as
  /// unreturned. Afterwards no job begins. Idempotent; not from a job.
  void stop();

  /// Runs \p jobs, each on a thread of its own, in the order given: on reserved threads, on new ones, or, where none
  /// can be started, on the next that becomes free. Jobs of one call may wait for each other: they get their threads
  /// before those of a later call, so as many as are reserved always run at once.
  /// on_done is called on the job's thread, or on the crew's when it is abandoned; an abandoned task continues alone,
  /// so it must own what it uses. A job that cannot begin before its deadline is reported with out_of_memory (no
  /// thread, no memory) or stopping, rejected, perhaps on the caller's thread. Never throws.
  void run(std::vector<job> jobs) noexcept;
  void run(std::string name, nanoseconds deadline, work task, done on_done) noexcept;

  /// Jobs that outstayed their deadline and have not returned since.
  [[nodiscard]] std::size_t abandoned_count() const noexcept;

private:
  struct roster;
  std::shared_ptr<roster> roster_;
  nanoseconds grace_;
};

} // namespace troupe
