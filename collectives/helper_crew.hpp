/// Threads for whatever may take long or for ever: forming, aborting, destroying. Each job has a deadline (TIM-1);
/// one that outstays it is abandoned, and its owner is told.
#pragma once

#include <troupe/completion/clock.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// Threads: run() from any.
class helper_crew {
public:
  using work = std::function<void()>;
  /// Gets errc::none, what the work threw, or errc::deadline_exceeded when it was abandoned. Called once.
  using done = std::function<void(error)>;

  /// \p grace is how long the crew's end waits for those it has abandoned.
  explicit helper_crew(nanoseconds grace = std::chrono::seconds{2});
  helper_crew(const helper_crew&) = delete;
  helper_crew& operator=(const helper_crew&) = delete;
  ~helper_crew() { stop(); }

  /// Waits for all jobs and their reports, each at most until its deadline, and then a little for abandoned ones: a
  /// thread that is still inside a library when the process ends crashes it. What does not return is reported as
  /// unreturned. Afterwards run() refuses. Idempotent; not from a job.
  void stop();

  /// Runs \p task on a thread of its own. \p on_done is called on that thread, or on the crew's when abandoned; an
  /// abandoned task goes on alone, so it must own what it uses. Errors: out_of_memory (no thread to be had),
  /// stopping; \p on_done is then not called.
  void run(std::string name, nanoseconds deadline, work task, done on_done);

  /// Jobs that outstayed their deadline and have not returned since.
  [[nodiscard]] std::size_t abandoned_count() const noexcept;

private:
  struct roster;
  std::shared_ptr<roster> roster_;
  nanoseconds grace_;
};

} // namespace troupe
