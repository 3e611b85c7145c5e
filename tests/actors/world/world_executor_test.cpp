/// What a world does with its ranks at each phase, and how it answers its clients, without actors.
#include "actors/world/executor_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

namespace troupe::tests::world_executor_test {

namespace {

using Catch::Matchers::ContainsSubstring;

const error some_fault{.code = errc::communicator_failed, .text = "a fault", .rank = rank{1}};

scene_options keeping_size() {
  return {.recovery = {.policy = recovery_policy::keep_size, .backoff = 1ms}};
}
scene_options shrinking(int size) {
  return {.size = size, .recovery = {.policy = recovery_policy::shrink, .backoff = 1ms}};
}
std::vector<operation> barriers(std::size_t count = 2) {
  return std::vector<operation>(count, barrier{});
}
std::vector<std::string> sorted(std::vector<std::string> some) {
  std::ranges::sort(some);
  return some;
}
capture_request one_barrier(plan_options options = {}) {
  return {.steps = {barriers()}, .options = std::move(options), .epoch = {}};
}

/// Blocks calls of the communicators until the test goes on.
class stopped_calls {
public:
  stopped_calls(peers_log& log, std::string what, std::optional<rank> at = {}) : log_{&log} {
    log.on_call([what = std::move(what), at, gate = gate_](const std::string& called, rank self) {
      if (called == what && (!at || *at == self)) gate->wait();
    });
  }
  stopped_calls(const stopped_calls&) = delete;
  stopped_calls& operator=(const stopped_calls&) = delete;
  ~stopped_calls() { go(); }
  void go() {
    log_->on_call({});
    gate_->open();
  }

private:
  peers_log* log_;
  std::shared_ptr<latch> gate_ = std::make_shared<latch>();
};

} // namespace

TEST_CASE("a world forms its ranks, serves, and releases them when it stops", "[actors][executor]") {
  executor_scene one;
  CHECK(one.phases() == std::vector{world_phase::forming});
  const auto early = one.ask(barriers());
  CHECK(early.failure().code == errc::world_failed);
  one.run_until_ready(epoch{1});
  CHECK(sorted(one.log->all()) == std::vector<std::string>{"create 0", "create 1", "id 0", "init 0", "init 1"});
  CHECK(one.phases() == std::vector{world_phase::forming, world_phase::ready});
  CHECK(one.status->latest().phase == world_phase::ready);
  CHECK(one.status->latest().world_size == 2);
  CHECK(one.formed_count == 1);
  CHECK_FALSE(one.executor->order()->opens_sub_worlds());
  CHECK_FALSE(one.executor->has_newcomers());
  const auto served = one.ask(barriers());
  one.run_until("the barrier", [&] { return served.count() == 1; });
  CHECK_FALSE(served.failure());
  CHECK(one.log->count("launch barrier") == 2);

  one.executor->stop();
  CHECK(one.status->latest().phase == world_phase::stopping);
  CHECK(one.ask(barriers()).failure().code == errc::stopping);
  CHECK(one.executor->objection_to_maintenance().code == errc::stopping);
  one.run_until("its end", [&] { return one.left == 1; });
  CHECK(one.log->count("destroy") == 2);
  CHECK(one.log->count("abort") == 0);
  CHECK(one.phases().back() == world_phase::stopped);
  CHECK(one.ended.empty());
  const std::weak_ptr<admission_quota> quota = one.pending;
  one.executor->let_go();
  const error over = one.ask(barriers()).failure();
  CHECK(over.code == errc::stopping);
  one.executor.reset();
  one.status.reset();
  one.states.clear();
  one.pending.reset();
  await("that nobody polls the quota", [&] { return quota.expired(); });
}

TEST_CASE("each rank's states follow its world", "[actors][executor]") {
  executor_scene one{{.ordering = ordering::caller}};
  const auto ask_rank = [&](std::size_t place) {
    const outcome_log seen;
    one.states[place]->accept({.what = barrier{}, .epoch = epoch{1}}, seen.make_reply_promise(), 1);
    return seen;
  };
  CHECK(ask_rank(0).failure());
  one.run_until_ready(epoch{1});
  const std::vector served{ask_rank(0), ask_rank(1)};
  for (const outcome_log& seen : served) {
    await("the barrier", [&] { return seen.count() == 1; });
    CHECK_FALSE(seen.failure());
  }
  one.executor->stop();
  for (std::size_t place = 0; place < 2; ++place) CHECK(ask_rank(place).failure().code == errc::stopping);
  one.run_until("its end", [&] { return one.left == 1; });
}

TEST_CASE("a world that cannot form fails with the rank's error, and aborts all ranks", "[actors][executor][FLT-1]") {
  executor_scene one{keeping_size(), [](peers_log& log) {
                       log.fail("init", rank{1}, {.code = errc::communicator_failed, .text = "no room"});
                     }};
  one.run_until(world_phase::failed);
  CHECK(one.executor->event().reason.code == errc::communicator_failed);
  CHECK(one.executor->event().reason.rank == rank{1});
  CHECK_THAT(one.executor->event().reason.text, ContainsSubstring("no room"));
  one.run_until("the aborts", [&] { return one.log->count("abort") == 2; });
}

TEST_CASE("a rank that does not form in time is named, and may form when its world has ended (TIM-1)",
          "[actors][executor]") {
  const auto gate = std::make_shared<latch>();
  executor_scene one{{.deadlines = {.form = 20ms}}, [gate](peers_log& log) {
                       log.on_call([gate](const std::string& what, rank self) {
                         if (what == "init" && self == rank{1}) gate->wait();
                       });
                     }};
  one.run_until(world_phase::failed);
  CHECK(one.executor->event().reason.code == errc::deadline_exceeded);
  CHECK(one.executor->event().reason.rank == rank{1});
  CHECK_THAT(one.executor->event().reason.text, ContainsSubstring("the forming of rank 1"));
  one.executor->stop();
  one.run_until("its end", [&] { return one.left == 1; });
  CHECK(one.log->count("abort") == 2);
  gate->open(); // the stream has been taken from the rank
  await("the end of the forming", [&] { return one.helpers->abandoned_count() == 0; });
}

TEST_CASE("a world whose communicators cannot be created fails", "[actors][executor][FLT-1]") {
  executor_scene one{
      {}, [](peers_log& log) { log.fail("create", rank{1}, {.code = errc::out_of_memory, .text = "no room"}); }};
  CHECK(one.executor->event().phase == world_phase::failed);
  CHECK(one.executor->event().reason.code == errc::out_of_memory);
  CHECK(one.log->count("init") == 0);
  one.executor->stop();
  one.run_until("its end", [&] { return one.left == 1; });
}

TEST_CASE("a world that fails for good reports, aborts, and waits for its stop", "[actors][executor][FLT-1]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  one.fault(rank{1}, some_fault);
  CHECK(one.executor->event().phase == world_phase::failed);
  CHECK(one.status->latest().reason.rank == rank{1});
  CHECK_THAT(one.status->latest().reason.text, ContainsSubstring("a fault"));
  REQUIRE(one.events.back().report);
  CHECK(one.events.back().report->epoch == epoch{1});
  CHECK(one.events.back().report->world == one.status->world());
  CHECK(one.events.back().report->world_size == 2);
  CHECK(one.events.back().report->ranks.size() == 2);
  CHECK_FALSE(one.events.back().report->is_verdict);
  REQUIRE(one.ended.size() == 1);
  CHECK(one.ended[0].second);
  CHECK_THAT(one.ended[0].first.text, ContainsSubstring("a fault"));
  CHECK(one.ask(barriers()).failure().code == errc::world_failed);
  one.run_until("the aborts", [&] { return one.log->count("abort") == 2; });
  CHECK(one.left == 0);
  one.executor->stop();
  one.run_until("its end", [&] { return one.left == 1; });
  CHECK(one.events.back().phase == world_phase::stopped);
}

TEST_CASE("the end of a rank's actor is a fault that names it, and the next epoch has another", "[actors][executor]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  one.executor->on_rank_ended(1, "it was killed");
  const world_event failed = one.executor->event();
  CHECK(failed.phase == world_phase::rebuilding);
  CHECK(failed.reason.code == errc::abandoned);
  CHECK(failed.reason.rank == rank{1});
  CHECK_THAT(failed.reason.text, ContainsSubstring("the collective actor of rank 1 has ended: it was killed"));
  CHECK(one.ended.size() == 1);
  CHECK_FALSE(one.ended.at(0).second);
  CHECK(one.ask(barriers()).failure().code == errc::rebuilding);
  CHECK(one.replaced.empty());
  one.run_until_ready(epoch{2});
  CHECK(one.replaced == std::vector{std::pair{std::size_t{1}, rank{1}}});
  CHECK(one.mail->delays() == std::vector{nanoseconds{0}});
  one.run_until("the aborts", [&] { return one.log->count("abort") == 2; });
  CHECK(one.log->count("init") == 4);
  one.fault(rank{0}, some_fault);
  one.run_until_ready(epoch{3});
  CHECK(one.replaced.size() == 1); // once
  const auto served = one.ask(barriers());
  await("the barrier", [&] { return served.count() == 1; });
  CHECK_FALSE(served.failure());
}

TEST_CASE("reports of earlier epochs are none of the present one (EPO-1)", "[actors][executor]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  one.fault(rank{1}, some_fault);
  one.run_until_ready(epoch{2});
  one.run_until("the aborts", [&] { return one.log->count("abort") == 2; });
  const std::size_t before = one.events.size();
  one.executor->on(rank_report{rank_report::kind::late, rank{0}, epoch{1}, some_fault});
  one.executor->on(rank_report{rank_report::kind::faulted, rank{0}, epoch{1}, some_fault});
  one.executor->on(maintenance_over{epoch{1}});
  one.executor->on(maintenance_turn{epoch{1}, 1, {}, {}});
  one.executor->on(rebuild_due{epoch{1}});
  CHECK(one.events.size() == before);
  CHECK(one.executor->event().phase == world_phase::ready);
}

TEST_CASE("a late request is announced with a report, and is no fault", "[actors][executor]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  const error late{.code = errc::deadline_exceeded, .text = "it is late", .rank = rank{1}};
  one.fault(rank{1}, late, rank_report::kind::late);
  CHECK(one.events.size() == 3);
  CHECK(one.events.back().phase == world_phase::ready);
  CHECK_FALSE(one.events.back().reason);
  REQUIRE(one.events.back().report);
  CHECK(one.events.back().report->fault.text == "it is late");
  CHECK(one.events.back().report->epoch == epoch{1});
  CHECK(one.events.back().report->world_size == 2);
  const auto absence = std::make_shared<absence_report>();
  one.executor->on(straggling_report{absence});
  CHECK(one.events.size() == 4);
  CHECK(one.events.back().straggling == absence);
  CHECK(one.events.back().phase == world_phase::ready);
}

TEST_CASE("a world that is killed answers what waits, aborts, and has ended", "[actors][executor][ONE-1]") {
  executor_scene one{{.pending = {.operations = 1}}};
  one.run_until_ready(epoch{1});
  stopped_calls stuck{*one.log, "allocate"};
  auto given = one.ask_credit({});
  CHECK_FALSE(one.failure_of(given));
  auto held = one.ask_credit({});
  auto waits = one.ask_credit({});
  auto memory = one.register_memory(4096);
  CHECK(waits.wait_for(0s) == std::future_status::timeout);
  one.run_until("the allocation", [&] { return one.log->count("allocate") == 2; });
  const std::size_t before = one.events.size();
  one.executor->kill({.code = errc::abandoned, .text = "the actor was ended"});
  stuck.go();
  for (const error& told : {one.failure_of(waits), one.failure_of(memory)}) {
    CHECK(told.code == errc::abandoned);
    CHECK(told.text == "the actor was ended");
  }
  const error refused = one.ask(barriers()).failure();
  CHECK(refused.code == errc::abandoned);
  CHECK(refused.effect == effect::rejected);
  CHECK(one.events.size() == before + 1);
  CHECK(one.events.back().phase == world_phase::stopped);
  CHECK(one.events.back().epoch == epoch{1});
  CHECK(one.events.back().reason.text == "the actor was ended");
  CHECK_FALSE(one.events.back().recovery);
  await("the aborts", [&] { return one.log->count("abort") == 2; });
  one.left = 1; // it is killed
}

TEST_CASE("a world that is killed while it forms again aborts what failed before, too", "[actors][executor]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  stopped_calls stuck{*one.log, "init"};
  one.fault(rank{1}, some_fault);
  one.run_until("the forming", [&] { return one.log->count("init") == 4; });
  CHECK(one.log->count("abort") == 0);
  one.executor->kill({.code = errc::abandoned, .text = "the actor was ended"});
  stuck.go();
  await("the aborts", [&] { return one.log->count("abort") == 4; });
  one.left = 1;
}

TEST_CASE("registered memory is allocated at all ranks, then registered, and again in each epoch",
          "[actors][executor]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  auto none = one.register_memory(0);
  CHECK(one.failure_of(none).code == errc::invalid_argument);
  auto stale = one.register_memory(4096, epoch{2});
  CHECK(one.failure_of(stale).code == errc::stale_epoch);
  auto first = one.register_memory(4096, epoch{1});
  auto second = one.register_memory(8192);
  const auto held = one.ask(barriers()); // after both allocations
  const auto pool = one.result_of(first).pool;
  CHECK(pool->size_bytes() == 4096);
  CHECK(pool->regions().size() == 2);
  CHECK(one.result_of(second).pool->size_bytes() == 8192);
  one.run_until("the barrier", [&] { return held.count() == 1; });
  CHECK_FALSE(held.failure());
  std::vector<std::string> calls = one.log->all();
  calls.erase(calls.begin(), calls.begin() + 5); // the forming
  REQUIRE(calls.size() == 10);
  const auto is_allocation = [](const std::string& call) { return call.starts_with("allocate"); };
  CHECK(std::all_of(calls.begin(), calls.begin() + 4, is_allocation)); // at all ranks, before anything is registered
  // After that, ranks do not wait for each other, so only the order of each rank's calls is certain.
  std::stable_partition(calls.begin() + 4, calls.end(), [](const std::string& call) { return call.ends_with(" 0"); });
  std::sort(calls.begin(), calls.begin() + 4);
  CHECK(calls == std::vector<std::string>{"allocate 0", "allocate 0", "allocate 1", "allocate 1", "launch barrier 0",
                                          "register 4096 of 0", "register 8192 of 0", "launch barrier 1",
                                          "register 4096 of 1", "register 8192 of 1"});
  auto blocks = pool->allocate(256);
  std::vector<operation> apart;
  for (std::size_t r = 0; r < 2; ++r) apart.emplace_back(all_reduce{blocks[r], blocks[r], 4});
  auto other = pool->allocate(256);
  std::get<all_reduce>(apart[1]) = {other[1], other[1], 4};
  CHECK(one.ask(std::move(apart)).failure().code == errc::mismatch);
  one.fault(rank{1}, some_fault);
  one.run_until_ready(epoch{2});
  CHECK(one.log->count("allocate") == 4);
  CHECK(one.log->count("register 4096") == 4);
  CHECK(one.log->count("register 8192") == 4);
  REQUIRE(one.executor->event().restored);
  CHECK(one.executor->event().restored->size() == 2);
  REQUIRE(one.status->latest().restored);
}

TEST_CASE("a rank that has no memory to register refuses for all, and the world serves on", "[actors][executor]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  const auto fails = [&](error why) {
    one.log->fail("allocate", rank{1}, std::move(why));
    auto memory = one.register_memory(4096);
    return one.failure_of(memory);
  };
  const error own = fails({.code = errc::out_of_memory, .text = "full"});
  CHECK(own.code == errc::out_of_memory);
  CHECK(own.rank == rank{1});
  CHECK(own.text == "full");
  CHECK(fails({.code = errc::out_of_memory, .text = "full", .rank = rank{0}}).rank == rank{0});
  CHECK(one.log->count("register") == 0);
  CHECK(one.executor->event().phase == world_phase::ready);
  const auto served = one.ask(barriers());
  one.run_until("the barrier", [&] { return served.count() == 1; });
  CHECK_FALSE(served.failure());
}

