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

  [[nodiscard]] std::uint64_t used_bytes() const {
    const device_description now = api->describe(first);
    return now.total_bytes - now.free_bytes;
  }
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

} // namespace troupe::tests::memory_pool_test
