// What has been released waits for a launcher only where that may be of use, and never changes its order (ORD-1).
#include "support/ordering_rig.hpp"

#include <troupe/collectives/order/release_queue.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace troupe;
using namespace troupe::tests;

namespace {

struct queue_rig : ordering_rig {
  explicit queue_rig(int size, fusion_limits limits = {})
    : ordering_rig{size}, queue{rig.ranks, limits}, logs(static_cast<std::size_t>(size)) {}

  /// Pushes an operation of all ranks: parts[r] is rank r's.
  void push(std::vector<operation> parts, nanoseconds deadline = 1h) {
    released_operation all;
    for (std::size_t r = 0; r < rig.ranks.size(); ++r)
      all.push_back({.self = rank{static_cast<int>(r)},
                     .call = rig.ranks[r]->prepare({.name = ticket{++name},
                                                    .what = std::move(parts[r]),
                                                    .deadline = deadline,
                                                    .reply = logs[r].make_reply_promise()},
                                                   time->now())});
    queue.push(std::move(all));
  }
  /// Returns the parts of an all_reduce of \p count numbers in new memory; of a barrier if \p count is 0.
  [[nodiscard]] std::vector<operation> parts_of(std::size_t count) const {
    std::vector<operation> parts;
    for (std::size_t r = 0; r < rig.ranks.size(); ++r)
      parts.push_back(count > 0 ? sum(r, count) : operation{barrier{}});
    return parts;
  }
  void push(std::size_t count, nanoseconds deadline = 1h) { push(parts_of(count), deadline); }
  void push_and_flush(std::size_t count, nanoseconds deadline = 1h) {
    push(count, deadline);
    queue.flush();
  }
  [[nodiscard]] launch_notes launched(std::size_t device = 0) const {
    settle();
    return *notes[device];
  }

  release_queue queue;
  std::vector<outcome_log> logs; ///< By rank.
  std::uint64_t name = 0;
};

std::string sum_note(std::size_t count) {
  return "a all_reduce of " + std::to_string(count) + " i32, sum";
}

} // namespace

TEST_CASE("small operations wait while a launcher has two launches before it, and then go as one",
          "[collectives][sequencing][fusion]") {
  queue_rig one{2};
  auto busy = one.stop(1); // of any rank: all are given the same
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U}) one.push_and_flush(count);
  CHECK(one.queue.size() == 3);
  CHECK(one.queue.waits()->load());
  CHECK(one.rig.ranks[1]->unlaunched() == 2);
  one.queue.flush(); // nobody has become free
  CHECK(one.queue.size() == 3);
  busy.go();
  one.settle();
  one.queue.flush();
  CHECK(one.queue.size() == 0);
  CHECK_FALSE(one.queue.waits()->load());
  const launch_notes all{sum_note(1), sum_note(2), sum_note(3) + " + " + sum_note(4) + " + " + sum_note(5)};
  CHECK(one.launched(0) == all);
  CHECK(one.launched(1) == all);
  one.look();
  for (const auto& log : one.logs) CHECK(log.count() == 5);
}

TEST_CASE("an operation that can never be fused is launched at once, with those before it",
          "[collectives][sequencing][fusion]") {
  queue_rig one{2};
  auto busy = one.stop(0);
  for (int i = 0; i < 4; ++i) one.push_and_flush(0);
  CHECK(one.queue.size() == 0); // barriers
  one.push_and_flush(7);
  CHECK(one.queue.size() == 1);
  one.push_and_flush(0);
  CHECK(one.queue.size() == 0);
  busy.go();
  one.settle();
  one.queue.flush();
  CHECK(one.launched(1) == launch_notes{"a barrier", "a barrier", "a barrier", "a barrier", sum_note(7), "a barrier"});
}

