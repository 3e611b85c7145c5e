// What everything above the driver relies on, held by the mock and by CUDA alike.
#include "support/drivers.hpp"
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/graph.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::tests::driver_suite_test {

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

TROUPE_DRIVER_TEST(1, "opening a device that does not exist is an error that says how many there are", "[device]") {
  CHECK(code_of([&] { static_cast<void>(device::open(api, device_id{api->device_count()})); }) == errc::missing);
  CHECK(code_of([&] { static_cast<void>(device::open(api, device_id{-1})); }) == errc::missing);
}

TROUPE_DRIVER_TEST(1, "a device describes itself and an opened one can be entered by a thread", "[device]") {
  const auto gpu = open_first(api);
  api->enter_thread(gpu->id());
  api->enter_thread(std::nullopt);
  const device_description what = api->describe(gpu->id());
  CHECK_FALSE(what.name.empty());
  CHECK(what.total_bytes > 0);
  CHECK(what.free_bytes <= what.total_bytes);
  CHECK(api->has_word_operations(gpu->id())); // every GPU that the suite has met
}

TROUPE_DRIVER_TEST(1, "work of one stream runs in the order in which it was enqueued", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const std::size_t size_bytes = GENERATE(as<std::size_t>{}, 1, 3, 4096, 1000003);
  const buffer memory = pool->allocate(size_bytes);
  const buffer host = allocate_pinned(gpu, size_bytes);
  const stream work{gpu};
  for (std::uint8_t value = 1; value <= 50; ++value) work.ref().fill(memory.data(), value, size_bytes);
  work.ref().copy(host.data(), memory.data(), size_bytes);
  work.ref().synchronize();
  CHECK(holds_only(host, 50));
}

TROUPE_DRIVER_TEST(1, "work behind a gate has not run, and a stream behind it is not idle", "[device]") {
  const auto gpu = open_first(api);
  const buffer host = allocate_pinned(gpu, 64);
  std::memset(host.data(), 1, 64);
  const shared_word flag{gpu};
  const stream work{gpu};
  gate closed{gpu};
  closed.hold(work);
  work.ref().fill(host.data(), 2, 64);
  api->write_word(gpu->id(), work.ref().native(), flag.address(), 7);
  CHECK_FALSE(work.ref().idle());
  CHECK(flag.get() == 0);
  CHECK(holds_only(host, 1));
  closed.open();
  flag.await(7);
  CHECK(holds_only(host, 2)); // a word is written behind what was before it
  work.ref().synchronize();
  CHECK(work.ref().idle());
}

TROUPE_DRIVER_TEST(1, "a pool keeps freed memory until it is trimmed, which waits for no work (BUF-1, TIM-1)",
                   "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const stream work{gpu};
  gate closed{gpu};
  constexpr std::size_t size_bytes = std::size_t{256} << 20U;
  const buffer held = pool->allocate(4096);
  closed.hold(work);
  work.ref().fill(held.data(), 1, 4096);
  const std::uint64_t left = api->free_bytes(gpu->id());
  static_cast<void>(pool->allocate(size_bytes));
  CHECK(pool->usage().reserved_bytes >= size_bytes);
  CHECK(api->free_bytes(gpu->id()) <= left - size_bytes);
  CHECK(pool->release_unused() >= size_bytes);
  CHECK_FALSE(work.ref().idle());
  CHECK(pool->usage().unused_bytes() < size_bytes / 2);
  CHECK(api->free_bytes(gpu->id()) > left - size_bytes / 2);
  closed.open();
  work.ref().synchronize();
}

TROUPE_DRIVER_TEST(1, "an allocation that is refused leaves the device's memory to others", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const buffer held = pool->allocate(4096);
  const std::uint64_t total = api->describe(gpu->id()).total_bytes;
  const std::uint64_t left = api->free_bytes(gpu->id());
  const auto refused = [&](std::size_t size_bytes) {
    CHECK(code_of([&] { static_cast<void>(pool->allocate(size_bytes)); }) == errc::out_of_memory);
    CHECK(api->free_bytes(gpu->id()) > left - (std::uint64_t{512} << 20U)); // a driver's own overhead
  };
  refused(total + 1);
  refused(left + 4096);
  // What the driver itself refuses is kept by the pool that tried, until it is trimmed.
  const native_pool naive = api->create_pool(gpu->id());
  const stream order{gpu};
  CHECK(code_of([&] { static_cast<void>(api->allocate(gpu->id(), naive, total + 1, order.ref().native())); }) ==
        errc::out_of_memory);
  order.ref().synchronize();
  api->trim(gpu->id(), naive, 0);
  CHECK(api->usage(gpu->id(), naive).reserved_bytes == 0);
  CHECK(api->free_bytes(gpu->id()) > left - (std::uint64_t{512} << 20U));
  api->destroy_pool(gpu->id(), naive);
}

// A thread that waited here for the device would wait for ever where the device runs an operation that hangs.
TROUPE_DRIVER_TEST(1, "pinned memory is released and allocated while the device works (TIM-1)", "[device]") {
  const auto gpu = open_first(api);
  const stream work{gpu};
  gate closed{gpu};
  closed.hold(work);
  for (const std::size_t size_bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{64} << 20U})
    for (int i = 0; i < 8; ++i) static_cast<void>(allocate_pinned(gpu, size_bytes));
  CHECK_FALSE(work.ref().idle());
  closed.open();
  work.ref().synchronize();
}

