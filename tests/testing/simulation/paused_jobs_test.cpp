/// TIM-1: deadlines of jobs when the process is paused, in virtual time.
#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/testing/simulation/fibers.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::tests::paused_jobs_test {

namespace {

using namespace std::chrono_literals;

/// A pool with one job, which has a deadline of 10 s.
struct paused_job {
  explicit paused_job(deadline_pool::work task) {
    pool.run("the abort of rank 3", 10s, std::move(task), [this](error why) { result = std::move(why); });
  }
  /// The machine is suspended for an hour.
  void pause() { all.jump(1h); }

  fibers all{[](std::size_t ready) { return ready - 1; }};
  std::optional<error> result;
  deadline_pool pool;
};

/// A task that does not return before open().
struct gate {
  void pass() {
    std::unique_lock lock{mutex};
    changed.wait(lock, [this] { return is_open; });
  }
  void open() {
    const std::lock_guard lock{mutex};
    is_open = true;
    changed.notify_all();
  }

  std::mutex mutex;
  condition changed;
  bool is_open = false;
};

} // namespace

TEST_CASE("a job is not abandoned because the process was paused", "[collectives][fibers][TIM-1]") {
  paused_job one{[] {
    fibers::current()->sleep(4s);
    fibers::current()->sleep(4s);
  }};
  one.all.sleep(2s);
  one.pause();
  one.all.sleep(7s);
  REQUIRE(one.result);
  CHECK_FALSE(*one.result);
}

TEST_CASE("a job that hangs is abandoned although the process is paused again and again",
          "[collectives][fibers][TIM-1]") {
  gate stuck;
  paused_job one{[&] { stuck.pass(); }};
  one.all.sleep(2s);
  SECTION("once") {
    one.pause();
    one.all.sleep(7s);
    CHECK_FALSE(one.result);
    one.all.sleep(2s);
  }
  SECTION("many times") {
    for (int i = 0; i < 40 && !one.result; ++i) {
      one.pause();
      one.all.sleep(1ms);
    }
  }
  REQUIRE(one.result);
  CHECK(one.result->code == errc::deadline_exceeded);
  stuck.open();
}

TEST_CASE("a job that begins after a pause has its deadline and no more", "[collectives][fibers][TIM-1]") {
  gate stuck;
  paused_job first{[] {}};
  first.all.sleep(1s);
  first.pause();
  std::optional<error> result;
  first.pool.run(
      "the forming of rank 3", 10s, [&] { stuck.pass(); }, [&](error why) { result = std::move(why); });
  first.all.sleep(9s);
  CHECK_FALSE(result);
  first.all.sleep(2s);
  REQUIRE(result);
  CHECK(result->code == errc::deadline_exceeded);
  stuck.open();
}

} // namespace troupe::tests::paused_jobs_test
