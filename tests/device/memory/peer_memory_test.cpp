// Peer memory: what its mappings share, and how long it lives; on the mock and on CUDA alike.
#include "support/drivers.hpp"
#include "support/gate.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/memory/peer_memory.hpp>

#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <fcntl.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace troupe::tests::peer_memory_test {

using troupe::tests::code_of;
using troupe::tests::error_of;

namespace {

constexpr std::size_t some_bytes = 100000;

/// Returns whether \p memory holds only \p value, as a copy that \p by makes sees it.
bool holds_only(const std::shared_ptr<device>& by, const std::byte* memory, std::uint8_t value) {
  const buffer host = allocate_pinned(by, some_bytes);
  const stream work{by};
  work.ref().copy(host.data(), memory, some_bytes);
  work.ref().synchronize();
  return std::ranges::all_of(host.host_span<std::uint8_t>(), [=](std::uint8_t byte) { return byte == value; });
}

/// Skips the test on machines whose GPUs do not reach each other's memory.
void need_peer_access(const device& one, const device& other) {
  if (!one.reaches(other.id()) || !other.reaches(one.id())) SKIP("the first two devices have no peer access");
}

void fill(const std::shared_ptr<device>& by, std::byte* memory, std::uint8_t value) {
  const stream work{by};
  work.ref().fill(memory, value, some_bytes);
  work.ref().synchronize();
}

} // namespace

TROUPE_DRIVER_TEST(2, "peer memory is read and written by its device and by another one", "[device]") {
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  need_peer_access(*near, *far);
  const auto leaks = leak_count();
  {
    const peer_memory memory{near, some_bytes};
    CHECK(memory.size_bytes() >= some_bytes);
    const pointer_description what = api->describe(memory.data() + some_bytes - 1);
    CHECK(what.kind == memory_kind::device);
    CHECK(what.device == near->id());
    fill(near, memory.data(), 1);
    CHECK(holds_only(far, memory.data(), 1));
    fill(far, memory.data(), 2);
    CHECK(holds_only(near, memory.data(), 2));
  }
  CHECK(leak_count() == leaks);
}

TROUPE_DRIVER_TEST(2, "an imported mapping shares its memory, and keeps it when the owner's mapping has ended",
                   "[device]") {
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  need_peer_access(*near, *far);
  const auto leaks = leak_count();
  {
    std::optional<peer_memory> owner{std::in_place, near, some_bytes};
    file_descriptor exported = owner->export_handle();
    const std::size_t size_bytes = owner->size_bytes();
    const peer_memory second = peer_memory::import(far, exported, size_bytes);
    const peer_memory third = peer_memory::import(near, exported, size_bytes);
    exported.close();
    CHECK(second.size_bytes() == size_bytes);
    CHECK(second.data() != owner->data());
    fill(near, owner->data(), 3);
    CHECK(holds_only(near, third.data(), 3));
    owner.reset();
    CHECK(holds_only(near, third.data(), 3));
    fill(far, second.data(), 4);
    CHECK(holds_only(near, third.data(), 4));
    CHECK(error_of([&] { static_cast<void>(third.export_handle()); }).code == errc::unsupported);
  }
  CHECK(leak_count() == leaks);
}

TROUPE_DRIVER_TEST(1, "a part of peer memory is set to zero, and what is beside it stays", "[device]") {
  const auto gpu = device::open(api, device_id{0});
  const peer_memory memory{gpu, some_bytes};
  const peer_memory second = peer_memory::import(gpu, memory.export_handle(), memory.size_bytes());
  const stream work{gpu};
  const buffer host = allocate_pinned(gpu, some_bytes);
  const auto seen = host.host_span<std::uint8_t>();
  // Within a page, whole pages, and both with parts of pages on either side.
  for (const auto& [from, until] : {std::pair{100, 300}, {4096, 12288}, {5000, 81000}, {8191, 8193}, {4000, 8192}}) {
    fill(gpu, memory.data(), 6);
    work.ref().fill(memory.data() + from, 0, static_cast<std::size_t>(until - from));
    work.ref().copy(host.data(), second.data(), some_bytes);
    work.ref().synchronize();
    for (std::size_t at = 0; at < some_bytes; ++at) {
      const bool within = at >= static_cast<std::size_t>(from) && at < static_cast<std::size_t>(until);
      if (seen[at] != (within ? 0 : 6))
        FAIL("byte " << at << " is " << int{seen[at]} << " of " << from << " to " << until);
    }
  }
}

TROUPE_DRIVER_TEST(2, "memory that only its device reaches is filled and copied by threads of other devices",
                   "[device]") {
  const auto gpu = device::open(api, device_id{0});
  const auto other = device::open(api, device_id{1});
  need_peer_access(*gpu, *other);
  const peer_memory memory{gpu, some_bytes};
  const peer_memory near = peer_memory::import(gpu, memory.export_handle(), memory.size_bytes());
  const peer_memory far = peer_memory::import(other, memory.export_handle(), memory.size_bytes());
  for (const auto& current : {gpu, other}) {
    std::string failure;
    std::thread{[&] {
      try {
        api->enter_thread(current->id());
        fill(gpu, near.data(), 7);
        if (!holds_only(gpu, near.data(), 7) || !holds_only(other, far.data(), 7)) failure = "not the bytes of gpu";
        fill(other, far.data(), 8);
        if (!holds_only(gpu, near.data(), 8) || !holds_only(other, far.data(), 8)) failure = "not the bytes of other";
      } catch (const exception& why) {
        failure = why.what();
      }
    }}.join();
    INFO("device " << to_string(current->id()) << " is current");
    CHECK(failure == "");
  }
}

