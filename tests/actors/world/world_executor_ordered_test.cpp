/// What worlds over processes do at their turns in the order that a controller keeps.
#include "actors/world/executor_scene.hpp"

#include <troupe/processes/order/order_connection.hpp>
#include <troupe/processes/order/order_server.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cstdint>

namespace troupe::tests::world_executor_ordered_test {

namespace {

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};

/// Two processes with a rank each, whose order the scene keeps.
struct ordered_pair {
  struct channel final : heard_channel {
    [[nodiscard]] std::shared_ptr<world_order> open_order(std::shared_ptr<rank_pipeline> pipeline,
                                                          std::shared_ptr<exported_memory>) override {
      const epoch now = pipeline->formed_in();
      link = std::make_shared<order_connection>(std::move(pipeline), now, std::make_shared<monotonic_clock>(),
                                                [lines = up](std::string batch) {
                                                  const std::lock_guard lock{lines->first};
                                                  lines->second.push_back(std::move(batch));
                                                });
      return link->whole();
    }
    std::shared_ptr<std::pair<std::mutex, std::deque<std::string>>> up =
        std::make_shared<std::pair<std::mutex, std::deque<std::string>>>();
    std::shared_ptr<order_connection> link;
  };
  struct process {
    std::shared_ptr<ordered_pair::channel> link = std::make_shared<ordered_pair::channel>();
    executor_scene one{{.locals = {rank{0}}, .channel = link}};
  };

  ordered_pair() { form(epoch{1}); }

  void form(epoch of, bool has_newcomers = false) {
    keeper.open(of, 2);
    for (int r = 0; r < 2; ++r)
      at(r).direct({formation_directive{.of = of, .self = rank{r}, .world_size = 2, .has_newcomers = has_newcomers}});
    run_until("the epoch", [&] { return is_ready(0, of) && is_ready(1, of); });
  }
  void fail() {
    for (int r = 0; r < 2; ++r)
      at(r).direct({failure_directive{.of = at(r).executor->current_epoch(), .why = some_fault}});
  }
  [[nodiscard]] bool is_ready(int self, epoch of) {
    const world_event now = at(self).executor->event();
    return now.phase == world_phase::ready && now.epoch == of;
  }
  [[nodiscard]] executor_scene& at(int self) { return all[static_cast<std::size_t>(self)].one; }
  [[nodiscard]] channel& link(int self) { return *all[static_cast<std::size_t>(self)].link; }

  /// Passes on what the ranks ask, and what is decided.
  void deliver() {
    for (int r = 0; r < 2; ++r)
      for (;;) {
        std::string batch;
        {
          const std::lock_guard lock{link(r).up->first};
          if (link(r).up->second.empty()) break;
          batch = std::move(link(r).up->second.front());
          link(r).up->second.pop_front();
        }
        static_cast<void>(keeper.receive(rank{r}, batch, steady_now()));
      }
    for (int r = 0; r < 2; ++r)
      for (std::string batch; !(batch = keeper.take_outgoing(rank{r})).empty();)
        if (link(r).link) static_cast<void>(link(r).link->receive(batch));
  }
  void run_until(const std::string& what, const std::function<bool()>& reached) {
    await(what, [&] {
      if (reached()) return true;
      deliver();
      for (int r = 0; r < 2; ++r)
        if (auto next = at(r).mail->take()) at(r).executor->on(std::move(*next));
      return false;
    });
  }
  template <class Value>
  error failure_of(std::future<Value>& answer) {
    run_until("an answer", [&] { return answer.wait_for(0s) == std::future_status::ready; });
    return error_of([&] { static_cast<void>(answer.get()); });
  }
  outcome_log ask(int self) {
    outcome_log seen;
    at(self).states[0]->accept({.what = barrier{}, .epoch = at(self).executor->current_epoch()},
                               seen.make_reply_promise(), 1);
    return seen;
  }
  /// A request of both ranks is served.
  void check_service() {
    const std::array served{ask(0), ask(1)};
    run_until("the barrier", [&] { return served[0].count() + served[1].count() == 2; });
    for (const outcome_log& seen : served) CHECK_FALSE(seen.failure());
  }

  order_server keeper;
  std::array<process, 2> all;
};

} // namespace

