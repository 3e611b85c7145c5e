// Each strategy says "done" when the device is, not before, and in order; on the mock and on CUDA alike.
#include "support/drivers.hpp"
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <thread>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;
using troupe::tests::gate;

namespace {

struct source_rig {
  explicit source_rig(const std::shared_ptr<driver>& api, completion_strategy strategy)
    : gpu{device::open(api, device_id{0})},
      slots{std::make_shared<slot_table>(gpu, 2)},
      work{gpu},
      source{make_completion_source(strategy, gpu, slots)} {
    source->prepare(gpu);
  }

  void await(std::uint64_t sequence) const {
    while (!source->reached(sequence)) std::this_thread::yield();
  }

  std::shared_ptr<device> gpu;
  std::shared_ptr<slot_table> slots;
  stream work;
  std::unique_ptr<completion_source> source;
};

completion_strategy any_strategy() {
  const auto chosen = GENERATE(from_range(all_completion_strategies));
  UNSCOPED_INFO("strategy " << to_string(chosen));
  return chosen;
}

bool has_free_slot(slot_table& slots) {
  try {
    slots.release(slots.acquire());
    return true;
  } catch (const exception&) {
    return false;
  }
}

} // namespace

TROUPE_DRIVER_TEST(1, "an operation is not done while its stream is held, and done soon after", "[completion]") {
  const source_rig rig{api, any_strategy()};
  gate closed{rig.gpu};
  closed.hold(rig.work);
  rig.source->arm(rig.work, 1);
  for (int look = 0; look < 100; ++look) CHECK_FALSE(rig.source->reached(1));
  closed.open();
  rig.await(1);
  CHECK(rig.source->reached(1));
  CHECK_FALSE(rig.source->reached(2));
  rig.work.ref().synchronize();
}

TROUPE_DRIVER_TEST(1, "operations are done in order, and none before the one in front of it", "[completion]") {
  constexpr std::uint64_t half = 100;
  const source_rig rig{api, any_strategy()};
  gate first{rig.gpu};
  gate second{rig.gpu};
  first.hold(rig.work);
  for (std::uint64_t i = 1; i <= half; ++i) rig.source->arm(rig.work, i);
  second.hold(rig.work);
  for (std::uint64_t i = half + 1; i <= 2 * half; ++i) rig.source->arm(rig.work, i);
  CHECK_FALSE(rig.source->reached(1));
  first.open();
  for (std::uint64_t i = 1; i <= half; ++i) rig.await(i);
  CHECK_FALSE(rig.source->reached(half + 1));
  second.open();
  rig.await(2 * half);
  for (std::uint64_t i = 1; i <= 2 * half; ++i) CHECK(rig.source->reached(i));
  CHECK_FALSE(rig.source->reached(2 * half + 1));
  rig.work.ref().synchronize();
}

TROUPE_DRIVER_TEST(1, "a source goes on for many operations without growing out of its slot", "[completion]") {
  const source_rig rig{api, any_strategy()};
  for (std::uint64_t i = 1; i <= 3000; ++i) {
    rig.source->arm(rig.work, i);
    if (i % 50 == 0) rig.await(i);
  }
  rig.work.ref().synchronize();
  CHECK(rig.source->reached(3000));
}

TROUPE_DRIVER_TEST(1, "a slot comes back from a source that never armed it or has drained, and from no other",
                   "[completion]") {
  const auto gpu = device::open(api, device_id{0});
  const auto slots = std::make_shared<slot_table>(gpu, 1);
  const stream work{gpu};
  const auto make = [&] { return make_completion_source(completion_strategy::flag, gpu, slots); };
  make()->prepare(gpu);
  CHECK(has_free_slot(*slots));
  {
    const auto used = make();
    used->prepare(gpu);
    gate closed{gpu};
    closed.hold(work);
    CHECK_FALSE(has_free_slot(*slots));
    used->arm(work, 1);
    used->arm(work, 2); // not by the same way as the first, which has not been seen
    closed.open();
    work.ref().synchronize();
    used->drained();
  }
  CHECK(has_free_slot(*slots));
  {
    const auto stuck = make();
    stuck->arm(work, 1);
  }
  CHECK_FALSE(has_free_slot(*slots));
  work.ref().synchronize();
}

