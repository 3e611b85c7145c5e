// co_await on requests: where a coroutine goes on, what it gets, and what becomes of one that is destroyed.
#include "support/at_its_end.hpp"
#include "support/runtimes.hpp"

#include <troupe/runtime/interop/awaitable_reply.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <coroutine>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::awaitable_reply_test {

namespace {

/// The smallest coroutine type: begins at once, tells its end to a future, and can be destroyed while it waits.
class job {
public:
  struct promise_type {
    std::promise<void> done;
    job get_return_object() { return job{std::coroutine_handle<promise_type>::from_promise(*this), done.get_future()}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct end {
        bool await_ready() noexcept { return false; }
        void await_suspend(std::coroutine_handle<promise_type> self) noexcept {
          std::promise<void> told = std::move(self.promise().done);
          self.destroy();
          told.set_value();
        }
        void await_resume() noexcept {}
      };
      return end{};
    }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };

  job(std::coroutine_handle<promise_type> self, std::future<void> done) : self_{self}, done_{std::move(done)} {}
  void wait() { done_.get(); }
  void destroy() { self_.destroy(); }

private:
  std::coroutine_handle<promise_type> self_;
  std::future<void> done_;
};

/// A thread that calls what comes to a queue, until it ends.
class resuming_thread {
public:
  ~resuming_thread() { end(); }
  void end() {
    queue.close();
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::thread::id id() const { return thread_.get_id(); }

  resume_queue queue;

private:
  std::thread thread_{[this] { queue.run(); }};
};

struct noted {
  std::vector<outcome> outcomes;
  std::thread::id resumed_on{};
  int ended = 0;
};

struct counts_its_end {
  int* count;
  ~counts_its_end() { ++*count; }
};

job await_sums(world where, std::vector<buffer> values, resume_queue& queue, noted& told) {
  const counts_its_end end{&told.ended};
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{one, one, 100, dtype::f32, reduction::sum});
  for (int round = 0; round < 3; ++round) told.outcomes.emplace_back(co_await reply_on(queue.resumer(), where, parts));
  told.resumed_on = std::this_thread::get_id();
}

job await_copy(world where, operand from, buffer to, nanoseconds deadline, resume_queue& queue, noted& told) {
  const counts_its_end end{&told.ended};
  auto reply = reply_on(queue.resumer(), where, rank{0}, copy{std::move(from), std::move(to)}, {.deadline = deadline});
  told.outcomes.push_back(co_await std::move(reply).as_outcome());
  told.resumed_on = std::this_thread::get_id();
}

job await_refused(world where, resume_queue& queue, noted& told) {
  try {
    co_await reply_on(queue.resumer(), where, rank{0}, all_reduce{buffer{}, buffer{}, 100, dtype::f32, reduction::sum});
  } catch (const exception& failure) {
    told.outcomes.emplace_back(failure.why());
    told.resumed_on = std::this_thread::get_id();
  }
}

job await_twice(world where, resume_queue& queue, noted& told) {
  auto reply = reply_on(queue.resumer(), where, rank{0}, barrier{});
  told.outcomes.emplace_back(co_await reply);
  try {
    co_await reply;
  } catch (const exception& failure) {
    told.outcomes.emplace_back(failure.why());
  }
}

} // namespace

TROUPE_WORLD_TEST(2, "a coroutine awaits requests, and goes on where it says", "[runtime][interop][coroutines]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 100);
  resuming_thread thread;
  noted told;
  await_sums(where, values, thread.queue, told).wait();
  REQUIRE(told.outcomes.size() == 3);
  for (const outcome& one : told.outcomes) CHECK(failure_of(one) == nullptr);
  CHECK(told.ended == 1);
  for (const float value : read_back(where, rank{1}, values[1])) REQUIRE(value == 12.F);
}

TROUPE_WORLD_TEST(1, "a coroutine that waits goes on on its own thread, never on the one that answers",
                  "[runtime][interop][coroutines]") {
  runtime rt{settings};
  world where = rt.form_world();
  const held_client held{where.device_of(rank{0})};
  const buffer from = where.allocate_pinned(64);
  const buffer to = where.allocate_pinned(64);
  resuming_thread thread;
  noted told;
  job one = await_copy(where, held.after(from), to, world_default_deadline, thread.queue, told);
  CHECK(told.outcomes.empty()); // it waits
  held.open();
  one.wait();
  CHECK(failure_of(told.outcomes.at(0)) == nullptr);
  CHECK(told.resumed_on == thread.id());
}