TEST_CASE("processes register memory at their turns, and requests are served afterwards", "[actors][executor]") {
  ordered_pair pair;
  CHECK(pair.at(0).executor->order()->opens_sub_worlds());
  CHECK(pair.at(0).formed_count == 1);
  pair.check_service();
  auto left = pair.at(0).register_memory(4096);
  const auto held = pair.ask(0);
  pair.deliver();
  CHECK(left.wait_for(0s) == std::future_status::timeout); // the other has not asked
  auto right = pair.at(1).register_memory(4096);
  CHECK_FALSE(pair.failure_of(left));
  CHECK_FALSE(pair.failure_of(right));
  CHECK(pair.at(0).log->count("register 4096") == 1);
  CHECK(pair.at(1).log->count("register 4096") == 1);
  const auto peer = pair.ask(1);
  pair.run_until("the barrier", [&] { return held.count() + peer.count() == 2; });
  CHECK_FALSE(held.failure());
  pair.check_service();
}

TEST_CASE("a world that is told to stop does not wait for a turn that the order has not granted",
          "[actors][executor][TIM-1]") {
  ordered_pair pair;
  auto waits = pair.at(0).register_memory(4096); // the other process does not ask
  pair.deliver();
  // The close of the order does not arrive: the service that passes it on has lost the controller, too.
  pair.at(0).direct({stop_directive{.why = {.code = errc::stopping, .text = "all have finished"}}});
  await("the end", [&] {
    if (auto next = pair.at(0).mail->take()) pair.at(0).executor->on(std::move(*next));
    return pair.at(0).left == 1;
  });
  CHECK(pair.failure_of(waits).code == errc::stopping);
}

TEST_CASE("a rank holds its requests from its turn until the work has been done", "[actors][executor][ORD-3]") {
  ordered_pair pair;
  const auto gate = std::make_shared<latch>();
  pair.at(0).log->on_call([gate](const std::string& what, rank) {
    if (what == "allocate") gate->wait();
  });
  auto left = pair.at(0).register_memory(4096);
  auto right = pair.at(1).register_memory(4096);
  pair.run_until("the allocation", [&] { return pair.at(0).log->count("allocate") == 1; });
  const std::array<std::uint64_t, 2> followed{pair.link(0).link->followed(), pair.link(1).link->followed()};
  const std::array held{pair.ask(0), pair.ask(1)};
  pair.run_until("their release", [&] {
    const auto& one = *pair.link(0).link;
    const auto& other = *pair.link(1).link;
    return one.followed() > followed[0] && other.followed() > followed[1] && one.waiting() + other.waiting() == 0;
  });
  for (int i = 0; i < 3; ++i) { // what is released reaches the launcher before this
    const auto seen = std::make_shared<latch>();
    pair.at(0).launchers[0]->post([seen] { seen->open(); });
    seen->wait();
  }
  CHECK(pair.at(0).log->count("launch") == 0);
  SECTION("the work is done") {
    gate->open();
    CHECK_FALSE(pair.failure_of(left));
    CHECK_FALSE(pair.failure_of(right));
    pair.run_until("the barrier", [&] { return held[0].count() + held[1].count() == 2; });
    for (const outcome_log& seen : held) CHECK_FALSE(seen.failure());
  }
  SECTION("the epoch ends without a fault") {
    const error larger{.code = errc::rebuilding, .text = "more ranks have come"};
    for (int r = 0; r < 2; ++r) pair.at(r).direct({quiesce_directive{.of = epoch{1}, .why = larger}});
    gate->open();
    CHECK(pair.failure_of(left).code == errc::rebuilding);
    CHECK(pair.failure_of(right).code == errc::rebuilding);
    pair.run_until("their rest", [&] {
      return pair.link(0).all<drained_report>().size() + pair.link(1).all<drained_report>().size() == 2;
    });
    for (const outcome_log& seen : held) {
      CHECK(seen.count() == 1);
      CHECK_FALSE(seen.failure());
    }
  }
}