TEST_CASE("the mock's new peer memory is not zero at the begin of 64 KiB", "[device][mock]") {
  const auto gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const peer_memory memory{gpu, some_bytes};
  for (const std::size_t at : {std::size_t{0}, std::size_t{65536}}) CHECK(memory.data()[at] == std::byte{0xA5});
}

TROUPE_DRIVER_TEST(1, "a descriptor alone keeps the memory", "[device]") {
  const auto gpu = device::open(api, device_id{0});
  file_descriptor exported;
  std::size_t size_bytes = 0;
  {
    const peer_memory memory{gpu, some_bytes};
    fill(gpu, memory.data(), 5);
    exported = memory.export_handle();
    size_bytes = memory.size_bytes();
  }
  CHECK(holds_only(gpu, peer_memory::import(gpu, exported, size_bytes).data(), 5));
}

TROUPE_DRIVER_TEST(1, "peer memory is refused for no bytes and for more than the device has, and all of it returns",
                   "[device]") {
  const auto gpu = device::open(api, device_id{0});
  const auto total = static_cast<std::size_t>(api->describe(gpu->id()).total_bytes);
  CHECK(code_of([&] { const peer_memory none{gpu, 0}; }) == errc::invalid_argument);
  CHECK(code_of([&] { const peer_memory all{gpu, 2 * total}; }) == errc::out_of_memory);
  const std::uint64_t left = api->free_bytes(gpu->id());
  constexpr std::size_t size_bytes = std::size_t{64} << 20U;
  {
    const peer_memory memory{gpu, size_bytes};
    CHECK(api->free_bytes(gpu->id()) <= left - size_bytes);
  }
  CHECK(api->free_bytes(gpu->id()) > left - size_bytes / 2);
}

TEST_CASE("the mock counts peer memory once, until its last mapping ends", "[device][mock]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto near = device::open(api, device_id{0});
  const auto far = device::open(api, device_id{1});
  std::optional<peer_memory> owner{std::in_place, near, some_bytes};
  const std::size_t size_bytes = owner->size_bytes();
  CHECK(api->used_bytes(near->id()) == size_bytes);
  std::optional<peer_memory> second = peer_memory::import(far, owner->export_handle(), size_bytes);
  CHECK(api->used_bytes(near->id()) == size_bytes);
  CHECK(api->used_bytes(far->id()) == 0);
  CHECK(api->describe(second->data()).device == near->id());
  owner.reset();
  CHECK(api->used_bytes(near->id()) == size_bytes);
  api->exhaust_after(near->id(), size_bytes);
  const buffer beside = memory_pool::create(near)->allocate(size_bytes / 2);
  CHECK(error_of([&] { const peer_memory more{near, size_bytes}; }).code == errc::out_of_memory);
  second.reset();
  CHECK(api->used_bytes(near->id()) <= size_bytes / 2);
  CHECK(peer_memory{near, size_bytes}.size_bytes() == size_bytes);
}

TEST_CASE("mocks share peer memory, as in two processes", "[device][mock]") {
  const auto here = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  const auto driver_there = make_mock_driver({.device_count = 2});
  const auto there = device::open(driver_there, device_id{1});
  std::optional<peer_memory> owner{std::in_place, here, some_bytes};
  const peer_memory imported = peer_memory::import(there, owner->export_handle(), owner->size_bytes());
  CHECK(driver_there->describe(imported.data()).device == device_id{1});
  CHECK(driver_there->used_bytes(device_id{1}) == 0); // the other mock counts it
  fill(here, owner->data(), 6);
  owner.reset();
  CHECK(holds_only(there, imported.data(), 6));
}

TEST_CASE("the mock refuses peer memory where there is none, and what is no peer memory", "[device][mock]") {
  const auto poor = device::open(make_mock_driver({.traits = {.virtual_memory = false}}), device_id{0});
  CHECK(error_of([&] { const peer_memory none{poor, some_bytes}; }).code == errc::unsupported);

  const auto apart = make_mock_driver(
      {.device_count = 2, .peers = [](device_id, device_id) { return peer_description{.access = false}; }});
  const auto near = device::open(apart, device_id{0});
  const auto far = device::open(apart, device_id{1});
  const peer_memory memory{near, some_bytes};
  const std::size_t size_bytes = memory.size_bytes();
  const auto import_at = [&](const auto& where, const file_descriptor& from, std::size_t length) {
    return error_of([&] { static_cast<void>(peer_memory::import(where, from, length)); }).code;
  };
  CHECK(import_at(far, memory.export_handle(), size_bytes) == errc::unsupported);
  CHECK(import_at(near, memory.export_handle(), 2 * size_bytes) == errc::invalid_argument);
  CHECK(import_at(near, file_descriptor{}, size_bytes) == errc::invalid_argument);
  CHECK(import_at(near, file_descriptor{::open("/dev/null", O_RDWR | O_CLOEXEC)}, size_bytes) ==
        errc::invalid_argument);

  const buffer other = memory_pool::create(near)->allocate(64);
  CHECK(error_of([&] { static_cast<void>(apart->export_peer_memory(near->id(), other.data())); }).code ==
        errc::invalid_argument);
  CHECK(error_of([&] { apart->unmap_peer_memory(near->id(), {other.data(), 64}); }).code == errc::invalid_argument);
}

} // namespace troupe::tests::peer_memory_test
