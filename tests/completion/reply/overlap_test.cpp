// Two answers for one request: ONE-1 counts the outcome, and the first step never comes behind it.
#include "support/outcomes.hpp"

#include <troupe/completion/reply/overlap.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::tests;

namespace {

/// What the first step was.
struct first_step {
  std::shared_ptr<value_promise<enqueued>> make() {
    return std::make_shared<value_promise<enqueued>>([this](std::variant<enqueued, error> result) {
      ++answers;
      if (auto* failure = std::get_if<error>(&result))
        why = std::move(*failure);
      else
        told = std::get<enqueued>(std::move(result));
    });
  }
  int answers = 0;
  enqueued told;
  error why;
};

completion done_as(ticket name) {
  completion done;
  done.ticket = name;
  return done;
}

launch_mark mark_of(int self, std::uint64_t launch) {
  return {.rank = rank{self}, .ticket = ticket{5}, .epoch = epoch{3}, .behind = {}, .launch = launch};
}

} // namespace

TEST_CASE("a request is told of when all its ranks have enqueued it, and then of its outcome",
          "[completion][overlap][ONE-1]") {
  first_step first;
  const outcome_log log;
  auto parts = divide_promise(make_overlapped_promise(first.make(), 2, log.make_reply_promise()), ticket{5}, 2);
  parts[1].listener()->enqueued(mark_of(1, 8));
  CHECK(first.answers == 0);
  parts[0].listener()->enqueued(mark_of(0, 9));
  REQUIRE(first.answers == 1);
  CHECK(first.told.ticket == ticket{5});
  CHECK(first.told.epoch == epoch{3});
  REQUIRE(first.told.ranks.size() == 2);
  CHECK(first.told.ranks[0].launch == 9);
  CHECK(first.told.ranks[1].rank == rank{1});
  for (reply_promise& part : parts) part.deliver(completion{});
  CHECK(log.count() == 1);
  CHECK(log.success().ticket == ticket{5});
  CHECK(first.answers == 1);
}

TEST_CASE("an outcome is given to the first who claims it, before or after it is there",
          "[completion][overlap][ONE-1]") {
  for (const bool early : {false, true}) {
    first_step first;
    const outcome_log log, second;
    reply_promise reply = make_overlapped_promise(first.make(), 1);
    reply.listener()->enqueued(mark_of(0, 1));
    REQUIRE(first.answers == 1);
    if (early) first.told.outcome.redeem(log.make_reply_promise());
    CHECK(log.count() == 0);
    reply.deliver(done_as(ticket{5}));
    if (!early) first.told.outcome.redeem(log.make_reply_promise());
    REQUIRE(log.count() == 1);
    CHECK(log.success().ticket == ticket{5});
    outcome_claim{first.told.outcome}.redeem(second.make_reply_promise());
    CHECK(second.failure().code == errc::invalid_argument);
    CHECK(log.count() == 1);
  }
}

TEST_CASE("a request that fails before it is enqueued gives both answers the error",
          "[completion][overlap][ONE-1][ONE-2]") {
  first_step first;
  const outcome_log log;
  auto parts = divide_promise(make_overlapped_promise(first.make(), 2, log.make_reply_promise()), ticket{5}, 2);
  parts[0].listener()->enqueued(mark_of(0, 1));
  const auto late = parts[1].listener();
  parts[0].deliver(error{.code = errc::communicator_failed, .effect = effect::unknown_outcome});
  parts[1].deliver(error{.code = errc::communicator_failed, .effect = effect::rejected});
  CHECK(first.answers == 1);
  CHECK(first.why.code == errc::communicator_failed);
  CHECK(first.why.effect == effect::unknown_outcome);
  CHECK(log.failure().effect == effect::unknown_outcome);
  late->enqueued(mark_of(1, 1)); // its answer has been given
  CHECK(first.answers == 1);
}

TEST_CASE("a request that is dropped is answered in both steps", "[completion][overlap][ONE-1]") {
  first_step first;
  const outcome_log log;
  static_cast<void>(make_overlapped_promise(first.make(), 1, log.make_reply_promise()));
  CHECK(first.why.code == errc::abandoned);
  CHECK(log.failure().code == errc::abandoned);
}

TEST_CASE("a claim that was never given says so, and an answer that nobody listens to has no listener",
          "[completion][overlap]") {
  const outcome_log log;
  outcome_claim{}.redeem(log.make_reply_promise());
  CHECK(log.failure().code == errc::invalid_argument);
  CHECK(log.make_reply_promise().listener() == nullptr);
  CHECK(reply_promise{}.listener() == nullptr);
  CHECK(divide_promise(log.make_reply_promise(), ticket{1}, 1).front().listener() == nullptr);
}

TEST_CASE("both steps and the claim may come from three threads at once", "[completion][overlap][ONE-1]") {
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> answers{0};
    auto first = std::make_shared<value_promise<enqueued>>([&](const std::variant<enqueued, error>&) { ++answers; });
    const outcome_log log;
    {
      reply_promise reply = make_overlapped_promise(std::move(first), 1, log.make_reply_promise());
      const auto heard = reply.listener();
      std::jthread launcher{[&] { heard->enqueued(mark_of(0, 1)); }};
      std::jthread poller{[&] { reply.deliver(error{.code = errc::deadline_exceeded}); }};
    }
    REQUIRE(answers == 1);
    REQUIRE(log.count() == 1);
  }
}
