// Back-pressure: what is pending is counted exactly, and credit is given in the order of asking.
#include "support/outcomes.hpp"

#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/admission/credit.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <future>
#include <optional>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

time_point at_ms(int count) {
  return time_point{std::chrono::milliseconds{count}};
}

/// An account, and a line of it, with all that they were asked.
struct account {
  explicit account(pending_limits limits)
    : work{std::make_shared<admission_quota>(limits, std::weak_ptr<poller>{})}, line{make_pending_line(work)} {}

  /// A request, accepted where it returns no error: kept pending then.
  error ask(std::size_t bytes = 0, const credit& by = {}) {
    reply_promise reply = log.make_reply_promise();
    error busy = charge(*work, *line, by, bytes, reply);
    if (busy)
      reply.deliver(busy);
    else
      pending.push_back(std::move(reply));
    return busy;
  }
  void finish(std::size_t which) {
    pending.at(which).deliver(completion{});
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
  }

  outcome_log log;
  std::shared_ptr<admission_quota> work;
  pending_line_owner line;
  std::vector<reply_promise> pending;
};

/// What came of asking for credit.
struct given {
  admission_quota::credit_sink sink() {
    return [this](std::variant<credit, error> result) {
      ++answers;
      if (auto* failure = std::get_if<error>(&result))
        why = std::move(*failure);
      else
        got = std::get<credit>(result);
    };
  }
  int answers = 0;
  credit got;
  error why;
};

} // namespace

TEST_CASE("requests beyond a line's first are counted until the answer, and no longer", "[completion][busy]") {
  account one{{.operations = 2}};
  CHECK_FALSE(one.ask());
  CHECK(one.work->now() == pending_amount{}); // it may always be there
  CHECK_FALSE(one.ask());
  CHECK_FALSE(one.ask());
  CHECK(one.work->now().operations == 2);
  const error busy = one.ask();
  CHECK(busy.code == errc::busy);
  CHECK(busy.effect == effect::rejected);
  CHECK_THAT(busy.text, ContainsSubstring("2 requests beyond the first of each lane are pending, and the limit is 2 "
                                          "(limits.pending_operations); ask again after a reply, or ask the world for "
                                          "credit"));
  one.finish(0); // the one that was not counted: the others still are
  CHECK(one.work->now().operations == 2);
  CHECK(one.ask().code == errc::busy);
  one.finish(0);
  CHECK_FALSE(one.ask());
  while (!one.pending.empty()) one.finish(0);
  CHECK(one.work->now() == pending_amount{});
}

TEST_CASE("the reply comes when its room is free again", "[completion][busy]") {
  account one{{.operations = 1}};
  CHECK_FALSE(one.ask());
  std::size_t seen = 9;
  reply_promise reply = make_reply_promise([&](const outcome&) { seen = one.work->now().operations; });
  REQUIRE_FALSE(one.line->charge(0, reply));
  CHECK(one.work->now().operations == 1);
  reply_promise moved;
  moved = std::move(reply); // the charge goes where the answer goes
  CHECK(one.work->now().operations == 1);
  moved = reply_promise{}; // dropped: abandoned
  CHECK(seen == 0);
  CHECK(one.work->now().operations == 0);
}

TEST_CASE("a line with nothing pending is always heard, however full the world is", "[completion][busy]") {
  account full{{.operations = 1, .bytes = 10}};
  CHECK_FALSE(full.ask(1'000'000));
  CHECK_FALSE(full.ask(10));
  CHECK(full.ask().code == errc::busy);
  std::vector<reply_promise> others;
  for (int i = 0; i < 3; ++i) {
    reply_promise reply = full.log.make_reply_promise();
    CHECK_FALSE(make_pending_line(full.work)->charge(1'000'000, reply)); // the request outlives its line's owner
    others.push_back(std::move(reply));
  }
  CHECK(full.work->now() == pending_amount{1, 10});
}

