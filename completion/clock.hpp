/// Where deadlines read the time, so that tests and simulations can turn the hands themselves.
#pragma once

#include <atomic>
#include <chrono>

namespace troupe {

using time_point = std::chrono::steady_clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

/// \p span after \p from, or the end of time: "for ever" is a deadline like any other.
[[nodiscard]] constexpr time_point later(time_point from, nanoseconds span) noexcept {
  return span > nanoseconds{0} && from > time_point::max() - span ? time_point::max() : from + span;
}

/// A source of time. Threads: safe from any.
class clock {
public:
  clock() = default;
  clock(const clock&) = delete;
  clock& operator=(const clock&) = delete;
  virtual ~clock() = default;

  [[nodiscard]] virtual time_point now() const noexcept = 0;
};

/// Real time.
class monotonic_clock final : public clock {
public:
  [[nodiscard]] time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
};

/// Time that moves only when told to.
class manual_clock final : public clock {
public:
  [[nodiscard]] time_point now() const noexcept override { return time_point{nanoseconds{now_.load()}}; }
  void advance(nanoseconds by) noexcept { now_.fetch_add(by.count()); }

private:
  std::atomic<nanoseconds::rep> now_{1'000'000'000};
};

} // namespace troupe