TROUPE_DRIVER_TEST(1, "a word is compared cyclically, so that a counter may run over", "[device]") {
  const auto gpu = open_first(api);
  const shared_word word{gpu, 2};
  const stream work{gpu};
  api->wait_word(gpu->id(), work.ref().native(), word.address(), 0xFFFFFFFFU); // 2 is three after it
  api->wait_word(gpu->id(), work.ref().native(), word.address(), 2);
  work.ref().synchronize();
  CHECK(work.ref().idle());
}

TROUPE_DRIVER_TEST(1, "an event is reached when the work before it is, and counts as reached before any record",
                   "[device]") {
  const auto gpu = open_first(api);
  const stream work{gpu};
  event mark{gpu};
  CHECK(mark.reached());
  gate closed{gpu};
  closed.hold(work);
  mark.record(work);
  CHECK_FALSE(mark.reached());
  closed.open();
  work.ref().synchronize();
  CHECK(mark.reached());
}

TROUPE_DRIVER_TEST(1, "a wait is for the record that was the last one when it was called", "[device]") {
  const auto gpu = open_first(api);
  const stream first{gpu};
  const stream second{gpu};
  gate closed{gpu};
  event mark{gpu};
  mark.record(first); // reached soon
  second.ref().wait(mark);
  closed.hold(first);
  mark.record(first); // does not move the wait
  second.ref().synchronize();
  CHECK_FALSE(mark.reached());
  second.ref().wait(mark);
  CHECK_FALSE(second.ref().idle());
  closed.open();
  second.ref().synchronize();
  CHECK(mark.reached());
}

TROUPE_DRIVER_TEST(1, "an event orders streams even when it is destroyed before it is reached", "[device]") {
  const auto gpu = open_first(api);
  const buffer host = allocate_pinned(gpu, 1024);
  const stream first{gpu};
  const stream second{gpu};
  gate closed{gpu};
  closed.hold(first);
  first.ref().fill(host.data(), 1, 1024);
  second.ref().wait(*record_event(gpu, first));
  second.ref().fill(host.data(), 2, 1024);
  closed.open();
  second.ref().synchronize();
  CHECK(holds_only(host, 2));
}

TROUPE_DRIVER_TEST(2, "an event of one device is waited for on another", "[device]") {
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  const stream first{near};
  const stream second{far};
  const shared_word flag{far};
  gate closed{near};
  closed.hold(first);
  second.ref().wait(*record_event(near, first));
  api->write_word(far->id(), second.ref().native(), flag.address(), 1);
  CHECK(flag.get() == 0);
  closed.open();
  flag.await(1);
  second.ref().synchronize();
}

// memcheck waits for a stream's work before it destroys it, and this work waits for what comes after.
TROUPE_DRIVER_TEST(1, "a stream that is destroyed with work in it runs on", "[device][not-under-memcheck]") {
  const auto gpu = open_first(api);
  const shared_word flag{gpu};
  gate closed{gpu};
  {
    const stream work{gpu};
    closed.hold(work);
    api->write_word(gpu->id(), work.ref().native(), flag.address(), 1);
  }
  CHECK(flag.get() == 0);
  closed.open();
  flag.await(1);
}

