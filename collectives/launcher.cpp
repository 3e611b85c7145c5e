#include <troupe/collectives/launcher.hpp>
#include <troupe/device/unreturned.hpp>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr nanoseconds idle_park{std::chrono::seconds{1}};

} // namespace

/// What the thread works on.
class launcher::hand {
public:
  hand(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval, std::function<void()> enter)
    : device_{std::move(where)}, profile_{profile}, check_interval_{check_interval}, enter_{std::move(enter)} {}

  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }

  void post(job work) {
    {
      const std::lock_guard lock{guard_};
      inbox_.push_back(std::move(work));
      posted_.store(true, std::memory_order_release);
    }
    wake_.notify();
  }

  void watch(std::weak_ptr<launcher_check> checked) {
    const std::lock_guard lock{guard_};
    checks_.push_back(std::move(checked));
  }

  void run() {
    if (enter_) enter_();
    device_->api().enter_thread(device_->id());
    auto last_work = std::chrono::steady_clock::now();
    auto next_check = last_work;
    bool loaded = true;
    for (;;) {
      const auto seen = wake_.seen();
      if (run_jobs()) {
        last_work = std::chrono::steady_clock::now();
        loaded = true;
        continue;
      }
      if (stopping_.load(std::memory_order_acquire)) break;
      const auto now = std::chrono::steady_clock::now();
      if (loaded && now >= next_check) {
        loaded = run_checks();
        next_check = now + check_interval_;
      }
      if (now - last_work < profile_.spin)
        spin_pause();
      else
        wake_.park(seen, loaded ? check_interval_ : idle_park);
    }
    ended_.store(true, std::memory_order_release);
    end_.notify();
  }

  void stop() noexcept {
    stopping_.store(true, std::memory_order_release);
    wake_.notify();
  }

  /// Whether run() has ended, waiting for it at most this long.
  [[nodiscard]] bool wait_ended(nanoseconds at_most) {
    const auto until = later(std::chrono::steady_clock::now(), at_most);
    for (;;) {
      const auto seen = end_.seen();
      if (ended_.load(std::memory_order_acquire)) return true;
      const auto left = until - std::chrono::steady_clock::now();
      if (left <= nanoseconds{0}) return false;
      end_.park(seen, left);
    }
  }

private:
  bool run_jobs() {
    if (!posted_.load(std::memory_order_acquire)) return false;
    {
      const std::lock_guard lock{guard_};
      running_.swap(inbox_);
      posted_.store(false, std::memory_order_relaxed);
    }
    for (job& one : running_) std::exchange(one, nullptr)();
    running_.clear();
    return true;
  }

  /// Returns whether anything needs looking after.
  bool run_checks() {
    std::vector<std::shared_ptr<launcher_check>> loaded;
    {
      const std::lock_guard lock{guard_};
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
  std::atomic<bool> posted_{false};
  std::mutex guard_;
  std::vector<job> inbox_;
  std::vector<std::weak_ptr<launcher_check>> checks_;
  std::vector<job> running_; ///< The thread's own, kept for its capacity.
};

launcher::launcher(std::shared_ptr<device> where, wait_profile profile, nanoseconds check_interval,
                   nanoseconds stop_deadline, std::function<void()> enter)
  : stop_deadline_{stop_deadline},
    hand_{std::make_shared<hand>(std::move(where), profile, check_interval, std::move(enter))},
    thread_{[own = hand_] { own->run(); }} {}

launcher::~launcher() {
  hand_->stop();
  // The last holder of a launcher may be a job on its own thread.
  const bool on_own_thread = thread_.get_id() == std::this_thread::get_id();
  if (!on_own_thread && hand_->wait_ended(stop_deadline_)) {
    thread_.join();
    return;
  }
  thread_.detach();
  if (!on_own_thread)
    report_unreturned(error{.code = errc::deadline_exceeded,
                            .text = "the launcher thread of device " + to_string(where()->id()) +
                                    " is stuck in a call and was left behind"});
}

void launcher::post(job work) {
  hand_->post(std::move(work));
}

void launcher::watch(std::weak_ptr<launcher_check> checked) {
  hand_->watch(std::move(checked));
}

const std::shared_ptr<device>& launcher::where() const noexcept {
  return hand_->where();
}

} // namespace troupe