TEST_CASE("a registration that fails at a rank fails its world", "[actors][executor][FLT-1]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  one.log->fail("register 4096 of", rank{1}, {.code = errc::communicator_failed, .text = "it broke"});
  auto memory = one.register_memory(4096);
  auto next = one.register_memory(8192);
  CHECK(one.failure_of(memory).code == errc::rebuilding);
  CHECK(one.failure_of(next).code == errc::rebuilding);
  CHECK(one.executor->event().reason.rank == rank{1});
  one.log->on_call({});
  one.run_until_ready(epoch{2});
  CHECK_FALSE(one.executor->event().restored);
  auto again = one.register_memory(4096);
  CHECK_FALSE(one.failure_of(again));
}

TEST_CASE("a world that stops between the two halves of a registration registers nothing", "[actors][executor]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  stopped_calls stuck{*one.log, "allocate"};
  auto memory = one.register_memory(4096);
  one.run_until("the allocation", [&] { return one.log->count("allocate") == 2; });
  one.executor->stop();
  CHECK(one.executor->event().phase == world_phase::ready); // the stop waits for it
  stuck.go();
  CHECK(one.failure_of(memory).code == errc::stopping);
  one.run_until("its end", [&] { return one.left == 1; });
  CHECK(one.log->count("register") == 0);
  CHECK(one.log->count("destroy") == 2);
}

