// One order above all worlds that share GPUs (ORD-1), and what becomes of requests there.
#include "support/ordering_rig.hpp"

#include <troupe/collectives/order/arbiter.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

struct arbiter_rig : ordering_rig {
  explicit arbiter_rig(int size, int world_count = 1, fusion_limits fused = {}, bool real_time = false)
    : ordering_rig{size, world_count, real_time},
      above{std::make_shared<arbiter>(rig.services.time, rig.services.poller, sequencer_limits{.straggling = 5ms},
                                      fused)} {
    for (const auto& set : sets)
      worlds.push_back(above->open_world(set, [this](auto report) { late.push_back(std::move(report)); }));
  }
  ~arbiter_rig() {
    for (const auto& one : worlds) one->close({.code = errc::stopping, .text = "the test is over"})->wait();
    settle();
  }

  outcome_log ask(int self, operation what, nanoseconds deadline = 1h, std::uint64_t client = 0, lane where = {}) {
    outcome_log log;
    worlds[0]->ask(rank{self}, {.what = std::move(what),
                                .name = ticket{++name},
                                .deadline = deadline,
                                .reply = log.make_reply_promise(),
                                .where = where,
                                .client = client});
    return log;
  }
  /// Lets the ranks of a world hold what they are sent, as maintenance does, or ends the oldest such hold.
  void hold(std::size_t world) {
    take_turn(world, [](rank_pipeline& each) { each.hold(); });
  }
  void resume(std::size_t world) {
    take_turn(world, [](rank_pipeline& each) { each.resume(); });
  }
  void take_turn(std::size_t world, void (*what)(rank_pipeline&)) {
    int granted = 0;
    worlds[world]->turn({}, [&](const error& why, std::span<const opened_world> opened) {
      CHECK_FALSE(why);
      CHECK(opened.empty());
      for (const auto& each : sets[world]) what(*each);
      ++granted;
    });
    CHECK(granted == 1); // at once
  }
  /// A launcher that was told that something waits takes a turn at the arbiter, in which others' are taken, too.
  void finish_turns_of(std::size_t which) const { static_cast<void>(stop(which)); }
  outcome_log ask_all(std::size_t world, std::size_t count) {
    outcome_log log;
    std::vector<operation> parts;
    for (std::size_t r = 0; r < rig.ranks.size(); ++r) parts.push_back(sum(r, count));
    worlds[world]->ask_all(ticket{++name}, std::move(parts), 1h, log.make_reply_promise());
    return log;
  }

  std::shared_ptr<arbiter> above;
  std::vector<std::shared_ptr<ordered_world>> worlds;
  std::vector<std::shared_ptr<const absence_report>> late;
  std::atomic<std::uint64_t> name{0};
};

} // namespace

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

TEST_CASE("a rank that does not agree is refused with rank, ticket and epoch (ORD-2)", "[collectives][sequencing]") {
  arbiter_rig one{2};
  const auto left = one.ask(0, one.sum(0, 4));
  const auto right = one.ask(1, one.sum(1, 5));
  for (int r = 0; r < 2; ++r) {
    const error why = (r == 0 ? left : right).failure();
    CHECK(why.code == errc::mismatch);
    CHECK(why.effect == effect::rejected);
    CHECK(why.rank == rank{r});
    CHECK(why.ticket);
    CHECK(why.epoch == rig_epoch);
  }
  one.settle();
  CHECK(one.notes[0]->empty());
}

TEST_CASE("the poller's look tells who is missing, and how far each rank has come (TIM-1)",
          "[collectives][sequencing]") {
  arbiter_rig one{2};
  const buffer memory = one.rig.numbers(1, 4, 1);
  const auto before = one.ask(1, copy{memory, one.rig.numbers(1, 4, 0)});
  one.settle();
  one.look();
  CHECK_FALSE(before.failure());
  const auto waits = one.ask(0, one.sum(0, 4), 10ms);
  CHECK(one.above->load() == 1);
  CHECK_FALSE(one.above->poll(one.time->now(), {}));
  one.time->advance(5ms);
  CHECK(one.above->poll(one.time->now(), {}));
  REQUIRE(one.late.size() == 1);
  CHECK(one.late[0]->missing() == std::vector{rank{1}});
  one.time->advance(5ms);
  CHECK(one.above->poll(one.time->now(), {}));
  const error why = waits.failure();
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(why.effect == effect::rejected);
  REQUIRE(why.absence);
  REQUIRE(why.absence->ranks[1].last_finished);
  CHECK_THAT(why.absence->ranks[1].last_finished->what, ContainsSubstring("copy"));
  CHECK_FALSE(why.absence->ranks[0].last_launched);
  CHECK(one.above->load() == 0);
}

TEST_CASE("a held world takes requests and launches none, the same on every rank", "[collectives][sequencing]") {
  arbiter_rig one{2, 2};
  one.hold(0);
  const auto held = one.ask_all(0, 4);
  const auto other = one.ask_all(1, 5); // another world goes on
  one.settle();
  CHECK(*one.notes[0] == launch_notes{"b all_reduce of 5 i32, sum"});
  one.resume(0);
  one.settle();
  CHECK(one.notes[1]->back() == "a all_reduce of 4 i32, sum");
  one.look();
  CHECK(held.count() == 1);
}

TEST_CASE("each hold ends with a resume of its own, the oldest first", "[collectives][sequencing]") {
  arbiter_rig one{2, 1};
  one.hold(0);
  const auto first = one.ask_all(0, 4);
  one.hold(0);
  const auto second = one.ask_all(0, 5);
  one.settle();
  CHECK(one.notes[0]->empty());
  one.resume(0);
  one.settle();
  for (const auto& notes : one.notes) CHECK(*notes == launch_notes{"a all_reduce of 4 i32, sum"});
  one.resume(0);
  one.resume(0); // one more than there were
  one.settle();
  for (const auto& notes : one.notes) CHECK(notes->back() == "a all_reduce of 5 i32, sum");
  one.look();
  CHECK(first.count() + second.count() == 2);
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

TEST_CASE("requests are taken back one by one, or with their client", "[collectives][sequencing]") {
  arbiter_rig one{2};
  const auto first = one.ask(0, one.sum(0, 4), 1h, 7);
  const auto second = one.ask(0, one.sum(0, 5), 1h, 7);
  one.worlds[0]->cancel(rank{0}, {}, 0);
  CHECK(first.failure().code == errc::cancelled);
  CHECK(second.count() == 0);
  one.worlds[0]->withdraw(rank{0}, 7, {.code = errc::abandoned, .text = "client 7 has ended"});
  CHECK(second.failure().code == errc::abandoned);
  const auto told = one.ask(1, one.sum(1, 4));
  CHECK_THAT(told.failure().text, ContainsSubstring("rank 0 cancelled"));
  CHECK(one.above->load() == 0);
}
