// The engine alone: order, mode, waking, end.
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"

#include <troupe/device/mock/mock_engine.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;
using troupe::tests::await;
using troupe::tests::code_of;
using troupe::tests::comes_true;

namespace {

class function_task final : public mock_task {
public:
  explicit function_task(std::function<progress()> step) : step_{std::move(step)} {}
  progress step() override { return step_(); }

private:
  std::function<progress()> step_;
};

std::unique_ptr<mock_task> task(std::function<progress()> step) {
  return std::make_unique<function_task>(std::move(step));
}

class brief_task final : public mock_task {
public:
  explicit brief_task(std::function<progress()> step) : step_{std::move(step)} {}
  progress step() override { return step_(); }
  [[nodiscard]] bool is_brief() const noexcept override { return true; }

private:
  std::function<progress()> step_;
};

constexpr device_id here{0};

} // namespace

// DET-1: order depends on the calls alone.
TEST_CASE("by hand, streams take turns in order of creation, one task each (DET-1)", "[device][mock]") {
  mock_engine engine{1, engine_mode::manual};
  std::string trace;
  const auto first = engine.create_stream(here);
  const auto second = engine.create_stream(here);
  const auto third = engine.create_stream(here);
  const auto write = [&](char letter) {
    return task([&trace, letter] {
      trace += letter;
      return progress::reached;
    });
  };
  for (const char letter : {'A', 'B', 'C'}) engine.enqueue(here, third, write(letter));
  for (const char letter : {'a', 'b'}) engine.enqueue(here, first, write(letter));
  engine.enqueue(here, second, write('1'));
  CHECK(trace.empty()); // nothing runs before it is told to
  engine.run_until_blocked();
  CHECK(trace == "a1AbBC");
}

TEST_CASE("by hand, a task that cannot proceed holds its stream and no other", "[device][mock]") {
  mock_engine engine{1, engine_mode::manual};
  bool open = false;
  int done = 0;
  const auto held = engine.create_stream(here);
  const auto free = engine.create_stream(here);
  engine.enqueue(here, held, task([&] { return open ? progress::reached : progress::pending; }));
  engine.enqueue(here, held, task([&] { return ++done, progress::reached; }));
  engine.enqueue(here, free, task([&] { return ++done, progress::reached; }));
  engine.run_until_blocked();
  CHECK(done == 1);
  CHECK(engine.query(here, held) == progress::pending);
  CHECK(engine.query(here, free) == progress::reached);
  open = true;
  engine.run_until_blocked();
  CHECK(done == 2);
  CHECK(engine.query(here, held) == progress::reached);
}

TEST_CASE("by hand, synchronize runs its own stream first and refuses to wait for ever", "[device][mock]") {
  mock_engine engine{1, engine_mode::manual};
  std::string trace;
  bool open = false;
  const auto other = engine.create_stream(here);
  const auto mine = engine.create_stream(here);
  const auto held = engine.create_stream(here);
  engine.enqueue(here, other, task([&] { return trace += 'o', open = true, progress::reached; }));
  engine.enqueue(here, mine, task([&] { return trace += 'm', progress::reached; }));
  engine.synchronize(here, mine);
  CHECK(trace == "m");
  engine.enqueue(here, held, task([&] { return open ? progress::reached : progress::pending; }));
  engine.synchronize(here, held); // waits for the other stream, so that one is run
  CHECK(trace == "mo");
  engine.enqueue(here, held, task([] { return progress::pending; }));
  CHECK(code_of([&] { engine.synchronize(here, held); }) == errc::invalid_argument);
}

TEST_CASE("one thread runs thousands of streams", "[device][mock]") {
  mock_engine engine{4, engine_mode::threaded};
  constexpr int stream_count = 4000;
  std::vector<std::pair<device_id, native_stream>> streams;
  int done = 0; // the one thread's, until the streams have been waited for
  std::atomic<bool> open = false;
  std::thread::id runner;
  const auto gate = engine.create_stream(here);
  engine.enqueue(here, gate, task([&] {
                   runner = std::this_thread::get_id();
                   return open ? progress::reached : progress::pending;
                 }));
  for (int i = 0; i < stream_count; ++i) {
    const device_id where{i % 4};
    streams.emplace_back(where, engine.create_stream(where));
    engine.enqueue(where, streams.back().second, task([&] { return open ? progress::reached : progress::pending; }));
    engine.enqueue(where, streams.back().second, task([&] {
                     if (std::this_thread::get_id() == runner) ++done;
                     return progress::reached;
                   }));
  }
  open = true;
  engine.waker()->wake();
  engine.synchronize(here, gate);
  for (const auto& [where, handle] : streams) engine.synchronize(where, handle);
  CHECK(done == stream_count);
}

