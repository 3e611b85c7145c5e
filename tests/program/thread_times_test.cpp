#include <troupe/program/bench/frame/process_usage.hpp>

#include <troupe/device/topology/thread_binding.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

using namespace troupe::program;
using namespace std::chrono_literals;

namespace {

std::chrono::nanoseconds own_cpu_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec};
}

/// A thread that has used at least 30 ms by the time that ready() says so, and a thread that only waits.
class busy_and_parked {
public:
  busy_and_parked()
    : busy_{[this] {
        troupe::name_this_thread("troupe/gpu7");
        begin_.wait(false);
        while (own_cpu_time() < 30ms) {
        }
        end_wait(ready_, true);
        leave_.wait(false);
      }},
      parked_{[this] {
        troupe::name_this_thread("caf.test");
        named_.store(true);
        named_.notify_all();
        leave_.wait(false);
      }} {
    named_.wait(false);
  }
  ~busy_and_parked() {
    end_wait(begin_, true);
    end_wait(leave_, true);
    busy_.join();
    parked_.join();
  }
  void work() {
    end_wait(begin_, true);
    ready_.wait(false);
  }

private:
  static void end_wait(std::atomic<bool>& which, bool value) {
    which.store(value);
    which.notify_all();
  }

  std::atomic<bool> begin_{false};
  std::atomic<bool> ready_{false};
  std::atomic<bool> named_{false};
  std::atomic<bool> leave_{false};
  std::thread busy_;
  std::thread parked_;
};

} // namespace

TEST_CASE("a thread's CPU time is its own, and goes to the group that its name tells", "[bench]") {
  busy_and_parked both;
  const thread_times before = thread_times::now();
  both.work();
  const auto uses = thread_times::now().since(before);
  CHECK(sum_of(uses, thread_group::launchers) >= 20ms);
  CHECK(sum_of(uses, thread_group::launchers) < 10s);
  const auto parked = std::ranges::find(uses, "caf.test", &thread_use::name);
  REQUIRE(parked != uses.end());
  CHECK(parked->group == thread_group::workers);
  CHECK(parked->cpu < 10ms);
}

TEST_CASE("threads are told apart by their names", "[bench]") {
  CHECK(group_of("troupe/gpu0", false) == thread_group::launchers);
  CHECK(group_of("troupe/poll", false) == thread_group::poller);
  CHECK(group_of("caf.multiplexer", false) == thread_group::workers);
  CHECK(group_of("caf.worker", false) == thread_group::workers);
  CHECK(group_of("bench/raw12", false) == thread_group::raw);
  CHECK(group_of("bench/rank3", false) == thread_group::clients);
  CHECK(group_of("troupe", true) == thread_group::clients);
  CHECK(group_of("troupe", false) == thread_group::others);
  CHECK(group_of("cuda-EvtHandlr", false) == thread_group::others);
}
