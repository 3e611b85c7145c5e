// What goes wrong on a GPU goes wrong in the mock, at the same place and as late.
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <limits>
#include <string>

namespace troupe::tests::mock_fault_test {

using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;
using troupe::tests::shared_word;

namespace {

constexpr device_id first{0};
constexpr device_id second{1};

error device_error() {
  return {.code = errc::device_failed, .text = "injected"};
}

error sticky_error() {
  return {.code = errc::process_poisoned, .text = "an illegal address, injected"};
}

struct by_hand {
  std::shared_ptr<mock_driver> api = make_mock_driver({.device_count = 2, .mode = engine_mode::manual});
  std::shared_ptr<device> gpu = device::open(api, first);
  std::shared_ptr<device> other = device::open(api, second);
  stream work{gpu};
  stream beside{gpu};
  stream elsewhere{other};
  shared_word flag{gpu};

  void write_flag(stream_ref where, std::uint32_t value) const {
    api->write_word(where.where().id(), where.native(), flag.address(), value);
  }
};

} // namespace

TEST_CASE("a task that fails is reported late and once by its device, and at every later use by its stream",
          "[device][mock]") {
  by_hand rig;
  rig.api->fail_next(first, device_error());
  const buffer host = allocate_pinned(rig.gpu, 4);
  rig.work.ref().fill(host.data(), 1, 4); // accepted: the error is not there yet
  rig.api->run_until_blocked();
  CHECK(host.host_span<std::uint8_t>()[0] == 0xA5); // it did not run
  CHECK(rig.elsewhere.ref().idle());                // another device knows nothing of it
  const error seen = error_of([&] { static_cast<void>(rig.beside.ref().idle()); });
  CHECK(seen.code == errc::device_failed);
  CHECK(seen.text == "injected");
  CHECK(rig.beside.ref().idle()); // forgotten, as cudaGetLastError forgets
  rig.beside.ref().fill(host.data(), 2, 4);
  rig.api->run_until_blocked();
  for (int again = 0; again < 2; ++again) // but what follows a gap must not look complete
    CHECK(error_of([&] { static_cast<void>(rig.work.ref().idle()); }).text == "injected");
  CHECK(error_of([&] { rig.work.ref().fill(host.data(), 3, 4); }).code == errc::device_failed);
  CHECK(host.host_span<std::uint8_t>()[0] == 2);
}

TEST_CASE("work queued on a device that fails is dropped and never completes", "[device][mock]") {
  by_hand rig;
  bool called = false;
  event mark{rig.gpu};
  rig.api->fail_next(first, device_error());
  rig.write_flag(rig.work, 1); // fails
  rig.write_flag(rig.work, 2);
  mark.record(rig.work);
  rig.api->call(
      first, rig.work.ref().native(), [](void* seen) { *static_cast<bool*>(seen) = true; }, &called);
  rig.beside.ref().wait(mark);
  rig.write_flag(rig.beside, 3);
  rig.api->run_until_blocked();
  CHECK(rig.flag.get() == 0);
  CHECK_FALSE(called);
  CHECK(error_of([&] { static_cast<void>(mark.reached()); }).code == errc::device_failed);
  CHECK_FALSE(mark.reached()); // dropped, so never reached
  CHECK(error_of([&] { static_cast<void>(rig.beside.ref().idle()); }).code == errc::device_failed);
  mark.record(stream{rig.gpu});
  rig.api->run_until_blocked();
  CHECK(mark.reached()); // a new record is a new life
}

TEST_CASE("an injected fault hits work and not a wait, a record or a free", "[device][mock]") {
  by_hand rig;
  const auto pool = memory_pool::create(rig.gpu);
  shared_word word{rig.gpu};
  rig.api->fail_next(first, device_error());
  rig.api->wait_word(first, rig.work.ref().native(), word.address(), 1);
  const shared_event passed = record_event(rig.gpu, rig.work);
  static_cast<void>(pool->allocate(64));
  rig.write_flag(rig.work, 1);
  rig.api->run_until_blocked();
  word.set(1);
  rig.api->run_until_blocked();
  CHECK(rig.flag.get() == 0);
  CHECK(error_of([&] { rig.write_flag(rig.work, 2); }).code == errc::device_failed);
  CHECK(passed->reached());
}

TEST_CASE("a sticky error poisons all devices for ever, and giving back still works", "[device][mock]") {
  const std::size_t unreturned = leak_count();
  {
    by_hand rig;
    const auto pool = memory_pool::create(rig.gpu);
    const buffer memory = pool->allocate(1024);
    event mark{rig.other};
    rig.write_flag(rig.elsewhere, 5);
    rig.api->fail_next(first, sticky_error());
    rig.work.ref().fill(memory.data(), 1, 1024);
    rig.api->run_until_blocked();
    CHECK(rig.flag.get() == 0); // the other device's work is gone too
    for (int again = 0; again < 3; ++again)
      for (const device_id id : {first, second}) {
        CHECK(error_of([&] { rig.api->open(id); }).code == errc::process_poisoned);
        CHECK(error_of([&] { static_cast<void>(rig.api->create_stream(id)); }).code == errc::process_poisoned);
        CHECK(error_of([&] { static_cast<void>(rig.api->describe(id)); }).code == errc::process_poisoned);
      }
    CHECK(error_of([&] { static_cast<void>(rig.elsewhere.ref().idle()); }).code == errc::process_poisoned);
    CHECK(error_of([&] { rig.elsewhere.ref().synchronize(); }).code == errc::process_poisoned);
    CHECK(error_of([&] { static_cast<void>(mark.reached()); }).code == errc::process_poisoned);
    CHECK(error_of([&] { static_cast<void>(pool->allocate(8)); }).code == errc::process_poisoned);
    CHECK(error_of([&] { static_cast<void>(allocate_pinned(rig.other, 4)); }).code == errc::process_poisoned);
    CHECK_THAT(error_of([&] { rig.write_flag(rig.elsewhere, 1); }).text, ContainsSubstring("illegal address"));
  }
  CHECK(leak_count() == unreturned);
}

TEST_CASE("a wait for a stream whose device fails ends with the error", "[device][mock]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto gpu = device::open(api, first);
  const stream work{gpu};
  shared_word word{gpu};
  api->wait_word(first, work.ref().native(), word.address(), 1);
  api->fail_next(first, sticky_error());
  const shared_word flag{gpu};
  api->write_word(first, work.ref().native(), flag.address(), 1);
  word.set(1);
  CHECK(error_of([&] { work.ref().synchronize(); }).code == errc::process_poisoned);
  CHECK(flag.get() == 0);
}

TEST_CASE("an exception of a host function is its device's error", "[device][mock]") {
  by_hand rig;
  rig.api->call(
      first, rig.work.ref().native(),
      [](void*) {
        throw exception{errc::internal, "from within"};
      },
      nullptr);
  rig.api->run_until_blocked();
  CHECK(error_of([&] { rig.api->open(first); }).text == "from within");
}

TEST_CASE("fresh memory is poisoned, so that reading what nobody wrote shows", "[device][mock]") {
  by_hand rig;
  const buffer memory = memory_pool::create(rig.gpu)->allocate(100);
  CHECK(std::all_of(memory.data(), memory.data() + 100, [](std::byte one) { return one == std::byte{0xA5}; }));
}

TEST_CASE("memory that runs out says what was asked, what is free and what the limit is", "[device][mock]") {
  const auto api = make_mock_driver({.device_count = 2, .memory_bytes = 1000, .mode = engine_mode::manual});
  const auto gpu = device::open(api, first);
  const auto pool = memory_pool::create(gpu);
  const buffer some = pool->allocate(300);
  const error why = error_of([&] { static_cast<void>(pool->allocate(701)); });
  CHECK(why.code == errc::out_of_memory);
  for (const char* figure : {"701", "700", "1000"}) CHECK_THAT(why.text, ContainsSubstring(figure));
  CHECK(pool->allocate(700)); // exactly the rest; given back at once
  CHECK(api->describe(second).free_bytes == 1000);
}

TEST_CASE("more memory than the machine has is refused, of every kind and size", "[device][mock]") {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  const auto api = make_mock_driver({.device_count = 1, .memory_bytes = all, .mode = engine_mode::manual});
  const auto gpu = device::open(api, first);
  const auto pool = memory_pool::create(gpu);
  for (const std::size_t size_bytes : {all, all - 1, all - 255, all - 256, all / 2, all / 2 + 1}) {
    CAPTURE(size_bytes);
    const error why = error_of([&] { static_cast<void>(allocate_pinned(gpu, size_bytes)); });
    CHECK(why.code == errc::out_of_memory);
    CHECK_THAT(why.text, ContainsSubstring(std::to_string(size_bytes)));
    CHECK(error_of([&] { static_cast<void>(pool->allocate(size_bytes)); }).code == errc::out_of_memory);
  }
  CHECK(allocate_pinned(gpu, 1).size_bytes() == 1);
}

TEST_CASE("a device can be made to run out of memory at any point", "[device][mock]") {
  by_hand rig;
  const auto pool = memory_pool::create(rig.gpu);
  const buffer before = pool->allocate(5000);
  rig.api->exhaust_after(first, 100);
  const buffer last = pool->allocate(100);
  CHECK(error_of([&] { static_cast<void>(pool->allocate(1)); }).code == errc::out_of_memory);
  rig.api->exhaust_after(first, 1);
  CHECK(pool->allocate(1));
}

// BUF-1: freed in stream order.
TEST_CASE("memory is returned when the stream that frees it comes there, and is free to that stream at once (BUF-1)",
          "[device][mock]") {
  by_hand rig;
  rig.api->exhaust_after(first, 1000);
  const auto pool = rig.api->create_pool(first);
  const native_stream line = rig.work.ref().native();
  const native_stream foreign = rig.beside.ref().native();
  void* const memory = rig.api->allocate(first, pool, 600, line);
  shared_word word{rig.gpu};
  rig.api->wait_word(first, line, word.address(), 1);
  rig.work.ref().fill(memory, 1, 600);
  rig.api->free(first, pool, memory, line);
  rig.api->run_until_blocked();
  CHECK(rig.api->describe(memory).kind == memory_kind::device);
  CHECK(rig.api->describe(first).free_bytes == 400);
  CHECK(error_of([&] { static_cast<void>(rig.api->allocate(first, pool, 600, foreign)); }).code == errc::out_of_memory);
  CHECK(rig.api->describe(first).free_bytes == 0); // the pool has tried with it
  rig.api->trim(first, pool, 0);
  void* const behind = rig.api->allocate(first, pool, 600, line); // ordered behind the free
  CHECK(behind != memory);
  CHECK(error_of([&] { rig.api->free(first, pool, memory, line); }).code == errc::invalid_argument);
  word.set(1);
  rig.api->run_until_blocked();
  CHECK(rig.api->describe(memory).kind == memory_kind::pageable);
  CHECK(rig.api->describe(first).free_bytes == 400);
  rig.api->free(first, pool, behind, foreign);
  rig.api->destroy_pool(first, pool); // its last free is still on its way
  rig.api->run_until_blocked();
  CHECK(rig.api->describe(first).free_bytes == 1000);
}

TEST_CASE("memory whose free is dropped with its device is returned all the same", "[device][mock]") {
  by_hand rig;
  rig.api->exhaust_after(first, 1000);
  const auto pool = rig.api->create_pool(first);
  const native_stream line = rig.work.ref().native();
  void* const memory = rig.api->allocate(first, pool, 600, line);
  rig.api->fail_next(first, device_error());
  rig.work.ref().fill(memory, 1, 600);
  rig.api->free(first, pool, memory, line);
  rig.api->run_until_blocked();
  CHECK(error_of([&] { rig.api->open(first); }).code == errc::device_failed);
  CHECK(rig.api->used_bytes(first) == 0);
}

TEST_CASE("addresses and handles that are nobody's are refused", "[device][mock]") {
  by_hand rig;
  const auto pool = rig.api->create_pool(first);
  const native_stream line = rig.work.ref().native();
  int ordinary = 0;
  const auto refused = [](auto&& call) { return error_of(call).code == errc::invalid_argument; };
  CHECK(refused([&] { rig.api->copy(first, line, nullptr, &ordinary, 4); }));
  CHECK(refused([&] { rig.api->copy(first, line, &ordinary, nullptr, 4); }));
  CHECK(refused([&] { rig.api->fill(first, line, nullptr, 0, 4); }));
  CHECK(refused([&] { rig.api->write_word(first, line, nullptr, 0); }));
  CHECK(refused([&] { rig.api->wait_word(first, line, nullptr, 0); }));
  CHECK(refused([&] { rig.api->call(first, line, nullptr, nullptr); }));
  CHECK(refused([&] { rig.api->free(first, pool, &ordinary, line); }));
  CHECK(refused([&] { rig.api->free_pinned(&ordinary); }));
  CHECK(refused([&] { static_cast<void>(rig.api->allocate(first, pool, 0, line)); }));
  CHECK(refused([&] { static_cast<void>(rig.api->allocate(second, pool, 8, rig.elsewhere.ref().native())); }));
  CHECK(refused([&] { rig.api->destroy_event(first, nullptr); }));
  event foreign{rig.other};
  CHECK(refused([&] { foreign.record(rig.work); })); // both must belong to one device
  CHECK(rig.api->describe(&ordinary).kind == memory_kind::pageable);
}

} // namespace troupe::tests::mock_fault_test
