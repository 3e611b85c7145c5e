#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/threads/worker.hpp>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {

namespace {

/// Period of the attempts to start missing threads.
constexpr nanoseconds retry_interval{std::chrono::milliseconds{20}};

/// Longest time between two readings of the running clock while there are jobs. As much of each pause counts.
constexpr nanoseconds reading_interval{std::chrono::milliseconds{250}};

/// A job. Its list node is allocated when the job is accepted and moves with it, so nothing more is allocated for it.
struct entry {
  explicit entry(deadline_pool::job&& one) : what{std::move(one)} {}

  deadline_pool::job what; ///< on_done is empty once the result is being reported.
  running_time deadline{};
};
using entries = std::list<entry>;

struct helper {
  worker thread;
  entries running; ///< Contains at most one job.
  bool is_abandoned = false;
};
using helpers = std::list<helper>;

void report(const deadline_pool::done& on_done, error result) noexcept {
  try {
    on_done(std::move(result));
  } catch (...) {
    report_leak(current_error());
  }
}

error refusal(errc code, const std::string& name, const char* why) noexcept {
  try {
    return {.code = code, .text = name + why};
  } catch (...) { // out of memory for the text
    return {.code = code};
  }
}

error abandonment(const std::string& name) noexcept {
  return with_unknown_outcome(
      refusal(errc::deadline_exceeded, name, " did not end before its deadline and was abandoned"));
}

void refuse(entries& all, errc code, const char* why) noexcept {
  for (entry& one : all) report(one.what.on_done, refusal(code, one.what.name, why));
}

constexpr const char* no_memory = " could not begin: out of host memory";
constexpr const char* no_thread = " could not begin before its deadline: no thread was free, and none could be started";
constexpr const char* pool_has_ended = " has no helper thread any more: the runtime is ending";

} // namespace

/// State shared with the threads, so that an abandoned thread may return after the pool has ended.
struct deadline_pool::shared_state : std::enable_shared_from_this<shared_state> {
  std::mutex mutex;
  condition changed;
  entries waiting;      ///< Jobs without a thread, in the order in which they get one.
  helpers active;       ///< All threads except those in `lost` and `finished`.
  helpers lost;         ///< Abandoned threads whose tasks have not returned.
  helpers finished;     ///< Ended threads that must be joined.
  std::size_t free = 0; ///< The number of threads in `active` that will look for a job before they sleep or end.
  std::size_t reserved = 0;
  bool stopping = false;
  bool has_ended = false;
  running_clock running{steady_now(), reading_interval}; ///< Read by the watchdog while there are jobs.
  worker watchdog;

  /// Starts one thread. Errors: those of starting a thread.
  void start_one() {
    helpers fresh(1);
    const auto self = fresh.begin();
    self->thread = worker{[shared = shared_from_this(), self] { shared->serve(self); }};
    active.splice(active.end(), fresh); // before the new thread gets the lock, which the caller holds
    ++free;
  }

  /// Starts missing threads. Returns whether there are now enough for the waiting jobs and the reserve.
  bool start_missing() noexcept {
    try {
      while (waiting.size() > free || active.size() < reserved) start_one();
      return true;
    } catch (...) { // the watchdog tries again
      return false;
    }
  }

  void serve(helpers::iterator self) {
    std::unique_lock lock{mutex};
    for (;;) {
      changed.wait(lock, [this] { return !waiting.empty() || has_ended || active.size() > reserved; });
      if (waiting.empty()) break;
      self->running.splice(self->running.end(), waiting, waiting.begin());
      --free;
      job& mine = self->running.front().what;
      lock.unlock();
      error result;
      try {
        mine.task();
      } catch (...) {
        result = current_error();
      }
      mine.task = nullptr;
      lock.lock();
      if (self->is_abandoned) {
        helpers ended;
        ended.splice(ended.end(), lost, self);
        changed.notify_all();
        lock.unlock();
        return;
      }
      done on_done = std::move(mine.on_done);
      mine.on_done = nullptr;
      lock.unlock();
      report(on_done, std::move(result));
      on_done = nullptr; // what it owned may ask this pool when it ends
      lock.lock();
      self->running.clear();
      ++free;
      changed.notify_all();
    }
    --free;
    finished.splice(finished.end(), active, self);
    changed.notify_all();
  }

  [[nodiscard]] bool has_jobs() const {
    return !waiting.empty() || std::ranges::any_of(active, [](const helper& one) { return !one.running.empty(); });
  }

  void watch() {
    std::unique_lock lock{mutex};
    while (!stopping || has_jobs()) {
      join_finished(lock);
      const bool is_enough = start_missing();
      if (stopping && !has_jobs()) break;
      const running_time now = running.read(steady_now());
      const running_time first = first_deadline(now);
      const nanoseconds longest = is_enough ? reading_interval : retry_interval;
      const bool has_nothing_to_do = is_enough && first == running_time::max();
      changed.sleep(lock, has_nothing_to_do ? time_point::max()
                                            : later(steady_now(), std::min<nanoseconds>(first - now, longest)));
      while (abandon_overdue(lock)) {
      }
    }
    has_ended = true;
    changed.notify_all();
    changed.wait(lock, [this] { return active.empty(); });
    join_finished(lock);
  }