TEST_CASE("bytes are bounded beside requests", "[completion][busy]") {
  account one{{.operations = 0, .bytes = 100}};
  CHECK_FALSE(one.ask(1'000));
  CHECK_FALSE(one.ask(60));
  CHECK_FALSE(one.ask(40));
  CHECK_FALSE(one.ask(0));
  const error busy = one.ask(1);
  CHECK(busy.code == errc::busy);
  CHECK_THAT(busy.text, ContainsSubstring("100 bytes are pending, this one names 1, and the limit is 100"));
  CHECK(one.work->now() == pending_amount{3, 100}); // nothing of the refused one
  one.finish(1);
  CHECK(one.ask(61).code == errc::busy);
  CHECK_FALSE(one.ask(60));
  CHECK(one.ask(101).code == errc::busy);
}

TEST_CASE("credit is set aside, bounds what is under it, and comes back with the last of it", "[completion][credit]") {
  account one{{.operations = 4, .bytes = 100}};
  given mine;
  one.work->ask({3, 50}, time_point::max(), mine.sink());
  REQUIRE(mine.got);
  CHECK(mine.got.size() == pending_amount{3, 50});
  CHECK(one.work->now() == pending_amount{3, 50});
  CHECK_FALSE(one.ask());
  CHECK_FALSE(one.ask());
  CHECK(one.ask().code == errc::busy); // 1 of 4 is left for those without credit
  for (int i = 0; i < 3; ++i) CHECK_FALSE(one.ask(10, mine.got));
  const error busy = one.ask(10, mine.got);
  CHECK(busy.code == errc::busy);
  CHECK_THAT(busy.text, ContainsSubstring("pending requests use up the credit (3 requests, 50 bytes)"));
  one.finish(2);
  CHECK(one.ask(31, mine.got).code == errc::busy); // 20 are pending
  CHECK_FALSE(one.ask(30, mine.got));
  CHECK(one.ask(51, mine.got).code == errc::invalid_argument);
  CHECK(one.work->now() == pending_amount{4, 50});
  mine.got = {};
  CHECK(one.work->now() == pending_amount{4, 50}); // requests under it are pending
  one.pending.clear();
  CHECK(one.work->now() == pending_amount{});
}

TEST_CASE("credit of another world is refused", "[completion][credit]") {
  account one{{.operations = 4}};
  account other{{.operations = 4}};
  given theirs;
  other.work->ask({1, 0}, time_point::max(), theirs.sink());
  CHECK(one.ask(0, theirs.got).code == errc::invalid_argument);
}

TEST_CASE("credit is given first come, first served, and what becomes free is theirs who wait",
          "[completion][credit]") {
  account one{{.operations = 3}};
  for (int i = 0; i < 4; ++i) CHECK_FALSE(one.ask());
  given large, small;
  one.work->ask({3, 0}, time_point::max(), large.sink());
  one.work->ask({1, 0}, time_point::max(), small.sink());
  CHECK(one.work->load() == 2);
  one.finish(3);
  one.finish(2);
  CHECK(large.answers + small.answers == 0); // 2 are free, and the first wants 3
  const error busy = one.ask();
  CHECK(busy.code == errc::busy);
  CHECK_THAT(busy.text, ContainsSubstring("2 clients wait for credit"));
  one.finish(1);
  REQUIRE(large.got);
  CHECK_FALSE(small.got);
  large.got = {};
  REQUIRE(small.got);
  CHECK(one.work->load() == 0);
  CHECK_FALSE(one.ask());
  CHECK(large.answers == 1);
  CHECK(small.answers == 1);
}

TEST_CASE("a client that waits for credit too long is told, and those behind it continue (TIM-1)",
          "[completion][credit]") {
  account one{{.operations = 2}};
  for (int i = 0; i < 2; ++i) CHECK_FALSE(one.ask());
  given impatient, modest;
  one.work->ask({2, 0}, at_ms(10), impatient.sink());
  one.work->ask({1, 0}, at_ms(20), modest.sink());
  CHECK_FALSE(one.work->poll(at_ms(9), {}));
  CHECK(one.work->poll(at_ms(10), {}));
  CHECK(impatient.why.code == errc::deadline_exceeded);
  CHECK(impatient.why.effect == effect::rejected);
  CHECK_THAT(impatient.why.text, ContainsSubstring("no credit became free in time for 2 requests"));
  CHECK(modest.got);
  CHECK_FALSE(one.work->poll(at_ms(30), {}));
}

TEST_CASE("credit that can never be given is refused at once, and a world that ends answers all who wait",
          "[completion][credit]") {
  account one{{.operations = 2, .bytes = 10}};
  given none, much, heavy, waits, late;
  one.work->ask({0, 0}, time_point::max(), none.sink());
  one.work->ask({3, 0}, time_point::max(), much.sink());
  one.work->ask({1, 11}, time_point::max(), heavy.sink());
  for (const given* refused : {&none, &much, &heavy}) CHECK(refused->why.code == errc::invalid_argument);
  CHECK_THAT(much.why.text, ContainsSubstring("3 requests can never be granted: the limit is 2"));
  for (int i = 0; i < 2; ++i) CHECK_FALSE(one.ask());
  one.work->ask({2, 0}, time_point::max(), waits.sink());
  one.work->close({.code = errc::stopping, .text = "the world is stopping"});
  CHECK(waits.why.code == errc::stopping);
  one.work->ask({1, 0}, time_point::max(), late.sink());
  CHECK(late.why.code == errc::stopping);
  one.pending.clear();
  CHECK(one.work->now() == pending_amount{});
}

TEST_CASE("credit that is dropped as it is given goes to the next, however many there are", "[completion][credit]") {
  account one{{.operations = 1}};
  for (int i = 0; i < 2; ++i) CHECK_FALSE(one.ask());
  std::size_t given_away = 0;
  constexpr std::size_t many = 100'000; // more than a stack could hold, one inside the other
  for (std::size_t i = 0; i < many; ++i)
    one.work->ask({1, 0}, time_point::max(), [&](const std::variant<credit, error>&) { ++given_away; });
  one.finish(1);
  CHECK(given_away == many);
  CHECK(one.work->now() == pending_amount{});
}

TEST_CASE("with many threads the account is exact at the end, and everybody has had credit", "[completion][credit]") {
  const auto work =
      std::make_shared<admission_quota>(pending_limits{.operations = 3, .bytes = 50}, std::weak_ptr<poller>{});
  std::atomic<int> credits{0}, taken{0};
  std::atomic<bool> exceeded{false};
  constexpr int rounds = 2'000;
  {
    std::vector<std::jthread> clients;
    for (int c = 0; c < 2; ++c) {
      clients.emplace_back([&] {
        for (int i = 0; i < rounds; ++i) {
          const auto done = std::make_shared<std::promise<void>>();
          work->ask({2, 20}, time_point::max(), [&credits, done](const std::variant<credit, error>& result) {
            if (std::holds_alternative<credit>(result)) ++credits;
            done->set_value();
          });
          done->get_future().wait();
        }
      });
      clients.emplace_back([&] {
        for (int i = 0; i < rounds; ++i) {
          if (!work->take({1, 40})) continue;
          ++taken;
          const pending_amount now = work->now();
          if (now.operations > 3 || now.bytes > 50) exceeded = true;
          work->give_back({1, 40});
        }
      });
    }
  }
  CHECK(credits == 2 * rounds);
  CHECK_FALSE(exceeded);
  CHECK(work->now() == pending_amount{});
}
