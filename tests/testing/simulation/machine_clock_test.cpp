/// The clocks of simulated machines.
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/simulation/fibers.hpp>
#include <troupe/testing/simulation/machine_clock.hpp>
#include <troupe/testing/simulation/process_groups.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>

namespace troupe::tests::machine_clock_test {

namespace {

using namespace std::chrono_literals;

constexpr time_point start{1s};

} // namespace

TEST_CASE("a machine's clock shows the first virtual time of each of its times", "[testing][simulation]") {
  const std::int64_t drift_ppm = GENERATE(-300'000, -4'900, 0, 1, 4'900, 300'000);
  machine_clock clock{drift_ppm, 100h, 3h};
  CHECK(clock.since_boot(start) - clock.steady(start) == 3h);
  if (GENERATE(false, true)) clock.suspend(start + 1ms, 7ms);
  for (nanoseconds passed = 0ns; passed < 20ms; passed += 333'333ns) {
    const time_point shown = clock.steady(start + passed);
    const time_point when = clock.when_steady(shown + 1ns);
    CHECK(clock.steady(when) > shown);
    CHECK(clock.steady(when - 1ns) <= shown);
  }
  CHECK(clock.when_steady(time_point::max()) == time_point::max());
}

TEST_CASE("the steady clock of a suspended machine stands still, its boot clock does not", "[testing][simulation]") {
  machine_clock clock{0, 10h, 1h};
  const time_point before = clock.steady(start);
  clock.suspend(start, 5s);
  clock.suspend(start + 2s, 1s); // meanwhile
  CHECK(clock.steady(start + 4s) == before);
  CHECK(clock.steady(start + 6s) == before + 1s);
  CHECK(clock.since_boot(start + 6s) - clock.since_boot(start) == 6s);
  clock.suspend(start + 10s, 1s);
  CHECK(clock.steady(start + 12s) == before + 6s);
  const time_point boot = clock.since_boot(start + 12s);
  clock.jump(1h);
  CHECK(clock.steady(start + 12s) == before + 6s);
  CHECK(clock.since_boot(start + 12s) == boot + 1h);
}

TEST_CASE("a fiber sleeps by the clock of its machine", "[testing][simulation]") {
  constexpr fibers::group fast = 1, slow = 2;
  fibers all{[](std::size_t) { return std::size_t{0}; }};
  const auto suspended = std::make_shared<machine_clock>(-100'000, 0ns, 0ns);
  all.set_clock(fast, std::make_shared<machine_clock>(100'000, 5h, 1h));
  all.set_clock(slow, suspended);
  const time_point began = all.virtual_now();
  nanoseconds took_fast{}, took_slow{}, took_virtual{}, shown{};
  const auto sleep_in = [&](fibers::group of, nanoseconds& took) {
    const fibers::group_scope in_group{of};
    return worker{[&, began] {
      const time_point first = steady_now();
      fibers::current()->sleep(1s);
      shown = steady_now() - first;
      took = virtual_now() - began;
    }};
  };
  worker one = sleep_in(fast, took_fast);
  one.join();
  CHECK(shown >= 1s);
  CHECK(shown < 1s + 10ns);
  CHECK(took_fast / 1ms == 909);
  worker other{[&] {
    const fibers::virtual_clock_scope without;
    fibers::current()->sleep(1s);
    took_virtual = virtual_now() - began;
  }};
  other.join();
  suspended->suspend(all.virtual_now() + 500ms, 2s);
  const time_point second = all.virtual_now();
  worker last = sleep_in(slow, took_slow);
  last.join();
  CHECK(shown >= 1s);
  CHECK(shown < 1s + 10ns);
  CHECK((took_slow - (second - began)) / 1ms == 3'111);
  CHECK(took_virtual - took_fast == 1s);
}

TEST_CASE("a fiber reads the boot clock of its machine", "[testing][simulation]") {
  fibers all{[](std::size_t) { return std::size_t{0}; }};
  all.set_clock(1, std::make_shared<machine_clock>(0, 5h, 2h));
  const fibers::group_scope in_group{1};
  CHECK(boot_clock::now().time_since_epoch() - steady_now().time_since_epoch() == 2h);
  CHECK(steady_now() - virtual_now() == 3h);
}

TEST_CASE("a group of fibers has the clock of one machine", "[testing][simulation]") {
  fibers all{[](std::size_t) { return std::size_t{0}; }};
  const auto one = std::make_shared<machine_clock>(0, 1h, 0h);
  all.set_clock(1, one);
  all.set_clock(1, one); // as a process does that is started again
  CHECK_THROWS_WITH(all.set_clock(1, std::make_shared<machine_clock>(0, 2h, 0h)),
                    Catch::Matchers::ContainsSubstring("group 1 of fibers has the clock of another machine"));
}

TEST_CASE("simulated processes have a group each, in the largest worlds too", "[testing][simulation]") {
  using enum simulation::process_kind;
  constexpr std::uint64_t most_ranks = 4096, most_attempts = 999;
  std::set<fibers::group> all{0};
  std::size_t made = 1;
  for (std::uint64_t number = 0; number < most_ranks; ++number) {
    for (const auto kind : {rank, order_service})
      for (const std::uint64_t attempt : {std::uint64_t{0}, most_attempts})
        all.insert(simulation::group_of(kind, number, attempt));
    for (const auto kind : {controller, driver}) all.insert(simulation::group_of(kind, number));
    made += 6;
  }
  CHECK(all.size() == made);
}

} // namespace troupe::tests::machine_clock_test