TEST_CASE("a world is suspended at all ranks, holds its requests, and is resumed", "[actors][executor]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  auto stale = one.suspend(epoch{7});
  CHECK(one.failure_of(stale).code == errc::stale_epoch);
  auto nothing = one.resume();
  CHECK_FALSE(one.failure_of(nothing));
  auto suspended = one.suspend(epoch{1});
  CHECK_FALSE(one.executor->event().is_suspended);
  auto again = one.suspend();
  CHECK(one.failure_of(again).code == errc::invalid_argument);
  CHECK(one.result_of(suspended).bytes == std::vector<std::size_t>{100, 101});
  CHECK(one.executor->event().is_suspended);
  CHECK(one.status->latest().is_suspended);
  CHECK(one.events.back().is_suspended);
  const auto held = one.ask(barriers());
  CHECK(held.count() == 0);
  CHECK(one.log->count("resume") == 0);
  auto first = one.resume();
  auto second = one.resume();
  CHECK_FALSE(one.failure_of(first));
  CHECK_FALSE(one.failure_of(second));
  CHECK_FALSE(one.executor->event().is_suspended);
  CHECK_FALSE(one.events.back().is_suspended);
  CHECK(one.events.size() == 4);
  one.run_until("the barrier", [&] { return held.count() == 1; });
  CHECK(one.log->count("suspend") == 2);
  CHECK(one.log->count("resume") == 2);
  auto third = one.suspend();
  CHECK_FALSE(one.failure_of(third));
  one.executor->stop(); // resumes it first
  one.run_until("its end", [&] { return one.left == 1; });
  CHECK(one.log->count("resume") == 4);
}

