// What readers see of a value that others replace, and who is known.
#include <troupe/actors/rank/collective_actor.hpp>
#include <troupe/actors/world/rcu_pointer.hpp>

#include <catch2/catch_test_macros.hpp>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests {

TEST_CASE("a reader sees the latest value whole, and what it holds stays as it was", "[actors]") {
  rcu_pointer<std::pair<int, int>> value{{1, 1}};
  const auto first = value.read();
  std::vector<std::jthread> writers;
  for (int w = 0; w < 2; ++w)
    writers.emplace_back([&value] {
      for (int i = 0; i < 200; ++i) value.change([](auto& pair) { pair = {pair.first + 1, pair.second + 1}; });
    });
  bool whole = true;
  for (int latest = 0; latest < 401;) {
    const auto now = value.read();
    latest = now->first;
    whole = whole && now->first == now->second && now->first > 0 && now->first <= 401;
  }
  CHECK(whole);
  CHECK(*first == std::pair{1, 1});
  value.set({7, 8});
  CHECK(*value.read() == std::pair{7, 8});
}

TEST_CASE("a published value is destroyed when the next one is set and no reader holds it", "[actors]") {
  const auto held = std::make_shared<int>(1);
  rcu_pointer<std::shared_ptr<int>> value{held};
  CHECK(held.use_count() == 2);
  {
    const auto read_section = value.read();
    value.set(nullptr);
    CHECK(*read_section == held);
    CHECK(held.use_count() == 2);
  }
  value.set(nullptr);
  CHECK(held.use_count() == 1);
}

TEST_CASE("readers may read deeper than there are places", "[actors]") {
  rcu_pointer<int> value{3};
  std::vector<std::unique_ptr<rcu_pointer<int>::read_section>> readings;
  for (int i = 0; i < 40; ++i) readings.push_back(std::make_unique<rcu_pointer<int>::read_section>(value));
  value.set(4);
  for (const auto& one : readings) CHECK(**one == 3);
  while (!readings.empty()) readings.pop_back();
  CHECK(*value.read() == 4);
}

TEST_CASE("a client is new once, and again after it was removed", "[actors]") {
  known_clients known;
  CHECK(known.add(5));
  CHECK_FALSE(known.add(5));
  CHECK(known.add(6));
  known.remove(5);
  CHECK(known.add(5));
  CHECK_FALSE(known.add(6));
  known.remove(99); // never came
}

TEST_CASE("where clients crowd one another some are told to be new again, and none is taken for another", "[actors]") {
  known_clients known;
  for (std::uint64_t k = 0; k < 20; ++k) CHECK(known.add(1 + k * 1024)); // all want the same place
  CHECK_FALSE(known.add(1));
  CHECK(known.add(1 + 19 * 1024)); // found no place
  for (std::uint64_t k = 0; k < 20; ++k) known.remove(1 + k * 1024);
  CHECK(known.add(1 + 19 * 1024));
  CHECK_FALSE(known.add(1 + 19 * 1024));
}

} // namespace troupe::tests
