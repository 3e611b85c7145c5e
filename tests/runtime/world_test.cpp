/// Worlds as users hold them.

#include "support/comes_true.hpp"
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

namespace troupe::tests {

namespace {

void expect_all(world& where, rank self, const buffer& memory, float value) {
  for (const float seen : read_back(where, self, memory)) REQUIRE(seen == value);
}

/// Says what it hears.
class eavesdropper final : public listener_handle::base {
public:
  struct notes {
    std::mutex mutex;
    std::vector<world_phase> heard;
    std::atomic<bool> ended{false};
  };
  eavesdropper(caf::actor_config& settings, std::shared_ptr<notes> to)
    : listener_handle::base{settings}, to_{std::move(to)} {}
  behavior_type make_behavior() override {
    return {[this](const world_event& event) {
      const std::lock_guard lock{to_->mutex};
      to_->heard.push_back(event.phase);
      if (event.phase == world_phase::stopped) quit();
    }};
  }
  void on_exit() override { to_->ended = true; }

private:
  std::shared_ptr<notes> to_;
};

} // namespace

TEST_CASE("an all_reduce to the world is exact on every rank and reports its times in order", "[runtime]") {
  const int ranks = GENERATE(1, 2, 3, 8);
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  runtime rt{mock_settings(ranks)};
  world where = rt.form_world({.strategy = strategy});
  const auto values = ranked_values(where, 100);
  std::vector<buffer> sums;
  for (const rank self : where.local_ranks()) sums.push_back(where.allocate(self, 400));
  const completion reply = where.all_reduce(values, sums, 100, dtype::f32, reduction::sum).get();
  CHECK(reply.epoch == epoch{1});
  CHECK(reply.times.queued <= reply.times.launched);
  CHECK(reply.times.launched <= reply.times.done);
  for (const rank self : where.local_ranks()) {
    const auto at = static_cast<std::size_t>(self.value());
    expect_all(where, self, sums[at], ranked_sum(ranks));
    expect_all(where, self, values[at], static_cast<float>(self.value() + 1));
  }
  CHECK_NOTHROW(where.barrier().get());
}

TEST_CASE("one scheduler thread serves any number of ranks without deadlock (BLK-2)", "[runtime]") {
  auto settings = mock_settings(16);
  settings.scheduler_threads = 1;
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 8);
  std::vector<std::jthread> clients;
  std::atomic<int> answered{0};
  for (int c = 0; c < 4; ++c)
    clients.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        where.all_reduce(values, values, 8, dtype::f32, reduction::max).get();
        ++answered;
      }
    });
  clients.clear();
  CHECK(answered == 200);
  expect_all(where, rank{3}, values[3], 16);
}

TROUPE_WORLD_TEST(2, "concurrent clients of a world are served in one order on all ranks (ORD-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  // Two clients' operations do not commute: a sum in place, and a min with small values. Any one order gives the same
  // values on all ranks; different orders on different ranks would meet different operations, which the mock refuses.
  const auto values = ranked_values(where, 16);
  std::vector<std::jthread> clients;
  for (const auto op : {reduction::sum, reduction::min, reduction::max})
    clients.emplace_back([&, op] {
      for (int i = 0; i < 10; ++i) where.all_reduce(values, values, 16, dtype::f32, op).get();
    });
  clients.clear();
  const auto first = read_back(where, rank{0}, values[0]);
  for (const rank self : where.local_ranks())
    CHECK(read_back(where, self, values[static_cast<std::size_t>(self.value())]) == first);
}

TROUPE_WORLD_TEST(2, "a request waits on the device for the ready event of its operand", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 4);
  held_client client{where.device_of(rank{1})};
  std::vector<operation> parts{all_reduce{values[0], values[0], 4}, all_reduce{client.after(values[1]), values[1], 4}};
  auto reply = where.ask(std::move(parts));
  CHECK(reply.wait_for(20ms) == std::future_status::timeout);
  client.open();
  CHECK_NOTHROW(reply.get());
  expect_all(where, rank{1}, values[1], 3);
}

TROUPE_WORLD_TEST(2, "subscribers hear of every phase in order", "[runtime]") {
  const auto notes = std::make_shared<eavesdropper::notes>();
  {
    runtime rt{settings};
    world where = rt.form_world();
    const auto listener = rt.system().spawn<eavesdropper>(notes);
    compat::post(actor_of(where), subscribe{listener});
    where.barrier().get();
    where.stop();
    while (!notes->ended) std::this_thread::yield();
  }
  CHECK(notes->heard == std::vector{world_phase::ready, world_phase::stopping, world_phase::stopped});
}

TROUPE_WORLD_TEST(2, "two worlds of one runtime share its devices and end on their own", "[runtime]") {
  runtime rt{settings};
  world first = rt.form_world();
  world second = rt.form_world({.strategy = completion_strategy::event});
  const auto values = ranked_values(first, 4);
  first.all_reduce(values, values, 4, dtype::f32, reduction::sum).get();
  first.stop();
  second.all_reduce(values, values, 4, dtype::f32, reduction::sum).get();
  expect_all(second, rank{0}, values[0], 6);
}