TEST_CASE("a source that was never armed may drain while another thread prepares it", "[completion][mock]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto slots = std::make_shared<slot_table>(gpu, 1);
  {
    const auto source = make_completion_source(any_strategy(), gpu, slots);
    const std::jthread preparing{[&] { source->prepare(gpu); }};
    source->drained(); // ThreadSanitizer sees what both access
  }
  CHECK(has_free_slot(*slots));
}

TROUPE_DRIVER_TEST(1, "host functions report each operation that is done, and the other strategies none",
                   "[completion]") {
  const auto strategy = any_strategy();
  const auto gpu = device::open(api, device_id{0});
  const auto slots = std::make_shared<slot_table>(gpu, 1);
  const stream work{gpu};
  std::atomic<int> calls = 0;
  const auto source = make_completion_source(strategy, gpu, slots, [&calls] { calls.fetch_add(1); });
  source->prepare(gpu);
  CHECK(source->rings() == (strategy == completion_strategy::host_fn));
  CHECK_FALSE(make_completion_source(completion_strategy::host_fn, gpu, slots)->rings());
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    source->arm(work.ref(), sequence);
    while (!source->reached(sequence)) std::this_thread::yield();
  }
  work.ref().synchronize();
  source->drained();
  CHECK(calls == (source->rings() ? 3 : 0));
}

TEST_CASE("a source that has drained writes nothing any more", "[completion][mock]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const source_rig rig{api, completion_strategy::flag};
  rig.source->arm(rig.work, 1);
  rig.source->arm(rig.work, 2); // in the side stream, because the first has not been seen
  rig.work.ref().synchronize(); // which runs only this stream
  CHECK_FALSE(rig.source->reached(2));
  rig.source->drained();
  CHECK(rig.source->reached(2));
}

TEST_CASE("a device's error is thrown by the look at an event, and leaves a flag unset", "[completion][mock]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const auto strategy = any_strategy();
  const source_rig rig{api, strategy};
  const buffer memory = allocate_pinned(rig.gpu, 4);
  rig.work.ref().fill(memory.data(), 1, 4);
  rig.source->arm(rig.work, 1);
  api->fail_next(device_id{0}, {.code = errc::process_poisoned, .text = "injected"});
  api->run_until_blocked();
  if (strategy == completion_strategy::event)
    CHECK(error_of([&] { static_cast<void>(rig.source->reached(1)); }).code == errc::process_poisoned);
  else
    CHECK_FALSE(rig.source->reached(1)); // the probe of the stream is what finds it
}

TEST_CASE("strategies are found by name, and an unknown name is told which exist", "[completion]") {
  for (const auto strategy : all_completion_strategies)
    CHECK(parse_completion_strategy(to_string(strategy)) == strategy);
  const error why = error_of([] { static_cast<void>(parse_completion_strategy("polling")); });
  CHECK(why.code == errc::invalid_argument);
  CHECK_THAT(why.text, ContainsSubstring("'polling'") && ContainsSubstring("flag, event"));
  const auto unknown = static_cast<completion_strategy>(99);
  CHECK(to_string(unknown).empty());
  const auto gpu = device::open(make_mock_driver(), device_id{0});
  CHECK(error_of([&] { static_cast<void>(make_completion_source(unknown, gpu, nullptr)); }).code ==
        errc::invalid_argument);
}

TEST_CASE("auto is flag where streams can write words, else event, and flag is refused there", "[completion][mock]") {
  const device_id first{0};
  CHECK(parse_completion_strategy("auto") == completion_strategy::automatic);
  const auto able = make_mock_driver();
  CHECK(choose_strategy(completion_strategy::automatic, *able, first) == completion_strategy::flag);

  const auto unable = make_mock_driver({.word_operations = false});
  CHECK(choose_strategy(completion_strategy::automatic, *unable, first) == completion_strategy::event);
  CHECK(choose_strategy(completion_strategy::host_fn, *unable, first) == completion_strategy::host_fn);
  const error why = error_of([&] { static_cast<void>(choose_strategy(completion_strategy::flag, *unable, first)); });
  CHECK(why.code == errc::unsupported);
  CHECK_THAT(why.text, ContainsSubstring("choose auto or event"));

  source_rig rig{unable, completion_strategy::automatic};
  rig.source->arm(rig.work, 1);
  rig.work.ref().synchronize();
  CHECK(rig.source->reached(1));
}