TEST_CASE("a resumption that comes before the suspension is in force follows it", "[actors][executor]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  auto suspended = one.suspend();
  auto resumed = one.resume();
  CHECK_FALSE(one.failure_of(resumed));
  CHECK_FALSE(one.failure_of(suspended));
  CHECK(one.log->count("suspend") == 2);
  CHECK(one.log->count("resume") == 2);
}

TEST_CASE("a suspension that fails, or whose world does, ends with its world's epoch", "[actors][executor][FLT-1]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  SECTION("it cannot be suspended") {
    one.log->fail("suspend", rank{0}, {.code = errc::communicator_failed, .text = "it broke"});
    auto suspended = one.suspend();
    auto resumed = one.resume();
    CHECK(one.failure_of(suspended).code == errc::rebuilding);
    CHECK(one.failure_of(resumed).code == errc::rebuilding);
    for (const world_event& event : one.events) CHECK_FALSE(event.is_suspended);
  }
  SECTION("it cannot be resumed") {
    auto suspended = one.suspend();
    CHECK_FALSE(one.failure_of(suspended));
    one.log->fail("resume", rank{0}, {.code = errc::communicator_failed, .text = "it broke"});
    auto resumed = one.resume();
    CHECK(one.failure_of(resumed).code == errc::rebuilding);
    CHECK(one.executor->event().reason.rank == rank{0});
  }
  one.log->on_call({});
  CHECK_FALSE(one.executor->event().is_suspended);
  one.run_until_ready(epoch{2});
  CHECK_FALSE(one.executor->event().is_suspended);
  const auto served = one.ask(barriers());
  await("the barrier", [&] { return served.count() == 1; });
  auto suspended = one.suspend();
  CHECK_FALSE(one.failure_of(suspended));
}

