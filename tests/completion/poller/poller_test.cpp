// The one thread that answers: by hand without a thread, and as a thread.
#include "support/comes_true.hpp"
#include "support/parked_poller.hpp"
#include "support/track_rig.hpp"

#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/sources/completion_source.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <functional>
#include <future>
#include <thread>
#include <utility>

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

/// Never done. Its look reads memory or calls the driver, and the test's function is called in it.
class hanging_source final : public completion_source {
public:
  hanging_source(bool calls, std::function<void()> in_look) : calls_{calls}, in_look_{std::move(in_look)} {}
  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref, std::uint64_t) override {}
  [[nodiscard]] bool reached(std::uint64_t) override {
    in_look_();
    return false;
  }
  [[nodiscard]] bool calls_driver() const noexcept override { return calls_; }
  void drained() noexcept override {}

private:
  bool calls_;
  std::function<void()> in_look_;
};

/// Lets the clock jump by an hour, once, at a place in the poller's loop. Afterwards each round lasts 0.5 ms, so that
/// an operation hangs some time. All on the poller's thread, so a run has only one order.
class jumping_clock final : public polled {
public:
  enum class place : std::uint8_t { in_round, in_look, in_wait };

  explicit jumping_clock(place where) : where_{where} {}

  [[nodiscard]] const std::shared_ptr<manual_clock>& time() const { return time_; }
  [[nodiscard]] int round() const { return round_; }
  /// Called in the look at the device.
  void look() const { jump_in(place::in_look); }

  bool poll(time_point, running_time) override {
    if (++round_ > round_of_jump) time_->advance(500us);
    jump_in(place::in_round);
    return false;
  }
  [[nodiscard]] std::size_t load() const noexcept override { // read before and in a wait
    jump_in(place::in_wait);
    return 0;
  }

private:
  /// No health check, which calls the driver, is in this round: the clock has stood still since the first.
  static constexpr int round_of_jump = 3;

  void jump_in(place here) const noexcept {
    if (here == where_ && round_ == round_of_jump && !std::exchange(has_jumped_, true)) time_->advance(1h);
  }

  place where_;
  std::shared_ptr<manual_clock> time_ = std::make_shared<manual_clock>();
  int round_ = 0;
  mutable bool has_jumped_ = false;
};

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

