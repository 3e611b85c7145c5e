// What is hung, stuck, failed or aborted is told apart, raised once, and never called a success.
#include "support/track_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <optional>
#include <utility>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("an operation that runs too long at the head of its stream is called hung, once", "[completion][TIM-1]") {
  track_rig rig;
  const auto stuck = rig.launch();
  rig.pass(21ms);
  CHECK(rig.faults.empty());
  rig.pass(1ms);
  REQUIRE(rig.faults.size() == 1);
  CHECK(rig.faults[0].code == errc::deadline_exceeded);
  CHECK(rig.faults[0].rank == rank{3});
  CHECK_THAT(rig.faults[0].text, ContainsSubstring("20 ms"));
  rig.pass(100ms);
  CHECK(rig.faults.size() == 1);
  CHECK(stuck.log.count() == 0); // the owner decides; the track goes on until the mark is set
}

TEST_CASE("the hang verdict counts from the head of the stream, so queueing is not called a hang",
          "[completion][TIM-1]") {
  track_rig rig;
  std::vector<track_rig::request> all;
  for (int i = 0; i < 5; ++i) all.push_back(rig.launch());
  for (std::uint64_t done = 1; done <= 5; ++done) {
    rig.pass(15ms); // each is fast enough, the last waits five times as long
    rig.device->done = done;
    CHECK(rig.poll());
  }
  CHECK(rig.faults.empty());
}

TEST_CASE("the hang verdict counts only once the client's own work is done", "[completion][TIM-1]") {
  track_rig rig;
  bool ready = false;
  const auto waiting = rig.launch(1h, [&] { return ready; });
  rig.pass(1s);
  CHECK(rig.faults.empty());
  ready = true;
  rig.pass(21ms);
  CHECK(rig.faults.empty());
  rig.pass(1ms);
  CHECK(rig.faults.size() == 1);
}

TEST_CASE("a launch call that does not return is called stuck", "[completion][TIM-1]") {
  track_rig rig;
  auto one = rig.push();
  rig.pass(1s); // queued is not stuck: the launcher may be busy with others
  CHECK(rig.faults.empty());
  REQUIRE(one.call->begin_launch(rig.time->now()));
  rig.pass(10ms);
  CHECK(rig.faults.empty());
  rig.pass(1ms);
  REQUIRE(rig.faults.size() == 1);
  CHECK(rig.faults[0].code == errc::deadline_exceeded);
  CHECK_THAT(rig.faults[0].text, ContainsSubstring("launch") && ContainsSubstring("10 ms"));
}

TEST_CASE("a pause of this process is not taken for a hang, and the rest of the limit stays", "[completion][TIM-1]") {
  track_rig rig;
  bool ready = true;
  SECTION("an operation that runs") {}
  SECTION("one that begins to run after the pause") {
    ready = false;
  }
  static_cast<void>(rig.launch(1h, [&] { return ready; }));
  rig.pass(15ms);
  rig.pause(1h);
  rig.poll();
  CHECK(rig.faults.empty());
  rig.pass(4ms); // of the pause 0.625 ms count
  CHECK(rig.faults.empty());
  const bool was_ready = std::exchange(ready, true);
  rig.pass(was_ready ? 2ms : 21ms);
  CHECK(rig.faults.size() == (was_ready ? 1 : 0));
  rig.pass(1ms);
  CHECK(rig.faults.size() == 1);
}

TEST_CASE("a pause of this process is not taken for a stuck launch", "[completion][TIM-1]") {
  track_rig rig;
  std::optional<track_rig::request> before;
  SECTION("of the request at the head") {}
  SECTION("of one behind an operation that ends meanwhile") {
    before = rig.launch();
  }
  auto one = rig.push();
  REQUIRE(one.call->begin_launch(rig.time->now()));
  if (before) rig.device->done = 1;
  rig.poll(); // from now on the launch is judged
  rig.pass(5ms);
  rig.pause(1h);
  rig.poll();
  CHECK(rig.faults.empty());
  rig.pass(4ms); // of the pause 0.625 ms count
  CHECK(rig.faults.empty());
  rig.pass(1ms);
  REQUIRE(rig.faults.size() == 1);
  CHECK_THAT(rig.faults[0].text, ContainsSubstring("launch"));
}

TEST_CASE("a pause does not extend a launch that began after it, or a request's deadline", "[completion][TIM-1]") {
  track_rig rig;
  const auto late = rig.launch(1min);
  rig.poll();
  rig.pause(1h);
  auto one = rig.push();
  REQUIRE(one.call->begin_launch(rig.time->now()));
  rig.poll();
  REQUIRE(late.log.count() == 1);
  CHECK(late.log.failure().code == errc::deadline_exceeded);
  CHECK(rig.faults.empty());
  rig.device->done = 1; // the launch is at the head now
  rig.pass(10ms);
  CHECK(rig.faults.empty());
  rig.pass(1ms);
  CHECK(rig.faults.size() == 1);
}

TEST_CASE("a thread that is always late still detects a hang", "[completion][TIM-1]") {
  track_rig rig;
  static_cast<void>(rig.launch());
  rig.poll();
  for (int pause = 0; pause < 33 && rig.faults.empty(); ++pause) { // each counts 0.625 of 20 ms
    rig.pause(1s);
    rig.poll();
  }
  CHECK(rig.faults.size() == 1);
}

