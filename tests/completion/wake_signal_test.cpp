// No wake-up is lost: a thread that parks after a notification it has not seen does not sleep.
#include <troupe/completion/wake_signal.hpp>

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
    for (;;) {
      const auto seen = signal_.seen();
      if (value_.load() >= target) return true;
      const auto began = std::chrono::steady_clock::now();
      signal_.park(seen, patience);
      if (std::chrono::steady_clock::now() - began >= patience) return false;
    }
  }

private:
  std::atomic<int> value_{0};
  wake_signal signal_;
};

} // namespace

TEST_CASE("parking after an unseen notification returns at once", "[completion]") {
  wake_signal signal;
  const auto seen = signal.seen();
  signal.notify();
  CHECK(signal.seen() != seen);
  signal.park(seen, 1h);                 // the test's own limit would end it
  signal.park(seen, nanoseconds::max()); // not used up by the first
}

TEST_CASE("parking without a notification ends after its time", "[completion][TIM-1]") {
  wake_signal signal;
  const auto began = std::chrono::steady_clock::now();
  signal.park(signal.seen(), 2ms);
  CHECK(std::chrono::steady_clock::now() - began >= 2ms);
  signal.park(signal.seen(), 0ns);
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
