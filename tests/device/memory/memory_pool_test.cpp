// What comes back to a pool comes back once, behind the work that may still use it.
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <optional>

namespace troupe::tests::memory_pool_test {

using troupe::tests::error_of;
using troupe::tests::gate;
using troupe::tests::shared_word;

namespace {

constexpr device_id first{0};
constexpr std::size_t block_bytes = 4096;

struct pool_rig {
  std::shared_ptr<mock_driver> api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  std::shared_ptr<device> gpu = device::open(api, first);
  std::shared_ptr<memory_pool> pool = memory_pool::create(gpu);
  stream work{gpu};

  [[nodiscard]] std::uint64_t used_bytes() const { return api->used_bytes(first); }
  void run() const { api->run_until_blocked(); }
};

} // namespace

TEST_CASE("memory that noted work may still use is freed behind it, and then only once", "[device][mock][BUF-1]") {
  const pool_rig rig;
  gate closed{rig.gpu};
  {
    const buffer busy = rig.pool->allocate(block_bytes);
    closed.hold(rig.work);
    busy.note_use(rig.work);
  }
  static_cast<void>(rig.pool->allocate(block_bytes)); // looks for what can be freed
  rig.run();
  CHECK(rig.used_bytes() == block_bytes);
  closed.open();
  rig.run();
  static_cast<void>(rig.pool->allocate(block_bytes));
  rig.run();
  CHECK(rig.used_bytes() == 0);
}

TEST_CASE("a device that fails while blocks are being judged frees none of them twice", "[device][mock][BUF-1]") {
  const pool_rig rig;
  const auto reports = leak_count();
  gate closed{rig.gpu};
  stream other{rig.gpu};
  {
    const buffer ready = rig.pool->allocate(block_bytes);
    const buffer busy = rig.pool->allocate(block_bytes);
    closed.hold(other);
    ready.note_use(other);
    busy.note_use(other);
  }
  rig.run();
  REQUIRE(rig.used_bytes() == 2 * block_bytes);
  closed.open();
  rig.run(); // now both could be freed, but the device fails before anybody looks
  rig.api->fail_next(first, {.code = errc::device_failed, .text = "injected"});
  const buffer scratch = allocate_pinned(rig.gpu, 4);
  rig.work.ref().fill(scratch.data(), 0, 4);
  rig.run();
  CHECK(error_of([&] { static_cast<void>(rig.pool->allocate(1)); }).code == errc::device_failed);
  CHECK(rig.used_bytes() == 2 * block_bytes);
  static_cast<void>(rig.pool->allocate(1)); // the error was reported once; now they go, each once
  rig.run();
  CHECK(rig.used_bytes() == 0);
  static_cast<void>(rig.pool->allocate(1));
  rig.run();
  CHECK(leak_count() == reports);
}

TEST_CASE("a device that fails at the second block's event has not yet freed the first", "[device][mock][BUF-1]") {
  const auto reports = leak_count();
  {
    pool_rig rig;
    std::optional<buffer> with_use = rig.pool->allocate(block_bytes);
    std::optional<buffer> plain = rig.pool->allocate(block_bytes);
    const shared_word never{rig.gpu};
    rig.api->wait_word(first, rig.work.ref().native(), never.address(), 1);
    with_use->note_use(rig.work);
    with_use.reset(); // waits for the word
    rig.api->fail_next(first, {.code = errc::device_failed, .text = "injected"});
    const buffer scratch = allocate_pinned(rig.gpu, 4);
    stream other{rig.gpu};
    other.ref().fill(scratch.data(), 0, 4);
    rig.run();
    plain.reset(); // joins the list; judging the one in front throws, which the destructor reports
    CHECK(leak_count() == reports + 1);
    rig.run();
    static_cast<void>(rig.pool->allocate(1));
    rig.run();
    CHECK(rig.used_bytes() == block_bytes); // plain went; the event of the other was dropped, so it stays
  }                                         // and goes with its pool
  CHECK(leak_count() == reports + 1);
}

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

/// A device of 64 MiB, and a pool of which nobody else is told.
struct small_device {
  std::shared_ptr<mock_driver> api = make_mock_driver({.device_count = 1, .memory_bytes = 64 * mebibyte});
  std::shared_ptr<memory_pool> pool = memory_pool::create(device::open(api, first));