TEST_CASE("a sign that fires after the mark is no success, and what was still queued certainly did not run",
          "[completion][ONE-1][ONE-2]") {
  track_rig rig;
  auto ran = rig.launch();
  auto hung = rig.launch();
  auto inside = rig.push();
  REQUIRE(inside.call->begin_launch(rig.time->now()));
  auto queued = rig.push();
  rig.device->done = 1;
  rig.poll();
  CHECK_FALSE(ran.log.failure());

  REQUIRE(rig.mark->set({.code = errc::communicator_failed, .text = "aborted"}));
  rig.device->done = 2; // what an abort brings about
  rig.poll();
  CHECK(ran.log.count() == 1);
  for (const auto* one : {&hung, &inside, &queued}) {
    REQUIRE(one->log.count() == 1);
    CHECK(one->log.failure().code == errc::communicator_failed);
  }
  CHECK(hung.log.failure().effect == effect::unknown_outcome);
  CHECK(inside.log.failure().effect == effect::unknown_outcome);
  CHECK(queued.log.failure().effect == effect::rejected);
  CHECK_FALSE(queued.call->begin_launch(rig.time->now()));
}

TEST_CASE("failed operations hold their buffers until the abort has returned", "[completion][BUF-1]") {
  track_rig rig;
  const auto hung = rig.launch();
  auto queued = rig.push();
  queued.let_go();
  rig.poll();
  rig.mark->set({.code = errc::communicator_failed});
  rig.poll();
  CHECK(hung.log.count() == 1);
  CHECK(queued.memory.expired()); // it never reached the device
  CHECK_FALSE(hung.memory.expired());
  CHECK(rig.watched->load() == 1);
  CHECK_FALSE(rig.watched->wait_idle(0s));
  rig.device->done = 2;
  rig.pass(100ms);
  CHECK_FALSE(hung.memory.expired());
  rig.watched->release_quarantine();
  rig.poll();
  CHECK(hung.memory.expired());
  CHECK(rig.watched->load() == 0);
  CHECK(rig.watched->wait_idle(0s));
}

TEST_CASE("a request that comes after the mark is rejected, before and after the quarantine's end",
          "[completion][ONE-1][ONE-2]") {
  track_rig rig;
  rig.mark->set({.code = errc::communicator_failed});
  const auto early = rig.push();
  rig.poll();
  rig.watched->release_quarantine();
  const auto late = rig.push();
  rig.poll();
  CHECK(early.log.failure().effect == effect::rejected);
  CHECK(late.log.failure().effect == effect::rejected);
  CHECK(rig.watched->load() == 0);
}

TEST_CASE("a fault that the probe finds is raised once, with the rank", "[completion]") {
  track_rig rig;
  rig.probe = [] { return error{.code = errc::device_failed, .text = "stream"}; };
  rig.pass(5ms);
  CHECK(rig.faults.empty()); // nothing in flight, nothing to ask
  const auto one = rig.launch();
  rig.pass(5ms);
  REQUIRE(rig.faults.size() == 1);
  CHECK(rig.faults[0].code == errc::device_failed);
  CHECK(rig.faults[0].rank == rank{3});
}

TEST_CASE("an error thrown by a look at the device is raised once and never leaves the track", "[completion]") {
  track_rig rig;
  const error lost{.code = errc::process_poisoned, .text = "context"};
  SECTION("by the completion source") {
    rig.device->failure = lost;
    static_cast<void>(rig.launch());
  }
  SECTION("by the question whether inputs are ready") {
    static_cast<void>(rig.launch(1h, [&]() -> bool { throw exception{lost}; }));
  }
  SECTION("by the probe") {
    rig.probe = [&]() -> error { throw exception{lost}; };
    static_cast<void>(rig.launch());
  }
  CHECK_NOTHROW(rig.pass(5ms));
  REQUIRE(rig.faults.size() == 1);
  CHECK(rig.faults[0].code == errc::process_poisoned);
}

TEST_CASE("a refused launch gets its own error, and its buffers stay until the abort", "[completion][BUF-1][ONE-1]") {
  track_rig rig;
  const auto before = rig.launch();
  auto refused = rig.push();
  REQUIRE(refused.call->begin_launch(rig.time->now()));
  refused.call->refuse({.code = errc::device_failed, .effect = effect::unknown_outcome, .text = "its own"});
  refused.let_go();
  const bool marked_first = GENERATE_COPY(false, true);
  CAPTURE(marked_first);
  if (marked_first) rig.mark->set({.code = errc::communicator_failed, .text = "the mark's"});
  rig.device->done = 1;
  rig.poll();
  CHECK(before.log.failure().code == (marked_first ? errc::communicator_failed : errc::none));
  REQUIRE(refused.log.count() == 1);
  CHECK(refused.log.failure().text == "its own");
  CHECK_FALSE(refused.memory.expired()); // the call may have failed behind the work
  rig.mark->set({.code = errc::communicator_failed});
  rig.watched->release_quarantine();
  rig.poll();
  CHECK(refused.memory.expired());
  CHECK(refused.log.count() == 1);
  CHECK(rig.watched->load() == 0);
}
