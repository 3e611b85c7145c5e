// When all is well, or merely late: answers come in order, once, and operations stay in their place.
#include "support/track_rig.hpp"

#include <catch2/catch_test_macros.hpp>

#include <thread>

using namespace troupe;
using namespace troupe::tests;

TEST_CASE("a request succeeds when the device is done, with its times, and lets its buffers go",
          "[completion][BUF-1]") {
  track_rig rig;
  CHECK_FALSE(rig.poll());
  const auto queued_at = rig.time->now();
  auto one = rig.push();
  rig.time->advance(2ms);
  REQUIRE(one.call->begin_launch(rig.time->now()));
  rig.time->advance(3ms);
  ++rig.launched;
  one.call->end_launch({rig.launched, rig.launched}, rig.time->now());
  one.let_go();
  CHECK_FALSE(rig.poll());
  CHECK(rig.watched->load() == 1);
  CHECK_FALSE(one.memory.expired());
  rig.device->done = 1;
  rig.time->advance(4ms);
  CHECK(rig.poll());
  CHECK(rig.watched->load() == 0);
  CHECK(one.memory.expired());
  REQUIRE(one.log.count() == 1);
  const times seen = one.log.success().times;
  CHECK(seen.queued == queued_at);
  CHECK(seen.launched == queued_at + 5ms);
  CHECK(seen.done == queued_at + 9ms);
  CHECK(rig.faults.empty());
}

TEST_CASE("one look answers everything that is done, and nothing behind it", "[completion][ONE-1]") {
  track_rig rig;
  std::vector<track_rig::request> all;
  for (int i = 0; i < 10; ++i) all.push_back(rig.launch());
  rig.device->done = 7;
  CHECK(rig.poll());
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i].log.count() == (i < 7 ? 1 : 0));
  CHECK(rig.watched->load() == 3);
  CHECK_FALSE(rig.poll());
  rig.device->done = 10;
  CHECK(rig.poll());
  for (const auto& one : all) CHECK_FALSE(one.log.failure());
}

TEST_CASE("a request past its deadline is answered once and stays in its place", "[completion][TIM-1][ONE-1][ONE-2]") {
  track_rig rig;
  const auto late = rig.launch(5ms);
  const auto patient = rig.launch();
  rig.pass(4ms);
  CHECK(late.log.count() == 0);
  rig.pass(1ms);
  REQUIRE(late.log.count() == 1);
  CHECK(late.log.failure().code == errc::deadline_exceeded);
  CHECK(late.log.failure().effect == effect::unknown_outcome);
  CHECK(late.log.failure().rank == rank{3});
  CHECK(late.log.failure().ticket == ticket{1});
  CHECK(rig.watched->load() == 2); // its buffers are still the device's (BUF-1)
  CHECK_FALSE(late.memory.expired());
  CHECK(patient.log.count() == 0);
  CHECK(rig.faults.empty()); // late is not failed
  rig.device->done = 2;
  rig.poll();
  CHECK(late.log.count() == 1);
  CHECK(late.memory.expired());
  CHECK_FALSE(patient.log.failure());
  CHECK(rig.watched->load() == 0);
}

TEST_CASE("a queued request past its deadline is still launched, as its peers' may have been", "[completion][ORD-1]") {
  track_rig rig;
  auto late = rig.push(5ms);
  rig.pass(6ms);
  CHECK(late.log.failure().code == errc::deadline_exceeded);
  CHECK(late.log.failure().effect == effect::unknown_outcome);
  REQUIRE(late.call->begin_launch(rig.time->now()));
  late.call->end_launch({1, 1}, rig.time->now());
  rig.device->done = 1;
  CHECK(rig.poll());
  CHECK(late.log.count() == 1);
  CHECK(rig.watched->load() == 0);
}

TEST_CASE("deadlines are looked at once per check interval, completions at every look", "[completion][TIM-1]") {
  track_rig rig;
  int probes = 0;
  rig.probe = [&] {
    ++probes;
    return error{};
  };
  const auto one = rig.launch();
  for (int look = 0; look < 50; ++look) rig.poll();
  CHECK(probes == 1);
  rig.time->advance(1ms);
  rig.poll();
  CHECK(probes == 2);
  rig.device->done = 1;
  rig.poll();
  CHECK(one.log.count() == 1);
  rig.time->advance(1ms);
  rig.poll();
  CHECK(probes == 2); // nothing in flight, nothing to ask
}

TEST_CASE("a device is asked how it is only when nothing has finished for its quiet time", "[completion][TIM-1]") {
  track_rig rig{.limits = {.launch = 1h, .hang = 1h, .check_interval = 1ms, .quiet = 5ms}};
  int probes = 0;
  rig.probe = [&] {
    ++probes;
    return error{};
  };
  const auto first = rig.launch();
  const auto second = rig.launch();
  rig.poll();
  rig.pass(4ms);
  for (int look = 0; look < 50; ++look) rig.poll(); // it is time that counts, not looks
  CHECK(probes == 0);
  rig.pass(1ms);
  CHECK(probes == 1);
  rig.pass(10ms);
  CHECK(probes == 3);
  rig.device->done = 1;
  rig.poll();
  rig.pass(4ms);
  CHECK(probes == 3); // what has just finished is well
  rig.pass(1ms);
  CHECK(probes == 4);
  rig.device->done = 2;
  rig.poll();
  rig.pass(100ms);
  CHECK(probes == 4);
}

TEST_CASE("a deadline at the end of time never comes", "[completion][TIM-1]") {
  CHECK(later(time_point{1s}, nanoseconds::max()) == time_point::max());
  CHECK(later(time_point{-1s}, 1s) == time_point{});
  CHECK(later(time_point{1s}, 0s) == time_point{1s});
  CHECK(later(time_point::max(), 1ns) == time_point::max());
}

TEST_CASE("waiting for idle ends when the last answer has been given, or by its own deadline", "[completion][TIM-1]") {
  track_rig rig;
  CHECK(rig.watched->wait_idle(0s));
  const auto one = rig.launch();
  CHECK_FALSE(rig.watched->wait_idle(0s));
  CHECK_FALSE(rig.watched->wait_idle(1ms));
  bool idle = false;
  std::thread waiter{[&] { idle = rig.watched->wait_idle(nanoseconds::max()); }};
  rig.device->done = 1;
  rig.poll();
  waiter.join();
  CHECK(idle);
  CHECK(one.log.count() == 1);
}
