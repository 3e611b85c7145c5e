#include <troupe/collectives/helper_crew.hpp>
#include <troupe/device/condition.hpp>
#include <troupe/device/unreturned.hpp>
#include <troupe/device/worker.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe {

namespace {

struct job {
  std::string name;
  time_point deadline;
  helper_crew::done on_done;
  worker thread;
};

} // namespace

/// Shared with the job threads, so that an abandoned one may return after the crew is gone.
struct helper_crew::roster {
  std::mutex guard;
  condition changed;
  std::map<std::uint64_t, job> running;
  std::vector<worker> finished;
  std::uint64_t next_key = 0;
  std::atomic<std::size_t> abandoned{0};
  bool stopping = false;
  bool over = false;
  worker watchdog;

  /// The job's end of the race against its deadline.
  void finish(std::uint64_t key, error result) {
    done report;
    {
      const std::lock_guard lock{guard};
      const auto found = running.find(key);
      if (found == running.end()) {
        abandoned.fetch_sub(1);
        changed.notify_all();
        return;
      }
      report = std::exchange(found->second.on_done, nullptr);
    }
    report(std::move(result));
    report = nullptr;
    const std::lock_guard lock{guard};
    const auto found = running.find(key);
    finished.push_back(std::move(found->second.thread));
    running.erase(found);
    changed.notify_all();
  }

  void watch() {
    std::unique_lock lock{guard};
    while (!stopping || !running.empty()) {
      join_finished(lock);
      time_point wake = time_point::max();
      for (const auto& [key, one] : running)
        if (one.on_done) wake = std::min(wake, one.deadline);
      if (stopping && running.empty()) break;
      changed.sleep(lock, wake);
      abandon_overdue(lock);
    }
    over = true;
    join_finished(lock);
  }

  void join_finished(std::unique_lock<std::mutex>& lock) {
    auto ended = std::exchange(finished, {});
    lock.unlock();
    for (auto& thread : ended) thread.join();
    lock.lock();
  }

  void abandon_overdue(std::unique_lock<std::mutex>& lock) {
    std::vector<job> overdue;
    const auto now = steady_now();
    for (auto at = running.begin(); at != running.end();) {
      job& one = at->second;
      // A job without its report is just finishing.
      const bool late = one.on_done && now >= one.deadline;
      if (late) overdue.push_back(std::move(one));
      at = late ? running.erase(at) : std::next(at);
    }
    abandoned.fetch_add(overdue.size());
    lock.unlock();
    for (job& one : overdue) {
      one.thread.detach();
      one.on_done(error{.code = errc::deadline_exceeded,
                        .effect = effect::unknown_outcome,
                        .text = one.name + " did not end before its deadline and was abandoned"});
    }
    lock.lock();
  }
};

helper_crew::helper_crew(nanoseconds grace) : roster_{std::make_shared<roster>()}, grace_{grace} {
  roster_->watchdog = worker{[crew = roster_] { crew->watch(); }};
}

void helper_crew::stop() {
  {
    const std::lock_guard lock{roster_->guard};
    if (std::exchange(roster_->stopping, true)) return;
    roster_->changed.notify_all();
  }
  roster_->watchdog.join();
  std::unique_lock lock{roster_->guard};
  if (!roster_->changed.wait_for(lock, grace_, [this] { return abandoned_count() == 0; }))
    report_unreturned(
        error{.code = errc::deadline_exceeded,
              .text = std::to_string(abandoned_count()) + " helper threads are stuck in calls and were left behind"});
}

void helper_crew::run(std::string name, nanoseconds deadline, work task, done on_done) {
  const std::lock_guard lock{roster_->guard};
  if (roster_->over) throw exception{errc::stopping, name + " has no helper any more: the runtime is ending"};
  const std::uint64_t key = roster_->next_key++;
  job& entry = roster_->running[key];
  entry.name = std::move(name);
  entry.deadline = later(steady_now(), deadline);
  entry.on_done = std::move(on_done);
  try {
    entry.thread = worker{[crew = roster_, key, task = std::move(task)]() mutable {
      error result;
      try {
        task();
      } catch (...) {
        result = current_error();
      }
      task = nullptr;
      crew->finish(key, std::move(result));
    }};
  } catch (const std::system_error& none) {
    const std::string title = std::move(entry.name);
    roster_->running.erase(key);
    throw exception{errc::out_of_memory, "no thread could be started for " + title + ": " + none.what()};
  }
  roster_->changed.notify_all();
}

std::size_t helper_crew::abandoned_count() const noexcept {
  return roster_->abandoned.load();
}

} // namespace troupe
