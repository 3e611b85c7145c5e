// Time that stands still while its thread does not run.
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/device/threads/running_clock.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <concepts>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

constexpr time_point start{1h};

template <class From, class Span>
concept subtractable = requires(From from, Span what) {
  from - what;
};
// Real time and running time cannot be mixed.
static_assert(!std::convertible_to<time_point, running_time> && !std::convertible_to<running_time, time_point>);
static_assert(!subtractable<time_point, running_time> && !std::equality_comparable_with<time_point, running_time>);
static_assert(std::same_as<decltype(running_time{} - running_time{}), nanoseconds>);

} // namespace

TEST_CASE("a running clock shows real time while it is read in time", "[device][TIM-1]") {
  running_clock clock{start, 100ms};
  CHECK(clock.last().time_since_epoch() == start.time_since_epoch());
  for (int i = 1; i <= 50; ++i)
    CHECK((clock.read(start + i * 100ms) - running_time{start.time_since_epoch()}) == i * 100ms);
  CHECK(clock.excluded() == 0ns);
  CHECK(clock.since_reading(start + 6s) == 1s);
}

TEST_CASE("a running clock counts only a part of a time in which its thread did not run", "[device][TIM-1]") {
  running_clock clock{start, 100ms};
  const running_time before = clock.last();
  CHECK(clock.read(start + 1h) - before == 100ms);
  CHECK(clock.excluded() == 1h - 100ms);
  CHECK(clock.read(start + 1h) - before == 100ms); // the pause is over
  CHECK(clock.read(start + 1h + 50ms) - before == 150ms);

  // A thread that is always late still reaches each limit.
  for (int i = 2; i <= 100; ++i) clock.read(start + i * 1h);
  CHECK(clock.last() - before == 150ms + 99 * 100ms);
}

TEST_CASE("a wait that was planned to be longer than usual is no pause", "[device][TIM-1]") {
  running_clock clock{start, 100ms};
  const running_time before = clock.last();
  CHECK(clock.read(start + 1s, 1s + 100ms) - before == 1s);
  CHECK(clock.read(start + 1h, nanoseconds::max()) - before == 1h);
  CHECK(clock.excluded() == 0ns);
  clock.count(1s);
  CHECK(clock.read(start + 2h) - before == 1h + 1s);
}

TEST_CASE("a running clock never goes back, and a late reader of an early time changes nothing", "[device]") {
  running_clock clock{start, 100ms};
  const running_time at = clock.read(start + 50ms);
  CHECK(clock.read(start + 20ms) == at); // a thread read the real time, and was stopped before it read this clock
  CHECK(clock.since_reading(start + 50ms) == 0ns);
  CHECK(clock.read(start + 60ms) - at == 10ms);
}

TEST_CASE("a limit without an end stays without one by a running clock", "[device]") {
  running_clock clock{start, 100ms};
  CHECK(later(clock.last(), nanoseconds::max()) == running_time::max());
  CHECK(later(clock.last(), 5s) - clock.last() == 5s);
  CHECK(running_time{} < clock.last()); // long ago
}

TEST_CASE("the time since boot passes as the steady clock does while the machine runs", "[device]") {
  const boot_time boot = boot_clock::now();
  const time_point steady = steady_now();
  while (steady_now() < steady + 2ms) {
  }
  const nanoseconds passed = boot_clock::now() - boot;
  CHECK(passed >= 2ms);
  CHECK(boot.time_since_epoch() >= steady.time_since_epoch() - 1s); // suspensions are added
  running_clock clock{boot, 1h};
  CHECK(clock.read(boot + 2h) - running_time{boot.time_since_epoch()} == 1h);
}

} // namespace troupe::tests
