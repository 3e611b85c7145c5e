/// What a process makes of its controller's words, and of its silence.
#include <troupe/actors/control/control_codec.hpp>
#include <troupe/actors/control/process_link.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

constexpr auto suspicion = 10s;

/// A process's side of a connection, in a time of its own.
struct link_scene {
  explicit link_scene(orphan_policy policy)
    : link{std::make_shared<process_link>(
          join_request{.who = {.name = "0"}},
          link_services{.time = time,
                        .send =
                            [this](const std::string& bytes) {
                              error why;
                              if (auto frame = decode_process_frame(bytes, why)) said.push_back(*std::move(frame));
                            },
                        .deliver = [this](controller_directive what) { delivered.push_back(std::move(what)); },
                        .make_id = [](const std::function<void(unique_id)>&) {},
                        .abandoned = [this](const error& why) { abandoned = why; }},
          policy, 30s)} {}

  void join(session_id session) {
    link->connected();
    hear(session, join_welcome{.session = session, .heartbeat = 250ms, .suspicion = suspicion});
  }
  void hear(session_id session, controller_message what) {
    link->receive(encode(controller_frame{session, std::move(what)}));
  }
  /// Ticks as its shell does. Returns whether a connection is wanted.
  bool pass(nanoseconds span) {
    bool is_wanted = false;
    for (nanoseconds passed{}; passed < span; passed += 20ms) {
      time->advance(20ms);
      link->beat();
      is_wanted = link->tick();
    }
    return is_wanted;
  }
  template <class Message>
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        delivered, [](const controller_directive& one) { return std::holds_alternative<Message>(one.what); }));
  }

  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  std::vector<process_frame> said;
  std::vector<controller_directive> delivered;
  error abandoned;
  std::shared_ptr<process_link> link;
};

} // namespace

TEST_CASE("a controller that is silent while its process is awake is left", "[control]") {
  link_scene scene{orphan_policy::leave};
  scene.join(7);
  scene.pass(suspicion - 100ms);
  CHECK_FALSE(scene.abandoned);
  CHECK(scene.said.size() >= 30); // heartbeats
  scene.pass(200ms);
  CHECK(scene.abandoned);
  CHECK(scene.count<fence_notice>() == 1);
}

TEST_CASE("a process that was asleep does not blame its controller for the silence", "[control]") {
  for (const auto pause : {1500ms, 2500ms, 10'000ms, 30'000ms}) {
    link_scene scene{orphan_policy::leave};
    scene.join(7);
    scene.pass(1s);
    scene.time->advance(pause);
    scene.pass(5s); // nothing has been read yet
    CHECK_FALSE(scene.abandoned);
    scene.hear(7, heartbeat{});
    scene.pass(suspicion - 100ms);
    CHECK_FALSE(scene.abandoned);
    scene.pass(1s); // and it is silent now
    CHECK(scene.abandoned);
  }
}

TEST_CASE("many short pauses do not hide that a controller is silent", "[control]") {
  link_scene scene{orphan_policy::leave};
  scene.join(7);
  for (int i = 0; i < 100 && !scene.abandoned; ++i) {
    scene.time->advance(1s);
    scene.pass(20ms);
  }
  CHECK(scene.abandoned);
}

TEST_CASE("what has come is heard before the controller counts as silent", "[control]") {
  link_scene scene{orphan_policy::leave};
  scene.join(7);
  scene.pass(suspicion + 10ms); // the last tick is over the limit, and is the first that is
  CHECK_FALSE(scene.abandoned);
  scene.hear(7, heartbeat{}); // it was behind that tick
  scene.pass(suspicion - 100ms);
  CHECK_FALSE(scene.abandoned);
}

TEST_CASE("who joins again is not fenced by what was said to its earlier stay", "[control][EPO-1]") {
  link_scene scene{orphan_policy::rejoin};
  scene.join(7);
  scene.hear(7, formation_order{.of = epoch{3}, .self = rank{0}, .hosts = {"here"}});
  REQUIRE(scene.pass(suspicion + 100ms)); // it looks for a controller
  CHECK(scene.count<failure_order>() == 1);
  scene.link->connected();
  // The controller was stopped, and goes on: first it tells the earlier stay that it has ended.
  scene.hear(7, fence_notice{{.code = errc::world_failed, .text = "it has joined again"}});
  scene.hear(7, heartbeat{});
  CHECK_FALSE(scene.abandoned);
  scene.hear(8, join_welcome{.session = 8, .heartbeat = 250ms, .suspicion = suspicion});
  scene.hear(8, formation_order{.of = epoch{4}, .self = rank{0}, .hosts = {"here"}});
  CHECK_FALSE(scene.abandoned);
  CHECK(scene.count<formation_order>() == 2);
  CHECK(scene.count<fence_notice>() == 0);
  scene.hear(8, fence_notice{{.code = errc::world_failed, .text = "it is out"}});
  CHECK(scene.abandoned);
}

TEST_CASE("a controller that takes a connection and does not answer is not waited for without an end",
          "[control][TIM-1]") {
  link_scene scene{orphan_policy::rejoin};
  scene.link->connected();
  scene.pass(29s);
  CHECK_FALSE(scene.abandoned);
  scene.pass(2s);
  CHECK(scene.abandoned.code == errc::deadline_exceeded);
}

} // namespace troupe::tests