TEST_CASE("maintenance whose turn does not come is answered when its epoch ends", "[actors][executor][ONE-1]") {
  ordered_pair pair;
  auto memory = pair.at(0).register_memory(4096);
  auto suspended = pair.at(0).suspend();
  pair.deliver();
  SECTION("by a fault") {
    pair.fail();
    CHECK(pair.failure_of(memory).code == errc::rebuilding);
    CHECK(pair.failure_of(suspended).code == errc::rebuilding);
    pair.form(epoch{2});
    pair.check_service();
    auto left = pair.at(0).suspend();
    auto right = pair.at(1).suspend();
    CHECK_FALSE(pair.failure_of(left));
    CHECK_FALSE(pair.failure_of(right));
  }
  SECTION("by the end of the world's actor") {
    pair.at(0).executor->kill({.code = errc::abandoned, .text = "the actor was ended"});
    CHECK(pair.failure_of(memory).text == "the actor was ended");
    CHECK(pair.failure_of(suspended).text == "the actor was ended");
    pair.at(0).left = 1;
  }
}

TEST_CASE("maintenance that a process leaves alone is refused, and its world can stop", "[actors][executor]") {
  ordered_pair pair;
  auto memory = pair.at(0).register_memory(4096);
  pair.at(1).executor->stop();
  CHECK(pair.failure_of(memory));
  CHECK(pair.at(0).executor->event().phase == world_phase::ready);
  pair.at(0).executor->stop();
  pair.run_until("their ends", [&] { return pair.at(0).left + pair.at(1).left == 2; });
  CHECK(pair.at(0).log->count("allocate") == 0);
}

TEST_CASE("memory comes back when a process that has joined registers as much", "[actors][executor][recovery]") {
  ordered_pair pair;
  auto left = pair.at(0).register_memory(4096);
  auto right = pair.at(1).register_memory(4096);
  CHECK_FALSE(pair.failure_of(left));
  CHECK_FALSE(pair.failure_of(right));
  pair.fail();
  const auto restored = [&](int self) {
    const auto all = pair.at(self).executor->event().restored;
    return all && all->size() == 1 && all->front().state == restored_state::back;
  };
  pair.form(epoch{2}, true);
  pair.run_until("the restorations", [&] { return restored(0) && restored(1); });
  for (int r = 0; r < 2; ++r) {
    CHECK(pair.at(r).log->count("allocate") == 1); // it was kept
    CHECK(pair.at(r).log->count("register 4096") == 2);
    CHECK(pair.at(r).executor->event().restored->front().kind == restored_kind::registration);
    CHECK(pair.at(r).executor->event().restored->front().number == 0);
    CHECK(pair.at(r).events.back().restored);
  }
  pair.check_service();
  pair.fail();
  pair.form(epoch{3}); // nobody has joined: it is registered while the ranks form
  for (int r = 0; r < 2; ++r) CHECK(pair.at(r).log->count("register 4096") == 3);
}

TEST_CASE("a stop does not wait for memory that comes back", "[actors][executor]") {
  ordered_pair pair;
  auto left = pair.at(0).register_memory(4096);
  auto right = pair.at(1).register_memory(4096);
  CHECK_FALSE(pair.failure_of(left));
  CHECK_FALSE(pair.failure_of(right));
  pair.fail();
  pair.form(epoch{2}, true);
  std::vector<outcome_log> held;
  SECTION("before its turn") {}
  SECTION("when its turn has come, behind which requests are held") {
    pair.deliver();
    for (int r = 0; r < 2; ++r) held.push_back(pair.ask(r));
    pair.deliver();
  }
  pair.at(0).executor->stop();
  CHECK(pair.at(0).executor->event().phase == world_phase::stopping);
  pair.at(1).executor->stop();
  pair.run_until("their ends", [&] { return pair.at(0).left + pair.at(1).left == 2; });
  for (const outcome_log& seen : held) CHECK_FALSE(seen.failure());
}

TEST_CASE("a process that is left alone orders by itself, restores its memory, and tells its sub-worlds",
          "[actors][executor][recovery]") {
  ordered_pair pair;
  auto left = pair.at(0).register_memory(4096);
  auto right = pair.at(1).register_memory(4096);
  CHECK_FALSE(pair.failure_of(left));
  CHECK_FALSE(pair.failure_of(right));
  pair.fail();
  pair.at(0).direct({formation_directive{.of = epoch{2}, .self = rank{0}, .world_size = 2, .has_newcomers = true}});
  pair.at(0).direct(
      {formation_directive{.of = epoch{3}, .self = rank{0}, .world_size = 1}}); // the newcomer has not come
  pair.run_until("the epoch", [&] { return pair.is_ready(0, epoch{3}); });
  CHECK_FALSE(pair.at(0).executor->order()->opens_sub_worlds());
  CHECK(pair.at(0).formed_count == 2);
  pair.run_until("the restoration", [&] {
    const auto all = pair.at(0).executor->event().restored;
    return all && all->front().state == restored_state::back;
  });
  const auto served = pair.at(0).ask({barrier{}});
  pair.run_until("the barrier", [&] { return served.count() == 1; });
  CHECK_FALSE(served.failure());
}

