// Places in a range: lowest first, neighbours merged, nothing given twice.
#include "support/outcomes.hpp"

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/graph.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <memory>
#include <random>
#include <vector>

namespace troupe::tests::registered_pool_test {

using troupe::tests::error_of;

TEST_CASE("offsets are the lowest that fit, aligned, and merge when they come back", "[collectives]") {
  offset_allocator places{1030, 256};
  CHECK(places.size() == 1024);
  CHECK(places.take(1) == 0U);
  CHECK(places.take(300) == 256U);
  CHECK(places.take(257) == std::nullopt);
  CHECK(places.take(256) == 768U);
  CHECK(places.free() == 0);
  places.give_back(0, 1);
  places.give_back(256, 300);
  CHECK(places.take(768) == 0U);
  CHECK(places.take(SIZE_MAX) == std::nullopt);
}

TEST_CASE("no two places overlap and all room returns, in any order of allocations and releases", "[collectives]") {
  std::mt19937 dice{20};
  offset_allocator places{1U << 16U, 256};
  std::map<std::size_t, std::size_t> taken;
  for (int i = 0; i < 5000; ++i) {
    if (dice() % 2 == 0 || taken.empty()) {
      const std::size_t length = dice() % 4096 + 1;
      const auto offset = places.take(length);
      if (!offset) continue;
      REQUIRE(*offset % 256 == 0);
      const auto next = taken.lower_bound(*offset);
      REQUIRE((next == taken.end() || *offset + length <= next->first));
      if (next != taken.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= *offset);
      taken.emplace(*offset, length);
    } else {
      const auto gone = std::next(taken.begin(), static_cast<std::ptrdiff_t>(dice() % taken.size()));
      places.give_back(gone->first, gone->second);
      taken.erase(gone);
    }
  }
  for (const auto& [offset, length] : taken) places.give_back(offset, length);
  CHECK(places.free() == places.size());
  CHECK(places.take(places.size()) == 0U);
}

TEST_CASE("a device that fails while ranges are being judged gives none of them back twice",
          "[collectives][mock][BUF-1]") {
  const auto api = make_mock_driver({.device_count = 2, .mode = engine_mode::manual});
  const auto here = device::open(api, device_id{0}), there = device::open(api, device_id{1});
  const auto pool = std::make_shared<registered_pool>(
      std::vector{make_pooled_region(here, 1024), make_pooled_region(there, 1024)}, true);
  const stream work{here}, other{there};
  std::vector<buffer> first = pool->allocate(256), second = pool->allocate(256);
  first[0].note_use(work);
  second[1].note_use(other);
  first.clear();
  second.clear();
  api->run_until_blocked();
  api->fail_next(device_id{1}, {.code = errc::device_failed, .text = "injected"});
  const buffer scratch = allocate_pinned(there, 4);
  other.ref().fill(scratch.data(), 0, 4);
  api->run_until_blocked();
  CHECK(error_of([&] { static_cast<void>(pool->allocate(256)); }).code == errc::device_failed);
  const std::vector<buffer> again = pool->allocate(256); // the error was reported once
  CHECK(pool->free_bytes() == 768);
}

TEST_CASE("registered memory takes note of its own device's streams only, and of none in capture",
          "[collectives][mock][BUF-1]") {
  const auto api = make_mock_driver({.device_count = 2});
  const auto here = device::open(api, device_id{0}), there = device::open(api, device_id{1});
  const auto pool = std::make_shared<registered_pool>(std::vector{make_pooled_region(here, 1024)}, true);
  const stream work{here}, foreign{there};
  std::vector<buffer> taken = pool->allocate(256);
  CHECK(error_of([&] { taken[0].note_use(foreign); }).code == errc::wrong_device);
  stream_capture capture{here, work};
  CHECK(error_of([&] { taken[0].note_use(work); }).code == errc::invalid_argument);
  taken.clear();
  static_cast<void>(capture.end());
  CHECK(pool->allocate(1024).size() == 1);
}

} // namespace troupe::tests::registered_pool_test