TEST_CASE("an error is thrown into the coroutine, or comes as an outcome", "[runtime][interop][coroutines]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  resuming_thread thread;
  noted told;
  await_refused(where, thread.queue, told).wait();
  REQUIRE(told.outcomes.size() == 1);
  CHECK(failure_of(told.outcomes[0])->code == errc::invalid_argument);
}

TEST_CASE("a request that is awaited ends at its deadline", "[runtime][interop][coroutines]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const held_client held{where.device_of(rank{0})};
  resuming_thread thread;
  noted told;
  job one =
      await_copy(where, held.after(where.allocate_pinned(64)), where.allocate_pinned(64), 50ms, thread.queue, told);
  one.wait();
  REQUIRE(told.outcomes.size() == 1);
  CHECK(failure_of(told.outcomes[0])->code == errc::deadline_exceeded);
  CHECK(told.resumed_on == thread.id());
}

TEST_CASE("a coroutine that is destroyed while it waits leaves its request to go on",
          "[runtime][interop][coroutines]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const held_client held{where.device_of(rank{0})};
  const buffer from = where.allocate_pinned(64);
  const buffer to = where.allocate_pinned(64);
  std::ranges::fill(from.host_span<std::uint8_t>(), std::uint8_t{7});
  resume_queue queue; // nobody runs it: what came here would be seen below
  noted told;
  SECTION("before its answer") {
    await_copy(where, held.after(from), to, world_default_deadline, queue, told).destroy();
    CHECK(told.ended == 1);
    held.open();
    where.barrier().get();
  }
  SECTION("after its answer, which has not resumed it yet") {
    job one = await_copy(where, held.after(from), to, world_default_deadline, queue, told);
    held.open();
    where.barrier().get(); // answered behind it
    one.destroy();
    CHECK(told.ended == 1);
  }
  queue.close();
  queue.run();
  CHECK(told.outcomes.empty());
  CHECK(told.ended == 1);
  CHECK(to.host_span<std::uint8_t>()[63] == 7);
}

TEST_CASE("a reply that nobody awaits is dropped", "[runtime][interop][coroutines]") {
  const auto resumed = std::make_shared<std::atomic<int>>(0);
  {
    runtime rt{mock_settings(1)};
    world where = rt.form_world();
    const held_client held{where.device_of(rank{0})};
    const buffer from = where.allocate_pinned(64);
    const buffer to = where.allocate_pinned(64);
    std::ranges::fill(from.host_span<std::uint8_t>(), std::uint8_t{7});
    {
      const auto dropped =
          reply_on([resumed](const continuation&) { ++*resumed; }, where, rank{0}, copy{held.after(from), to});
    }
    CHECK(resumed.use_count() > 1); // held for the answer
    held.open();
    where.barrier().get(); // answered behind it
    CHECK(to.host_span<std::uint8_t>()[63] == 7);
  }
  CHECK(*resumed == 0);
  CHECK(resumed.use_count() == 1); // the answer has let go of it
}

TEST_CASE("a reply comes once: awaited again, it says so", "[runtime][interop][coroutines]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  resuming_thread thread;
  noted told;
  await_twice(where, thread.queue, told).wait();
  REQUIRE(told.outcomes.size() == 2);
  CHECK(failure_of(told.outcomes[0]) == nullptr);
  CHECK(failure_of(told.outcomes[1])->code == errc::invalid_argument);
}

TEST_CASE("a rank that is not here is refused at once, and nothing is left behind", "[runtime][interop][coroutines]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  resume_queue queue;
  CHECK_THROWS_AS(reply_on(queue.resumer(), where, rank{5}, barrier{}), exception);
}

TEST_CASE("requests of a world that stops end the coroutines that wait for them", "[runtime][interop][coroutines]") {
  resuming_thread thread;
  noted told;
  std::optional<job> one;
  {
    runtime rt{mock_settings(1)};
    world where = rt.form_world();
    where.stop();
    one.emplace(await_copy(where, where.allocate_pinned(4), where.allocate_pinned(4), world_default_deadline,
                           thread.queue, told));
    one->wait();
  }
  REQUIRE(told.outcomes.size() == 1);
  REQUIRE(failure_of(told.outcomes[0]) != nullptr);
}

TEST_CASE("objects that a continuation owned may post another one when they end", "[runtime][interop]") {
  resume_queue queue;
  bool has_run = false;
  const auto note = [](void* of) { *static_cast<bool*>(of) = true; };
  const auto last = std::shared_ptr<void>{&has_run, [](void*) {}};
  queue.post({[](void*) {}, at_its_end([&] { queue.post({note, last}); })});
  queue.close();
  queue.run();
  CHECK(has_run);
}

} // namespace troupe::tests::awaitable_reply_test
