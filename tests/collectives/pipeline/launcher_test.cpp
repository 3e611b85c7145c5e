// BLK-1: one thread does a device's launches, in the order in which they were asked for.
#include "support/at_its_end.hpp"
#include "support/outcomes.hpp"

#include <troupe/collectives/pipeline/launcher.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <latch>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace troupe::tests::launcher_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr wait_profile parks{.spin = 0s};
constexpr wait_profile spins{.spin = 1s};

std::shared_ptr<device> mock_device() {
  return device::open(make_mock_driver({.device_count = 1, .mode = engine_mode::manual}), device_id{0});
}

/// Waits until everything posted so far has been run.
void settle(launcher& launch_thread) {
  const auto done = std::make_shared<std::latch>(1); // shared: the launcher may still be inside count_down()
  launch_thread.post([done] { done->count_down(); });
  done->wait();
}

class counted_check final : public launcher_check {
public:
  explicit counted_check(bool is_loaded) : loaded_{is_loaded} {}
  [[nodiscard]] bool loaded() const noexcept override { return loaded_.load(); }
  void check() noexcept override { count_.fetch_add(1); }
  void load(bool is_loaded) { loaded_.store(is_loaded); }
  [[nodiscard]] int count() const { return count_.load(); }
  void await(int at_least) const {
    while (count_.load() < at_least) std::this_thread::yield();
  }

private:
  std::atomic<bool> loaded_;
  std::atomic<int> count_{0};
};

} // namespace

TEST_CASE("a launcher runs what is posted on one thread of its own, in the order of the posts",
          "[collectives][BLK-1][ORD-1]") {
  constexpr int count = 2000;
  launcher launch_thread{mock_device(), GENERATE(parks, spins), 1ms};
  std::vector<int> order;
  std::set<std::thread::id> threads;
  for (int i = 0; i < count; ++i)
    launch_thread.post([&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
    });
  settle(launch_thread);
  REQUIRE(order.size() == count);
  for (int i = 0; i < count; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  CHECK(threads.size() == 1);
  CHECK_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST_CASE("a launcher's initial work runs on its thread, before any job", "[collectives]") {
  std::thread::id begun_on;
  std::thread::id worked_on;
  launcher launch_thread{mock_device(), parks, 1ms, 5s, [&] { begun_on = std::this_thread::get_id(); }};
  bool had_begun = false;
  launch_thread.post([&] {
    worked_on = std::this_thread::get_id();
    had_begun = begun_on == worked_on;
  });
  settle(launch_thread);
  CHECK(had_begun);
  CHECK(worked_on != std::this_thread::get_id());
}

TEST_CASE("posts of several threads are all run, each thread's in its own order", "[collectives][ORD-1]") {
  constexpr int posters = 4;
  constexpr int each = 500;
  std::vector<std::vector<int>> orders(posters);
  {
    launcher launch_thread{mock_device(), parks, 1ms};
    std::vector<std::jthread> threads;
    for (int p = 0; p < posters; ++p)
      threads.emplace_back([&, p] {
        for (int i = 0; i < each; ++i)
          launch_thread.post([&order = orders[static_cast<std::size_t>(p)], i] { order.push_back(i); });
      });
    threads.clear();
  }
  for (const auto& order : orders) {
    REQUIRE(order.size() == each);
    CHECK(std::ranges::is_sorted(order));
  }
}

TEST_CASE("a job may post another, which runs behind what was posted before", "[collectives]") {
  std::vector<int> order;
  {
    launcher launch_thread{mock_device(), parks, 1ms};
    std::latch posted{1};
    launch_thread.post([&] {
      posted.wait();
      launch_thread.post([&] { order.push_back(3); });
      order.push_back(1);
    });
    launch_thread.post([&] { order.push_back(2); });
    posted.count_down();
    settle(launch_thread);
    settle(launch_thread);
  }
  CHECK(order == std::vector{1, 2, 3});
}

TEST_CASE("a launcher looks after what is loaded, not after the rest, until it is gone", "[collectives]") {
  launcher launch_thread{mock_device(), GENERATE(parks, spins), 100us};
  auto busy = std::make_shared<counted_check>(true);
  const auto idle = std::make_shared<counted_check>(false);
  launch_thread.watch(idle);
  launch_thread.watch(busy);
  settle(launch_thread); // a launch is what wakes it
  busy->await(3);
  CHECK(idle->count() == 0);
  busy->load(false);
  idle->load(true);
  settle(launch_thread);
  idle->await(3);
  const std::weak_ptr<counted_check> gone = busy;
  busy.reset();
  while (!gone.expired()) std::this_thread::yield(); // held at most for one look
  idle->await(idle->count() + 2);
}

TEST_CASE("the end of a launcher runs what has been posted", "[collectives][ONE-1]") {
  std::atomic<int> count{0};
  std::latch blocked{1};
  {
    launcher launch_thread{mock_device(), parks, 1ms};
    launch_thread.post([&] { blocked.wait(); });
    for (int i = 0; i < 100; ++i) launch_thread.post([&] { count.fetch_add(1); });
    CHECK(count == 0);
    blocked.count_down();
  }
  CHECK(count == 100);
}

TEST_CASE("a job's objects are released when it has run, and may include the launcher itself", "[collectives]") {
  const auto reports = leak_count();
  const auto gpu = mock_device();
  auto launch_thread = std::make_shared<launcher>(gpu, parks, 1ms);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  launch_thread->post([held = std::move(held)] {});
  settle(*launch_thread);
  CHECK(seen.expired());
  std::latch dropped{1};
  launcher& last = *launch_thread;
  last.post([own = std::move(launch_thread), &dropped] { dropped.wait(); });
  dropped.count_down();
  while (gpu.use_count() > 1) std::this_thread::yield();
  CHECK(leak_count() == reports);
}

TEST_CASE("a launcher stuck in a call is left behind after its deadline, and reported", "[collectives][TIM-1]") {
  const auto reports = leak_count();
  std::string told;
  on_leak([&](const error& why) { told = why.text; });
  const auto gpu = mock_device();
  std::latch stuck{1};
  {
    launcher launch_thread{gpu, parks, 1ms, 1ms};
    launch_thread.post([&] { stuck.wait(); });
  }
  on_leak({});
  CHECK(leak_count() == reports + 1);
  CHECK_THAT(told, ContainsSubstring("launcher") && ContainsSubstring("device 0") && ContainsSubstring("stuck"));
  stuck.count_down();
  while (gpu.use_count() > 1) std::this_thread::yield(); // its thread has ended
}

TEST_CASE("an object whose last owner was a launcher's look at it may use the launcher when it ends", "[collectives]") {
  class dropped_check final : public launcher_check {
  public:
    explicit dropped_check(std::shared_ptr<void> end) : end_{std::move(end)} {}
    [[nodiscard]] bool loaded() const noexcept override {
      owner = nullptr;
      return false;
    }
    void check() noexcept override {}

    mutable std::shared_ptr<dropped_check> owner; ///< Itself, until the look.

  private:
    std::shared_ptr<void> end_;
  };
  launcher launch_thread{mock_device(), parks, 100us};
  const auto late = std::make_shared<counted_check>(true);
  std::latch ended{1};
  auto one = std::make_shared<dropped_check>(at_its_end([&] {
    launch_thread.watch(late);
    ended.count_down();
  }));
  one->owner = one;
  launch_thread.watch(one);
  one = nullptr;
  settle(launch_thread);
  ended.wait();
  settle(launch_thread); // a launch is what wakes it
  late->await(1);
}

} // namespace troupe::tests::launcher_test
