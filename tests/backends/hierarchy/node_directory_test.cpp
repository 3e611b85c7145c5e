// Who knows on which nodes the ranks of a formation are.
#include <troupe/backends/hierarchy/hierarchical_backend.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <vector>

namespace troupe::tests {

namespace {

unique_id named(std::uint8_t number) {
  unique_id id;
  id.bytes.front() = std::byte{number};
  return id;
}

node_map on(const std::vector<std::size_t>& sizes) {
  return node_map::of_sizes(sizes);
}

} // namespace

TEST_CASE("nodes that are noted hold for one formation, those asked for hold for all", "[collectives][hierarchy]") {
  node_directory known;
  CHECK_FALSE(known.find(named(1), 4));
  known.note(named(1), on({2, 2}));
  known.note(named(2), on({1, 2}));
  CHECK(known.find(named(1), 4) == on({2, 2}));
  CHECK(known.find(named(2), 3) == on({1, 2}));
  CHECK_FALSE(known.find(named(2), 4)); // a world of another size has another name
  CHECK_FALSE(known.find(named(3), 4));

  const node_directory asked{on({3, 1})};
  CHECK(asked.find(named(1), 4) == on({3, 1}));
  CHECK_FALSE(asked.find(named(1), 3));
}

TEST_CASE("nodes of long-gone formations are forgotten", "[collectives][hierarchy]") {
  node_directory known;
  for (std::uint8_t i = 0; i < 20; ++i) known.note(named(i), on({2, 2}));
  CHECK_FALSE(known.find(named(0), 4));
  CHECK(known.find(named(19), 4));
}

} // namespace troupe::tests