  [[nodiscard]] std::uint64_t left_bytes() const { return api->free_bytes(first); }
  [[nodiscard]] errc code_of_allocating(std::size_t size_bytes) const {
    return error_of([&] { static_cast<void>(pool->allocate(size_bytes)); }).code;
  }
};

} // namespace

TEST_CASE("a refused allocation leaves the rest of the device to others", "[device][mock]") {
  const small_device one;
  const buffer held = one.pool->allocate(8 * mebibyte);
  CHECK(one.code_of_allocating(57 * mebibyte) == errc::out_of_memory);
  CHECK(one.left_bytes() == 56 * mebibyte);
  CHECK(one.pool->usage().reserved_bytes == 8 * mebibyte);
  CHECK(one.api->refused_allocations() == 0); // the driver was not asked
  const buffer rest = one.pool->allocate(56 * mebibyte - 1000);
  CHECK(one.code_of_allocating(1001) == errc::out_of_memory); // too small to be checked before the driver tries
  CHECK(one.left_bytes() == 1000);
}

TEST_CASE("unused memory that does not suffice is returned, and an allocation may then fit", "[device][mock]") {
  const small_device one;
  const std::shared_ptr<memory_pool> other = memory_pool::create(one.pool->where());
  static_cast<void>(other->allocate(40 * mebibyte)); // kept by a pool of its own
  CHECK(one.code_of_allocating(30 * mebibyte) == errc::out_of_memory);
  CHECK(other->release_unused() == 40 * mebibyte);
  static_cast<void>(one.pool->allocate(30 * mebibyte));
  CHECK(one.left_bytes() == 34 * mebibyte);
  CHECK(one.code_of_allocating(60 * mebibyte) == errc::none);
}

TEST_CASE("a pool asks for the return of what it may not keep, and keeps nothing without a user", "[device][mock]") {
  const small_device one;
  int asked = 0;
  one.pool->keep(8 * mebibyte, [&](const std::shared_ptr<memory_pool>& pool) {
    CHECK(pool == one.pool);
    ++asked;
  });
  auto user = one.pool->add_user();
  static_cast<void>(one.pool->allocate(8 * mebibyte));
  CHECK(asked == 0);
  CHECK(one.pool->return_excess() == 0);
  CHECK(one.pool->usage() == pool_usage{8 * mebibyte, 0});
  {
    const buffer held = one.pool->allocate(4 * mebibyte);
    static_cast<void>(one.pool->allocate(20 * mebibyte));
    CHECK(asked == 1);
    static_cast<void>(one.pool->allocate(20 * mebibyte));
    CHECK(asked == 1); // not again before the return
    CHECK(one.pool->return_excess() == 12 * mebibyte);
    CHECK(one.pool->usage() == pool_usage{12 * mebibyte, 4 * mebibyte});
  }
  CHECK(asked == 2);
  CHECK(one.pool->return_excess() == 4 * mebibyte);
  auto second = one.pool->add_user();
  user.reset();
  CHECK(asked == 2);
  second.reset();
  CHECK(asked == 3);
  CHECK(one.pool->return_excess() == 8 * mebibyte);
  CHECK(one.left_bytes() == 64 * mebibyte);
  static_cast<void>(one.pool->allocate(4096)); // by a client that outlives the world
  CHECK(asked == 4);
}

TEST_CASE("a return that failed is asked for again", "[device][mock]") {
  const small_device one;
  int asked = 0;
  one.pool->keep(0, [&](const std::shared_ptr<memory_pool>&) { ++asked; });
  static_cast<void>(one.pool->allocate(4096));
  static_cast<void>(one.pool->allocate(4096));
  CHECK(asked == 1);
  one.pool->excess_stays();
  static_cast<void>(one.pool->allocate(4096));
  CHECK(asked == 2);
}

TEST_CASE("memory that the replaced return of a pool owned goes back to the pool", "[device][mock]") {
  const small_device one;
  one.pool->keep(mebibyte, [held = one.pool->allocate(4096)](const std::shared_ptr<memory_pool>&) {});
  CHECK(one.pool->usage().used_bytes == 4096);
  one.pool->keep(mebibyte, {});
  CHECK(one.pool->usage().used_bytes == 0);
}

} // namespace troupe::tests::memory_pool_test
