// Waiting for a world that is ready, and what its state says meanwhile.
#include "support/comes_true.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/testing/memory.hpp>
#include <troupe/testing/mock_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::readiness_test {

using namespace std::chrono_literals;
using namespace troupe::testing;

namespace {

std::vector<operation> barriers(int ranks) {
  return std::vector<operation>(static_cast<std::size_t>(ranks), barrier{});
}

} // namespace

TEST_CASE("no request is refused because of a fault while the world's state says that it is ready",
          "[runtime][FLT-1]") {
  const auto policy = GENERATE(recovery_policy::keep_size, recovery_policy::fail_fast);
  virtual_world world{3, {.recovery = {.policy = policy}}};
  const bool hangs = GENERATE(false, true);
  const auto place = world.script().on(rank{1}).operation(2);
  hangs ? place.hang() : place.fail();
  std::vector<virtual_reply> all;
  int asked = 0, refused = 0;
  const auto ask = [&] {
    std::erase_if(all, [&](const virtual_reply& one) {
      if (!one.is_ready()) return false;
      if (const outcome result = one.result(); troupe::failure_of(result) != nullptr) {
        ++refused;
        const world_phase seen = world.status().phase;
        CHECK((seen == world_phase::failed) == (policy == recovery_policy::fail_fast));
        CHECK((world.status().phase != world_phase::ready || world.status().epoch > epoch{1}));
      }
      return true;
    });
    if (++asked <= 16) all.push_back(world.ask(barriers(3))); // time stands still while there is work
    return refused > 0 && (world.status().epoch > epoch{1} || world.status().phase == world_phase::failed);
  };
  REQUIRE(world.run_until(ask, 1s)); // after each turn
  if (policy == recovery_policy::fail_fast) CHECK(world.status().phase == world_phase::failed);
}

TEST_CASE("a client that is told of a failure finds the state already changed", "[runtime][FLT-1]") {
  mock_world mock{4};
  const world where = mock.world();
  mock.script().on(rank{2}).operation(3).fail();
  std::atomic<int> failed{0}, late{0}, answered{0};
  for (int i = 0; i < 50; ++i) {
    auto reply = make_reply_promise([&, where](const outcome& result) {
      if (troupe::failure_of(result) != nullptr) {
        ++failed;
        const world_event now = where.status();
        if (now.phase == world_phase::ready && now.epoch == epoch{1}) ++late;
      }
      ++answered;
    });
    ask_into(where, make_request(barriers(4), {.epoch = epoch{1}}), std::move(reply));
  }
  REQUIRE(where.wait_ready(epoch{1}, 60s).phase == world_phase::ready);
  for (const auto until = std::chrono::steady_clock::now() + 60s;
       answered < 50 && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  CHECK(answered == 50);
  CHECK(failed > 0);
  CHECK(late == 0);
}

TEST_CASE("a fault changes the state that clients read, though no actor has run since", "[runtime][FLT-1]") {
  configuration settings = mock_settings(2);
  settings.scheduler_threads = 1;
  mock_world mock{settings};
  world where = mock.world();
  mock.script().on(rank{1}).operation(0).fail();
  std::promise<void> runs, goes_on;
  const auto occupying = [](caf::event_based_actor*, std::promise<void>* begun, std::promise<void>* until) {
    begun->set_value();
    until->get_future().wait_for(60s);
  };
  mock.runtime().system().spawn(occupying, &runs, &goes_on); // occupies the only worker
  REQUIRE(runs.get_future().wait_for(60s) == std::future_status::ready);
  auto reply = where.barrier();
  CHECK(comes_true([&] { return where.status().phase == world_phase::rebuilding; }, 10s));
  goes_on.set_value();
  CHECK_THROWS_AS(reply.get(), exception);
  CHECK(where.wait_ready(epoch{1}, 60s).epoch == epoch{2});
}

TEST_CASE("a thread waits for an epoch later than the one of the request that failed", "[runtime][FLT-1]") {
  mock_world mock{2};
  world where = mock.world();
  CHECK(where.wait_ready(60s).epoch == epoch{1});
  const world_event unchanged = where.wait_ready(epoch{1}, 1ms); // its time passes
  CHECK(unchanged.phase == world_phase::ready);
  CHECK(unchanged.epoch == epoch{1});
  mock.script().on(rank{0}).operation(0).fail();
  const error why = failure_of(where.barrier());
  const world_event now = where.wait_ready(why.epoch.value_or(epoch{1}), 60s);
  CHECK(now.phase == world_phase::ready);
  CHECK(now.epoch == epoch{2});
  CHECK(failure_of(where.barrier()).code == errc::none);
  where.stop();
  CHECK(where.wait_ready(epoch{2}, 60s).phase == world_phase::stopped); // nothing to wait for
}

TEST_CASE("a world that fails ends every wait for it", "[runtime][FLT-1]") {
  configuration settings = mock_settings(2);
  settings.recovery.policy = recovery_policy::fail_fast;
  mock_world mock{settings};
  world where = mock.world();
  auto [reply, told] = make_value_promise<world_event>();
  where.wait_ready(epoch{1}, std::move(reply));
  caf::scoped_actor self{mock.runtime().system()};
  auto asked = compat::request_within(self.ptr(), actor_of(where), 60s, ready_query{epoch{1}});
  mock.script().on(rank{0}).operation(0).fail();
  where.barrier().wait();
  CHECK(where.wait_ready(epoch{1}, 60s).phase == world_phase::failed);
  CHECK(told.get().phase == world_phase::failed);
  std::move(asked).receive([](const world_event& now) { CHECK(now.phase == world_phase::failed); },
                           [](const caf::error& why) { FAIL(to_string(from_caf(why))); });
}

TEST_CASE("an actor asks for the next epoch, and is told when it is ready", "[runtime][actors][FLT-1]") {
  mock_world mock{2};
  world where = mock.world();
  caf::scoped_actor self{mock.runtime().system()};
  const auto ask = [&](epoch after) {
    world_event told;
    compat::request_within(self.ptr(), actor_of(where), 60s, ready_query{after})
        .receive([&](const world_event& now) { told = now; },
                 [](const caf::error& why) { FAIL(to_string(from_caf(why))); });
    return told;
  };
  CHECK(ask(epoch{}).epoch == epoch{1});
  mock.script().on(rank{1}).operation(0).fail();
  where.barrier().wait();
  const world_event now = ask(epoch{1});
  CHECK(now.phase == world_phase::ready);
  CHECK(now.epoch == epoch{2});
}

TEST_CASE("a timeout that a client gives to CAF is no end of the actor", "[runtime][actors]") {
  configuration settings = mock_settings(2);
  settings.deadlines.drain = settings.deadlines.abort = 100ms; // of the rank that hangs
  mock_world mock{settings};
  mock.script().on(rank{0}).operation(0).hang();
  caf::scoped_actor self{mock.runtime().system()};
  compat::request_within(self.ptr(), actor_of(mock.world()), 10ms, make_request(barriers(2), {}))
      .receive([](const completion&) { FAIL("it hangs"); },
               [](const caf::error& why) {
                 const error told = from_caf(why);
                 CHECK(told.code == errc::deadline_exceeded);
                 CHECK(told.effect == effect::unknown_outcome);
                 CHECK(told.text.find("has ended") == std::string::npos);
               });
  CHECK(mock.world().status().phase == world_phase::ready);
  CHECK(from_caf(caf::make_error(caf::sec::request_receiver_down)).code == errc::abandoned);
}

} // namespace troupe::tests::readiness_test
