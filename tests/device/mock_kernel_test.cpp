// Kernels on the mock: steps in stream order, woken by what other kernels store.
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/graph.hpp>
#include <troupe/device/kernel.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>

namespace troupe::tests::mock_kernel_test {

using troupe::tests::error_of;
using troupe::tests::shared_word;

namespace {

constexpr device_id first{0};
constexpr device_id second{1};

/// Counters of the test, not of the device.
struct seen {
  std::atomic<int> starts{0};
  std::atomic<int> steps{0};
  std::atomic<int> ends{0}; ///< Destroyed runs.
};

/// Arguments of a kernel that, \p rounds times, adds one to the word of its peer and waits until its own has grown.
struct turns {
  std::uint32_t* own = nullptr;
  std::uint32_t* peers = nullptr;
  std::uint32_t rounds = 0;
  seen* counts = nullptr;
  bool polls = false;
  bool throws = false;
};

class turn_taking final : public mock_kernel {
public:
  explicit turn_taking(const turns& arguments) : mine_{arguments} { ++mine_.counts->starts; }
  ~turn_taking() override { ++mine_.counts->ends; }

  kernel_step step() override {
    ++mine_.counts->steps;
    if (mine_.throws) throw exception{errc::device_failed, "an assertion of the kernel"};
    const bool stores = stored_ == passed_ && stored_ < mine_.rounds;
    if (stores) {
      std::atomic_ref{*mine_.peers}.fetch_add(1, std::memory_order_acq_rel);
      ++stored_;
    }
    if (std::atomic_ref{*mine_.own}.load(std::memory_order_acquire) > passed_) {
      ++passed_;
      return passed_ == mine_.rounds ? kernel_step::ended : kernel_step::advanced;
    }
    return stores ? kernel_step::advanced : kernel_step::waiting;
  }
  [[nodiscard]] bool polls() const noexcept override { return mine_.polls; }

private:
  turns mine_;
  std::uint32_t stored_ = 0;
  std::uint32_t passed_ = 0;
};

constexpr kernel take_turns{.name = "turns", .start_mock = [](const void* arguments) -> std::unique_ptr<mock_kernel> {
                              return std::make_unique<turn_taking>(*static_cast<const turns*>(arguments));
                            }};

kernel_launch launch_of(const turns& arguments) {
  return {.what = &take_turns, .arguments = &arguments, .argument_bytes = sizeof arguments};
}

struct two_devices {
  explicit two_devices(engine_mode mode) : api{make_mock_driver({.device_count = 2, .mode = mode})} {}

  std::shared_ptr<mock_driver> api;
  std::shared_ptr<device> near = device::open(api, first);
  std::shared_ptr<device> far = device::open(api, second);
  stream nears{near};
  stream fars{far};
  shared_word left{near};
  shared_word right{near};
  shared_word done{near};
  seen counts;

