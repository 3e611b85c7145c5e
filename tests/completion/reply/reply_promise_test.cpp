// ONE-1: exactly one outcome, whatever happens to the answer. ONE-2: an error says whether the work may have run.
#include "support/outcomes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <thread>
#include <utility>

namespace troupe::tests::answer_test {

using troupe::tests::error_of;
using troupe::tests::outcome_log;

namespace {

time_point at(int milliseconds) {
  return time_point{std::chrono::milliseconds{milliseconds}};
}

completion done(int queued, int launched, int finished) {
  return {ticket{1}, epoch{2}, {at(queued), at(launched), at(finished)}};
}

error rejected(errc code) {
  return {.code = code, .effect = effect::rejected, .text = "test"};
}

} // namespace

TEST_CASE("an answer delivers its first outcome and no other", "[completion][ONE-1]") {
  const outcome_log log;
  {
    reply_promise reply = log.make_reply_promise();
    CHECK(reply.pending());
    CHECK(log.count() == 0);
    reply.deliver(done(1, 2, 3));
    CHECK_FALSE(reply.pending());
    reply.deliver(rejected(errc::internal));
  }
  REQUIRE(log.count() == 1);
  CHECK(log.success().ticket == ticket{1});
}

TEST_CASE("a dropped answer delivers abandoned, with unknown outcome", "[completion][ONE-1][ONE-2]") {
  const outcome_log log;
  static_cast<void>(log.make_reply_promise());
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::abandoned);
  CHECK(log.failure().effect == effect::unknown_outcome);
}

TEST_CASE("an answer without a sink owes nothing", "[completion]") {
  reply_promise none;
  CHECK_FALSE(none.pending());
  none.deliver(done(1, 2, 3));
}

TEST_CASE("a moved-from answer owes nothing, and the one that took over delivers", "[completion][ONE-1]") {
  const outcome_log log;
  {
    reply_promise first = log.make_reply_promise();
    reply_promise second{std::move(first)};
    CHECK_FALSE(first.pending()); // NOLINT(clang-analyzer-cplusplus.Move): what is being tested
    first.deliver(rejected(errc::internal));
    CHECK(log.count() == 0);
    reply_promise& same = second;
    second = std::move(same);
    CHECK(second.pending());
    second.deliver(done(1, 2, 3));
  }
  REQUIRE(log.count() == 1);
  CHECK_FALSE(log.failure());
}

TEST_CASE("a value that nobody promises any more is an error, which says whether the request may have run",
          "[completion][ONE-1][ONE-2]") {
  const bool may_have_run = GENERATE(true, false);
  auto [promise, value] = make_value_promise<int>();
  promise->set_may_have_run(false); // it waits for its world
  if (may_have_run) promise->set_may_have_run(true);
  promise = nullptr;
  try {
    static_cast<void>(value.get());
    FAIL("it has a value");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::abandoned);
    CHECK(failure.why().effect == (may_have_run ? effect::unknown_outcome : effect::rejected));
  }
}

TEST_CASE("an answer that is assigned over is abandoned first", "[completion][ONE-1]") {
  const outcome_log old;
  const outcome_log fresh;
  reply_promise reply = old.make_reply_promise();
  reply = fresh.make_reply_promise();
  CHECK(old.failure().code == errc::abandoned);
  CHECK(fresh.count() == 0);
  reply.deliver(done(1, 2, 3));
  CHECK(old.count() == 1);
  CHECK(fresh.count() == 1);
}

TEST_CASE("a future gets the completion, the error, or abandoned as an exception", "[completion][ONE-1]") {
  auto [good, value] = make_future_promise();
  good.deliver(done(1, 2, 3));
  CHECK(value.get().times.done == at(3));

  auto [bad, failure] = make_future_promise();
  bad.deliver(rejected(errc::stale_buffer));
  CHECK(error_of([&, &late = failure] { static_cast<void>(late.get()); }).code == errc::stale_buffer);

  auto [dropped, abandoned] = make_future_promise();
  dropped = {};
  CHECK(error_of([&, &late = abandoned] { static_cast<void>(late.get()); }).code == errc::abandoned);
}

