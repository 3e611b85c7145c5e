// Idle worlds give device memory back: requests wait, and everything goes on when they are resumed, stop or fail.
#include "support/outcomes.hpp"

#include "support/runtimes.hpp"
#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

void skip_unless_it_can(const world& where) {
  if (const feature_finding found = where.capabilities().find(feature::suspend); found.available == availability::no)
    SKIP(found.why);
}

std::vector<buffer> ones(world& where, std::size_t length) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) {
    const buffer host = where.allocate_pinned(length * sizeof(float));
    std::ranges::fill(host.host_span<float>(), 1.0F);
    made.push_back(where.allocate(self, host.size_bytes()));
    static_cast<void>(where.copy(self, host, made.back()).get());
  }
  return made;
}

const rank_group both{.name = "both", .members = {rank{0}, rank{1}}};

} // namespace

TROUPE_WORLD_TEST(2, "a suspended world lets requests wait, and serves them when it is resumed", "[runtime][ONE-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  skip_unless_it_can(where);
  const auto memory = ones(where, 1000);
  static_cast<void>(where.all_reduce(memory, memory, 1000, dtype::f32, reduction::sum).get());

  CHECK(where.suspend().size() == 2);
  CHECK(where.status().is_suspended);
  CHECK(where.status().phase == world_phase::ready);
  CHECK_THAT(describe(where.status()), ContainsSubstring("suspended"));
  std::future<completion> waits = where.all_reduce(memory, memory, 1000, dtype::f32, reduction::sum);
  CHECK(waits.wait_for(50ms) == std::future_status::timeout);

  where.resume();
  CHECK_FALSE(where.status().is_suspended);
  static_cast<void>(waits.get());
  for (const rank self : where.local_ranks())
    CHECK(read_back(where, self, memory[static_cast<std::size_t>(self.value())]) == std::vector<float>(1000, 4.0F));

  for (int round = 0; round < 3; ++round) {
    static_cast<void>(where.suspend());
    where.resume();
    static_cast<void>(where.barrier().get());
  }
}

TEST_CASE("other calls to a suspended world wait like requests, or are refused", "[runtime]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  where.resume(); // nothing to do
  static_cast<void>(where.suspend());
  const error again = error_of([&] { static_cast<void>(where.suspend()); });
  CHECK(again.code == errc::invalid_argument);
  CHECK_THAT(again.text, ContainsSubstring("resume it first"));

  auto halves = std::async(std::launch::async, [&] { return where.split({both}); });
  CHECK(halves.wait_for(50ms) == std::future_status::timeout);
  where.resume();
  CHECK(halves.get().size() == 1);
}

TEST_CASE("a request's deadline runs while its world is suspended", "[runtime]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  static_cast<void>(where.suspend());
  const error late = failure_of(where.ask(std::vector<operation>(2, barrier{}), {.deadline = 20ms}));
  CHECK(late.code == errc::deadline_exceeded);
  where.resume();
  CHECK_FALSE(failure_of(where.barrier()));
}

TEST_CASE("a world that was split off serves while its parent is suspended", "[runtime]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  auto made = where.split({both});
  static_cast<void>(where.suspend());
  CHECK_FALSE(failure_of(made.front().handle->barrier()));
  where.resume();
  CHECK_FALSE(failure_of(where.barrier()));
}

TEST_CASE("a suspended world that is stopped is resumed first, and answers what waits", "[runtime][ONE-1]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  static_cast<void>(where.suspend());
  std::future<completion> waits = where.barrier();
  where.stop();
  REQUIRE(waits.wait_for(0s) == std::future_status::ready);
  CHECK_FALSE(failure_of(std::move(waits)));
  CHECK(error_of([&] { static_cast<void>(where.suspend()); })); // its actor has ended, or refuses
}

TEST_CASE("a backend that cannot give memory back says so, and the world goes on", "[runtime]") {
  auto lacking = mock_settings(2);
  lacking.mock.without = {feature::suspend};
  runtime rt{lacking};
  world where = rt.form_world();
  const error refused = error_of([&] { static_cast<void>(where.suspend()); });
  CHECK(refused.code == errc::unsupported);
  CHECK_THAT(refused.text, ContainsSubstring("without suspend"));
  CHECK_FALSE(failure_of(where.barrier()));
}

TEST_CASE("listeners are told of a suspension and of its end", "[runtime]") {
  std::mutex mutex;
  std::vector<bool> heard; // outlives the runtime, whose end is heard, too
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  where.on_event([&](const world_event& one) {
    const std::lock_guard lock{mutex};
    heard.push_back(one.is_suspended);
  });
  static_cast<void>(where.suspend());
  where.resume();
  const std::lock_guard lock{mutex};
  CHECK(heard == std::vector{true, false});
}

TEST_CASE("a world that fails while it is suspended serves again without being resumed", "[runtime][FLT-1]") {
  auto recovering = mock_settings(2);
  recovering.recovery.policy = recovery_policy::keep_size;
  recovering.recovery.backoff = 1ms;
  runtime rt{recovering};
  world where = rt.form_world();
  const epoch before = where.epoch();
  static_cast<void>(where.suspend());
  std::future<completion> waits = where.barrier();
  compat::post(
      caf::actor_cast<world_inner_handle>(actor_of(where)),
      world_notice{rank_report{rank_report::kind::faulted,
                               rank{1},
                               before,
                               {.code = errc::communicator_failed, .text = "the test says so", .rank = rank{1}}}});
  CHECK(failure_of(std::move(waits)).code != errc::none);
  const auto until = std::chrono::steady_clock::now() + 20s;
  while ((where.epoch() == before || where.status().phase != world_phase::ready) &&
         std::chrono::steady_clock::now() < until)
    std::this_thread::yield();
  REQUIRE(where.epoch() == before.next());
  CHECK_FALSE(where.status().is_suspended);
  CHECK_FALSE(failure_of(where.barrier()));
  where.resume();
  CHECK(where.suspend().size() == 2);
}

} // namespace troupe::tests