TEST_CASE("processes capture plans under their names, or by the order of those without", "[actors][executor][plans]") {
  ordered_pair pair;
  const auto capture_both = [&](const plan_options& options) {
    std::array<std::future<capture_reply>, 2> answers;
    for (int r = 0; r < 2; ++r)
      answers[static_cast<std::size_t>(r)] =
          pair.at(r).capture({.steps = {{barrier{}}}, .options = options, .epoch = {}});
    std::vector<std::shared_ptr<captured_plan>> plans;
    for (auto& one : answers) {
      pair.run_until("the capture", [&] { return one.wait_for(0s) == std::future_status::ready; });
      plans.push_back(one.get().plan);
    }
    CHECK(plans[0]->common_number() == plans[1]->common_number());
    return plans;
  };
  const auto named = capture_both({.name = "sum"});
  CHECK(named[0]->options().name == "sum");
  CHECK(capture_both({})[0]->options().name == "#1");
  CHECK(capture_both({})[1]->options().name == "#2");
  const auto again = capture_both({.name = "sum"}); // instead of the first
  CHECK(again[0]->common_number() != named[0]->common_number());
  pair.fail();
  pair.form(epoch{2});
  const auto restored = [&](int self) {
    const auto all = pair.at(self).executor->event().restored;
    return all && all->front().state != restored_state::under_way;
  };
  pair.run_until("the captures", [&] { return restored(0) && restored(1); });
  for (int r = 0; r < 2; ++r) {
    REQUIRE(pair.at(r).executor->event().restored->size() == 1); // nobody has the others
    CHECK(pair.at(r).executor->event().restored->front().name == "sum");
    CHECK(pair.at(r).executor->event().restored->front().state == restored_state::back);
    CHECK(pair.at(r).executor->event().restored->front().number == again[static_cast<std::size_t>(r)]->number());
  }
  CHECK(again[0]->common_number() == again[1]->common_number());
}

TEST_CASE("a process refuses the part of a plan that cannot be captured", "[actors][executor][plans]") {
  ordered_pair pair;
  const auto refused = [&](capture_request asked) {
    auto answer = pair.at(0).capture(std::move(asked));
    CHECK(answer.wait_for(0s) == std::future_status::ready); // at once
    return pair.failure_of(answer);
  };
  CHECK(refused({.steps = {{barrier{}}, {barrier{}, barrier{}}}, .epoch = {}}).text ==
        "step 1 of the plan: it has 2 parts, this process has 1 of the world's ranks: give one part for each rank");
  CHECK(
      refused({.steps = {{barrier{}}}, .options = {.streams = {native_stream{}, native_stream{}}}, .epoch = {}}).text ==
      "the plan names 2 streams, this process has 1 of the world's ranks: give one for each rank, or none");
  const buffer memory = memory_pool::create(pair.at(0).devices[0])->allocate(64);
  const error alone =
      refused({.steps = {{send{.memory = memory, .count = 4, .peer = rank{0}}}}, .epoch = {}}); // nobody receives it
  CHECK(alone.code == errc::invalid_argument);
  CHECK(alone.rank == rank{0});
  pair.check_service();
}

TEST_CASE("a capture that another process does not ask for is answered at its deadline",
          "[actors][executor][plans][TIM-1]") {
  ordered_pair pair;
  auto answer = pair.at(0).capture({.steps = {{barrier{}}}, .options = {.deadline = 20ms}, .epoch = {}});
  pair.run_until("the deadline", [&] {
    pair.keeper.expire(steady_now());
    return answer.wait_for(0s) == std::future_status::ready;
  });
  const error why = pair.failure_of(answer);
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(why.effect == effect::rejected);
  CHECK(pair.at(0).executor->event().phase == world_phase::ready);
}

} // namespace troupe::tests::world_executor_ordered_test
