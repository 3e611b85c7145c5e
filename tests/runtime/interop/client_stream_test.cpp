// A client's own stream waits for requests, and requests wait for it, on the device.
#include "support/runtimes.hpp"

#include <troupe/runtime/interop/client_stream.hpp>

#include <catch2/catch_test_macros.hpp>

#include <future>
#include <vector>

namespace troupe::tests {

TROUPE_WORLD_TEST(1, "a client's stream is waited for, and waits", "[runtime][interop][streams]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto& gpu = where.device_of(rank{0});
  const buffer memory = where.allocate(rank{0}, 64);
  const buffer other = where.allocate(rank{0}, 64);
  const buffer seen = where.allocate_pinned(64);
  where.copy(rank{0}, memory, other).get();
  const stream owned{gpu};
  // As a client has it: the driver's own handle and no more.
  const native_stream native = owned.ref().native();
  const client_stream mine{where, rank{0}, native};

  gate held{gpu};
  held.hold(mine.ref());
  mine.ref().fill(memory.data(), 0x11, 64);
  auto asked = where.ask_overlapped(rank{0}, copy{mine.after(memory), other});
  mine.wait_for(asked.enqueued.get());
  mine.ref().copy(seen.data(), other.data(), 64);
  CHECK(asked.outcome.wait_for(20ms) == std::future_status::timeout);
  held.open();
  asked.outcome.get();
  mine.ref().synchronize();
  for (const std::uint8_t one : seen.host_span<std::uint8_t>()) REQUIRE(one == 0x11);
}

TROUPE_WORLD_TEST(2, "a stream waits for its own rank's part, and for operands", "[runtime][interop][streams]") {
  runtime rt{settings};
  world where = rt.form_world();
  const stream first{where.device_of(rank{0})};
  const stream second{where.device_of(rank{1})};
  const client_stream mine{where, rank{0}, first.ref().native()};
  const client_stream yours{where, rank{1}, second.ref().native()};
  const buffer memory = where.allocate_pinned(64);
  auto asked = where.ask_overlapped(rank{0}, copy{memory, where.allocate(rank{0}, 64)});
  const enqueued told = asked.enqueued.get();
  mine.wait_for(told);
  try {
    yours.wait_for(told);
    FAIL("a stream waited for a rank that was not asked");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
  }
  asked.outcome.get();

  gate held{where.device_of(rank{0})};
  held.hold(mine.ref());
  yours.wait_for(mine.after(memory)); // of another device
  yours.ref().fill(memory.data(), 1, 64);
  CHECK_FALSE(yours.ref().idle());
  held.open();
  yours.ref().synchronize();
  CHECK(mine.mark()->where().id() == where.device_of(rank{0})->id());
}

TEST_CASE("a CUDA stream is refused where there is no CUDA", "[runtime][interop][streams]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  try {
    const client_stream mine{where, rank{0}, static_cast<CUstream_st*>(nullptr)};
    FAIL("the mock took a CUDA stream");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::unsupported);
  }
  const stream owned{where.device_of(rank{0})};
  CHECK_THROWS_AS((client_stream{where, rank{3}, owned.ref().native()}), exception);
}

namespace {

/// Checks that a request waits for work in CUDA's default stream, and that later work there waits for the request.
void expect_order_with_default_stream(world& where) {
  const client_stream legacy{where, rank{0}, static_cast<CUstream_st*>(nullptr)}; // cudaStreamLegacy, as null
  const buffer memory = where.allocate(rank{0}, 64);
  const buffer seen = where.allocate_pinned(64);
  gate held{where.device_of(rank{0})};
  held.hold(legacy.ref());
  legacy.ref().fill(memory.data(), 0x22, 64);
  auto asked = where.ask_overlapped(rank{0}, copy{legacy.after(memory), seen});
  legacy.wait_for(asked.enqueued.get());
  CHECK(asked.outcome.wait_for(20ms) == std::future_status::timeout);
  CHECK_FALSE(legacy.ref().idle());
  held.open();
  legacy.ref().synchronize();
  const auto bytes = seen.host_span<std::uint8_t>();
  CHECK(std::vector<std::uint8_t>{bytes.begin(), bytes.end()} == std::vector<std::uint8_t>(64, 0x22));
  asked.outcome.get();
}

} // namespace

TEST_CASE("nccl: CUDA's default stream is waited for, and waits", "[runtime][interop][streams][gpu]") {
  runtime rt{gpu_settings(1)};
  world where = rt.form_world();
  expect_order_with_default_stream(where);
}

TEST_CASE("nccl: CUDA's default stream is that of the rank's device, whichever device is current",
          "[runtime][interop][streams][gpu]") {
  runtime rt{gpu_settings(2)};
  world where = rt.form_world();
  std::async(std::launch::async, [&] {
    const auto& other = where.device_of(rank{1});
    other->api().enter_thread(other->id());
    expect_order_with_default_stream(where);
  }).get();
}

} // namespace troupe::tests