TEST_CASE("a parked engine is woken from outside, and waking may outlive it", "[device][mock]") {
  std::shared_ptr<mock_waker> waker;
  {
    mock_engine engine{1, engine_mode::threaded};
    waker = engine.waker();
    std::atomic<bool> open = false;
    const auto line = engine.create_stream(here);
    engine.enqueue(here, line, task([&] { return open ? progress::reached : progress::pending; }));
    open = true;
    waker->wake();
    engine.synchronize(here, line);
    CHECK(engine.query(here, line) == progress::reached);
  }
  waker->wake();
}

TEST_CASE("a brief task at the head of its stream is stepped by the thread that enqueues it, and no other task is",
          "[device][mock]") {
  std::atomic<int> steps{0};
  std::atomic<bool> was_here{false}; ///< The last task was stepped first by the thread that had enqueued it.
  std::atomic<bool> may_end{false};
  mock_engine engine{1, engine_mode::threaded};
  const auto begin = [&](bool is_brief, native_stream line) {
    const auto step = [&, asked = std::this_thread::get_id(), mine = std::make_shared<std::atomic<int>>(0)] {
      if (++*mine == 1) was_here = std::this_thread::get_id() == asked;
      ++steps;
      return may_end ? progress::reached : progress::pending;
    };
    if (is_brief)
      engine.enqueue(here, line, std::make_unique<brief_task>(step));
    else
      engine.enqueue(here, line, task(step));
  };
  SECTION("not brief") {
    for (int i = 0; i < 20; ++i) { // the engine's thread runs when it begins
      was_here = true;
      begin(false, engine.create_stream(here));
      await("the step of the engine's thread", [&] { return !was_here; });
    }
  }
  SECTION("brief, unless the engine's thread runs tasks: it does when it begins") {
    native_stream line{};
    await("a step here", [&] {
      line = engine.create_stream(here);
      begin(true, line);
      return was_here.load();
    });
    SECTION("what is enqueued behind it wakes nothing") {
      const int before = steps.load();
      std::atomic<int> ended{0};
      for (int i = 1; i <= 50; ++i) {
        engine.enqueue(here, line, task([&] { return ++ended, progress::reached; }));
        std::this_thread::sleep_for(1ms);
      }
      CHECK(steps.load() - before < 25); // the engine's thread may still be awake, and step what there is
      may_end = true;
      engine.waker()->wake();
      engine.synchronize(here, line);
      CHECK(ended == 50);
    }
  }
  may_end = true;
  engine.waker()->wake();
}

TEST_CASE("a brief task that ends at once lets the engine go on with other streams", "[device][mock]") {
  mock_engine engine{1, engine_mode::threaded};
  for (int i = 0; i < 50; ++i) {
    const auto line = engine.create_stream(here);
    const auto other = engine.create_stream(here);
    std::atomic<bool> is_open{false};
    std::atomic<int> looks{0};
    engine.enqueue(here, other, task([&] { return ++looks, is_open ? progress::reached : progress::pending; }));
    await("a look", [&] { return looks > 0; });
    std::this_thread::sleep_for(std::chrono::microseconds{20 * i}); // the engine's thread parks meanwhile, or does not
    engine.enqueue(here, line, std::make_unique<brief_task>([&] { return is_open = true, progress::reached; }));
    const bool goes_on = comes_true([&] { return engine.query(here, other) == progress::reached; }, 5s);
    if (!goes_on) engine.waker()->wake(); // so that the test ends
    engine.synchronize(here, other);
    REQUIRE(goes_on);
  }
}

