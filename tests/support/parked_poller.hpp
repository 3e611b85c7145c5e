/// A poller whose thread is about to sleep, to test what wakes it.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/poller.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <utility>

namespace troupe::tests {

/// Nothing is pending in it, and its clock stands still while it sleeps: for \ref longest_sleep, or, if its last work
/// was less than \ref first_sleep ago, for that time.
class parked_poller {
public:
  static constexpr nanoseconds longest_sleep = std::chrono::seconds{1};
  static constexpr nanoseconds first_sleep = track_limits{}.quiet;

  /// \p idle: how long ago its last work is when it begins to sleep.
  explicit parked_poller(nanoseconds idle = std::chrono::hours{1}) : idle_{idle} {}

  /// Starts the thread, and calls \p what there once it has announced its sleep. Returns whether that has ended the
  /// sleep; else it takes its time. Call it once.
  [[nodiscard]] bool is_woken_by(std::function<void()> what) {
    probe_ = std::make_shared<probe>(time, idle_, std::move(what));
    auto woken = probe_->woken.get_future();
    watch->attach(probe_);
    watch->start();
    REQUIRE(woken.wait_for(std::chrono::minutes{1}) == std::future_status::ready);
    watch->stop();
    return woken.get();
  }

  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  std::shared_ptr<poller> watch = std::make_shared<poller>(time, wait_profile{.spin = std::chrono::milliseconds{1}});

private:
  /// A woken thread polls again and again before it reads the load once more; one that has slept reads it at once.
  class probe final : public polled {
  public:
    probe(std::shared_ptr<manual_clock> time, nanoseconds idle, std::function<void()> what)
      : time_{std::move(time)}, idle_{idle}, what_{std::move(what)} {}

    bool poll(time_point, running_time) override {
      if (++polls_ == 1) time_->advance(idle_); // it has spun for long enough
      if (has_called_ && ++polls_since_ == 2) decide(true);
      return false;
    }
    [[nodiscard]] std::size_t load() const noexcept override {
      if (has_called_)
        decide(false);
      else if (++loads_ == 2) { // the first reading is before it announces its sleep
        has_called_ = true;
        what_();
      }
      return 0;
    }
    mutable std::promise<bool> woken;

  private:
    void decide(bool is_woken) const {
      if (!std::exchange(is_decided_, true)) woken.set_value(is_woken);
    }
    std::shared_ptr<manual_clock> time_;
    nanoseconds idle_;
    std::function<void()> what_;
    int polls_ = 0;
    int polls_since_ = 0;
    mutable int loads_ = 0;
    mutable bool has_called_ = false;
    mutable bool is_decided_ = false;
  };
  nanoseconds idle_;
  std::shared_ptr<probe> probe_;
};

} // namespace troupe::tests