TEST_CASE("an impossible capture is refused with its reason", "[actors][executor][plans]") {
  executor_scene one;
  auto early = one.capture(one_barrier());
  CHECK(one.failure_of(early).code == errc::world_failed);
  one.run_until_ready(epoch{1});
  const auto refused = [&](capture_request asked) {
    auto answer = one.capture(std::move(asked));
    CHECK(answer.wait_for(0s) == std::future_status::ready); // at once
    return one.failure_of(answer);
  };
  CHECK(refused({.steps = {barriers()}, .epoch = epoch{2}}).code == errc::stale_epoch);
  const error negative = refused(one_barrier({.deadline = -1ns}));
  CHECK(negative.code == errc::invalid_argument);
  CHECK(negative.text == "a deadline cannot be negative");
  const std::string of_names = "a plan's name has at most 64 bytes and does not begin with '#'";
  CHECK(refused(one_barrier({.name = "#1"})).text == of_names);
  CHECK(refused(one_barrier({.name = std::string(65, 'n')})).text == of_names);
  CHECK(refused(one_barrier({.streams = {native_stream{}}})).text ==
        "the plan names 1 streams, the world has 2 ranks: give one for each rank, or none");
  const std::string of_sources = "a plan is captured from a function or from requests: give one of the two";
  CHECK(refused({}).text == of_sources);
  CHECK(refused({.function = [](rank_capture&) {}, .steps = {barriers()}, .epoch = {}}).text == of_sources);
  CHECK(refused({.steps = {barriers(), barriers(1)}, .epoch = {}}).text ==
        "step 1 of the plan: it has 1 parts, the world has 2 ranks: give one part for each rank");
  CHECK(refused({.steps = {{barrier{}, replay{}}}, .epoch = {}}).code != errc::none);
  CHECK_THAT(refused({.steps = {barriers(), {replay{}, replay{}}}, .epoch = {}}).text,
             ContainsSubstring("step 1 of the plan: ") && ContainsSubstring("names no plan"));
}

