// TIM-1: whatever may take long has a deadline, and its owner is told, once.
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"

#include <troupe/collectives/pipeline/deadline_pool.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <cstddef>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Takes one job's report and counts how often it comes.
struct report {
  [[nodiscard]] deadline_pool::done taker() {
    return [this](error why) {
      thread = std::this_thread::get_id();
      if (count.fetch_add(1) == 0) told.set_value(std::move(why));
    };
  }
  [[nodiscard]] error wait() { return told.get_future().get(); }

  std::promise<error> told;
  std::thread::id thread;
  std::atomic<int> count{0};
};

} // namespace

TEST_CASE("a job that returns reports no error, on its own thread", "[collectives]") {
  report seen;
  std::thread::id ran_on;
  {
    deadline_pool crew;
    crew.run(
        "a job", 1h, [&] { ran_on = std::this_thread::get_id(); }, seen.taker());
    CHECK_FALSE(seen.wait());
    CHECK(crew.abandoned_count() == 0);
  }
  CHECK(seen.count == 1);
  CHECK(ran_on != std::this_thread::get_id());
  CHECK(seen.thread == ran_on);
}

TEST_CASE("a job that throws reports what it threw", "[collectives]") {
  deadline_pool crew;
  report known;
  crew.run(
      "a job", 1h,
      [] {
        throw exception{errc::too_old, "the library"};
      },
      known.taker());
  const error why = known.wait();
  CHECK(why.code == errc::too_old);
  CHECK(why.text == "the library");
  report strange;
  crew.run(
      "a job", 1h, [] { throw std::runtime_error{"something else"}; }, strange.taker());
  CHECK(strange.wait().code == errc::internal);
}

TEST_CASE("objects that a report owned may ask the pool when they end", "[collectives]") {
  struct asks_at_its_end {
    asks_at_its_end(deadline_pool& of, report& to) : crew{of}, seen{to} {}
    asks_at_its_end(const asks_at_its_end&) = delete;
    asks_at_its_end& operator=(const asks_at_its_end&) = delete;
    ~asks_at_its_end() {
      crew.run(
          "the last job", 1h, [] {}, seen.taker());
    }

    deadline_pool& crew;
    report& seen;
  };
  const bool is_abandoned = GENERATE(false, true);
  report seen;
  std::promise<void> released;
  deadline_pool crew;
  crew.run(
      "a job", is_abandoned ? nanoseconds{1ms} : nanoseconds{1h},
      [is_abandoned, gate = released.get_future().share()] {
        if (is_abandoned) gate.wait();
      },
      [owned = std::make_shared<asks_at_its_end>(crew, seen)](const error&) {});
  CHECK_FALSE(seen.wait());
  released.set_value();
}

TEST_CASE("jobs run beside each other", "[collectives]") {
  deadline_pool crew;
  std::latch together{3};
  report seen[3];
  for (report& one : seen)
    crew.run(
        "a job", 1h, [&] { together.arrive_and_wait(); }, one.taker());
  for (report& one : seen) CHECK_FALSE(one.wait());
}

TEST_CASE("a job past its deadline is abandoned with a report that names it", "[collectives][TIM-1][ONE-2]") {
  report seen;
  std::latch stuck{1};
  {
    deadline_pool crew;
    crew.run(
        "the abort of rank 3", 1ms, [&] { stuck.wait(); }, seen.taker());
    const error why = seen.wait();
    CHECK(why.code == errc::deadline_exceeded);
    CHECK(why.effect == effect::unknown_outcome);
    CHECK_THAT(why.text, ContainsSubstring("the abort of rank 3"));
    CHECK(crew.abandoned_count() == 1);
    stuck.count_down();
    while (crew.abandoned_count() > 0) std::this_thread::yield();
  }
  CHECK(seen.count == 1); // its late return reports nothing
}

TEST_CASE("an abandoned job does not hold up the others, nor their deadlines", "[collectives][TIM-1]") {
  std::latch stuck{1};
  report late;
  report later_on;
  report quick;
  deadline_pool crew;
  crew.run(
      "forever", nanoseconds::max(), [&] { stuck.wait(); }, late.taker());
  crew.run(
      "short", 2ms, [&] { stuck.wait(); }, later_on.taker());
  crew.run(
      "quick", 1h, [] {}, quick.taker());
  CHECK_FALSE(quick.wait());
  CHECK(later_on.wait().code == errc::deadline_exceeded);
  CHECK(late.count == 0); // a deadline at the end of time has not passed
  stuck.count_down();
  CHECK_FALSE(late.wait());
  while (crew.abandoned_count() > 0) std::this_thread::yield();
}