TEST_CASE("operations on the same memory, which cannot be fused, do not wait for a launcher but for the next of them",
          "[collectives][sequencing][fusion]") {
  queue_rig one{2};
  const auto parts = one.parts_of(3);
  auto busy = one.stop(0);
  for (int i = 0; i < 5; ++i) {
    one.push(parts);
    one.queue.flush();
  }
  CHECK(one.queue.size() == 1);
  CHECK(one.rig.ranks[0]->unlaunched() == 4);
  SECTION("and after a while they do not wait at all") {
    for (int i = 0; i < 3; ++i) {
      one.push(parts);
      one.queue.flush();
    }
    CHECK(one.queue.size() == 0);
    CHECK_FALSE(one.queue.waits()->load());
    one.push_and_flush(4);
    one.push_and_flush(5);
    CHECK(one.queue.size() == 2); // these wait again
    return;
  }
  one.push_and_flush(4); // this one may join the last
  CHECK(one.queue.size() == 2);
  one.push(parts);
  one.queue.flush();
  CHECK(one.queue.size() == 3);
  busy.go();
  one.settle();
  one.queue.flush();
  CHECK(one.launched(1) == launch_notes{sum_note(3), sum_note(3), sum_note(3), sum_note(3),
                                        sum_note(3) + " + " + sum_note(4), sum_note(3)});
}

TEST_CASE("without fusion nothing waits for a launcher", "[collectives][sequencing][fusion]") {
  for (const fusion_limits limits : {fusion_limits{.mode = fusion::off}, fusion_limits{.max_operations = 1}}) {
    queue_rig one{1, limits};
    auto busy = one.stop(0);
    for (int i = 0; i < 4; ++i) one.push_and_flush(1);
    CHECK(one.queue.size() == 0);
    CHECK(one.rig.ranks[0]->unlaunched() == 4);
  }
}

TEST_CASE(
    "an operation that waits for a launcher past its deadline is answered, and still launched in its place (ORD-1)",
    "[collectives][sequencing][TIM-1]") {
  queue_rig one{2};
  auto busy = one.stop(0);
  for (const std::size_t count : {1U, 2U}) one.push_and_flush(count);
  one.push_and_flush(3, 10ms);
  one.push_and_flush(4, 20ms);
  CHECK(one.queue.next_due() <= one.time->now() + 10ms);
  one.time->advance(9ms);
  one.queue.expire(one.time->now());
  CHECK(one.logs[0].count() == 0);
  one.time->advance(1ms);
  one.queue.expire(one.time->now());
  for (const auto& log : one.logs) {
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code == errc::deadline_exceeded);
    CHECK(log.failure().effect == effect::unknown_outcome);
    CHECK(log.failure().ticket);
  }
  CHECK(one.queue.next_due() == one.time->now() + 10ms);
  busy.go();
  one.settle();
  one.queue.flush();
  CHECK(one.launched(1) == launch_notes{sum_note(1), sum_note(2), sum_note(3) + " + " + sum_note(4)});
  one.look();
  for (const auto& log : one.logs) CHECK(log.count() == 4); // nobody twice
}

TEST_CASE("at the end everything goes on, whatever the launchers have to do", "[collectives][sequencing]") {
  queue_rig one{2};
  auto busy = one.stop(0);
  for (int i = 0; i < 5; ++i) one.push_and_flush(1);
  CHECK(one.queue.size() == 3);
  one.queue.flush_all();
  CHECK(one.queue.size() == 0);
  CHECK_FALSE(one.queue.waits()->load());
  CHECK(one.queue.next_due() == time_point::max());
  CHECK(one.rig.ranks[0]->unlaunched() == 3);
  busy.go();
  CHECK(one.launched(0).size() == 3); // two, and three as one
}

TEST_CASE("an operation that is too large to be fused is launched at once", "[collectives][sequencing][fusion]") {
  queue_rig one{2, {.max_operation_bytes = 64}};
  auto busy = one.stop(0);
  for (int i = 0; i < 4; ++i) one.push_and_flush(17); // 68 bytes each
  CHECK(one.queue.size() == 0);
  CHECK(one.rig.ranks[0]->unlaunched() == 4);
  for (int i = 0; i < 2; ++i) one.push_and_flush(16);
  CHECK(one.queue.size() == 2); // these might be
  one.push_and_flush(17);
  CHECK(one.queue.size() == 3); // and nothing overtakes them
}
