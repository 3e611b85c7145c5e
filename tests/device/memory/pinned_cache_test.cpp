#include <troupe/device/memory/pinned_cache.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace troupe::tests::pinned_cache_test {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

TEST_CASE("pinned memory is allocated in blocks that requests of similar sizes can share", "[device]") {
  CHECK(pinned_cache::block_bytes(1) == 256);
  CHECK(pinned_cache::block_bytes(256) == 256);
  CHECK(pinned_cache::block_bytes(257) == 512);
  CHECK(pinned_cache::block_bytes(mib) == mib);
  CHECK(pinned_cache::block_bytes(mib + 1) == 2 * mib);
  CHECK(pinned_cache::block_bytes(5 * mib + 1) == 6 * mib);
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(pinned_cache::block_bytes(most) == most);
}

TEST_CASE("released pinned memory serves the next request that it fits", "[device]") {
  std::array<std::byte, 3> blocks{};
  pinned_cache cache;
  CHECK(cache.take(100) == nullptr);
  for (std::byte& one : blocks) cache.add(&one, 4 * kib << (&one - blocks.data())); // 4, 8, 16 KiB
  CHECK(cache.take(4 * kib) == nullptr);                                            // all are in use

  for (std::byte& one : blocks) REQUIRE(cache.give(&one));
  CHECK_FALSE(cache.give(blocks.data())); // released already
  CHECK(cache.take(5 * kib) == &blocks[1]);
  CHECK(cache.take(4 * kib) == blocks.data());
  CHECK(cache.take(4 * kib) == nullptr); // 16 KiB are more than twice as many
  CHECK(cache.take(8 * kib) == &blocks[2]);
  CHECK(cache.take(8 * kib) == nullptr);
}

TEST_CASE("released pinned memory can be taken out to be freed, and memory in use cannot", "[device]") {
  std::array<std::byte, 2> blocks{};
  pinned_cache cache;
  for (std::byte& one : blocks) cache.add(&one, kib);
  REQUIRE(cache.give(&blocks[1]));
  const auto released = cache.take_released();
  REQUIRE(released.size() == 1);
  CHECK(released.begin()->second == &blocks[1]);
  CHECK(cache.take_released().empty());
  CHECK(cache.take(kib) == nullptr);
  CHECK_FALSE(cache.give(&blocks[1]));
  CHECK(cache.give(blocks.data()));
}

} // namespace troupe::tests::pinned_cache_test
