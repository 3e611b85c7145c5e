// Captured work, held by the mock and by CUDA alike.
#include "support/at_its_end.hpp"
#include "support/drivers.hpp"
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/graph.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/mock/mock_engine.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

using namespace troupe;
using troupe::tests::at_its_end;
using troupe::tests::code_of;
using troupe::tests::gate;
using troupe::tests::shared_word;

namespace {

std::shared_ptr<device> open_first(const std::shared_ptr<driver>& api) {
  return device::open(api, device_id{0});
}

bool holds_only(const buffer& pinned, std::uint8_t value) {
  return std::ranges::all_of(pinned.host_span<std::uint8_t>(), [=](std::uint8_t byte) { return byte == value; });
}

} // namespace

TROUPE_DRIVER_TEST(1, "what is captured is not done, and is done at each launch of its graph, in order",
                   "[device][plans]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const buffer source = allocate_pinned(gpu, 64);
  const buffer memory = pool->allocate(64);
  const buffer host = allocate_pinned(gpu, 64);
  const stream work{gpu};
  int calls = 0;
  std::memset(source.data(), 5, 64);
  std::memset(host.data(), 1, 64);

  std::optional<stream_capture> capture{std::in_place, gpu, work};
  CHECK(api->status_of_capture(gpu->id(), work.ref().native()) == capture_status::active);
  work.ref().fill(memory.data(), 9, 64);
  work.ref().copy(memory.data(), source.data(), 32);
  work.ref().copy(host.data(), memory.data(), 64);
  work.ref().call([](void* counter) { ++*static_cast<int*>(counter); }, &calls);
  const graph made = capture->end();
  CHECK(api->status_of_capture(gpu->id(), work.ref().native()) == capture_status::none);
  work.ref().synchronize();
  CHECK(calls == 0);
  CHECK(holds_only(host, 1));

  for (int i = 1; i <= 3; ++i) {
    std::memset(source.data(), i, 64); // graphs read what is there when they run
    made.launch(work);
    work.ref().synchronize();
    CHECK(calls == i);
    CHECK(holds_only(host.slice(0, 32), static_cast<std::uint8_t>(i)));
    CHECK(holds_only(host.slice(32, 32), 9));
  }
}

TROUPE_DRIVER_TEST(1, "a graph runs behind what is in its stream, and what follows runs behind it", "[device][plans]") {
  const auto gpu = open_first(api);
  const buffer host = allocate_pinned(gpu, 16);
  const stream work{gpu};
  const stream other{gpu};
  stream_capture capture{gpu, other};
  other.ref().fill(host.data(), 2, 16);
  const graph made = capture.end();
  gate closed{gpu};
  closed.hold(work);
  work.ref().fill(host.data(), 1, 8);
  made.launch(work);
  work.ref().fill(host.data(), 3, 8);
  CHECK_FALSE(work.ref().idle());
  closed.open();
  work.ref().synchronize();
  CHECK(holds_only(host.slice(0, 8), 3));
  CHECK(holds_only(host.slice(8, 8), 2));
}

TROUPE_DRIVER_TEST(1, "waiting for a stream in capture breaks the capture, and the stream is well again",
                   "[device][plans]") {
  const auto gpu = open_first(api);
  api->enter_thread(gpu->id());
  const stream work{gpu};
  stream_capture capture{gpu, work};
  CHECK(code_of([&] { work.ref().synchronize(); }) == errc::invalid_argument);
  CHECK(api->status_of_capture(gpu->id(), work.ref().native()) == capture_status::broken);
  CHECK(code_of([&] { static_cast<void>(capture.end()); }) == errc::invalid_argument);
  CHECK(work.ref().idle());
}

TROUPE_DRIVER_TEST(1, "a look at a stream in capture breaks the capture", "[device][plans]") {
  const auto gpu = open_first(api);
  const stream work{gpu};
  stream_capture capture{gpu, work};
  CHECK(code_of([&] { static_cast<void>(work.ref().idle()); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(capture.end()); }) == errc::invalid_argument);
}

TROUPE_DRIVER_TEST(1, "a stream that is in capture cannot be put into capture again", "[device][plans]") {
  const auto gpu = open_first(api);
  const stream work{gpu};
  const stream_capture capture{gpu, work};
  CHECK(code_of([&] { const stream_capture second{gpu, work}; }) == errc::invalid_argument);
}

TROUPE_DRIVER_TEST(1, "a stream joins a capture by an event, and is joined again by another", "[device][plans]") {
  const auto gpu = open_first(api);
  const buffer host = allocate_pinned(gpu, 16);
  std::memset(host.data(), 0, 16);
  const stream main{gpu};
  const stream side{gpu};
  event forked{gpu};
  event joined{gpu};
  stream_capture capture{gpu, main};
  main.ref().fill(host.data(), 1, 16);
  forked.record(main);
  side.ref().wait(forked);
  side.ref().fill(host.data(), 2, 8);
  joined.record(side);
  main.ref().wait(joined);
  main.ref().fill(host.data(), 3, 4);
  const graph made = capture.end();
  made.launch(main);
  main.ref().synchronize();
  CHECK(holds_only(host.slice(0, 4), 3));
  CHECK(holds_only(host.slice(4, 4), 2));
  CHECK(holds_only(host.slice(8, 8), 1));
}