TEST_CASE("an injected fault that hits a brief task is carried out by the engine's thread", "[device][mock]") {
  struct ends_somewhere {
    std::atomic<std::thread::id>* where;
    explicit ends_somewhere(std::atomic<std::thread::id>* seen) : where{seen} {}
    ends_somewhere(const ends_somewhere&) = delete;
    ends_somewhere& operator=(const ends_somewhere&) = delete;
    ~ends_somewhere() { where->store(std::this_thread::get_id()); }
  };
  for (int i = 0; i < 20; ++i) {
    mock_engine engine{1, engine_mode::threaded};
    const auto line = engine.create_stream(here);
    const auto other = engine.create_stream(here);
    std::atomic<std::thread::id> dropped_by{};
    std::atomic<int> looks{0};
    engine.enqueue(here, other, task([&, held = std::make_shared<ends_somewhere>(&dropped_by)] {
                     ++looks;
                     return progress::pending;
                   }));
    await("a look", [&] { return looks > 0; });
    std::this_thread::sleep_for(std::chrono::microseconds{50 * i}); // the engine's thread parks meanwhile, or does not
    engine.fail_next(here, {.code = errc::device_failed, .text = "broken"});
    engine.enqueue(here, line, std::make_unique<brief_task>([] { return progress::pending; }));
    await("the end of what is dropped", [&] { return dropped_by.load() != std::thread::id{}; });
    CHECK(dropped_by.load() != std::this_thread::get_id());
  }
}

TEST_CASE("an engine that ends drops the tasks that are left", "[device][mock]") {
  const auto held = std::make_shared<int>(0);
  bool ran = false;
  for (const engine_mode mode : {engine_mode::threaded, engine_mode::manual}) {
    mock_engine engine{1, mode};
    const auto line = engine.create_stream(here);
    engine.enqueue(here, line, task([held] { return progress::pending; }));
    engine.enqueue(here, line, task([held, &ran] { return ran = true, progress::reached; }));
    engine.destroy_stream(here, line); // its tasks stay
    CHECK(held.use_count() == 3);
  }
  CHECK(held.use_count() == 1);
  CHECK_FALSE(ran);
}

TEST_CASE("a task's end may take as long as it likes: no lock is held", "[device][mock]") {
  mock_engine engine{1, engine_mode::manual};
  const auto line = engine.create_stream(here);
  struct asks_at_its_end {
    mock_engine* engine;
    native_stream line;
    progress* seen;
    asks_at_its_end(mock_engine* e, native_stream l, progress* s) : engine{e}, line{l}, seen{s} {}
    asks_at_its_end(const asks_at_its_end&) = delete;
    asks_at_its_end& operator=(const asks_at_its_end&) = delete;
    ~asks_at_its_end() { *seen = engine->query(here, line); }
  };
  progress seen = progress::reached;
  engine.enqueue(here, line,
                 task([held = std::make_shared<asks_at_its_end>(&engine, line, &seen)] { return progress::reached; }));
  engine.run_until_blocked();
  CHECK(seen == progress::pending); // its stream is done only when it is gone
  CHECK(engine.query(here, line) == progress::reached);
}

TEST_CASE("handles of others, and calls that cannot be, are refused", "[device][mock]") {
  mock_engine engine{2, engine_mode::manual};
  mock_engine other{2, engine_mode::manual};
  const auto line = engine.create_stream(here);
  const auto nothing = [] { return progress::reached; };
  CHECK(code_of([&] { other.enqueue(here, line, task(nothing)); }) == errc::invalid_argument);
  CHECK(code_of([&] { engine.enqueue(device_id{1}, line, task(nothing)); }) == errc::invalid_argument);
  CHECK(code_of([&] { engine.enqueue(here, nullptr, task(nothing)); }) == errc::invalid_argument);
  CHECK(code_of([&] { static_cast<void>(engine.create_stream(device_id{2})); }) == errc::missing);
  CHECK(code_of([&] { engine.fail_next(here, error{}); }) == errc::invalid_argument);
  engine.destroy_stream(here, line);
  CHECK(code_of([&] { static_cast<void>(engine.query(here, line)); }) == errc::invalid_argument);
  CHECK(code_of([] { mock_engine none{-1, engine_mode::manual}; }) == errc::invalid_argument);
}

TEST_CASE("a task that waits for its own engine fails instead of hanging", "[device][mock]") {
  mock_engine engine{1, engine_mode::threaded};
  const auto line = engine.create_stream(here);
  engine.enqueue(here, line, task([&] { return engine.synchronize(here, line), progress::reached; }));
  CHECK(code_of([&] { engine.synchronize(here, line); }) == errc::invalid_argument);
}
