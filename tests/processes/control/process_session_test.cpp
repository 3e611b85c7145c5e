/// How a process reacts to its controller's messages and to its silence.
#include "support/frames_scene.hpp"
#include "support/ordering_rig.hpp"
#include "support/outcomes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

constexpr auto suspicion = 10s;

} // namespace

TEST_CASE("a controller that is silent while its process is awake is left", "[control]") {
  frames_scene scene;
  scene.join();
  scene.pass(suspicion - 100ms);
  CHECK_FALSE(scene.abandoned);
  CHECK(scene.said.size() >= 30); // heartbeats
  scene.pass(200ms);
  CHECK(scene.abandoned);
  CHECK(scene.got<fence_notice>().size() == 1);
}

TEST_CASE("a process that was asleep does not blame its controller for the silence", "[control]") {
  for (const auto pause : {1500ms, 2500ms, 10'000ms, 30'000ms}) {
    frames_scene scene;
    scene.join();
    scene.pass(1s);
    scene.time->advance(pause);
    scene.pass(5s); // nothing has been read yet
    CHECK_FALSE(scene.abandoned);
    scene.hear(heartbeat{});
    scene.pass(suspicion - 100ms);
    CHECK_FALSE(scene.abandoned);
    scene.pass(1s); // and it is silent now
    CHECK(scene.abandoned);
  }
}

TEST_CASE("many short pauses do not hide that a controller is silent", "[control]") {
  frames_scene scene;
  scene.join();
  for (int i = 0; i < 100 && !scene.abandoned; ++i) {
    scene.time->advance(1s);
    scene.pass(20ms);
  }
  CHECK(scene.abandoned);
}

TEST_CASE("messages that have arrived are handled before the controller counts as silent", "[control]") {
  frames_scene scene;
  scene.join();
  scene.pass(suspicion + 10ms); // the last tick is over the limit, and is the first that is
  CHECK_FALSE(scene.abandoned);
  scene.hear(heartbeat{}); // it was behind that tick
  scene.pass(suspicion - 100ms);
  CHECK_FALSE(scene.abandoned);
}

TEST_CASE("a process that joins again is not fenced by a message to its earlier session", "[control][EPO-1]") {
  frames_scene scene{orphan_policy::rejoin};
  scene.join();
  scene.hear(formation_directive{.of = epoch{3}, .self = rank{0}, .hosts = {"here"}});
  scene.hear(prepare_directive{.of = epoch{4}, .self = rank{0}, .world_size = 2, .hosts = {"here", "here"}});
  REQUIRE(scene.pass(suspicion + 100ms)); // it looks for a controller
  CHECK(scene.got<failure_directive>().size() == 1);
  const join_request again = scene.introduction();
  CHECK(again.last_epoch == epoch{3});
  CHECK(again.prepared == epoch{4});
  // The controller was stopped, and goes on: first it tells the earlier stay that it has ended.
  scene.hear(fence_notice{{.code = errc::world_failed, .text = "it has joined again"}});
  scene.hear(heartbeat{});
  CHECK_FALSE(scene.abandoned);
  scene.hear(join_welcome{.session = 8, .heartbeat = 250ms, .suspicion = suspicion}, 8);
  scene.hear(formation_directive{.of = epoch{4}, .self = rank{0}, .hosts = {"here"}}, 8);
  CHECK_FALSE(scene.abandoned);
  CHECK(scene.got<formation_directive>().size() == 2);
  CHECK(scene.got<fence_notice>().empty());
  scene.hear(fence_notice{{.code = errc::world_failed, .text = "it is out"}}, 8);
  CHECK(scene.abandoned);
}

TEST_CASE("a process reports a hold once, for the epoch that it was for, and not when that was given up",
          "[control][planned]") {
  frames_scene scene;
  scene.join();
  scene.hear(formation_directive{.of = epoch{3}, .self = rank{0}, .hosts = {"here"}});
  const auto report = [&] { scene.link->tell(held_report{epoch{3}}); };
  scene.hear(hold_wanted{epoch{3}, epoch{4}});
  REQUIRE(scene.got<hold_directive>().size() == 1);
  scene.hear(drop_directive{epoch{4}});
  report(); // its client may have asked all ranks since
  CHECK(scene.told<held_notice>().empty());
  scene.hear(hold_wanted{epoch{3}, epoch{5}});
  for (int i = 0; i < 2; ++i) report();
  const auto told = scene.told<held_notice>();
  REQUIRE(told.size() == 1);
  CHECK(told.front().of == epoch{3});
  CHECK(told.front().next == epoch{5});
}