TEST_CASE("captures have the deadline that they name, or that of a forming, and names of up to 64 bytes",
          "[actors][executor][plans]") {
  executor_scene one{{.deadlines = {.form = 30s}}};
  one.run_until_ready(epoch{1});
  auto named = one.capture(one_barrier({.deadline = 20s, .name = std::string(64, 'n')}));
  const auto plan = one.result_of(named).plan;
  CHECK(plan->options().name.size() == 64);
  auto unnamed = one.capture(one_barrier());
  CHECK(one.result_of(unnamed).plan->options().name.empty());
  const auto replayed = one.ask({replay{plan}, replay{plan}});
  one.run_until("the replay", [&] { return replayed.count() == 1; });
  CHECK_FALSE(replayed.failure());
  const auto late = [&](capture_request asked) {
    asked.steps.clear();
    asked.function = [](rank_capture& by) {
      if (by.self() == rank{0}) by.launch(barrier{}); // the other does not come
      if (by.self() == rank{1}) std::this_thread::sleep_for(60ms);
    };
    auto answer = one.capture(std::move(asked));
    return one.failure_of(answer);
  };
  const error why = late(one_barrier({.deadline = 20ms}));
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(why.effect == effect::rejected);
  CHECK(one.executor->event().phase == world_phase::ready);
}

