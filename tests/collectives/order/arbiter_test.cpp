// One order above all worlds that share GPUs (ORD-1), and what becomes of requests there. What it promises as any order
// does: tests/processes/order/world_order_test.cpp.
#include "support/arbiter_rig.hpp"
#include "support/parked_poller.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/completion/poller/serving_lease.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("requests of two worlds from many threads are launched in one order on every GPU (ORD-1)",
          "[collectives][sequencing][ORD-1]") {
  constexpr std::size_t ranks = 3;
  // Every operation has a length of its own, by which the notes tell it. Without fusion, one note is one operation.
  arbiter_rig one{ranks, 2, {.mode = fusion::off}, true};
  constexpr std::size_t each = 60;
  std::atomic<std::size_t> unanswered{0};
  {
    std::vector<std::jthread> clients;
    for (std::size_t w = 0; w < 2; ++w)
      clients.emplace_back([&, w] {
        std::vector<outcome_log> all;
        for (std::size_t i = 0; i < each; ++i) all.push_back(one.ask_all(w, 1'000 + i));
        for (const auto& log : all) {
          while (log.count() == 0) std::this_thread::yield();
          unanswered += log.failure() ? 1 : 0;
        }
      });
    for (std::size_t w = 0; w < 2; ++w)
      for (std::size_t r = 0; r < ranks; ++r)
        clients.emplace_back([&, w, r] {
          const lane mine = lane::named("arbiter test");
          std::vector<outcome_log> all(each);
          for (std::size_t i = 0; i < each; ++i)
            one.worlds[w]->ask(rank{static_cast<int>(r)}, {.what = one.sum(r, 1 + i),
                                                           .name = ticket{++one.name},
                                                           .deadline = 1h,
                                                           .reply = all[i].make_reply_promise(),
                                                           .where = mine});
          for (const auto& log : all) {
            while (log.count() == 0) std::this_thread::yield();
            unanswered += log.failure() ? 1 : 0;
          }
        });
  }
  CHECK(unanswered == 0);
  one.settle();
  REQUIRE(one.notes[0]->size() == 4 * each);
  CHECK(*one.notes[0] == *one.notes[1]);
  CHECK(*one.notes[0] == *one.notes[2]);
}

TEST_CASE("a waiting agree wakes the poller only if it may expire in its sleep, and what is launched always does",
          "[collectives][sequencing][agree][TIM-1]") {
  const arbiter_rig rig{2};
  parked_poller one;
  const auto above = std::make_shared<arbiter>(one.time, one.watch);
  const auto where = above->open_world(rig.sets[0]);
  std::vector<outcome_log> logs;
  const auto ask = [&](operation what, nanoseconds deadline) {
    where->ask(rank{0}, {.what = std::move(what),
                         .name = ticket{logs.size() + 1},
                         .deadline = deadline,
                         .reply = logs.emplace_back().make_reply_promise()});
  };
  SECTION("an agree with time") {
    CHECK_FALSE(one.is_woken_by([&] { ask(agree{}, 1h); }));
  }
  SECTION("an agree that may expire") {
    CHECK(one.is_woken_by([&] { ask(agree{}, 100ms); }));
  }
  SECTION("an agree that may expire, behind one with time") {
    CHECK(one.is_woken_by([&] {
      ask(agree{}, 1h);
      ask(agree{}, 100ms);
    }));
  }
  SECTION("a collective, also behind an agree") {
    const bool is_behind = GENERATE(false, true);
    CHECK(one.is_woken_by([&] {
      if (is_behind) ask(agree{}, 1h);
      ask(barrier{}, 1h);
    }));
  }
  CHECK(above->load() == logs.size());
  CHECK(where->close({.code = errc::stopping, .text = "the test is over"})->wait_for(std::chrono::seconds{30}));
  for (const outcome_log& each : logs) CHECK(each.count() == 1);
}

TEST_CASE("a waiting collective whose end rings wakes the poller only if it may expire in its sleep",
          "[collectives][sequencing][TIM-1]") {
  pipeline_rig rig{2, {.strategy = completion_strategy::host_fn}};
  parked_poller one;
  const auto above = std::make_shared<arbiter>(one.time, one.watch);
  const auto where = above->open_world(rig.ranks);
  const outcome_log log;
  const bool may_expire = GENERATE(false, true);
  CHECK(one.is_woken_by([&] {
    where->ask(rank{0}, {.what = barrier{},
                         .name = ticket{1},
                         .deadline = may_expire ? nanoseconds{100ms} : nanoseconds{1h},
                         .reply = log.make_reply_promise()});
  }) == may_expire);
  CHECK(where->close({.code = errc::stopping, .text = "the test is over"})->wait_for(std::chrono::seconds{30}));
  CHECK(log.count() == 1);
}

TEST_CASE("a value that ranks of one process agree on is reported only under the lease of the process (MEM-1)",
          "[collectives][sequencing][agree][lease][MEM-1]") {
  const auto lease = std::make_shared<serving_lease>();
  lease->begin(rig_epoch, 1h);
  pipeline_rig rig{2, {.lease = lease}};
  const parked_poller one;
  const auto above = std::make_shared<arbiter>(one.time, one.watch);
  const auto where = above->open_world(rig.ranks);
  std::vector<outcome_log> logs(2);
  for (int r = 0; r < 2; ++r)
    where->ask(rank{r}, {.what = agree{},
                         .name = ticket{1},
                         .deadline = 1h,
                         .reply = logs[static_cast<std::size_t>(r)].make_reply_promise()});
  for (const outcome_log& each : logs) CHECK(each.count() == 0);
  SECTION("it is renewed") {
    lease->extend(rig_epoch, boot_clock::now() + 1h);
    await("the values", [&] { return logs[0].count() == 1 && logs[1].count() == 1; });
    for (const outcome_log& each : logs) CHECK_FALSE(each.failure());
  }
  SECTION("it has ended") {
    lease->revoke();
    for (const auto& each : rig.ranks) each->fail({.code = errc::communicator_failed, .text = "rank 2 is lost"});
    for (const outcome_log& each : logs) {
      REQUIRE(each.count() == 1);
      CHECK(each.failure().text == "rank 2 is lost");
      CHECK(each.failure().effect == effect::unknown_outcome);
    }
  }
  CHECK(where->close({.code = errc::stopping, .text = "the test is over"})->wait_for(std::chrono::seconds{30}));
}

TEST_CASE("a launcher that becomes free takes on what waited for it", "[collectives][sequencing][fusion]") {
  arbiter_rig one{2};
  std::vector<outcome_log> logs;
  {
    auto busy = one.stop(0);
    for (const std::size_t count : {1U, 2U, 3U, 4U}) logs.push_back(one.ask_all(0, count));
    one.finish_turns_of(1);
    CHECK(one.rig.ranks[0]->unlaunched() == 2);
    CHECK(one.above->load() == 2);
  }
  one.settle(); // nobody but the launcher has called
  CHECK(one.above->load() == 0);
  CHECK(one.notes[0]->size() == 3); // of a launch or two, the last holds what waited
  CHECK(*one.notes[0] == *one.notes[1]);
  one.look();
  for (const auto& log : logs) CHECK(log.count() == 1);
}

TEST_CASE("a held world takes requests and launches none, the same on every rank", "[collectives][sequencing]") {
  arbiter_rig one{2, 2};
  one.take_turn(0, [](rank_pipeline& each) { each.hold(); });
  const auto held = one.ask_all(0, 4);
  const auto other = one.ask_all(1, 5); // another world goes on
  one.settle();
  CHECK(*one.notes[0] == launch_notes{"b all_reduce of 5 i32, sum"});
  one.take_turn(0, [](rank_pipeline& each) { each.resume(); });
  one.settle();
  CHECK(one.notes[1]->back() == "a all_reduce of 4 i32, sum");
  one.look();
  CHECK(held.count() == 1);
}

TEST_CASE("a capture begins at once, behind what waits for a launcher", "[collectives][sequencing][plans]") {
  arbiter_rig one{2};
  const auto plan = std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{});
  const std::uint64_t number = plan->common_number();
  std::shared_ptr<capture_agreement> peers;
  std::vector<std::size_t> unlaunched;
  std::vector<outcome_log> logs;
  {
    auto busy = one.stop(0);
    for (const std::size_t count : {1U, 2U, 3U}) logs.push_back(one.ask_all(0, count)); // the last one waits
    one.finish_turns_of(1); // else its launcher may be what executes the capture
    CHECK(one.above->load() == 1);
    one.worlds[0]->capture(plan, 1h, 1h, [&](std::shared_ptr<capture_agreement> made, const error& why) {
      CHECK_FALSE(why);
      peers = std::move(made);
      for (const auto& rank : one.sets[0]) unlaunched.push_back(rank->unlaunched());
    });
    CHECK(one.above->load() == 0);
  }
  REQUIRE(peers);
  CHECK(unlaunched.front() == 3);
  CHECK(plan->common_number() == number);
  CHECK(one.worlds[0]->capture_grace() == 0ns);
  CHECK_FALSE(one.worlds[0]->objection_to_capture());
  CHECK_FALSE(one.worlds[0]->opens_sub_worlds());
}

TEST_CASE("a world that is closed refuses what waits for peers, and sends on what has been released",
          "[collectives][sequencing]") {
  arbiter_rig one{2};
  std::vector<outcome_log> released;
  outcome_log waits, late;
  {
    auto busy = one.stop(0);
    for (int i = 0; i < 4; ++i) released.push_back(one.ask_all(0, 4));
    waits = one.ask(0, one.sum(0, 4));
    one.finish_turns_of(1);
    CHECK(one.above->load() == 3);
    one.worlds[0]->close({.code = errc::stopping, .text = "closed"})->wait();
    one.finish_turns_of(1);
    CHECK(one.above->load() == 0);
    late = one.ask(1, one.sum(1, 4));
    for (const auto* log : {&waits, &late}) {
      CHECK(log->failure().code == errc::stopping);
      CHECK(log->failure().effect == effect::rejected);
    }
  }
  one.settle();
  one.look();
  for (const auto& log : released) {
    REQUIRE(log.count() == 1);
    CHECK_FALSE(log.failure());
  }
}
