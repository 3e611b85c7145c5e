#include <troupe/collectives/order/combining_queue.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace troupe::tests {

TEST_CASE("turns of many threads are taken once each, one at a time, those of one thread in its order",
          "[collectives]") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 20'000;
  struct taken_turn {
    std::size_t thread, index;
  };
  std::vector<taken_turn> taken;
  std::atomic<int> at_work{0};
  std::atomic<bool> overlapped{false};
  std::size_t rounds = 0;
  {
    combining_queue all{[&] { ++rounds; }};
    std::vector<std::thread> bringers;
    for (std::size_t t = 0; t < threads; ++t)
      bringers.emplace_back([&, t] {
        for (std::size_t i = 0; i < each; ++i)
          all.run([&, t, i] {
            if (at_work.fetch_add(1) != 0) overlapped = true;
            taken.push_back({t, i});
            at_work.fetch_sub(1);
          });
      });
    for (auto& one : bringers) one.join();
  }
  CHECK(!overlapped);
  REQUIRE(taken.size() == threads * each);
  CHECK(rounds > 0);
  CHECK(rounds <= taken.size());
  std::vector<std::size_t> next(threads, 0);
  for (const auto& one : taken) REQUIRE(next[one.thread]++ == one.index);
}

TEST_CASE("a turn that brings another goes on first", "[collectives]") {
  std::vector<int> order;
  combining_queue all{[&] { order.push_back(0); }};
  all.run([&] {
    all.run([&] { order.push_back(2); });
    order.push_back(1);
  });
  CHECK(order == std::vector{1, 0, 2, 0});
}

TEST_CASE("what a round's end brings is taken too", "[collectives]") {
  int left = 3;
  int taken = 0;
  combining_queue* self = nullptr;
  combining_queue all{[&] {
    if (left-- > 0) self->run([&] { ++taken; });
  }};
  self = &all;
  all.run([] {});
  CHECK(taken == 3);
}

} // namespace troupe::tests