TEST_CASE("a capture in streams of the client is repeated in each epoch that has as many ranks",
          "[actors][executor][plans]") {
  executor_scene one{shrinking(3)};
  one.run_until_ready(epoch{1});
  std::vector<stream> own;
  std::vector<native_stream> names;
  for (const auto& gpu : one.devices) {
    own.emplace_back(gpu);
    names.push_back(stream_ref{own.back()}.native());
  }
  const auto calls = std::make_shared<std::atomic<int>>(0);
  auto answer =
      one.capture({.function = [calls](rank_capture&) { ++*calls; }, .options = {.streams = names}, .epoch = {}});
  const auto plan = one.result_of(answer).plan;
  CHECK(*calls == 3);
  const auto restored = [&] {
    const auto all = one.executor->event().restored;
    return all && all->front().state != restored_state::under_way;
  };
  one.fault({}, {.code = errc::communicator_failed, .text = "nobody is to blame"});
  one.run_until_ready(epoch{2});
  one.run_until("the capture", restored);
  REQUIRE(one.executor->event().world_size == 3);
  CHECK(one.executor->event().restored->front().kind == restored_kind::plan);
  CHECK(one.executor->event().restored->front().number == plan->number());
  CHECK(one.executor->event().restored->front().state == restored_state::back);
  CHECK(*calls == 6);
  one.executor->on_rank_ended(2, "it was killed");
  one.run_until_ready(epoch{3});
  REQUIRE(one.executor->event().world_size == 2);
  REQUIRE(restored());
  const restored_part lost = one.executor->event().restored->front();
  CHECK(lost.state == restored_state::lost);
  CHECK(lost.failure.code == errc::invalid_argument);
  CHECK(lost.failure.text == "it was captured in 3 streams of the client, one for each rank, and the world has 2 ranks "
                             "now: capture another");
  CHECK_THAT(one.ask({replay{plan}, replay{plan}}).failure().text, ContainsSubstring("capture another"));
  CHECK(*calls == 6);
}

TEST_CASE("credit is for the present epoch, and has the deadline that it names", "[actors][executor]") {
  executor_scene one{{.deadlines = {.operation = 30ms}, .pending = {.operations = 2}}};
  auto early = one.ask_credit({});
  CHECK(one.failure_of(early).code == errc::world_failed);
  one.run_until_ready(epoch{1});
  auto stale = one.ask_credit({.epoch = epoch{3}});
  CHECK(one.failure_of(stale).code == errc::stale_epoch);
  auto both = one.ask_credit({.operations = 2, .epoch = {}});
  const credit held = one.result_of(both);
  auto by_default = one.ask_credit({.operations = 1, .epoch = {}});
  auto own = one.ask_credit({.operations = 1, .epoch = {}, .deadline = 60s});
  CHECK(one.failure_of(by_default).code == errc::deadline_exceeded);
  CHECK(own.wait_for(0s) == std::future_status::timeout);
  one.executor->stop();
  CHECK(one.failure_of(own).code == errc::stopping);
}

TEST_CASE("a world of all ranks refuses transfers to oneself that do not fit together", "[actors][executor][ORD-2]") {
  executor_scene one;
  one.run_until_ready(epoch{1});
  std::vector<operation> parts;
  for (int r = 0; r < 2; ++r) {
    const buffer memory = memory_pool::create(one.devices[static_cast<std::size_t>(r)])->allocate(64);
    parts.emplace_back(send{.memory = memory, .count = 4, .peer = rank{r}}); // nobody receives it
  }
  const error why = one.ask(std::move(parts)).failure();
  CHECK(why.code == errc::mismatch);
  CHECK(why.effect == effect::rejected);
}

TEST_CASE("a rank that leaves is renumbered for, and requests to it are refused", "[actors][executor][FLT-1]") {
  executor_scene one{shrinking(3)};
  one.run_until_ready(epoch{1});
  auto memory = one.register_memory(4096);
  const auto pool = one.result_of(memory).pool;
  one.executor->on_rank_ended(1, "it was killed");
  one.run_until_ready(epoch{2});
  CHECK(one.executor->event().world_size == 2);
  CHECK(one.executor->event().origins == std::vector{rank{0}, rank{2}});
  CHECK(ranks_of(one.executor->plan()) == std::vector{rank{0}, rank{1}});
  CHECK(one.executor->plan().world_size == 2);
  CHECK(one.executor->plan().locals[1].where == one.devices[2]);
  CHECK(one.replaced == std::vector{std::pair{std::size_t{1}, rank{1}}}); // only to answer
  CHECK(pool->regions().size() == 2);
  CHECK(pool->allocate(64).size() == 2);
  const auto ask_rank = [&](std::size_t place) {
    const outcome_log seen;
    one.states[place]->accept({.what = barrier{}, .epoch = epoch{2}}, seen.make_reply_promise(), 1);
    return seen;
  };
  const error lost = ask_rank(1).failure();
  CHECK(lost.code == errc::rank_lost);
  CHECK(lost.rank == rank{1});
  const std::vector served{ask_rank(0), ask_rank(2)};
  for (const outcome_log& seen : served) {
    one.run_until("the barrier", [&] { return seen.count() == 1; });
    CHECK_FALSE(seen.failure());
  }
  one.executor->on_rank_ended(1, "again"); // no fault: it has left
  CHECK(one.executor->event().phase == world_phase::ready);
  CHECK(one.replaced.size() == 2);
  CHECK(one.replaced.back() == std::pair{std::size_t{1}, rank{1}});
  CHECK(ask_rank(1).failure().code == errc::rank_lost);
  one.executor->on_rank_ended(2, "it was killed"); // rank 1 now
  CHECK(one.executor->event().reason.rank == rank{1});
  one.run_until_ready(epoch{3});
  CHECK(one.executor->event().origins == std::vector{rank{0}});
  CHECK(ask_rank(2).failure().rank == rank{1});
  const auto alone = one.ask(barriers(1));
  one.run_until("the barrier", [&] { return alone.count() == 1; });
  CHECK_FALSE(alone.failure());
}