TROUPE_DRIVER_TEST(1, "a host function is called in stream order", "[device]") {
  const auto gpu = open_first(api);
  const stream work{gpu};
  const buffer host = allocate_pinned(gpu, 16);
  struct seen {
    std::span<std::uint8_t> memory;
    std::uint8_t value = 0;
  } what{host.host_span<std::uint8_t>()};
  gate closed{gpu};
  closed.hold(work);
  work.ref().fill(host.data(), 9, 16);
  api->call(
      gpu->id(), work.ref().native(),
      [](void* argument) {
        auto& result = *static_cast<seen*>(argument);
        result.value = result.memory.back();
      },
      &what);
  work.ref().fill(host.data(), 1, 16);
  closed.open();
  work.ref().synchronize();
  CHECK(what.value == 9);
}

TROUPE_DRIVER_TEST(1, "copies reach device, pinned and pageable memory in both directions", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const buffer memory = pool->allocate(300);
  const buffer pinned = allocate_pinned(gpu, 300);
  std::vector<std::uint8_t> out(300, 0);
  std::vector<std::uint8_t> in(300);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i);
  const stream work{gpu};
  work.ref().copy(memory.data(), in.data(), 300);
  work.ref().copy(pinned.data(), memory.data(), 300);
  work.ref().copy(memory.data() + 1, pinned.data(), 299); // unaligned
  work.ref().copy(out.data(), memory.data(), 300);
  work.ref().synchronize();
  CHECK(out[0] == 0);
  CHECK(std::equal(in.begin(), in.begin() + 299, out.begin() + 1));
}

TROUPE_DRIVER_TEST(2, "a copy reaches another device's pool", "[device]") {
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  const buffer from = memory_pool::create(near)->allocate(4096);
  const buffer to = memory_pool::create(far)->allocate(4096);
  const buffer host = allocate_pinned(near, 4096);
  const stream work{near};
  work.ref().fill(from.data(), 77, 4096);
  work.ref().copy(to.data(), from.data(), 4096);
  work.ref().copy(host.data(), to.data(), 4096);
  work.ref().synchronize();
  CHECK(holds_only(host, 77));
}

TROUPE_DRIVER_TEST(1, "a pool gives aligned memory of its device, and none for size 0", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  pool->reserve(1 << 20);
  const std::size_t size_bytes = GENERATE(as<std::size_t>{}, 1, 255, 257, 1 << 20);
  const buffer memory = pool->allocate(size_bytes);
  CHECK(memory.size_bytes() == size_bytes);
  CHECK(memory.kind() == memory_kind::device);
  CHECK(memory.where() == gpu.get());
  CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 256 == 0);
  const buffer none = pool->allocate(0);
  CHECK(none);
  CHECK(none.data() == nullptr);
  CHECK(none.size_bytes() == 0);
}

TROUPE_DRIVER_TEST(1, "a pool that is asked for more than the device has runs out and goes on", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const auto all = static_cast<std::size_t>(api->describe(gpu->id()).total_bytes);
  CHECK(code_of([&] { static_cast<void>(pool->allocate(2 * all)); }) == errc::out_of_memory);
  CHECK(pool->allocate(256).size_bytes() == 256);
}

// BUF-1: noted work keeps the memory although the last handle is gone.
TROUPE_DRIVER_TEST(1, "memory with noted use is not reused before that use has finished (BUF-1)", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  constexpr std::size_t size_bytes = 1 << 20;
  const stream work{gpu};
  gate closed{gpu};
  closed.hold(work);
  const std::byte* used = nullptr;
  {
    const buffer memory = pool->allocate(size_bytes);
    used = memory.data();
    work.ref().fill(memory.data(), 1, size_bytes);
    memory.note_use(work);
  }
  std::vector<buffer> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(pool->allocate(size_bytes));
    const std::byte* const begin = others.back().data();
    CHECK((begin + size_bytes <= used || used + size_bytes <= begin));
  }
  closed.open();
  work.ref().synchronize();
  CHECK(pool->allocate(size_bytes)); // takes the retired block back on its way
}

TROUPE_DRIVER_TEST(2, "use is noted on streams of the memory's own device only", "[device]") {
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  const buffer memory = memory_pool::create(near)->allocate(16);
  const stream foreign{far};
  CHECK(code_of([&] { memory.note_use(foreign); }) == errc::wrong_device);
  CHECK(code_of([&] { allocate_pinned(near, 16).note_use(foreign); }) == errc::unsupported);
}

