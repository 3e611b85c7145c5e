#include <troupe/collectives/order/combining_queue.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
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

TEST_CASE("a queue retires when its last task is done, and then each caller executes its own", "[collectives][ORD-1]") {
  std::string order;
  int rounds = 0;
  combining_queue all{[&] { ++rounds; }};
  all.run([&] {
    all.retire([&] { order += "end "; });
    all.run([&] {
      order += "second ";
      all.run([&] { order += "third "; });
    });
    order += "first ";
  });
  CHECK(order == "first second third end ");
  const int before = rounds;
  all.run([&] {
    all.run([&] { order += "inner "; }); // at once: no other task is in progress
    order += "outer";
  });
  CHECK(order == "first second third end inner outer");
  CHECK(rounds == before);
}

TEST_CASE("a queue that retires leaves no task behind: those of a thread keep their order", "[collectives][ORD-1]") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 5'000;
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> is_retired{false};
    std::atomic<int> done{0};
    std::array<std::atomic<std::size_t>, threads> taken{};
    std::atomic<bool> is_wrong{false};
    combining_queue all{[] {}};
    std::vector<std::thread> bringers;
    for (std::size_t t = 0; t < threads; ++t)
      bringers.emplace_back([&, t] {
        for (std::size_t i = 0; i < each; ++i) {
          all.run([&, t, i] {
            if (taken[t].fetch_add(1) != i) is_wrong = true;
          });
          // From then on another way may be used, which nothing here is behind.
          if (is_retired && taken[t] != i + 1) is_wrong = true;
        }
      });
    all.run([&] {
      all.retire([&] {
        ++done;
        is_retired = true;
      });
    });
    for (auto& one : bringers) one.join();
    all.run([&] { ++done; });
    CHECK(done == 2);
    CHECK(!is_wrong);
    for (const auto& one : taken) CHECK(one == each);
  }
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

TEST_CASE("tasks that the end of a round adds are executed, too", "[collectives]") {
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

TEST_CASE("a thread leaves the tasks of others to the next after a bounded number of them", "[collectives]") {
  constexpr int bound = static_cast<int>(combining_queue::most_tasks);
  std::vector<int> taken;
  int hand_overs = 0;
  std::size_t rounds = 0;
  int left = 3 * bound;
  std::function<void()> next; // outlives the queue, whose destructor executes the tasks that are left
  combining_queue all{[&] { ++rounds; },
                      [&] {
                        ++hand_overs;
                        return true;
                      }};
  // A producer that keeps the queue from becoming empty: each task enqueues the next.
  next = [&] {
    taken.push_back(static_cast<int>(taken.size()));
    if (--left > 0) all.run(next);
  };
  all.run(next);
  CHECK(taken.size() == combining_queue::most_tasks);
  CHECK(hand_overs == 1);
  CHECK(rounds > 0);
  REQUIRE(all.is_handed_over());

  SECTION("the notified thread continues with as many") {
    CHECK(all.take_over());
    CHECK(taken.size() == 2 * combining_queue::most_tasks);
    CHECK(hand_overs == 2);
    CHECK(all.take_over());
    CHECK(left == 0);
    CHECK_FALSE(all.is_handed_over());
    CHECK_FALSE(all.take_over());
  }
  SECTION("the next arriving thread continues, in the order of submission") {
    int before_mine = 0;
    std::thread{[&] { all.run([&] { before_mine = static_cast<int>(taken.size()); }); }}.join();
    CHECK(before_mine == bound + 1); // the one that was enqueued before it, which then enqueued another
    CHECK(taken.size() == 2 * combining_queue::most_tasks - 1);
  }
}

TEST_CASE("tasks that were handed over and not taken are executed when the queue ends", "[collectives]") {
  int taken = 0;
  {
    std::function<void()> next; // outlives the queue
    combining_queue all{[] {}, [] { return true; }};
    next = [&] {
      if (++taken < 200) all.run(next);
    };
    all.run(next);
    CHECK(taken == static_cast<int>(combining_queue::most_tasks));
  }
  CHECK(taken == 200);
}

TEST_CASE("a thread executes all tasks if no other thread can take them over", "[collectives]") {
  int taken = 0;
  int asked = 0;
  combining_queue all{[] {},
                      [&] {
                        ++asked;
                        return false;
                      }};
  std::function<void()> next = [&] {
    if (++taken < 200) all.run(next);
  };
  all.run(next);
  CHECK(taken == 200);
  CHECK(asked == 3);
  CHECK_FALSE(all.is_handed_over());
}

TEST_CASE("no task is lost and each thread's keep their order while many threads hand over", "[collectives]") {
  constexpr std::size_t threads = 4;
  constexpr std::size_t each = 20'000;
  struct taken_task {
    std::size_t thread, index;
  };
  std::vector<taken_task> taken;
  std::atomic<int> at_work{0};
  std::atomic<bool> overlapped{false};
  {
    combining_queue all{[] {}, [] { return true; }};
    std::atomic<bool> stopping{false};
    std::thread poller{[&] {
      while (!stopping.load() || all.is_handed_over())
        if (!all.take_over()) std::this_thread::yield();
    }};
    std::vector<std::thread> clients;
    for (std::size_t t = 0; t < threads; ++t)
      clients.emplace_back([&, t] {
        for (std::size_t i = 0; i < each; ++i)
          all.run([&, t, i] {
            if (at_work.fetch_add(1) != 0) overlapped = true;
            taken.push_back({t, i});
            at_work.fetch_sub(1);
          });
      });
    for (auto& one : clients) one.join();
    stopping = true;
    poller.join();
  }
  CHECK(!overlapped);
  REQUIRE(taken.size() == threads * each);
  std::vector<std::size_t> next(threads, 0);
  for (const auto& one : taken) REQUIRE(next[one.thread]++ == one.index);
}

} // namespace troupe::tests