TEST_CASE("a recovery derives communicators as its terms say, or falls back to new ones", "[actors][executor][FLT-1]") {
  SECTION("shrink") {
    scene_options of = shrinking(3);
    of.recovery.first_rung = recovery_rung::shrink;
    executor_scene one{of};
    one.run_until_ready(epoch{1});
    one.executor->on_rank_ended(1, "it was killed");
    one.run_until_ready(epoch{2});
    CHECK(one.log->count("shrink") == 2);
    CHECK(one.log->count("create") == 3);
    CHECK(one.executor->event().recovery->back().rung == recovery_rung::shrink);
    one.run_until("the aborts", [&] { return one.log->count("abort") == 3; });
  }
  SECTION("revoke") {
    scene_options of = keeping_size();
    of.recovery.first_rung = recovery_rung::revoke;
    executor_scene one{of};
    one.run_until_ready(epoch{1});
    one.fault(rank{1}, some_fault);
    one.run_until_ready(epoch{2});
    CHECK(one.log->count("revoke") == 2);
    CHECK(one.log->count("shrink") == 0);
    CHECK(one.log->count("create") == 2);
  }
  SECTION("none can be derived") {
    scene_options of = keeping_size();
    of.recovery.first_rung = recovery_rung::revoke;
    executor_scene one{
        of, [](peers_log& log) { log.fail("revoke", rank{1}, {.code = errc::unsupported, .text = "it cannot"}); }};
    one.run_until_ready(epoch{1});
    one.fault(rank{1}, some_fault);
    one.run_until_ready(epoch{2});
    CHECK(one.log->count("create") == 4);
    REQUIRE(one.executor->event().recovery->size() == 2);
    CHECK(one.executor->event().recovery->front().failure.text == "it cannot");
    CHECK(one.executor->event().recovery->back().rung == recovery_rung::form_beside);
  }
}

TEST_CASE("parts that are restored later are told of when all are known", "[actors][executor][recovery]") {
  executor_scene one{keeping_size()};
  one.run_until_ready(epoch{1});
  const restored_part left{
      .kind = restored_kind::sub_world, .number = 0, .name = "left", .state = restored_state::back};
  restored_part again = left;
  again.state = restored_state::lost;
  one.executor->sub_world_is_back(left);
  CHECK(one.events.size() == 3);
  one.executor->sub_world_is_back(again); // instead of the first
  REQUIRE(one.events.back().restored);
  REQUIRE(one.events.back().restored->size() == 1);
  CHECK(one.events.back().restored->front().state == restored_state::lost);
  one.executor->sub_world_is_back(
      {.kind = restored_kind::sub_world, .number = 1, .name = "right", .state = restored_state::back});
  CHECK(one.events.back().restored->size() == 2);
  const std::size_t before = one.events.size();
  one.executor->on(restored_report{epoch{1}, {.kind = restored_kind::plan, .number = 5}}); // nobody waits for it
  one.executor->on(restored_report{epoch{1}, left});                                       // known already
  CHECK(one.events.size() == before);
  one.fault(rank{1}, some_fault);
  one.run_until_ready(epoch{2});
  CHECK_FALSE(one.executor->event().restored);
}

} // namespace troupe::tests::world_executor_test
