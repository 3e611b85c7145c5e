// The one thread that answers: by hand without a thread, and as a thread.
#include "support/track_rig.hpp"

#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/sources/completion_source.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <thread>

using namespace troupe;
using namespace troupe::tests;

namespace {

/// Done as soon as it is armed, so that it needs no script shared between threads.
class instant_source final : public completion_source {
public:
  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref, std::uint64_t) override {}
  [[nodiscard]] bool reached(std::uint64_t) override { return true; }
  void drained() noexcept override {}
};

std::shared_ptr<track> instant_track() {
  return std::make_shared<track>(rank{0}, std::make_unique<instant_source>(), std::make_shared<fault_mark>(),
                                 track_limits{}, track_hooks{});
}

void push_launched(track& where, reply_promise reply, std::uint64_t sequence) {
  auto call = std::make_shared<held_call>(time_point::max(), std::move(reply), nullptr);
  static_cast<void>(call->begin_launch({}));
  call->end_launch({sequence, sequence}, {});
  where.expect();
  where.push(std::move(call));
}

} // namespace

TEST_CASE("a step looks at every attached track, and at no other", "[completion]") {
  track_rig first;
  track_rig second;
  track_rig stranger;
  poller by_hand{std::make_shared<manual_clock>(), {}};
  by_hand.attach(first.watched);
  by_hand.attach(second.watched);
  CHECK_FALSE(by_hand.step());
  const auto a = first.launch();
  const auto b = second.launch();
  const auto c = stranger.launch();
  for (track_rig* rig : {&first, &second, &stranger}) rig->device->done = 1;
  CHECK(by_hand.step());
  CHECK(a.log.count() == 1);
  CHECK(b.log.count() == 1);
  CHECK(c.log.count() == 0);
  by_hand.detach(*second.watched);
  by_hand.detach(*stranger.watched); // never attached: nothing to do
  const auto d = second.launch();
  second.device->done = 2;
  CHECK_FALSE(by_hand.step());
  CHECK(d.log.count() == 0);
}

TEST_CASE("an answer may attach and detach tracks while the poller looks", "[completion]") {
  poller by_hand{std::make_shared<manual_clock>(), {}};
  const auto first = instant_track();
  const auto later_on = instant_track();
  by_hand.attach(first);
  const outcome_log log;
  push_launched(*later_on, log.make_reply_promise(), 1);
  push_launched(*first, make_reply_promise([&](const outcome&) {
    by_hand.detach(*first);
    by_hand.attach(later_on);
  }),
                1);
  CHECK(by_hand.step());
  CHECK(log.count() == 0); // the look goes on over the list it began with
  CHECK(by_hand.step());
  CHECK(log.count() == 1);
}

TEST_CASE("a track that is let go of with something to answer is looked at until it has", "[completion][ONE-1]") {
  poller by_hand{std::make_shared<manual_clock>(), {}};
  track_rig rig;
  track_rig stranger;
  by_hand.attach(rig.watched);
  const auto first = rig.launch();
  by_hand.let_go(*rig.watched);
  by_hand.let_go(*stranger.watched); // never attached: nothing to do
  by_hand.step();
  CHECK(first.log.count() == 0);
  rig.device->done = 1;
  CHECK(by_hand.step());
  CHECK(first.log.count() == 1);

  const auto second = rig.launch(); // nobody looks any more
  rig.device->done = 2;
  CHECK_FALSE(by_hand.step());
  CHECK(second.log.count() == 0);
}

TEST_CASE("a track that is let go of with nothing to answer is looked at no more", "[completion]") {
  poller by_hand{std::make_shared<manual_clock>(), {}};
  track_rig rig;
  by_hand.attach(rig.watched);
  by_hand.let_go(*rig.watched);
  const auto late = rig.launch();
  rig.device->done = 1;
  CHECK_FALSE(by_hand.step());
  CHECK(late.log.count() == 0);
}

TEST_CASE("the poller's time is its clock's", "[completion][TIM-1]") {
  const auto time = std::make_shared<manual_clock>();
  poller by_hand{time, {}};
  track_rig rig;
  by_hand.attach(rig.watched);
  const auto late = rig.launch(5ms);
  CHECK_FALSE(by_hand.step());
  time->advance(1h);
  by_hand.step();
  CHECK(late.log.failure().code == errc::deadline_exceeded);
}

TEST_CASE("a started poller answers without being stepped, whether it spins or parks", "[completion][ONE-1]") {
  const wait_profile profile = GENERATE(wait_profile{.spin = 1s}, wait_profile{.spin = 0s, .nap = 20us});
  std::thread::id entered;
  poller watch{std::make_shared<monotonic_clock>(), profile, [&] { entered = std::this_thread::get_id(); }};
  const auto one = instant_track();
  watch.attach(one);
  watch.start();
  watch.start(); // the second has nothing to begin
  for (std::uint64_t i = 1; i <= 300; ++i) {
    auto [reply, done] = make_future_promise();
    push_launched(*one, std::move(reply), i);
    watch.notify();
    REQUIRE_FALSE(error_of([&, &late = done] { static_cast<void>(late.get()); }));
  }
  watch.stop();
  CHECK(entered != std::thread::id{});
  CHECK(entered != std::this_thread::get_id());
}

TEST_CASE("a stopped poller leaves pending requests to their holder, whose end answers them", "[completion][ONE-1]") {
  const outcome_log log;
  {
    track_rig rig;
    poller watch{std::make_shared<monotonic_clock>(), {}};
    watch.attach(rig.watched);
    watch.start();
    rig.watched->expect();
    rig.watched->push(std::make_shared<held_call>(time_point::max(), log.make_reply_promise(), nullptr));
    watch.notify();
    watch.stop();
    watch.stop();
    CHECK(log.count() == 0);
  }
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::abandoned);
  CHECK(log.failure().effect == effect::unknown_outcome);
}

TEST_CASE("a poller promises to poll what is attached while its thread runs, and polls it even if it is stopped then",
          "[completion]") {
  class counted final : public polled {
  public:
    bool poll(time_point) override {
      asked = false;
      return false;
    }
    [[nodiscard]] std::size_t load() const noexcept override { return 0; }
    std::atomic<bool> asked{false};
  };
  for (int i = 0; i < 200; ++i) {
    const auto watched = std::make_shared<counted>();
    poller one{std::make_shared<monotonic_clock>(), {}};
    CHECK_FALSE(one.will_poll(*watched));
    one.attach(watched);
    CHECK_FALSE(one.will_poll(*watched)); // its thread has not been started
    one.start();
    CHECK_FALSE(one.will_poll(counted{}));
    watched->asked = true;
    REQUIRE(one.will_poll(*watched));
    one.stop();
    REQUIRE_FALSE(watched->asked);
    CHECK_FALSE(one.will_poll(*watched));
  }
}
