/// Mock worlds of a line, in real time.
#include "support/outcomes.hpp"

#include <troupe/runtime/rank_lane.hpp>
#include <troupe/testing/catch2.hpp>
#include <troupe/testing/mock_world.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <vector>

namespace troupe::tests::mock_world_test {

using namespace troupe::testing;
using namespace std::chrono_literals;
using troupe::tests::code_of;

namespace {

constexpr std::size_t count = 64;

configuration quickly_recovering(int ranks) {
  configuration settings = mock_settings(ranks);
  settings.recovery.policy = recovery_policy::keep_size;
  settings.limits.hang = 500ms;
  settings.deadlines.abort = 5s;
  return settings;
}

} // namespace

TEST_CASE("a mock world is there in a line, and serves", "[testing]") {
  // [mock_world]
  mock_world w{4};
  const auto values = w.make_ranked(count); // rank r has r + 1
  CHECK_THAT(w.world().ask(sums_of(values)), succeeds());
  CHECK(values_of<float>(values[3]) == std::vector<float>(count, 1 + 2 + 3 + 4));
  CHECK_THAT(w.script().launches(rank{0}), are_launches(is_launch("all_reduce", count) && asked_of_world()));
  // [mock_world]
  CHECK(w.runtime().settings().profile == latency_profile::frugal);
}

TEST_CASE("threads are told apart by their lanes' clients, and asks without lanes are nobody's", "[testing]") {
  mock_world w{2};
  const auto values = w.make_ranked(count);
  const lane line = lane::named("threads");
  std::vector<rank_lane> lanes;
  std::vector<std::future<completion>> replies;
  for (int i = 0; i < 2; ++i) lanes.emplace_back(w.world(), rank{i}, line);
  for (int i = 0; i < 2; ++i)
    replies.push_back(lanes[static_cast<std::size_t>(i)].ask(sums_of(values)[static_cast<std::size_t>(i)]));
  for (auto& one : replies) CHECK_THAT(one, succeeds());
  CHECK_THAT(w.world().barrier(), succeeds());
  CHECK(lanes[0].client() != lanes[1].client());
  for (int i = 0; i < 2; ++i)
    CHECK_THAT(w.script().launches(rank{i}), are_launches(is_launch("all_reduce", count) && asked_in(line) &&
                                                              asked_by(lanes[static_cast<std::size_t>(i)].client()),
                                                          is_launch("barrier") && asked_of_world() && asked_by(0)));
}

TEST_CASE("a hang that a script makes is recovered from in real time", "[testing]") {
  mock_world w{quickly_recovering(2)};
  const auto values = w.make_ranked(count);
  w.script().on(rank{1}).operation(1).hang();
  CHECK_THAT(w.world().ask(sums_of(values)), succeeds());
  auto hung = w.world().ask(sums_of(values));
  CHECK_THAT(hung, has_unknown_outcome());
  REQUIRE(w.world().wait_ready(epoch{1}, 20s).phase == world_phase::ready);
  CHECK_THAT(w.world().barrier(), succeeds());
  CHECK(w.script().waiting().empty());
}

TEST_CASE("a mock world that is dropped while a rank hangs ends", "[testing]") {
  std::future<completion> reply;
  {
    configuration settings = mock_settings(2);
    settings.limits.launch = 10s;
    settings.deadlines.drain = 50ms;
    mock_world w{settings};
    const auto values = w.make_ranked(count);
    w.script().on(rank{1}).operation(0).delay(1h);
    reply = w.world().ask(sums_of(values));
  }
  REQUIRE(reply.wait_for(0s) == std::future_status::ready);
}

TEST_CASE("a script of its own can be given for the forming", "[testing]") {
  configuration settings = mock_settings(2);
  const auto script = std::make_shared<fault_script>();
  script->on(rank{1}).forming(0).fail();
  settings.faults = script;
  CHECK(code_of([&] { mock_world w{settings}; }) == errc::communicator_failed);
  CHECK(script->waiting().empty());
  mock_world w{settings}; // it happened once
  CHECK_THAT(w.world().barrier(), succeeds());
}

TEST_CASE("a mock world is of the mock, with a script", "[testing]") {
  configuration settings = mock_settings(2);
  settings.backend = backend_choice::automatic;
  CHECK(code_of([&] { mock_world w{settings}; }) == errc::invalid_argument);
  settings = mock_settings(2);
  settings.faults = std::make_shared<fault_injector>();
  CHECK(code_of([&] { mock_world w{settings}; }) == errc::invalid_argument);
}

TEST_CASE("memory of mock worlds is looked at as elements that fit", "[testing]") {
  mock_world w{2};
  w.script().on(rank{0}).out_of_memory_after(1000);
  CHECK(code_of([&] { static_cast<void>(w.world().allocate(rank{0}, 2000)); }) == errc::out_of_memory);
  const buffer seven = w.world().allocate(rank{1}, 7);
  CHECK(elements_of<char>(seven).size() == 7);
  CHECK(code_of([&] { static_cast<void>(elements_of<float>(seven)); }) == errc::invalid_argument);
  CHECK(code_of([] { static_cast<void>(elements_of<float>(buffer{})); }) == errc::invalid_argument);
}

} // namespace troupe::tests::mock_world_test