TROUPE_DRIVER_TEST(1, "a stream that joined a capture and was not joined again fails its end", "[device][plans]") {
  const auto gpu = open_first(api);
  const buffer host = allocate_pinned(gpu, 16);
  const stream main{gpu};
  const stream side{gpu};
  event forked{gpu};
  stream_capture capture{gpu, main};
  forked.record(main);
  side.ref().wait(forked);
  side.ref().fill(host.data(), 2, 8);
  CHECK(code_of([&] { static_cast<void>(capture.end()); }) == errc::invalid_argument);
  CHECK(side.ref().idle());
}

TROUPE_DRIVER_TEST(1, "an event from outside cannot be waited for in a capture", "[device][plans]") {
  const auto gpu = open_first(api);
  const stream main{gpu};
  const stream other{gpu};
  const shared_event outside = record_event(gpu, other);
  stream_capture capture{gpu, main};
  CHECK(code_of([&] { main.ref().wait(*outside); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(capture.end()); }) == errc::invalid_argument);
}

TROUPE_DRIVER_TEST(1, "other threads work as ever while a stream is in capture, and do not break it",
                   "[device][plans]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const buffer host = allocate_pinned(gpu, 16);
  const stream work{gpu};
  stream_capture capture{gpu, work};
  work.ref().fill(host.data(), 4, 16);
  std::jthread{[&] { // among it, what a capture of the global mode would refuse
    api->enter_thread(gpu->id());
    const stream own{gpu};
    const buffer memory = pool->allocate(1024);
    const buffer pinned = allocate_pinned(gpu, 1024);
    own.ref().fill(memory.data(), 1, 1024);
    own.ref().copy(pinned.data(), memory.data(), 1024);
    const shared_event done = record_event(gpu, own);
    own.ref().synchronize();
    CHECK(done->reached());
    CHECK(holds_only(pinned, 1));
  }}
      .join();
  const graph made = capture.end();
  made.launch(work);
  work.ref().synchronize();
  CHECK(holds_only(host, 4));
}

TROUPE_DRIVER_TEST(1, "a graph that is destroyed while it runs runs on, and nothing is left", "[device][plans]") {
  const auto reports = leak_count();
  const auto gpu = open_first(api);
  const shared_word flag{gpu};
  const stream work{gpu};
  gate closed{gpu};
  {
    std::optional<stream_capture> capture{std::in_place, gpu, work};
    api->write_word(gpu->id(), work.ref().native(), flag.address(), 1);
    const graph made = capture->end();
    closed.hold(work);
    made.launch(work);
  }
  closed.open();
  flag.await(1);
  work.ref().synchronize();
  { const stream_capture dropped{gpu, work}; }
  CHECK(work.ref().idle());
  if (const auto mock = std::dynamic_pointer_cast<mock_driver>(api)) CHECK(mock->graph_count() == 0);
  CHECK(leak_count() == reports);
}

TEST_CASE("the mock says what it knows of graphs that are not there, or another device's", "[device][plans]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto first = device::open(api, device_id{0});
  const auto second = device::open(api, device_id{1});
  const stream near{first};
  const stream far{second};
  api->begin_capture(first->id(), near.ref().native());
  const native_graph made = api->end_capture(first->id(), near.ref().native());
  CHECK(code_of([&] { api->launch_graph(second->id(), made, far.ref().native()); }) == errc::invalid_argument);
  api->destroy_graph(first->id(), made);
  CHECK(code_of([&] { api->launch_graph(first->id(), made, near.ref().native()); }) == errc::invalid_argument);
  CHECK(code_of([&] { api->destroy_graph(first->id(), made); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(api->end_capture(first->id(), near.ref().native())); }) ==
        errc::invalid_argument);
}

TEST_CASE("memory and the end of a stream cannot be captured", "[device][plans]") {
  const auto api = make_mock_driver({.device_count = 1});
  const auto gpu = device::open(api, device_id{0});
  const native_pool pool = api->create_pool(gpu->id());
  const stream work{gpu};
  {
    stream_capture capture{gpu, work};
    CHECK(code_of([&] { static_cast<void>(api->allocate(gpu->id(), pool, 8, work.ref().native())); }) ==
          errc::invalid_argument);
    CHECK(code_of([&] { api->fill(gpu->id(), work.ref().native(), nullptr, 0, 0); }) ==
          errc::invalid_argument); // broken by then
  }
  stream_capture capture{gpu, work};
  CHECK(code_of([&] { api->destroy_stream(gpu->id(), work.ref().native()); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(capture.end()); }) == errc::invalid_argument);
  api->destroy_pool(gpu->id(), pool);
}

TEST_CASE("work of a broken capture may use the mock when it is dropped", "[device][mock][plans]") {
  class owning_task final : public mock_task {
  public:
    explicit owning_task(std::shared_ptr<void> owned) : owned_{std::move(owned)} {}
    progress step() override { return progress::reached; }

  private:
    std::shared_ptr<void> owned_;
  };
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const auto gpu = open_first(api);
  const stream work{gpu};
  const stream other{gpu};
  bool is_dropped = false;
  auto mark = std::make_unique<event>(gpu);
  {
    const stream_capture of_other{gpu, other}; // captures are active until its end
    stream_capture capture{gpu, work};
    api->enqueue(gpu->id(), work.ref().native(),
                 mock_task_factory{[owned = at_its_end([&] {
                                      mark = nullptr;
                                      is_dropped = true;
                                    })] { return std::make_unique<owning_task>(owned); }});
    CHECK(code_of([&] { static_cast<void>(work.ref().idle()); }) == errc::invalid_argument); // breaks it
    CHECK(code_of([&] { static_cast<void>(capture.end()); }) == errc::invalid_argument);
  }
  CHECK(is_dropped);
}