TROUPE_WORLD_TEST(2, "processes form a world together with one unique id, and are asked by rank", "[runtime]") {
  // Two runtimes stand for two processes: nothing but the id passes between them.
  settings.ranks = 0;
  settings.position = process_position{.rank = 0, .world_size = 2, .local_rank = 0};
  runtime one{settings};
  settings.position = process_position{.rank = 1, .world_size = 2, .local_rank = 1};
  runtime other{settings};
  const unique_id id = one.make_unique_id();
  auto forming = std::async(std::launch::async, [&] { return one.form_world({.id = id}); });
  world right = other.form_world({.id = id});
  world left = forming.get();
  CHECK(left.size() == 2);
  CHECK(left.local_ranks() == std::vector{rank{0}});

  const auto low = ranked_values(left, 8);
  const auto high = ranked_values(right, 8);
  auto first = left.ask(rank{0}, all_reduce{low[0], low[0], 8});
  auto second = right.ask(rank{1}, all_reduce{high[0], high[0], 8});
  first.get();
  second.get();
  expect_all(left, rank{0}, low[0], 3);
  expect_all(right, rank{1}, high[0], 3);
  CHECK(failure_of(left.barrier()).code == errc::unsupported);
}

TEST_CASE("processes that see one device each use it, whatever their local rank", "[runtime]") {
  auto settings = mock_settings(1);
  settings.position = process_position{.rank = 0, .world_size = 2, .local_rank = 0};
  runtime one{settings};
  settings.position = process_position{.rank = 1, .world_size = 2, .local_rank = 1};
  runtime other{settings};
  const unique_id id = one.make_unique_id();
  auto forming = std::async(std::launch::async, [&] { return one.form_world({.id = id}); });
  world right = other.form_world({.id = id});
  world left = forming.get();
  auto first = left.ask(rank{0}, barrier{});
  auto second = right.ask(rank{1}, barrier{});
  first.get();
  second.get();
}

TEST_CASE("a process whose local rank has no device is told so before anything begins", "[runtime]") {
  auto settings = mock_settings(2);
  settings.position = process_position{.rank = 2, .world_size = 4, .local_rank = 2};
  try {
    const runtime rt{settings};
    FAIL("a runtime began without its device");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
    CHECK(failure.why().text.find("position.local_rank is 2, but this process sees 2 devices") != std::string::npos);
  }
}

TEST_CASE("a world that cannot form says why, within its deadline (TIM-1)", "[runtime]") {
  auto settings = mock_settings(2);
  settings.deadlines.form = 50ms;
  settings.position = process_position{.rank = 0, .world_size = 2, .local_rank = 0};
  runtime lonely{settings};
  try {
    static_cast<void>(lonely.form_world({.id = lonely.make_unique_id()}));
    FAIL("a world formed without its other rank");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::deadline_exceeded);
  }
  CHECK_THROWS_AS(lonely.form_world(), exception); // no id
}

TEST_CASE("a world whose forming is to stop ends, and form_world() says so", "[runtime][TIM-1]") {
  const bool has_begun = GENERATE(true, false);
  auto settings = mock_settings(2);
  settings.deadlines.form = 60s;
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{1}).forming(0).hang();
  settings.faults = script;
  runtime rt{settings};
  std::stop_source stop;
  if (!has_begun) stop.request_stop();
  auto forming = rt.form_world_async({.stop = stop.get_token()});
  if (has_begun) {
    REQUIRE(comes_true([&] { return script->waiting().empty(); })); // it hangs
    CHECK(forming.wait_for(0s) == std::future_status::timeout);
    stop.request_stop();
  }
  REQUIRE(forming.wait_for(20s) == std::future_status::ready);
  CHECK(code_of([&] { static_cast<void>(forming.get()); }) == errc::stopping);
  script->release();
  CHECK_NOTHROW(rt.form_world({.stop = std::stop_source{}.get_token()}).barrier().get());
}

TEST_CASE("more ranks than devices are refused with both numbers", "[runtime]") {
  auto settings = mock_settings(2);
  settings.ranks = 3;
  runtime rt{settings};
  try {
    static_cast<void>(rt.form_world());
    FAIL("3 ranks formed on 2 devices");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
    CHECK(failure.why().text.find("ranks is 3") != std::string::npos);
    CHECK(failure.why().text.find("2 devices") != std::string::npos);
  }
}

TEST_CASE("a device that somebody else holds is an error that names it, and the runtime goes on", "[runtime]") {
  runtime rt{mock_settings(2)};
  mock_of(rt).occupy(device_id{1});
  try {
    static_cast<void>(rt.form_world());
    FAIL("a world formed on an occupied device");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::device_occupied);
    CHECK(failure.why().text.find("device 1") != std::string::npos);
  }
  mock_of(rt).occupy(device_id{7});
  CHECK_NOTHROW(rt.form_world().barrier().get());
}

TEST_CASE("memory that runs out is an error and leaves the world as it was", "[runtime]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  CHECK_THROWS_AS(where.allocate(rank{0}, std::size_t{1} << 40U), exception);
  CHECK_NOTHROW(where.barrier().get());
}

TROUPE_WORLD_TEST(3, "worlds come and go without anything left behind", "[runtime]") {
  const auto before = leak_count();
  {
    runtime rt{settings};
    for (int i = 0; i < (settings.backend == backend_choice::mock ? 30 : 4); ++i) {
      world where = rt.form_world();
      const auto values = ranked_values(where, 4);
      where.all_reduce(values, values, 4, dtype::f32, reduction::sum).get();
      if (i % 2 == 0) where.stop();
    }
  }
  CHECK(leak_count() == before);
}

} // namespace troupe::tests