TEST_CASE("a group answers when its last part does: earliest queued, latest launched and done", "[completion][ONE-1]") {
  const outcome_log log;
  auto parts = divide_promise(log.make_reply_promise(), ticket{77}, 3);
  REQUIRE(parts.size() == 3);
  parts[1].deliver(done(5, 8, 30));
  parts[0].deliver(done(2, 9, 10));
  CHECK(log.count() == 0);
  parts[2].deliver(done(4, 7, 20));
  REQUIRE(log.count() == 1);
  const completion whole = log.success();
  CHECK(whole.ticket == ticket{77});
  CHECK(whole.epoch == epoch{2});
  CHECK(whole.times.queued == at(2));
  CHECK(whole.times.launched == at(9));
  CHECK(whole.times.done == at(30));
}

TEST_CASE("a group of one is that one, under the group's name", "[completion]") {
  const outcome_log log;
  divide_promise(log.make_reply_promise(), ticket{9}, 1).front().deliver(done(1, 2, 3));
  CHECK(log.success().ticket == ticket{9});
}

TEST_CASE("a group's error is the first in time, and waits for the last part", "[completion][ONE-1]") {
  const outcome_log log;
  auto parts = divide_promise(log.make_reply_promise(), ticket{7}, 3);
  parts[2].deliver(rejected(errc::stale_buffer));
  parts[0].deliver(rejected(errc::wrong_device));
  CHECK(log.count() == 0);
  parts[1].deliver(rejected(errc::stopping));
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::stale_buffer);
  CHECK(log.failure().ticket == ticket{7});
  CHECK(log.failure().effect == effect::rejected); // every part was
}

TEST_CASE("a group's error has unknown outcome if any part may have run", "[completion][ONE-2]") {
  const outcome_log one_ran;
  {
    auto parts = divide_promise(one_ran.make_reply_promise(), ticket{7}, 2);
    parts[0].deliver(rejected(errc::wrong_device));
    parts[1].deliver(done(1, 2, 3));
  }
  CHECK(one_ran.failure().code == errc::wrong_device);
  CHECK(one_ran.failure().effect == effect::unknown_outcome);

  const outcome_log one_unknown;
  {
    auto parts = divide_promise(one_unknown.make_reply_promise(), ticket{7}, 2);
    parts[0].deliver(rejected(errc::wrong_device));
    parts[1].deliver(with_unknown_outcome(rejected(errc::deadline_exceeded)));
  }
  CHECK(one_unknown.failure().code == errc::wrong_device);
  CHECK(one_unknown.failure().effect == effect::unknown_outcome);
}

TEST_CASE("parts that are dropped still answer the group, once", "[completion][ONE-1]") {
  const outcome_log log;
  {
    auto parts = divide_promise(log.make_reply_promise(), ticket{7}, 3);
    parts[1].deliver(done(1, 2, 3));
  }
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::abandoned);
  CHECK(log.failure().effect == effect::unknown_outcome);
}

TEST_CASE("a group whose parts are answered by different threads answers once", "[completion][ONE-1]") {
  constexpr std::size_t threads = 4;
  for (int round = 0; round < 200; ++round) {
    const outcome_log log;
    auto parts = divide_promise(log.make_reply_promise(), ticket{1}, threads);
    {
      std::vector<std::jthread> workers;
      for (auto& part : parts)
        workers.emplace_back([mine = std::move(part)]() mutable { mine.deliver(done(1, 2, 3)); });
    }
    REQUIRE(log.count() == 1);
    REQUIRE_FALSE(log.failure());
  }
}

TEST_CASE("a group that may have run lists what is undefined of all its parts, in the order of ranks (ONE-2)",
          "[completion][ONE-2]") {
  const auto lost = [](int self) {
    error why{.code = errc::communicator_failed, .effect = effect::unknown_outcome, .text = std::to_string(self)};
    why.undefined = std::make_shared<undefined_buffers>(
        undefined_buffers{{rank{self}, device_id{self}, nullptr, static_cast<std::size_t>(self)}});
    return why;
  };
  const outcome_log log;
  auto parts = divide_promise(log.make_reply_promise(), ticket{7}, 4);
  parts[3].deliver(lost(3));
  parts[1].deliver(done(1, 2, 3));
  parts[2].deliver(error{.code = errc::communicator_failed});
  parts[0].deliver(lost(0));
  REQUIRE(log.failure().undefined);
  CHECK(log.failure().text == "3"); // the first in time
  REQUIRE(log.failure().undefined->size() == 2);
  CHECK(log.failure().undefined->at(0).rank == rank{0});
  CHECK(log.failure().undefined->at(1).rank == rank{3});
}

} // namespace troupe::tests::answer_test