TEST_CASE("the end of a crew waits for its jobs and their reports", "[collectives]") {
  std::atomic<int> reports{0};
  std::latch go{1};
  {
    deadline_pool crew;
    for (int i = 0; i < 20; ++i)
      crew.run(
          "a job", 1h, [&] { go.wait(); }, [&](const error&) { reports.fetch_add(1); });
    CHECK(reports == 0);
    go.count_down();
  }
  CHECK(reports == 20);
}

TEST_CASE("a crew that is held elsewhere too can be stopped, and then refuses jobs", "[collectives]") {
  const auto crew = std::make_shared<deadline_pool>();
  const auto elsewhere = crew; // NOLINT(performance-unnecessary-copy-initialization): a second owner is meant
  std::latch stopping{1};
  std::atomic<bool> reported{false};
  crew->run(
      "a job", 1h, [&] { stopping.wait(); }, [&](const error&) { reported = true; });
  stopping.count_down();
  crew->stop();
  CHECK(reported);
  crew->stop();
  report late;
  elsewhere->run(
      "late", 1h, [] {}, late.taker());
  const error why = late.wait();
  CHECK(why.code == errc::stopping);
  CHECK(why.effect == effect::rejected);
  CHECK_THAT(why.text, ContainsSubstring("late"));
}

TEST_CASE("reserved threads are there before the jobs, run them at once, and are used again", "[collectives]") {
  constexpr std::size_t count = 5;
  const tests::started_threads threads;
  deadline_pool crew;
  const std::size_t before = threads.count();
  crew.reserve(count);
  crew.reserve(2); // no fewer
  CHECK(threads.count() == before + count);
  for (int round = 0; round < 3; ++round) {
    std::latch together{count};
    std::vector<report> seen(count);
    std::vector<deadline_pool::job> jobs;
    for (report& one : seen) jobs.push_back({"a job", 1h, [&] { together.arrive_and_wait(); }, one.taker()});
    crew.run(std::move(jobs));
    for (report& one : seen) CHECK_FALSE(one.wait());
    // A thread is free again shortly after its report. A round that comes sooner starts one more, which then ends.
    CHECK(threads.comes_to(before + count));
  }
}

TEST_CASE("a reserved thread that is lost to a job that hangs is replaced", "[collectives][TIM-1]") {
  std::latch stuck{1};
  report late;
  report next;
  deadline_pool crew;
  crew.reserve(1);
  crew.run(
      "the abort of rank 3", 1ms, [&] { stuck.wait(); }, late.taker());
  CHECK(late.wait().code == errc::deadline_exceeded);
  crew.run(
      "the next", 1h, [] {}, next.taker());
  CHECK_FALSE(next.wait());
  stuck.count_down();
  while (crew.abandoned_count() > 0) std::this_thread::yield();
}

TEST_CASE("an exception of a job's report ends nothing", "[collectives]") {
  deadline_pool crew;
  report next;
  crew.run(
      "a job", 1h, [] {}, [](const error&) { throw std::runtime_error{"no memory for a message"}; });
  crew.run(
      "the next", 1h, [] {}, next.taker());
  CHECK_FALSE(next.wait());
}

TEST_CASE("the end of a crew waits for a job no longer than until its deadline, and what it holds stays its own",
          "[collectives][TIM-1]") {
  auto stuck = std::make_shared<std::latch>(1);
  const std::weak_ptr<std::latch> held = stuck;
  report seen;
  const auto before = leak_count();
  {
    deadline_pool crew{10ms};
    crew.run(
        "a job", 5ms, [stuck] { stuck->wait(); }, seen.taker());
  }
  CHECK(seen.count == 1);
  CHECK(seen.wait().code == errc::deadline_exceeded);
  CHECK(leak_count() == before + 1); // left behind, and said so
  stuck->count_down();
  stuck.reset();
  while (!held.expired()) std::this_thread::yield(); // the thread has let go, and ends
}

TEST_CASE("a job's report may run another job", "[collectives]") {
  std::optional<deadline_pool> crew{std::in_place};
  report last;
  crew->run(
      "first", 1h, [] {},
      [&](const error&) {
        crew->run(
            "second", 1h, [] {}, last.taker());
      });
  CHECK_FALSE(last.wait());
  crew.reset();
  CHECK(last.count == 1);
}

TEST_CASE("a listener for leaks may ask the pool that reports its stuck threads", "[collectives][TIM-1]") {
  auto stuck = std::make_shared<std::latch>(1);
  const std::weak_ptr<std::latch> held = stuck;
  report seen;
  std::size_t lost = 0;
  {
    deadline_pool crew{10ms};
    on_leak([&](const error&) { lost = crew.abandoned_count(); });
    crew.run(
        "a job", 5ms, [stuck] { stuck->wait(); }, seen.taker());
    crew.stop();
    on_leak({});
  }
  CHECK(lost == 1);
  stuck->count_down();
  stuck.reset();
  while (!held.expired()) std::this_thread::yield();
}