  [[nodiscard]] turns at_left(std::uint32_t rounds) {
    return {.own = left.address(), .peers = right.address(), .rounds = rounds, .counts = &counts};
  }
  [[nodiscard]] turns at_right(std::uint32_t rounds) {
    return {.own = right.address(), .peers = left.address(), .rounds = rounds, .counts = &counts};
  }
};

} // namespace

TEST_CASE("kernels of two devices wait for each other's stores until both have ended", "[device][mock]") {
  two_devices rig{engine_mode::manual};
  constexpr std::uint32_t rounds = 7;
  stream_ref here = rig.nears; // the first in the engine's order, or the last
  stream_ref there = rig.fars;
  if (GENERATE(false, true)) std::swap(here, there);
  here.launch(launch_of(rig.at_left(rounds)));
  rig.api->write_word(here.where().id(), here.native(), rig.done.address(), 1);
  rig.api->run_until_blocked();
  CHECK(rig.right.get() == 1); // it has stored, and waits
  CHECK(rig.done.get() == 0);
  CHECK_FALSE(here.idle());
  there.launch(launch_of(rig.at_right(rounds)));
  rig.api->run_until_blocked(); // one call: each store lets the other kernel be stepped again
  CHECK(rig.left.get() == rounds);
  CHECK(rig.right.get() == rounds);
  CHECK(rig.done.get() == 1);
  CHECK(here.idle());
  CHECK(rig.counts.ends == 2);
}

TEST_CASE("a kernel that waits is stepped only when something may have changed", "[device][mock]") {
  two_devices rig{engine_mode::manual};
  rig.nears.ref().launch(launch_of(rig.at_left(1)));
  rig.api->run_until_blocked();
  const int steps = rig.counts.steps;
  CHECK(steps == 2); // the store, and the look that found nothing
}

TEST_CASE("arguments are copied when a kernel is launched", "[device][mock]") {
  two_devices rig{engine_mode::manual};
  turns arguments = rig.at_left(1);
  rig.left.set(1);
  arguments.peers = rig.left.address(); // its own peer
  rig.nears.ref().launch(launch_of(arguments));
  arguments = {};
  rig.api->run_until_blocked();
  CHECK(rig.left.get() == 2);
  CHECK(rig.nears.ref().idle());
}

TEST_CASE("a captured kernel makes a fresh run with the same arguments at each launch of its graph",
          "[device][mock][plans]") {
  two_devices rig{engine_mode::manual};
  turns arguments = rig.at_left(1);
  arguments.peers = rig.left.address();
  stream_capture capture{rig.near, rig.nears};
  rig.nears.ref().launch(launch_of(arguments));
  const graph made = capture.end();
  arguments = {};
  rig.api->run_until_blocked();
  CHECK(rig.counts.starts == 0);
  for (int launches = 1; launches <= 2; ++launches) {
    made.launch(rig.nears);
    rig.api->run_until_blocked();
    CHECK(rig.counts.starts == launches);
    CHECK(rig.counts.ends == launches);
    CHECK(rig.left.get() == static_cast<std::uint32_t>(launches));
  }
}

TEST_CASE("kernels of two drivers wake each other, as those of two processes on threads", "[device][mock]") {
  two_devices here{engine_mode::threaded};
  two_devices there{engine_mode::threaded};
  constexpr std::uint32_t rounds = 20;
  here.nears.ref().launch(
      launch_of({.own = here.left.address(), .peers = there.left.address(), .rounds = rounds, .counts = &here.counts}));
  there.nears.ref().launch(launch_of(
      {.own = there.left.address(), .peers = here.left.address(), .rounds = rounds, .counts = &there.counts}));
  here.nears.ref().synchronize();
  there.nears.ref().synchronize();
  CHECK(here.left.get() == rounds);
  CHECK(there.left.get() == rounds);
}

TEST_CASE("a kernel that polls sees a store that nobody announces, and another one after wake()", "[device][mock]") {
  two_devices rig{engine_mode::threaded};
  turns arguments = rig.at_left(1);
  arguments.polls = GENERATE(true, false);
  rig.nears.ref().launch(launch_of(arguments));
  rig.right.await(1);
  CHECK_FALSE(rig.nears.ref().idle());
  rig.left.set(1);
  if (!arguments.polls) rig.api->wake();
  rig.nears.ref().synchronize();
  CHECK(rig.counts.ends == 1);
}

TEST_CASE("a device that fails drops its kernels, and what is behind them never runs", "[device][mock]") {
  two_devices rig{engine_mode::manual};
  const stream beside{rig.near};
  rig.nears.ref().launch(launch_of(rig.at_left(3)));
  rig.api->write_word(first, rig.nears.ref().native(), rig.done.address(), 1);
  rig.api->run_until_blocked();
  CHECK(rig.counts.ends == 0);
  errc expected = errc::process_poisoned;
  SECTION("because of other work") {
    rig.api->fail_next(first, {.code = errc::process_poisoned, .text = "injected"});
    rig.api->write_word(first, beside.ref().native(), rig.done.address(), 2);
  }
  SECTION("because of the kernel itself") {
    turns arguments = rig.at_right(1);
    arguments.throws = true;
    beside.ref().launch(launch_of(arguments));
    expected = errc::device_failed;
  }
  rig.api->run_until_blocked();
  CHECK(rig.counts.ends == rig.counts.starts);
  CHECK(rig.done.get() == 0);
  CHECK(error_of([&] { static_cast<void>(rig.nears.ref().idle()); }).code == expected);
}

TEST_CASE("an injected fault hits a kernel", "[device][mock]") {
  two_devices rig{engine_mode::manual};
  rig.api->fail_next(first, {.code = errc::device_failed, .text = "injected"});
  rig.nears.ref().launch(launch_of(rig.at_left(1)));
  rig.api->run_until_blocked();
  CHECK(rig.right.get() == 0);
  CHECK(error_of([&] { static_cast<void>(rig.nears.ref().idle()); }).text == "injected");
}

TEST_CASE("the mock refuses a kernel that it cannot run, and a launch without blocks", "[device][mock]") {
  two_devices rig{engine_mode::manual};
  static constexpr kernel foreign{.name = "a kernel of a test"};
  const error why = error_of([&] { rig.nears.ref().launch({.what = &foreign}); });
  CHECK(why.code == errc::unsupported);
  CHECK(why.text.find("a kernel of a test") != std::string::npos);
  CHECK(error_of([&] { rig.nears.ref().launch({}); }).code == errc::invalid_argument);
  kernel_launch none = launch_of(rig.at_left(1));
  none.blocks = 0;
  CHECK(error_of([&] { rig.nears.ref().launch(none); }).code == errc::invalid_argument);
}

} // namespace troupe::tests::mock_kernel_test