TEST_CASE("a process that loses its controller during a planned change, and keeps its epoch, gives the change up",
          "[control][planned][takeover]") {
  frames_scene scene{orphan_policy::rejoin};
  static_cast<void>(scene.introduction());
  scene.hear(join_welcome{.session = frames_scene::session,
                          .heartbeat = 250ms,
                          .suspicion = suspicion,
                          .grants_leases = true,
                          .has_successors = true});
  scene.hear(formation_directive{.of = epoch{3}, .self = rank{0}, .hosts = {"here"}});
  scene.link->tell(formed_report{epoch{3}});
  scene.hear(lease_grant{.of = epoch{3}, .number = 0, .length = 60s, .outlasts = true});
  scene.hear(prepare_directive{.of = epoch{4}, .self = rank{0}, .world_size = 2, .hosts = {"here", "here"}});
  scene.hear(hold_wanted{epoch{3}, epoch{4}});
  const bool has_begun = GENERATE(false, true);
  if (has_begun) scene.hear(formation_directive{.of = epoch{4}, .self = rank{0}, .hosts = {"here", "here"}});
  if (has_begun) scene.link->tell(formed_report{epoch{4}});
  if (has_begun) scene.hear(lease_grant{.of = epoch{4}, .number = 0, .length = 60s, .outlasts = true});
  scene.link->disconnected({.code = errc::missing, .text = "it has ended"});
  const auto dropped = scene.got<drop_directive>();
  REQUIRE(dropped.size() == (has_begun ? 0 : 1));
  CHECK(scene.got<failure_directive>().empty());
  if (has_begun) return;
  CHECK(dropped.front().of == epoch{4});
  scene.link->tell(held_report{epoch{3}});
  CHECK(scene.told<held_notice>().empty());
}

TEST_CASE("a process that has only stood by tells the next controller which epoch it has heard of",
          "[control][EPO-1]") {
  frames_scene scene{orphan_policy::rejoin};
  SECTION("when it was admitted") {
    CHECK(scene.introduction().prepared == epoch{});
    scene.hear(join_welcome{.session = 7, .heartbeat = 250ms, .suspicion = suspicion, .latest = epoch{4}});
  }
  SECTION("when another epoch began") {
    scene.join();
    scene.hear(commits_wanted{epoch{4}});
  }
  REQUIRE(scene.pass(suspicion + 100ms));
  const join_request again = scene.introduction();
  CHECK(again.last_epoch == epoch{});
  CHECK(again.prepared == epoch{4});
}

TEST_CASE("a controller that takes a connection and does not answer is not waited for without an end",
          "[control][TIM-1]") {
  frames_scene scene{orphan_policy::rejoin};
  static_cast<void>(scene.introduction());
  scene.pass(29s);
  CHECK_FALSE(scene.abandoned);
  scene.pass(2s);
  REQUIRE(scene.abandoned);
  CHECK(scene.abandoned->code == errc::deadline_exceeded);
}

TEST_CASE("requests in an order that nobody holds are answered without the link's lock", "[control][order][ONE-1]") {
  ordering_rig rig{2};
  frames_scene one{orphan_policy::leave, rig.time};
  one.join();
  one.form(rig_epoch);
  std::optional<outcome> answer;
  const auto ask = [&] {
    one.link->open_order(rig.rig.ranks[0], nullptr)
        ->ask(rank{0}, {.what = rig.sum(0, 4),
                        .name = ticket{1},
                        .deadline = 1h,
                        .reply = make_reply_promise([&](outcome result) {
                          CHECK_FALSE(one.link->has_rings()); // it asks the link
                          answer = std::move(result);
                        })});
  };
  ask();
  CHECK_FALSE(answer);
  const auto next = one.link->open_order(rig.rig.ranks[0], nullptr);
  REQUIRE(answer);
  const error* const failure = failure_of(*answer);
  REQUIRE(failure != nullptr);
  CHECK(failure->code == errc::abandoned);
  next->close({.code = errc::stopping}, true);
}

} // namespace troupe::tests