TEST_CASE("time in which the poller's thread did not run does not count as a hang, but a blocked driver call does",
          "[completion][TIM-1]") {
  struct run {
    jumping_clock::place where;
    bool calls_driver; ///< Whether each look at the device calls the driver.
    bool spins;
    bool counts; ///< Whether the hour counts as time in which the operation ran.
  };
  using enum jumping_clock::place;
  const run given =
      GENERATE(run{in_wait, false, false, false}, run{in_wait, true, false, false}, run{in_round, false, false, false},
               run{in_round, false, true, false}, run{in_look, true, false, true}, run{in_look, true, true, true});
  CAPTURE(static_cast<int>(given.where), given.calls_driver, given.spins);
  const auto script = std::make_shared<jumping_clock>(given.where);
  std::promise<int> hung; // at which round
  const auto one = std::make_shared<track>(
      rank{0}, std::make_unique<hanging_source>(given.calls_driver, [script] { script->look(); }),
      std::make_shared<fault_mark>(), track_rig::patience,
      track_hooks{.probe = {}, .on_fault = [&](const error&) { hung.set_value(script->round()); }});
  poller watch{script->time(),
               {.spin = given.spins ? nanoseconds::max() : 0ns, .nap = 20us},
               {},
               counted_of_pause(track_rig::patience)};
  watch.attach(script);
  watch.attach(one);
  auto call = std::make_shared<held_call>(time_point::max(), reply_promise{}, nullptr);
  static_cast<void>(call->begin_launch(script->time()->now()));
  call->end_launch({1, 1}, script->time()->now());
  one->expect();
  one->push(std::move(call));
  watch.start();
  auto round = hung.get_future();
  REQUIRE(round.wait_for(60s) == std::future_status::ready);
  watch.stop();
  if (given.counts)
    CHECK(round.get() <= 5);
  else
    CHECK(round.get() > 30); // 20 ms in rounds of 0.5 ms, of which the pause counts 0.625 ms
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

TEST_CASE("a sleeping poller is woken before what is due in its sleep, and not for what is due later",
          "[completion][TIM-1]") {
  // The first sleep after work is short: what rings at its end is submitted without waking the poller then.
  const bool had_work = GENERATE(true, false);
  parked_poller one{had_work ? 5ms : 1h};
  const bool is_due = GENERATE(true, false);
  CHECK(one.is_woken_by([&] {
    const time_point wakes = one.time->now() + (had_work ? parked_poller::first_sleep : parked_poller::longest_sleep);
    one.watch->notify_before(is_due ? wakes - 1ns : wakes);
  }) == is_due);
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

TEST_CASE("a poller that stops answers first what has failed during its last round", "[completion][ONE-1]") {
  /// Keeps the poller's thread in a round until the test lets it go on.
  class held_round final : public polled {
  public:
    bool poll(time_point, running_time) override {
      if (std::exchange(is_first_, false)) {
        entered.set_value();
        go_on.get_future().wait();
      }
      return false;
    }
    [[nodiscard]] std::size_t load() const noexcept override { return 0; }
    std::promise<void> entered;
    std::promise<void> go_on;

  private:
    bool is_first_ = true;
  };
  track_rig rig;
  const auto round = std::make_shared<held_round>();
  poller watch{std::make_shared<monotonic_clock>(), {}};
  watch.attach(rig.watched); // polled before the thread is held
  watch.attach(round);
  watch.start();
  round->entered.get_future().wait();
  const auto hung = rig.launch();
  rig.mark->set({.code = errc::communicator_failed, .text = "aborted"});
  rig.watched->release_quarantine();
  std::thread stopping{[&] { watch.stop(); }};
  while (watch.will_poll(*rig.watched)) std::this_thread::yield();
  round->go_on.set_value();
  stopping.join();
  REQUIRE(hung.log.count() == 1);
  CHECK(hung.log.failure().code == errc::communicator_failed);
  CHECK(rig.watched->load() == 0);
  CHECK(hung.memory.expired());
}

TEST_CASE("a track that a stopped poller is to let go of is answered at once", "[completion][ONE-1]") {
  track_rig rig;
  poller watch{std::make_shared<monotonic_clock>(), {}};
  watch.attach(rig.watched);
  watch.start();
  watch.stop();
  const auto late = rig.launch();
  rig.mark->set({.code = errc::abandoned, .text = "released"});
  rig.watched->release_quarantine();
  watch.let_go(*rig.watched);
  REQUIRE(late.log.count() == 1);
  CHECK(late.log.failure().code == errc::abandoned);
  CHECK(late.memory.expired());
}

TEST_CASE("a poller's bell ends its sleep, also beside work that has no bell", "[completion]") {
  class watched final : public polled {
  public:
    explicit watched(bool has_bell) : has_bell_{has_bell} {}
    bool poll(time_point, running_time) override {
      polls.fetch_add(1);
      if (!finished.load() || load_.load() == 0) return false;
      load_.store(0);
      seen.set_value();
      return true;
    }
    [[nodiscard]] std::size_t load() const noexcept override { return load_.load(); }
    [[nodiscard]] bool rings() const noexcept override { return has_bell_; }

    std::atomic<int> polls{0};
    std::atomic<bool> finished{false};
    std::promise<void> seen;

  private:
    const bool has_bell_;
    std::atomic<std::size_t> load_{1};
  };
  const auto is_seen = [](watched& one) { return one.seen.get_future().wait_for(1min) == std::future_status::ready; };
  SECTION("alone, it sleeps until the bell rings") {
    for (int i = 0; i < 200; ++i) {
      poller one{std::make_shared<monotonic_clock>(), {.spin = 0s, .nap = 1h, .sleep = 1h}};
      const auto bell = one.bell();
      const auto work = std::make_shared<watched>(true);
      one.attach(work);
      one.start();
      while (work->polls.load() == 0) std::this_thread::yield();
      for (int wait = 0; wait < i % 20; ++wait) std::this_thread::yield(); // at any place of its way to sleep
      work->finished = true;
      bell->ring();
      REQUIRE(is_seen(*work));
    }
  }
  SECTION("until then it polls for deadlines") {
    poller one{std::make_shared<monotonic_clock>(), {.spin = 0s, .nap = 1h, .sleep = 20us}};
    const auto work = std::make_shared<watched>(true);
    one.attach(work);
    one.start();
    await("some polls", [&] { return work->polls.load() > 5; });
  }
  SECTION("beside work without a bell it naps") {
    poller one{std::make_shared<monotonic_clock>(), {.spin = 0s, .nap = 20us, .sleep = 1h}};
    const auto work = std::make_shared<watched>(true), other = std::make_shared<watched>(false);
    one.attach(work);
    one.attach(other);
    one.start();
    await("some naps", [&] { return other->polls.load() > 5; });
  }
  SECTION("a bell may ring after the poller's end") {
    std::shared_ptr<poller_bell> bell;
    {
      poller one{std::make_shared<monotonic_clock>(), {}};
      bell = one.bell();
      one.start();
    }
    bell->ring();
    CHECK(bell.use_count() == 1);
  }
}

TEST_CASE("a poller promises to poll what is attached while its thread runs, and polls it even if it is stopped then",
          "[completion]") {
  class counted final : public polled {
  public:
    bool poll(time_point, running_time) override {
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

TEST_CASE("an object that only the poller still owned may use the poller when it ends", "[completion]") {
  class leaves_at_its_end final : public polled {
  public:
    leaves_at_its_end(poller& of, bool& told) : of_{of}, told_{told} {}
    leaves_at_its_end(const leaves_at_its_end&) = delete;
    leaves_at_its_end& operator=(const leaves_at_its_end&) = delete;
    ~leaves_at_its_end() override {
      of_.detach(*this);
      told_ = true;
    }
    bool poll(time_point, running_time) override { return false; }
    [[nodiscard]] std::size_t load() const noexcept override { return 0; }

  private:
    poller& of_;
    bool& told_;
  };
  poller by_hand{std::make_shared<manual_clock>(), {}};
  bool has_ended = false;
  auto one = std::make_shared<leaves_at_its_end>(by_hand, has_ended);
  const polled& which = *one;
  by_hand.attach(std::move(one));
  CHECK_FALSE(has_ended);
  by_hand.detach(which);
  CHECK(has_ended);
}