  /// Returns the earliest deadline of the jobs that have not been reported yet.
  [[nodiscard]] running_time first_deadline(running_time now) const {
    running_time first = running_time::max();
    for (const entry& one : waiting) // an overdue job that has a thread begins soon
      first = std::min(first, one.deadline > now ? one.deadline : now + retry_interval);
    for (const helper& each : active)
      for (const entry& one : each.running)
        if (one.what.on_done) first = std::min(first, one.deadline);
    return first;
  }

  void join_finished(std::unique_lock<std::mutex>& lock) {
    helpers ended;
    ended.splice(ended.end(), finished);
    lock.unlock();
    for (helper& one : ended) one.thread.join();
    lock.lock();
  }

  /// Reports one overdue job. Returns false if there is none.
  bool abandon_overdue(std::unique_lock<std::mutex>& lock) {
    const running_time now = running.read(steady_now());
    std::size_t ahead = 0;
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
      if (++ahead <= free || now < at->deadline) continue; // free threads are about to run the first jobs
      entries late;
      late.splice(late.end(), waiting, at);
      lock.unlock();
      refuse(late, errc::out_of_memory, no_thread);
      late.clear();
      lock.lock();
      return true;
    }
    for (auto at = active.begin(); at != active.end(); ++at) {
      if (at->running.empty()) continue;
      entry& one = at->running.front();
      if (!one.what.on_done || now < one.deadline) continue; // if on_done is empty, the job is being reported now
      done on_done = std::move(one.what.on_done);
      one.what.on_done = nullptr;
      at->is_abandoned = true;
      at->thread.detach();
      lost.splice(lost.end(), active, at);
      error why = abandonment(one.what.name);
      lock.unlock();
      report(on_done, std::move(why));
      on_done = nullptr; // as in serve()
      lock.lock();
      return true;
    }
    return false;
  }

  /// Accepts all jobs of \p fresh. Returns false, and accepts none, if the pool has ended.
  [[nodiscard]] bool accept(entries& fresh) noexcept {
    const std::lock_guard lock{mutex};
    if (has_ended) return false;
    const running_time now = running.read(steady_now());
    for (entry& one : fresh) one.deadline = later(now, one.what.deadline);
    waiting.splice(waiting.end(), fresh);
    start_missing();
    changed.notify_all();
    return true;
  }
};

deadline_pool::deadline_pool(nanoseconds grace) : shared_{std::make_shared<shared_state>()}, grace_{grace} {
  shared_->watchdog = worker{[shared = shared_] { shared->watch(); }};
}

void deadline_pool::reserve(std::size_t count) {
  if (thread_scheduler::current() != nullptr) return; // a simulator can always start threads
  const std::lock_guard lock{shared_->mutex};
  if (shared_->has_ended) throw exception{errc::stopping, "the helper threads have ended with their runtime"};
  const std::size_t before = std::exchange(shared_->reserved, std::max(shared_->reserved, count));
  try {
    while (shared_->active.size() < shared_->reserved) shared_->start_one();
  } catch (...) {
    shared_->reserved = before;
    shared_->changed.notify_all(); // surplus threads end
    throw exception{
        errc::out_of_memory,
        std::to_string(count) +
            " helper threads must be reserved so that faults can be handled when no more threads can be started, " +
            "and one could not be started (" + current_error().text + ')'};
  }
}

void deadline_pool::stop() {
  {
    const std::lock_guard lock{shared_->mutex};
    if (std::exchange(shared_->stopping, true)) return;
    shared_->changed.notify_all();
  }
  shared_->watchdog.join();
  std::unique_lock lock{shared_->mutex};
  shared_->changed.wait_for(lock, grace_, [this] { return shared_->lost.empty(); });
  const std::size_t lost = shared_->lost.size();
  lock.unlock();
  if (lost > 0)
    report_leak(error{.code = errc::deadline_exceeded,
                      .text = std::to_string(lost) + " helper threads are stuck in calls and were left behind"});
}

void deadline_pool::run(std::vector<job> jobs) noexcept {
  entries fresh;
  try {
    for (job& one : jobs) fresh.emplace_back(std::move(one));
  } catch (...) { // refuses all jobs, because they may wait for each other
    refuse(fresh, errc::out_of_memory, no_memory);
    for (job& one : jobs)
      if (one.on_done) report(one.on_done, refusal(errc::out_of_memory, one.name, no_memory));
    return;
  }
  if (!shared_->accept(fresh)) refuse(fresh, errc::stopping, pool_has_ended);
}

void deadline_pool::run(std::string name, nanoseconds deadline, work task, done on_done) noexcept {
  job alone{std::move(name), deadline, std::move(task), std::move(on_done)};
  entries fresh;
  try {
    fresh.emplace_back(std::move(alone));
  } catch (...) {
    return report(alone.on_done, refusal(errc::out_of_memory, alone.name, no_memory));
  }
  if (!shared_->accept(fresh)) refuse(fresh, errc::stopping, pool_has_ended);
}

std::size_t deadline_pool::abandoned_count() const noexcept {
  const std::lock_guard lock{shared_->mutex};
  return shared_->lost.size();
}

} // namespace troupe
