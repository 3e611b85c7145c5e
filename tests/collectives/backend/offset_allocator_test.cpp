// Places in a range: lowest first, neighbours merged, nothing given twice.
#include <troupe/collectives/backend/registered_pool.hpp>

#include <catch2/catch_test_macros.hpp>

#include <map>
#include <random>

using troupe::offset_allocator;

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

TEST_CASE("whatever is taken and given back, no two places overlap and all room returns", "[collectives]") {
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
