// No wake-up is lost: a thread that parks after a notification it has not seen does not sleep.
#include <troupe/completion/poller/wake_signal.hpp>

#include <catch2/catch_test_macros.hpp>

#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// A counter that others wait for, as troupe's threads do.
class awaited_count {
public:
  void raise() {
    value_.fetch_add(1);
    signal_.notify();
  }

  /// False if a wait ended by its time limit, which only a lost wake-up brings about.
  [[nodiscard]] bool await(int target) {
    constexpr auto patience = 10s;
    while (value_.load() < target) {
      const auto began = std::chrono::steady_clock::now();
      signal_.park([&] { return value_.load() >= target; }, patience);
      if (std::chrono::steady_clock::now() - began >= patience) return false;
    }
    return true;
  }

private:
  std::atomic<int> value_{0};
  wake_signal signal_;
};

} // namespace

TEST_CASE("a thread that finds news when it parks returns at once", "[completion]") {
  wake_signal signal;
  bool looked = false;
  const auto news = [&] { return looked = true; };
  CHECK(signal.park(news, 1h)); // the test's own limit would end it
  CHECK(looked);
  CHECK(signal.park(news, nanoseconds::max()));
}

TEST_CASE("a notification that comes while the parking thread looks for news wakes it", "[completion]") {
  wake_signal signal;
  const auto too_early_to_see = [&] {
    signal.notify();
    return false;
  };
  CHECK(signal.park(too_early_to_see, 1h));
}

TEST_CASE("parking without a notification ends after its time", "[completion][TIM-1]") {
  wake_signal signal;
  const auto nothing = [] { return false; };
  const auto began = std::chrono::steady_clock::now();
  signal.notify(); // nobody is parked, and whoever parks later looks for itself
  CHECK_FALSE(signal.park(nothing, 2ms));
  CHECK(std::chrono::steady_clock::now() - began >= 2ms);
  CHECK_FALSE(signal.park(nothing, 0ns));
}

TEST_CASE("two threads that wake each other in turn never miss a wake-up", "[completion]") {
  constexpr int rounds = 5000;
  awaited_count ping;
  awaited_count pong;
  bool answered = true;
  std::thread other{[&] {
    for (int i = 1; i <= rounds && answered; ++i) {
      answered = ping.await(i);
      pong.raise();
    }
  }};
  bool heard = true;
  for (int i = 1; i <= rounds && heard; ++i) {
    ping.raise();
    heard = pong.await(i);
  }
  other.join();
  CHECK(answered);
  CHECK(heard);
}

TEST_CASE("one thread that parks sees all notifications of several others", "[completion]") {
  constexpr int notifiers = 4;
  constexpr int each = 5000;
  awaited_count count;
  std::vector<std::jthread> others;
  for (int i = 0; i < notifiers; ++i)
    others.emplace_back([&] {
      for (int k = 0; k < each; ++k) count.raise();
    });
  CHECK(count.await(notifiers * each));
}
