/// Mock worlds of a line, in real time.
#include "simulation/caf_stepping.hpp"
#include "support/outcomes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/testing/catch2.hpp>
#include <troupe/testing/mock_world.hpp>

#include <caf/actor_registry.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::mock_world_test {

using namespace troupe::testing;
using namespace std::chrono_literals;
using troupe::tests::code_of;
using troupe::tests::error_of;

namespace {

constexpr std::size_t count = 64;

configuration quickly_recovering(int ranks) {
  configuration settings = mock_settings(ranks);
  settings.recovery.policy = recovery_policy::keep_size;
  settings.limits.hang = 500ms;
  settings.deadlines.abort = 5s;
  return settings;
}

/// A user's actor system, which is prepared for mock worlds and outlives them.
struct prepared_system {
  struct prepared_settings : caf::actor_system_config {
    prepared_settings() { prepare_host(*this, mock_settings(2)); }
  };

  prepared_settings settings;
  caf::actor_system system{settings};
};

/// A user's actor, which requests a sum of a world whenever it is told to, and keeps the world's actor until it ends.
class summing_actor final : public listener_handle::base {
public:
  summing_actor(caf::actor_config& settings, const world& where, std::vector<buffer> values, outcome_log seen)
    : listener_handle::base{settings},
      at_{actor_of(where)},
      epoch_{where.epoch()},
      values_{std::move(values)},
      seen_{std::move(seen)} {}

  behavior_type make_behavior() override {
    return {[this](const world_event&) {
      compat::request_unbounded(this, at_, world_request{sums_of(values_), epoch_})
          .then([this](const completion& reply) { seen_.make_reply_promise().deliver(reply); },
                [this](const caf::error& why) { seen_.make_reply_promise().deliver(from_caf(why)); });
    }};
  }
  void on_exit() override { at_ = nullptr; }

private:
  world_handle at_;
  epoch epoch_;
  std::vector<buffer> values_;
  outcome_log seen_;
};

/// A handle to the only actor that is left in \p host when the test leaves its scope. It ends there, also after a
/// failed REQUIRE, because the host's end waits for it.
struct last_actor {
  explicit last_actor(caf::actor_system& of) : host{of} {}
  last_actor(const last_actor&) = delete;
  last_actor& operator=(const last_actor&) = delete;
  ~last_actor() {
    if (handle) caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    handle = nullptr;
    const auto give_up = std::chrono::steady_clock::now() + 30s;
    while (host.registry().running() != 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    CHECK(host.registry().running() == 0);
  }

  caf::actor_system& host;
  listener_handle handle;
};

/// Waits until \p seen has \p wanted outcomes, at most 30 s.
bool reaches(const outcome_log& seen, std::size_t wanted) {
  const auto give_up = std::chrono::steady_clock::now() + 30s;
  while (seen.count() < wanted && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  return seen.count() == wanted;
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

TEST_CASE("mock worlds are guests in a user's actor system, whose actors outlive them", "[testing]") {
  prepared_system host;
  for (int life = 0; life < 2; ++life) {
    outcome_log seen;
    last_actor asker{host.system};
    {
      mock_world w{host.system, 2};
      mock_world beside{host.system, mock_settings(3)};
      CHECK(&w.runtime().system() == &host.system);
      const auto values = w.make_ranked(count);
      asker.handle = host.system.spawn<summing_actor>(w.world(), values, seen);
      compat::post(asker.handle, world_event{});
      REQUIRE(reaches(seen, 1));
      CHECK_THAT(seen.all()[0], succeeds());
      CHECK(values_of<float>(values[1]) == std::vector<float>(count, 1 + 2));
      CHECK_THAT(w.script().launches(rank{1}),
                 are_launches(is_launch("all_reduce", count) && asked_by(asker.handle.id())));
      CHECK_THAT(beside.world().barrier(), succeeds());
      CHECK(beside.script().launches(rank{1}).size() == 1); // each has a script of its own
    }
    CHECK(host.system.registry().running() == 1); // the user's actor
    compat::post(asker.handle, world_event{});    // it still has the handle of a world that has ended
    REQUIRE(reaches(seen, 2));
    CHECK_THAT(seen.all()[1], was_rejected());
  }
}

TEST_CASE("a guest that is dropped while a rank hangs ends, and its actors' requests are answered", "[testing]") {
  prepared_system host;
  outcome_log seen;
  std::future<completion> reply;
  last_actor asker{host.system};
  std::optional<world> kept; // a handle may outlive the mock world
  {
    configuration settings = mock_settings(2);
    settings.deadlines.drain = 50ms;
    settings.limits.launch = 10s;
    mock_world w{host.system, settings};
    kept = w.world();
    const auto values = w.make_ranked(count);
    w.script().on(rank{1}).operation(0).hang();
    asker.handle = host.system.spawn<summing_actor>(w.world(), values, seen);
    compat::post(asker.handle, world_event{});
    while (w.script().launches(rank{1}).empty()) std::this_thread::yield();
    reply = w.world().barrier();
  }
  REQUIRE(reply.wait_for(0s) == std::future_status::ready);
  REQUIRE(reaches(seen, 1));
  CHECK(kept->status().phase == world_phase::stopped);
  CHECK(host.system.registry().running() == 1); // the user's actor
}

TEST_CASE("a mock world is no guest in a system that the test steps", "[testing]") {
  register_message_types();
  compat::stepped_system host{[] { return time_point{}; }, [] {}};
  const error refused = error_of([&] { mock_world w{host.system(), 2}; });
  CHECK(refused.code == errc::invalid_argument);
  CHECK_THAT(refused.text, Catch::Matchers::ContainsSubstring("use a testing::actor_world there"));
  CHECK(host.living() == 0);
  configuration settings = mock_settings(2);
  settings.backend = backend_choice::automatic;
  prepared_system prepared;
  CHECK(code_of([&] { mock_world w{prepared.system, settings}; }) == errc::invalid_argument);
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