// The event of a captured use is never reached, so it must not enter the pool, whose every allocation looks at all
// uses.
TROUPE_DRIVER_TEST(1, "use in a stream in capture is refused, and both the capture and the pool go on (BUF-1)",
                   "[device][plans]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const stream work{gpu};
  const buffer host = allocate_pinned(gpu, 16);
  std::memset(host.data(), 1, 16);
  std::optional<buffer> memory = pool->allocate(16);
  stream_capture capture{gpu, work};
  work.ref().fill(host.data(), 2, 16);
  CHECK(code_of([&] { memory->note_use(work); }) == errc::invalid_argument);
  memory.reset();
  CHECK(api->status_of_capture(gpu->id(), work.ref().native()) == capture_status::active);
  capture.end().launch(work);
  work.ref().synchronize();
  CHECK(host.host_span<std::uint8_t>().front() == 2);
  CHECK(pool->allocate(16).size_bytes() == 16);
}

TROUPE_DRIVER_TEST(1, "a slice is a range of the same memory and cannot reach beyond it", "[device]") {
  const auto gpu = open_first(api);
  const buffer whole = allocate_pinned(gpu, 100);
  const buffer part = whole.slice(10, 80).slice(5, 3);
  CHECK(part.data() == whole.data() + 15);
  CHECK(part.size_bytes() == 3);
  CHECK(whole.slice(100, 0).size_bytes() == 0);
  CHECK(code_of([&] { static_cast<void>(whole.slice(101, 0)); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(whole.slice(1, 100)); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(whole.slice(1, SIZE_MAX)); }) == errc::invalid_argument);
}

TROUPE_DRIVER_TEST(1, "pinned memory is elements to the host and device memory is not", "[device]") {
  const auto gpu = open_first(api);
  const buffer pinned = allocate_pinned(gpu, 10);
  CHECK(pinned.kind() == memory_kind::pinned);
  CHECK(pinned.host_span<std::uint16_t>().size() == 5);
  CHECK(code_of([&] { static_cast<void>(pinned.host_span<std::uint32_t>()); }) == errc::invalid_argument);
  CHECK(allocate_pinned(gpu, 0).host_span<float>().empty());
  const buffer memory = memory_pool::create(gpu)->allocate(8);
  CHECK(code_of([&] { static_cast<void>(memory.host_span<std::uint8_t>()); }) == errc::invalid_argument);
}

// BUF-2: a handle knows where its memory lives, and whether it still does.
TROUPE_DRIVER_TEST(1, "device and pinned memory are adopted, pageable memory is refused (BUF-2)", "[device]") {
  const auto gpu = open_first(api);
  const buffer memory = memory_pool::create(gpu)->allocate(512);
  const buffer pinned = allocate_pinned(gpu, 512);
  const auto owner = std::make_shared<int>(0);
  {
    const buffer inner = adopt(gpu, memory.data() + 100, 50, owner); // an interior pointer
    CHECK(inner.kind() == memory_kind::device);
    CHECK(inner.where() == gpu.get());
    CHECK(adopt(gpu, pinned.data(), 512, owner).kind() == memory_kind::pinned);
    CHECK(owner.use_count() == 2);
  }
  CHECK(owner.use_count() == 1);
  std::vector<std::byte> ordinary(64);
  CHECK(code_of([&] { static_cast<void>(adopt(gpu, ordinary.data(), 64, owner)); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(adopt(gpu, nullptr, 64, owner)); }) == errc::invalid_argument);
}

TROUPE_DRIVER_TEST(2, "memory of another device is not adopted (BUF-2)", "[device]") {
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  const buffer memory = memory_pool::create(near)->allocate(512);
  CHECK(code_of([&] { static_cast<void>(adopt(far, memory.data(), 512, nullptr)); }) == errc::wrong_device);
}

TROUPE_DRIVER_TEST(1, "device memory is stale once its device has lost its memory (BUF-2)", "[device]") {
  const auto gpu = open_first(api);
  const auto pool = memory_pool::create(gpu);
  const buffer before = pool->allocate(16);
  const buffer pinned = allocate_pinned(gpu, 16);
  gpu->declare_memory_lost();
  CHECK(before.stale());
  CHECK_FALSE(pinned.stale());
  CHECK_FALSE(pool->allocate(16).stale());
}

TROUPE_DRIVER_TEST(1, "destructors give everything back", "[device]") {
  const std::size_t before = leak_count();
  {
    const auto gpu = open_first(api);
    stream first{gpu};
    stream second{std::move(first)};
    second = stream{gpu};
    const event mark{gpu};
    const auto pool = memory_pool::create(gpu);
    const buffer memory = pool->allocate(1024);
    const buffer pinned = allocate_pinned(gpu, 1024);
    second.ref().copy(pinned.data(), memory.data(), 1024);
    second.ref().synchronize();
  }
  CHECK(leak_count() == before);
}

} // namespace troupe::tests::driver_suite_test
