// The latest event of a world: how it is corrected when it is read, and who waits for it.
#include <troupe/actors/world/world_status.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::world_status_test {

namespace {

using namespace std::chrono_literals;

world_event event_of(world_phase phase, epoch of, std::string why = {}) {
  world_event made;
  made.phase = phase;
  made.epoch = of;
  if (!why.empty()) made.reason = {.code = errc::communicator_failed, .text = std::move(why)};
  return made;
}

std::function<bool(const world_event&)> is_in(world_phase which) {
  return [which](const world_event& now) { return now.phase == which; };
}

void correct(world_event& now) {
  now.phase = world_phase::rebuilding;
  now.reason = {.code = errc::communicator_failed, .text = "a rank has failed already"};
}

} // namespace

TEST_CASE("a world that says that it is ready is corrected whenever its state is read", "[actors][FLT-1]") {
  world_status status;
  status.publish(event_of(world_phase::ready, epoch{1}));
  CHECK(status.latest().phase == world_phase::ready);
  CHECK(status.wait(is_in(world_phase::ready), 0s).phase == world_phase::ready);
  status.revise_by(correct);
  CHECK(status.latest().phase == world_phase::rebuilding);
  CHECK(status.latest().reason.text == "a rank has failed already");
  CHECK(status.epoch() == epoch{1});
  CHECK(status.wait(is_in(world_phase::rebuilding), 0s).phase == world_phase::rebuilding);
  CHECK(status.wait(is_in(world_phase::ready), 1ms).phase == world_phase::rebuilding); // in vain
  CHECK(status.wait_ready(epoch{}, 1ms).phase == world_phase::rebuilding);
  int heard = 0;
  status.when_ready(epoch{}, [&](const world_event&) { ++heard; });
  CHECK(heard == 0); // it is not ready
  status.publish(event_of(world_phase::ready, epoch{2}));
  CHECK(heard == 1);
  CHECK(status.latest().phase == world_phase::rebuilding); // until an event of another phase
}

TEST_CASE("a look at a world's epoch and ranks neither corrects its state nor copies it", "[actors]") {
  world_status status;
  const auto only = std::make_shared<const restoration>();
  world_event event = event_of(world_phase::ready, epoch{3});
  event.local_ranks = {rank{1}};
  event.restored = only;
  status.publish(event);
  int corrected = 0;
  status.revise_by([&](world_event&) { ++corrected; });
  const long owners = only.use_count();
  CHECK(status.peek(
      [&](const world_event& now) { return now.local_ranks.front() == rank{1} && only.use_count() == owners; }));
  CHECK(status.epoch() == epoch{3});
  CHECK(corrected == 0);
  static_cast<void>(status.latest());
  CHECK(corrected == 1);
}

TEST_CASE("a wait returns the event that ended it, though another has followed", "[actors][FLT-1]") {
  world_status status;
  status.publish(event_of(world_phase::ready, epoch{1}));
  int reads = 0;
  status.revise_by([&](world_event& now) { // the rank fails after the first read
    if (reads++ > 0) correct(now);
  });
  CHECK(status.wait(is_in(world_phase::ready), 20s).phase == world_phase::ready);
  CHECK(reads == 1);
  CHECK(status.latest().phase == world_phase::rebuilding);
}

TEST_CASE("a correction ends with the first event of another phase, and what it holds is released", "[actors][FLT-1]") {
  for (const bool publishes : {true, false}) {
    world_status status;
    status.publish(event_of(world_phase::ready, epoch{1}));
    auto held = std::make_shared<int>(0);
    const std::weak_ptr<int> seen = held;
    status.revise_by([held = std::move(held)](world_event& now) { correct(now); });
    const world_event fault = event_of(world_phase::rebuilding, epoch{1}, "a fault");
    publishes ? status.publish(fault) : status.set(fault);
    CHECK(seen.expired());
    CHECK(status.latest().reason.text == "a fault");
    status.set(event_of(world_phase::ready, epoch{2}));
    CHECK(status.latest().phase == world_phase::ready);
  }
  world_status other;
  other.set(event_of(world_phase::forming, epoch{1}));
  other.revise_by(correct);
  CHECK(other.latest().phase == world_phase::forming); // only what says that it is ready
}

TEST_CASE("an event that is set without being published is read, and nobody is told", "[actors]") {
  world_status status;
  std::vector<world_phase> heard;
  status.listen([&](const world_event& now) { heard.push_back(now.phase); });
  status.set(event_of(world_phase::rebuilding, epoch{1}));
  CHECK(status.latest().phase == world_phase::rebuilding);
  CHECK(heard.empty());
  status.publish(event_of(world_phase::failed, epoch{1}));
  status.publish(event_of(world_phase::stopped, epoch{1}));
  status.publish(event_of(world_phase::stopped, epoch{1}));
  CHECK(heard == std::vector{world_phase::failed, world_phase::stopped}); // the last event is the last
}

TEST_CASE("a waiter for the next epoch is told once, and waiters for a later one continue to wait", "[actors]") {
  world_status status;
  status.publish(event_of(world_phase::ready, epoch{1}));
  std::vector<std::string> heard;
  const auto note = [&](const char* who) {
    return [&heard, who](const world_event& now) { heard.push_back(who + to_string(now.epoch)); };
  };
  status.when_ready(epoch{}, note("at once "));
  CHECK(heard == std::vector<std::string>{"at once 1"});
  status.when_ready(epoch{1}, note("second "));
  status.when_ready(epoch{2}, note("third "));
  status.publish(event_of(world_phase::rebuilding, epoch{1}));
  CHECK(heard.size() == 1);
  status.publish(event_of(world_phase::ready, epoch{2}));
  CHECK(heard == std::vector<std::string>{"at once 1", "second 2"});
  status.publish(event_of(world_phase::failed, epoch{2}));
  CHECK(heard == std::vector<std::string>{"at once 1", "second 2", "third 2"});
  status.publish(event_of(world_phase::stopped, epoch{2}));
  CHECK(heard.size() == 3);
  for (const world_phase over : {world_phase::failed, world_phase::stopping, world_phase::stopped})
    CHECK(is_ready_after(event_of(over, epoch{1}), epoch{9}));
  for (const world_phase later : {world_phase::forming, world_phase::rebuilding})
    CHECK_FALSE(is_ready_after(event_of(later, epoch{9}), epoch{}));
  CHECK_FALSE(is_ready_after(event_of(world_phase::ready, epoch{9}), epoch{9}));
}

TEST_CASE("threads that wait are woken by an event, also by one that is only set", "[actors]") {
  for (const bool publishes : {true, false}) {
    world_status status;
    world_event over, seen;
    std::jthread first{[&] { over = status.wait(is_in(world_phase::failed), 20s); }};
    std::jthread second{[&] { seen = status.wait_ready(epoch{}, 20s); }};
    const world_event event = event_of(world_phase::failed, epoch{3});
    publishes ? status.publish(event) : status.set(event);
    const auto began = std::chrono::steady_clock::now();
    first.join();
    second.join();
    CHECK(std::chrono::steady_clock::now() - began < 10s);
    CHECK(over.phase == world_phase::failed);
    CHECK(seen.epoch == epoch{3});
  }
}

} // namespace troupe::tests::world_status_test
