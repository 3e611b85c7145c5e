/// The source of time for deadlines. Tests and simulations replace it to control the time.
#pragma once

#include <troupe/device/threads/thread_scheduler.hpp>

#include <atomic>

namespace troupe {

/// A source of time. Threads: all functions may be called from any thread.
class clock {
public:
  clock() = default;
  clock(const clock&) = delete;
  clock& operator=(const clock&) = delete;
  virtual ~clock() = default;

  [[nodiscard]] virtual time_point now() const noexcept = 0;
};

/// A clock that shows real time, or the virtual time of the calling thread's scheduler.
class monotonic_clock final : public clock {
public:
  [[nodiscard]] time_point now() const noexcept override { return steady_now(); }
};

/// A clock that advances only by calls of advance().
class manual_clock final : public clock {
public:
  [[nodiscard]] time_point now() const noexcept override { return time_point{nanoseconds{now_.load()}}; }
  void advance(nanoseconds by) noexcept { now_.fetch_add(by.count()); }

private:
  std::atomic<nanoseconds::rep> now_{1'000'000'000};
};

} // namespace troupe
