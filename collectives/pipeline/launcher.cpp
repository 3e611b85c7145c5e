#include <troupe/collectives/pipeline/launcher.hpp>
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
class launcher::state {
public:
  state(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval, std::function<void()> enter)
    : device_{std::move(where)}, profile_{profile}, check_interval_{check_interval}, enter_{std::move(enter)} {}

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

  void post(std::shared_ptr<launcher_job> work) noexcept {
    inbox_.push(std::move(work));
    wake_.notify();
  }

  void watch(std::weak_ptr<launcher_check> checked) {
    const std::lock_guard lock{mutex_};
    checks_.push_back(std::move(checked));
  }

  void run() {
    if (enter_) enter_();
    device_->api().enter_thread(device_->id());
    auto last_work = steady_now();
    auto next_check = last_work;
    bool loaded = true;
    for (;;) {
      if (run_jobs()) {
        last_work = steady_now();
        loaded = true;
        continue;
      }
      if (stopping_.load()) break;
      const auto now = steady_now();
      if (loaded && now >= next_check) {
        loaded = run_checks();
        next_check = now + check_interval_;
      }
      if (now - last_work < profile_.spin)
        for (int i = 0; i < looks_in_a_row && inbox_.empty(); ++i) spin_pause();
      else
        wake_.park([this] { return !inbox_.empty() || stopping_.load(); }, loaded ? check_interval_ : idle_park);
    }
    ended_.store(true);
    end_.notify();
  }

  void stop() noexcept {
    stopping_.store(true);
    wake_.notify();
  }

  /// Waits until run() has ended, for \p at_most. Returns whether it has.
  [[nodiscard]] bool wait_ended(nanoseconds at_most) {
    const auto until = later(steady_now(), at_most);
    for (;;) {
      if (ended_.load()) return true;
      const auto left = until - steady_now();
      if (left <= nanoseconds{0}) return false;
      end_.park([this] { return ended_.load(); }, left);
    }
  }

private:
  bool run_jobs() {
    const bool any = inbox_.take_all([this](const std::shared_ptr<launcher_job>& one) {
      if (tail_ && !one->continues(*tail_)) end_tail();
      tail_ = one->run();
    });
    if (tail_ && inbox_.empty()) end_tail();
    return any;
  }

  void end_tail() noexcept { std::exchange(tail_, nullptr)->end(); }

  /// Runs the due checks. Returns whether any object has work to check.
  bool run_checks() {
    std::vector<std::shared_ptr<launcher_check>> loaded;
    {
      const std::lock_guard lock{mutex_};
      std::erase_if(checks_, [&](const auto& one) {
        auto alive = one.lock();
        if (!alive) return true;
        if (alive->loaded()) loaded.push_back(std::move(alive));
        return false;
      });
    }
    for (const auto& one : loaded) one->check();
    return !loaded.empty();
  }

  std::shared_ptr<device> device_;
  wait_profile profile_;
  nanoseconds check_interval_;
  std::function<void()> enter_;
  wake_signal wake_;
  wake_signal end_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  inbox<launcher_job> inbox_;
  std::shared_ptr<launcher_tail> tail_; ///< Accessed only by the launcher's thread.
  std::mutex mutex_;
  std::vector<std::weak_ptr<launcher_check>> checks_;
};

launcher::launcher(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval,
                   nanoseconds stop_deadline, std::function<void()> enter)
  : stop_deadline_{stop_deadline},
    state_{std::make_shared<state>(std::move(where), profile, check_interval, std::move(enter))},
    thread_{[own = state_] { own->run(); }} {}

launcher::~launcher() {
  state_->stop();
  // A job on the launcher's own thread may be its last owner.
  const bool on_own_thread = thread_.is_current();
  if (!on_own_thread && state_->wait_ended(stop_deadline_)) {
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
  state_->post(std::move(work));
}

void launcher::post(std::function<void()> work) {
  post(std::make_shared<called_job>(std::move(work)));
}

void launcher::watch(std::weak_ptr<launcher_check> checked) {
  state_->watch(std::move(checked));
}

const std::shared_ptr<device>& launcher::where() const noexcept {
  return state_->where();
}

} // namespace troupe
