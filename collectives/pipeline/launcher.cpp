#include <troupe/collectives/pipeline/launcher.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr nanoseconds idle_park{std::chrono::seconds{1}};
/// Number of inbox polls between two reads of the clock, which are more expensive.
constexpr int looks_in_a_row = 16;

class called_job final : public launcher_job {
public:
  explicit called_job(std::function<void()> work) noexcept : work_{std::move(work)} {}
  std::shared_ptr<launcher_tail> run() noexcept override {
    work_();
    return nullptr;
  }

private:
  std::function<void()> work_;
};

} // namespace

/// State shared by the launcher and its thread.
struct launcher::state {
  state(std::shared_ptr<device> gpu, wait_profile waits, nanoseconds interval, std::function<void()> begin)
    : where{std::move(gpu)}, profile{waits}, check_interval{interval}, enter{std::move(begin)} {}

  void run() {
    if (enter) enter();
    where->api().enter_thread(where->id());
    auto last_work = steady_now();
    auto next_check = last_work;
    bool loaded = true;
    for (;;) {
      if (run_jobs()) {
        last_work = steady_now();
        loaded = true;
        continue;
      }
      if (stopping.load()) break;
      const auto now = steady_now();
      if (loaded && now >= next_check) {
        loaded = run_checks();
        next_check = now + check_interval;
      }
      if (now - last_work < profile.spin)
        for (int i = 0; i < looks_in_a_row && jobs.empty(); ++i) spin_pause();
      else
        wake.park([this] { return !jobs.empty() || stopping.load(); }, loaded ? check_interval : idle_park);
    }
    ended.open();
  }

  bool run_jobs() {
    const bool any = jobs.take_all([this](const std::shared_ptr<launcher_job>& one) {
      if (tail && !one->continues(*tail)) end_tail();
      tail = one->run();
    });
    if (tail && jobs.empty()) end_tail();
    return any;
  }

  void end_tail() noexcept { std::exchange(tail, nullptr)->end(); }

  /// Runs the due checks. Returns whether any object has work to check.
  bool run_checks() {
    std::vector<std::shared_ptr<launcher_check>> all; // outlives the lock, because it may be the last owner of some
    {
      const std::lock_guard lock{mutex};
      std::erase_if(checks, [&](const auto& one) {
        auto alive = one.lock();
        if (alive) all.push_back(std::move(alive));
        return one.expired();
      });
    }
    std::erase_if(all, [](const auto& one) { return !one->loaded(); });
    for (const auto& one : all) one->check();
    return !all.empty();
  }

  const std::shared_ptr<device> where;
  const wait_profile profile;
  const nanoseconds check_interval;
  const std::function<void()> enter;
  wake_signal wake;
  std::atomic<bool> stopping{false};
  latch ended; ///< Opened at the end of run().
  inbox<launcher_job> jobs;
  std::shared_ptr<launcher_tail> tail; ///< Accessed only by the launcher's thread.
  std::mutex mutex;
  std::vector<std::weak_ptr<launcher_check>> checks;
};

launcher::launcher(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval,
                   nanoseconds stop_deadline, std::function<void()> enter)
  : stop_deadline_{stop_deadline},
    state_{std::make_shared<state>(std::move(where), profile, check_interval, std::move(enter))},
    thread_{[own = state_] { own->run(); }} {}

launcher::~launcher() {
  state_->stopping.store(true);
  state_->wake.notify();
  // A job on the launcher's own thread may be its last owner.
  const bool on_own_thread = thread_.is_current();
  if (!on_own_thread && state_->ended.wait_for(stop_deadline_)) {
    thread_.join();
    return;
  }
  thread_.detach();
  if (!on_own_thread)
    report_leak(error{.code = errc::deadline_exceeded,
                      .text = "the launcher thread of device " + to_string(where()->id()) +
                              " is stuck in a call and was left behind"});
}

void launcher::post(std::shared_ptr<launcher_job> work) {
  state_->jobs.push(std::move(work));
  state_->wake.notify();
}

void launcher::post(std::function<void()> work) {
  post(std::make_shared<called_job>(std::move(work)));
}

void launcher::watch(std::weak_ptr<launcher_check> checked) {
  const std::lock_guard lock{state_->mutex};
  state_->checks.push_back(std::move(checked));
}

const std::shared_ptr<device>& launcher::where() const noexcept {
  return state_->where;
}

} // namespace troupe
