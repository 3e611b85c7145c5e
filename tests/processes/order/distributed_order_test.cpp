// One order for ranks in processes of their own (ORD-1): what is asked, told and decided, and that everything is
// answered once (ONE-1). What it promises as any order does: world_order_test.cpp.
#include "processes/order/distributed_rig.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <mutex>
#include <thread>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a controller that is silent is not waited for, and what it releases in the end is launched (TIM-1, ORD-1)",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  lane_request terms;
  terms.deadline = 10ms;
  const auto waits = one.ask(0, one.add(0, 4), std::move(terms));
  const auto second = one.ask(0, one.add(0, 5));
  const auto peer = one.ask_each({}, 4);
  one.time->advance(1s);
  one.links[0]->expire(one.time->now());
  CHECK(waits.count() == 0);
  one.time->advance(10ms);
  one.links[0]->expire(one.time->now());
  CHECK(waits.count() == 1);
  CHECK(waits.failure().code == errc::deadline_exceeded);
  CHECK(waits.failure().effect == effect::unknown_outcome);
  CHECK_THAT(waits.failure().text, ContainsSubstring("controller"));
  CHECK(second.count() == 0);
  CHECK(one.links[0]->waiting() == 3);
  one.links[0]->expire(one.time->now() + 10ms); // nobody is told twice
  one.deliver_all();
  one.finish();
  CHECK(waits.count() == 1);
  CHECK(peer[1].count() == 1);
  CHECK(*one.notes[0] == launch_notes{"a all_reduce of 4 i32, sum"});
  CHECK(*one.notes[1] == *one.notes[0]);
}

TEST_CASE("a turn has one place in the order of all ranks, whenever each asks for it",
          "[collectives][sequencing][distributed][ORD-1]") {
  distributed_rig one{3};
  std::vector<std::string> told(3);
  const auto turn = [&](int r) {
    one.turn(r, [&one, r] {
      one.rig.ranks[static_cast<std::size_t>(r)]->sequence(
          [&one, r](rank_pipeline&) { one.notes[static_cast<std::size_t>(r)]->push_back("turn"); });
    });
  };
  turn(0);
  one.ask_each({}, 1); // rank 0 asked for its turn before, and yet
  one.deliver_all();
  turn(2);
  one.ask_each({}, 2);
  one.deliver_all();
  one.ask(0, one.add(0, 3));
  turn(0);
  one.deliver_all();
  turn(1);
  one.ask(1, one.add(1, 3));
  one.ask(2, one.add(2, 3));
  one.deliver_all();
  one.finish();
  const launch_notes expected{"a all_reduce of 1 i32, sum", "a all_reduce of 2 i32, sum", "turn",
                              "a all_reduce of 3 i32, sum"};
  for (int r = 0; r < 3; ++r) CHECK(*one.notes[static_cast<std::size_t>(r)] == expected);
  turn(1);
  turn(2); // the second of rank 0 has been asked for
  one.deliver_all();
  one.settle();
  for (int r = 0; r < 3; ++r) CHECK(one.notes[static_cast<std::size_t>(r)]->back() == "turn");
}

TEST_CASE("a close answers a request once, in any of its states (ONE-1)",
          "[collectives][sequencing][distributed][ONE-1]") {
  const error why{.code = errc::stopping, .effect = effect::unknown_outcome, .text = "closed"};
  distributed_rig one{2};
  const auto launched = one.ask_each({}, 1);
  one.deliver_all();
  const auto waits = one.ask(0, one.add(0, 2)); // at the controller
  one.deliver_all();
  bool worked = false;
  one.turn(0, [&] { worked = true; });
  const auto decided = one.ask(1, one.add(1, 2)); // released there, and told to nobody
  while (one.deliver_up(1)) {
  }
  const auto untold = one.ask(0, one.add(0, 3)); // on its way
  for (const auto& order : one.orders) {
    order->close(why);
    order->close({.code = errc::internal, .text = "again"});
  }
  const auto sent = one.links[0]->sent();
  const auto late = one.ask(0, one.add(0, 4));
  one.orders[0]->cancel(rank{0}, {}, 1);
  one.orders[0]->withdraw(rank{0}, 1, why);
  one.turn(0, [&] { worked = true; });
  CHECK(one.links[0]->sent() == sent);
  one.deliver_all();
  one.finish();
  CHECK(code_of_all({waits, decided, untold, late}) == errc::stopping);
  CHECK(code_of_all(launched) == errc::none);
  CHECK_FALSE(worked);
  CHECK(one.links[0]->waiting() == 0);
  CHECK_FALSE(one.refused_below);
}

TEST_CASE("an order that ends unclosed answers what it holds (ONE-1)", "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  const auto waits = one.ask(0, one.add(0, 2));
  one.orders[0].reset();
  one.links[0].reset();
  CHECK(waits.count() == 1);
  CHECK(waits.failure().code == errc::abandoned);
  CHECK(waits.failure().effect == effect::rejected);
  one.links.erase(one.links.begin());
}

TEST_CASE("a keeper that is closed refuses what waits, and what comes", "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  const auto waits = one.ask(0, one.add(0, 2));
  one.deliver_all();
  one.keeper.close({.code = errc::world_failed, .text = "rank 1 is gone"});
  one.keeper.close({.code = errc::internal});
  one.collect();
  const auto late = one.ask(0, one.add(0, 3));
  one.deliver_all();
  CHECK(code_of_all({waits, late}) == errc::world_failed);
}

TEST_CASE("a client refused because the controller has closed the order can learn why, on each host (FLT-1)",
          "[collectives][sequencing][distributed]") {
  distributed_rig rig{3, {}, {.mode = fusion::off}, {{rank{2}}}};
  std::string known[3];
  for (int r = 0; r < 2; ++r) {
    lane_request terms;
    terms.what = rig.add(r, 4);
    terms.deadline = 1h;
    terms.reply = make_reply_promise(
        [&, r](const outcome&) { known[r] = rig.orders[static_cast<std::size_t>(r)]->ending().text; });
    rig.orders[static_cast<std::size_t>(r)]->ask(rank{r}, std::move(terms));
  }
  rig.deliver_all();
  for (const auto& one : rig.orders) CHECK_FALSE(one->ending());
  rig.close_above({.code = errc::communicator_failed, .text = "a process is lost"});
  rig.deliver_all();
  rig.finish();
  CHECK(known[0] == "a process is lost"); // when the refusal came
  CHECK(known[1] == "a process is lost");
  CHECK(rig.orders[2]->ending().code == errc::communicator_failed);
}

TEST_CASE("a batch of an older epoch is dropped, and one of a newer epoch is refused (EPO-1)",
          "[collectives][sequencing][distributed][EPO-1]") {
  distributed_rig one{2};
  const auto old = one.ask(0, one.add(0, 2));
  one.keeper.open(rig_epoch.next(), 2);
  one.deliver_all();
  CHECK_FALSE(one.refused_above);
  CHECK(one.keeper.waiting() == 0);
  CHECK(old.count() == 0); // its order is closed by whoever opens the epoch
  std::string sent;
  const auto next = std::make_shared<order_connection>(one.rig.ranks[0], rig_epoch.next(), one.time,
                                                       [&](std::string batch) { sent = batch; });
  for (const char* name : {"work", "more work"}) {
    next->whole()->turn({.name = name}, [](const error&, std::span<const opened_world>) {});
    CHECK_FALSE(one.keeper.receive(rank{0}, sent, one.time->now()));
  }
  const std::string answer = one.keeper.take_outgoing(rank{0}); // an acknowledgement of both batches
  CHECK_FALSE(next->receive(answer));
  CHECK(one.links[0]->receive(answer).code == errc::internal);
  CHECK(next->receive(answer).code == errc::internal); // once more
  one.keeper.open(rig_epoch, 2);
  CHECK(one.keeper.receive(rank{0}, sent, one.time->now()).code == errc::internal);
  CHECK_THAT(one.keeper.receive(rank{2}, sent, one.time->now()).text, ContainsSubstring("a world of 2 ranks"));
}

TEST_CASE("a stream of requests is told in few batches, and a lone one at once",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  one.ask(0, one.add(0, 1));
  CHECK(one.up[0].size() == 1);
  const auto before = one.up[0].front().size();
  for (int i = 0; i < 129; ++i) one.ask(0, one.add(0, 1));
  CHECK(one.up[0].size() == 4); // the second, and twice 64
  std::size_t bytes = 0;
  for (const auto& batch : one.up[0]) bytes += batch.size();
  CHECK(bytes - before <= 129 * 4);
  std::vector<outcome_log> peers;
  for (int i = 0; i < 130; ++i) peers.push_back(one.ask(1, one.add(1, 1)));
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(peers) == errc::none);
  CHECK(one.notes[0]->size() == 130);
  CHECK(one.links[0]->waiting() == 0);
}

TEST_CASE("a request that waits for long lets any number pass it", "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  const lane slow = lane::named("distributed slow");
  const auto early = one.ask(0, slow, one.add(0, 3));
  for (int i = 0; i < 2100; ++i) {
    one.ask_each({}, 1);
    if (i % 50 == 0) one.deliver_all();
  }
  one.deliver_all();
  CHECK(early.count() == 0);
  CHECK(one.links[0]->waiting() == 1);
  const auto late = one.ask(1, slow, one.add(1, 3));
  one.deliver_all();
  one.finish();
  CHECK(code_of_all({early, late}) == errc::none);
  CHECK(one.notes[0]->size() == 2101);
}

TEST_CASE("a request that cannot be encoded is refused where it is asked", "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  group many;
  many.parts.resize(most_outline_parts + 1);
  const auto refused = one.ask(0, std::move(many));
  CHECK(refused.failure().code == errc::invalid_argument);
  CHECK(refused.failure().rank == rank{0});
  CHECK(one.links[0]->waiting() == 0);
  const auto next = one.ask_each({}, 4);
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(next) == errc::none);
}

TEST_CASE("the objection of a request that cannot be told is not applied to the next one (ORD-2)",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  group many;
  many.parts.resize(most_outline_parts + 1);
  lane_request terms;
  terms.objection = std::make_unique<error>(error{.code = errc::missing, .text = "its memory is gone"});
  const auto refused = one.ask(0, std::move(many), std::move(terms));
  CHECK(refused.failure().code == errc::invalid_argument);
  const auto next = one.ask_each({}, 4);
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(next) == errc::none);
}

TEST_CASE("a decision about a request that does not exist is refused, and the decisions before it stand",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  const auto log = one.ask(0, one.add(0, 4));
  const auto second = one.ask(0, one.add(0, 5));
  decision_writer out{rig_epoch};
  out.release(1, 0);
  out.release(1, 0);
  const error twice = one.links[0]->receive(out.take());
  CHECK(twice.code == errc::internal);
  CHECK(twice.rank == rank{0});
  CHECK_THAT(twice.text, ContainsSubstring("request 1 of rank 0"));
  out.add({.kind = decision_record::form::turn, .number = 1});
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("turn"));
  out.add({.kind = decision_record::form::capture, .number = 1, .agreed = 1});
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("capture that is not under way"));
  out.add({.kind = decision_record::form::turn, .world = 7, .number = 1}); // of a world in which the rank is not
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("turn"));
  out.add({.kind = decision_record::form::closed});
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("that this rank has not left"));
  auto report = std::make_shared<absence_report>();
  report->ranks.resize(1);
  out.refuse(2, {.code = errc::deadline_exceeded}, report);
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("does not cover all ranks"));
  for (const std::uint64_t number : {0U, 3U, 99'999U}) {
    out.refuse(number, {.code = errc::busy}, nullptr);
    CHECK(one.links[0]->receive(out.take()).code == errc::internal);
  }
  out.has_seen(3, full_batch_bytes);
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("have not been sent"));
  one.finish();
  CHECK(log.count() == 1);
  CHECK(one.notes[0]->size() == 1);
  CHECK(second.count() == 0);
}

TEST_CASE("a batch of decisions is refused wherever it is cut, and what it decides is done once",
          "[collectives][sequencing][distributed][ONE-1]") {
  std::string whole;
  std::size_t refused = 0;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    distributed_rig one{2};
    std::vector<outcome_log> logs;
    for (std::size_t i = 0; i < 4; ++i) logs.push_back(one.ask(0, one.add(0, 4 + i)));
    one.deliver_all();
    one.orders[0]->cancel(rank{0}, {}, 2);
    one.ask(1, one.add(1, 4));
    for (const std::size_t r : {0U, 1U})
      for (const std::string& batch : one.up[r])
        CHECK_FALSE(one.keeper.receive(rank{static_cast<int>(r)}, batch, one.time->now()));
    if (whole.empty()) whole = one.keeper.take_outgoing(rank{0});
    const error failure = one.links[0]->receive(whole.substr(0, size));
    one.orders[0]->close({.code = errc::stopping});
    one.finish();
    for (const auto& log : logs) CHECK(log.count() == 1);
    if (size == whole.size()) {
      CHECK_FALSE(failure);
      CHECK_FALSE(logs[0].failure());
      CHECK(logs[2].failure().code == errc::cancelled);
      CHECK(logs[3].failure().code == errc::stopping);
    }
    refused += failure ? 1 : 0;
  }
  CHECK(refused + 3 == whole.size() + 1); // but behind the header, behind the refusal, and whole
}

TEST_CASE("decisions of an older epoch are dropped, and of a newer one refused, with no other reason (EPO-1)",
          "[collectives][sequencing][distributed][EPO-1]") {
  distributed_rig one{2};
  const epoch present = rig_epoch.next();
  const outcome_log log;
  const auto link = std::make_shared<order_connection>(one.rig.ranks[0], present, one.time, [](const std::string&) {});
  link->whole()->ask(rank{0},
                     {.what = one.add(0, 4), .name = ticket{1}, .deadline = 1h, .reply = log.make_reply_promise()});
  const auto release_in = [&](epoch of) {
    decision_writer out{of};
    out.release(1, 0);
    return link->receive(out.take());
  };
  CHECK_FALSE(release_in(rig_epoch));
  CHECK(link->waiting() == 1);
  CHECK_THAT(release_in(present.next()).text, ContainsSubstring("an epoch that has not begun"));
  CHECK(link->waiting() == 1);
  CHECK_FALSE(release_in(present));
  CHECK(link->waiting() == 0);
}

TEST_CASE("a batch that is missing is noticed by either end", "[collectives][sequencing][distributed][ORD-1]") {
  distributed_rig one{2};
  one.ask(0, one.add(0, 4));
  one.ask(0, one.add(0, 5));
  REQUIRE(one.up[0].size() == 2);
  CHECK_THAT(one.keeper.receive(rank{0}, one.up[0].back(), one.time->now()).text,
             ContainsSubstring("batches before it are missing"));
  CHECK(one.keeper.waiting() == 0);
  decision_writer out{rig_epoch};
  out.release(1, 0);
  static_cast<void>(out.take()); // lost on the way
  out.release(2, 1);
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("batches before it are missing"));
  CHECK(one.links[0]->waiting() == 2);
}

TEST_CASE("the number of batches that the controller has seen never decreases",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  one.ask(0, one.add(0, 4));
  one.ask(0, one.add(0, 5));
  decision_writer out{rig_epoch};
  out.has_seen(2, full_batch_bytes);
  CHECK_FALSE(one.links[0]->receive(out.take()));
  out.has_seen(1, full_batch_bytes);
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("it confirms batches"));
}

TEST_CASE("requests that were held back are sent as soon as the controller has seen two batches",
          "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  for (std::size_t i = 0; i < 3; ++i) one.ask(0, one.add(0, 4 + i));
  REQUIRE(one.up[0].size() == 2);
  REQUIRE(one.deliver_up(0));
  CHECK_FALSE(one.deliver_down(0)); // a short batch is acknowledged with the next
  REQUIRE(one.deliver_up(0));
  CHECK(one.up[0].empty());
  REQUIRE(one.deliver_down(0));
  CHECK(one.up[0].size() == 1);
  one.deliver_all();
  CHECK(one.keeper.waiting() == 3);
}

TEST_CASE("each of several requests is given up at its own time", "[collectives][sequencing][distributed][TIM-1]") {
  distributed_rig one{2};
  std::vector<outcome_log> logs;
  for (const nanoseconds deadline : {20ms, 10ms, 30ms}) {
    lane_request terms;
    terms.deadline = deadline;
    logs.push_back(one.ask(0, one.add(0, 4), std::move(terms)));
  }
  const auto answered_after = [&](nanoseconds by) {
    one.time->advance(by);
    one.links[0]->expire(one.time->now());
    return std::vector{logs[0].count(), logs[1].count(), logs[2].count()};
  };
  CHECK(answered_after(1s) == std::vector<std::size_t>{0, 0, 0});
  CHECK(answered_after(10ms) == std::vector<std::size_t>{0, 1, 0});
  CHECK(answered_after(10ms) == std::vector<std::size_t>{1, 1, 0});
  CHECK(answered_after(10ms) == std::vector<std::size_t>{1, 1, 1});
}

TEST_CASE("a refusal that names a rank keeps that name", "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  const auto blamed = one.ask(0, one.add(0, 4));
  const auto unblamed = one.ask(0, one.add(0, 5));
  decision_writer out{rig_epoch};
  out.refuse(1, {.code = errc::busy, .rank = rank{1}}, nullptr);
  out.refuse(2, {.code = errc::busy}, nullptr);
  CHECK_FALSE(one.links[0]->receive(out.take()));
  CHECK(blamed.failure().rank == rank{1});
  CHECK(unblamed.failure().rank == rank{0});
}

TEST_CASE("a turn comes behind what was released before it in the same batch",
          "[collectives][sequencing][distributed][ORD-1]") {
  distributed_rig one{2};
  const auto ask_and_turn = [&](int self) {
    for (std::size_t i = 1; i <= 3; ++i) one.ask(self, one.add(self, i));
    one.turn(self, [&one, self] {
      one.rig.ranks[static_cast<std::size_t>(self)]->sequence(
          [&one, self](rank_pipeline&) { one.notes[static_cast<std::size_t>(self)]->push_back("turn"); });
    });
  };
  ask_and_turn(0);
  one.deliver_all();
  ask_and_turn(1);
  CHECK(one.up[1].size() == 2); // the third request and the turn wait, and are told in one batch
  one.deliver_all();
  one.finish();
  for (int r = 0; r < 2; ++r) {
    REQUIRE(one.notes[static_cast<std::size_t>(r)]->size() == 4);
    CHECK(one.notes[static_cast<std::size_t>(r)]->back() == "turn");
  }
}

TEST_CASE("a keeper begins each epoch anew: turns, numbers and its end",
          "[collectives][sequencing][distributed][EPO-1]") {
  distributed_rig one{2};
  for (int r = 0; r < one.size(); ++r) one.turn(r, [] {});
  one.deliver_all();
  one.keeper.close({.code = errc::rebuilding, .text = "the epoch is over"});
  const epoch present = rig_epoch.next();
  one.keeper.open(present, 2);
  std::deque<std::string> sent[2];
  std::vector<std::shared_ptr<order_connection>> links;
  for (std::size_t r = 0; r < 2; ++r)
    links.push_back(std::make_shared<order_connection>(
        one.rig.ranks[r], present, one.time, [&to = sent[r]](std::string batch) { to.push_back(std::move(batch)); }));
  const auto deliver = [&] {
    for (std::size_t r = 0; r < 2; ++r)
      for (; !sent[r].empty(); sent[r].pop_front())
        CHECK_FALSE(one.keeper.receive(rank{static_cast<int>(r)}, sent[r].front(), one.time->now()));
    for (std::size_t r = 0; r < 2; ++r)
      for (std::string batch; !(batch = one.keeper.take_outgoing(rank{static_cast<int>(r)})).empty();)
        CHECK_FALSE(links[r]->receive(batch));
  };
  int worked = 0;
  for (const auto& link : links)
    link->whole()->turn({.name = "work"}, [&](const error& why, std::span<const opened_world>) { worked += !why; });
  deliver();
  CHECK(worked == 2);
  const outcome_log log;
  links[0]->whole()->ask(rank{0},
                         {.what = one.add(0, 4), .name = ticket{1}, .deadline = 1h, .reply = log.make_reply_promise()});
  deliver();
  CHECK(log.count() == 0);
  one.keeper.close({.code = errc::world_failed, .text = "this one, too"});
  deliver();
  CHECK(log.failure().code == errc::world_failed);
}

TEST_CASE("clients on many threads ask while decisions come, and every rank launches in one order (ORD-1, ONE-1)",
          "[collectives][sequencing][distributed][ORD-1][ONE-1]") {
  constexpr std::size_t size = 2;
  constexpr std::size_t clients = 3;
  constexpr std::size_t each = 300;
  ordering_rig one{size, 1, true};
  order_server keeper{{.lead = clients * each}};
  keeper.open(rig_epoch, size);
  struct line {
    std::mutex mutex;
    std::deque<std::string> batches;
  };
  std::vector<line> up(size);
  std::vector<std::shared_ptr<order_connection>> links;
  std::vector<std::shared_ptr<distributed_order>> orders;
  for (std::size_t r = 0; r < size; ++r) {
    links.push_back(std::make_shared<order_connection>(one.rig.ranks[r], rig_epoch, one.rig.services.time,
                                                       [&mine = up[r]](std::string batch) {
                                                         const std::lock_guard lock{mine.mutex};
                                                         mine.batches.push_back(std::move(batch));
                                                       }));
    orders.push_back(links.back()->whole());
  }
  std::vector<outcome_log> logs(size * clients * each);
  const auto unanswered = [&] {
    return std::ranges::count_if(logs, [](const outcome_log& log) { return log.count() == 0; });
  };
  std::size_t failures = 0;
  {
    std::vector<std::jthread> all;
    for (std::size_t r = 0; r < size; ++r)
      for (std::size_t c = 0; c < clients; ++c)
        all.emplace_back([&, r, c] {
          const lane mine = lane::named("distributed client " + std::to_string(c));
          for (std::size_t i = 0; i < each; ++i)
            orders[r]->ask(rank{static_cast<int>(r)}, {.what = one.sum(r, 1 + c * each + i),
                                                       .name = ticket{1},
                                                       .deadline = 1h,
                                                       .reply = logs[(r * clients + c) * each + i].make_reply_promise(),
                                                       .where = mine,
                                                       .client = 1 + c});
        });
    while (unanswered() > 0)
      for (std::size_t r = 0; r < size; ++r) {
        std::deque<std::string> batches;
        {
          const std::lock_guard lock{up[r].mutex};
          batches.swap(up[r].batches);
        }
        const rank self{static_cast<int>(r)};
        for (const std::string& batch : batches)
          failures += keeper.receive(self, batch, one.rig.services.time->now()) ? 1 : 0;
        for (std::size_t to = 0; to < size; ++to)
          for (std::string batch; !(batch = keeper.take_outgoing(rank{static_cast<int>(to)})).empty();)
            failures += links[to]->receive(batch) ? 1 : 0;
      }
  }
  CHECK(failures == 0);
  one.settle();
  for (const outcome_log& log : logs) {
    CHECK(log.count() == 1);
    CHECK_FALSE(log.failure());
  }
  REQUIRE(one.notes[0]->size() == clients * each);
  CHECK(*one.notes[0] == *one.notes[1]);
}

TEST_CASE("the controller learns what has succeeded from later batches, or when it is told (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  distributed_rig one{2};
  const lane steps = lane::named("resume/distributed");
  const auto commit = [&](std::uint64_t number) {
    for (int r = 0; r < 2; ++r) static_cast<void>(one.ask(r, steps, barrier{.commit = number}));
    one.deliver_all();
    one.finish();
  };
  commit(1);
  commit(2); // its batches tell of the first
  SECTION("by batches of requests alone") {}
  SECTION("also by the ranks' own batches") {
    for (const auto& link : one.links) link->tell_progress();
    CHECK(one.up[0].size() == 1);
    for (const auto& link : one.links) link->tell_progress(); // once is enough
    CHECK(one.up[0].size() == 1);
  }
  const bool is_told = !one.up[0].empty();
  one.deliver_all();
  one.keeper.open(rig_epoch.next(), 2);
  REQUIRE(one.keeper.points());
  const resume_point* const reached = find_point(*one.keeper.points(), steps);
  REQUIRE(reached != nullptr);
  CHECK(reached->complete == (is_told ? 2U : 1U));
  CHECK(reached->commit == (is_told ? 2U : 1U));
  CHECK(reached->incomplete == (is_told ? 0U : 1U));
}

TEST_CASE("a request that each rank refuses by itself delays no commit (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  distributed_rig one{2};
  const lane steps = lane::named("resume/refused");
  const auto plan_without_graph = std::make_shared<captured_plan>(77);
  std::vector<outcome_log> refused, done;
  for (int r = 0; r < 2; ++r) refused.push_back(one.ask(r, steps, replay{plan_without_graph}));
  for (int r = 0; r < 2; ++r) done.push_back(one.ask(r, steps, barrier{.commit = 4}));
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(refused) == errc::invalid_argument);
  CHECK(code_of_all(done) == errc::none);
  for (const auto& link : one.links) link->tell_progress();
  one.deliver_all();
  one.keeper.open(rig_epoch.next(), 2);
  const resume_point* const reached = find_point(*one.keeper.points(), steps);
  REQUIRE(reached != nullptr);
  CHECK(reached->complete == 2);
  CHECK(reached->commit == 4);
}

TEST_CASE("a request that is refused because the communicator has failed does not count as done (CUT-1)",
          "[collectives][sequencing][distributed][resume]") {
  distributed_rig one{2};
  const auto first = one.ask_each({}, 4);
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(first) == errc::none);
  for (const auto& rank : one.rig.ranks) CHECK(rank->fail({.code = errc::communicator_failed, .text = "by the test"}));
  const auto behind = one.ask_each({}, 5);
  one.deliver_all();
  one.finish();
  CHECK(code_of_all(behind) == errc::communicator_failed);
  for (const auto& rank : one.rig.ranks) CHECK(rank->successes()->value() == 1);
}

TEST_CASE("a rank that counts successes of what was not released is refused",
          "[collectives][sequencing][distributed][resume]") {
  distributed_rig one{2};
  request_writer forged;
  forged.add({.kind = request_record::form::turn, .turn = {.name = "work"}});
  const error why =
      one.keeper.receive(rank{0}, forged.take({.epoch = rig_epoch, .number = 1, .succeeded = 1}), one.time->now());
  CHECK(why.code == errc::internal);
  CHECK_THAT(why.text, ContainsSubstring("were not released"));
}

TEST_CASE("a rank in a capture is told when the order of its world is closed",
          "[collectives][plans][distributed][ONE-1]") {
  distributed_rig one{2};
  std::vector<std::shared_ptr<capture_agreement>> peers(2);
  std::vector<std::shared_ptr<captured_plan>> plans;
  for (int r = 0; r < 2; ++r)
    plans.push_back(std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{.name = "plan"}));
  for (const std::size_t r : {0U, 1U})
    one.orders[r]->capture(plans[r], 1h, 1h, [&peers, r](std::shared_ptr<capture_agreement> made, const error& why) {
      CHECK_FALSE(why);
      peers[r] = std::move(made);
    });
  one.deliver_all();
  REQUIRE(peers[0]);
  REQUIRE(peers[1]);
  CHECK(plans[0]->common_number() == plans[1]->common_number());
  one.orders[0]->close({.code = errc::stopping, .text = "closed"});
  CHECK(error_of([&] { peers[0]->end(rank{0}); }).code == errc::stopping);
  error late;
  const std::uint64_t first = plans[0]->common_number();
  one.orders[0]->capture(plans[0], 1h, 1h, [&late](const std::shared_ptr<capture_agreement>& made, const error& why) {
    CHECK_FALSE(made);
    late = why;
  });
  CHECK(late.code == errc::stopping);
  CHECK(plans[0]->common_number() != first); // replays of an earlier capture do not match those of a later one
  peers[1]->fail({.code = errc::cancelled}); // ends the wait of the other rank's own process
  one.orders.clear();
  peers[1]->fail({.code = errc::cancelled}); // outlives its order
}

TEST_CASE("nothing is sent after a close, and no more is decided", "[collectives][sequencing][distributed][ONE-1]") {
  distributed_rig one{2};
  std::vector<outcome_log> logs;
  for (std::size_t i = 0; i < 3; ++i) logs.push_back(one.ask(0, one.add(0, 4 + i)));
  REQUIRE(one.links[0]->sent() == 2); // the third is held back
  for (std::size_t i = 0; i < 3; ++i) logs.push_back(one.ask(1, one.add(1, 4 + i)));
  error turn;
  one.orders[0]->turn({.name = "work"}, [&](const error& why, auto) { turn = why; });
  one.links[0]->close({.code = errc::rebuilding, .text = "first"});
  one.links[0]->close({.code = errc::stopping, .text = "second"});
  CHECK(turn.text == "first");
  CHECK(turn.rank == rank{0});
  one.deliver_all();
  one.finish();
  CHECK(one.notes[0]->empty());
  CHECK(one.links[0]->followed() > 0); // the controller has decided some
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(logs[i].count() == 1);
    CHECK(logs[i].failure().text == "first");
    CHECK(logs[i].failure().rank == rank{0});
  }
  const auto late = one.ask(0, one.add(0, 4));
  CHECK(late.failure().text == "first");
  CHECK(late.failure().effect == effect::rejected);
  one.orders[0]->cancel(rank{0}, {}, 0);
  one.orders[0]->withdraw(rank{0}, 0, {.code = errc::abandoned});
  one.orders[0]->turn({.name = "work"}, [&](const error& why, auto) { turn = why; });
  one.orders[0]->peers()->renew(3);
  one.links[0]->tell_progress();
  CHECK(one.links[0]->sent() == 2);
  CHECK(one.links[0]->waiting() == 0);
  CHECK(one.orders[0]->leave({.code = errc::stopping})->is_open());
}

TEST_CASE("a request is given up when the controller had a second to report who is missing",
          "[collectives][sequencing][distributed][TIM-1]") {
  distributed_rig one{2};
  const time_point begin = one.time->now();
  lane_request early, late;
  early.deadline = 2s;
  late.deadline = 3s;
  const auto second = one.ask(0, one.add(0, 5), std::move(late)), first = one.ask(0, one.add(0, 4), std::move(early));
  one.links[0]->expire(begin + 3s - 1ns);
  CHECK(first.count() == 0);
  one.links[0]->expire(begin + 3s);
  REQUIRE(first.count() == 1);
  CHECK(first.failure().code == errc::deadline_exceeded);
  CHECK(first.failure().effect == effect::unknown_outcome);
  CHECK(first.failure().rank == rank{0});
  CHECK_THAT(first.failure().text, ContainsSubstring("the controller of the world did not answer"));
  CHECK(second.count() == 0);
  one.links[0]->expire(begin + 4s - 1ns);
  CHECK(second.count() == 0);
  one.links[0]->expire(begin + 4s);
  CHECK(second.count() == 1);
  CHECK(one.links[0]->waiting() == 2); // they keep their places
}

TEST_CASE("an error in a batch of decisions is reported for each field of its header",
          "[collectives][sequencing][distributed][SEC-2]") {
  distributed_rig one{2};
  one.ask(0, one.add(0, 4));
  const auto refusal = [&](const batch_header& header) {
    wire_writer out;
    header.write(out);
    return one.links[0]->receive(out.view());
  };
  CHECK_THAT(refusal({.epoch = rig_epoch.next(), .number = 1}).text,
             ContainsSubstring("what the controller has decided for rank 0 cannot be read") &&
                 ContainsSubstring("an epoch that has not begun here"));
  CHECK(refusal({.epoch = rig_epoch.next(), .number = 1}).rank == rank{0});
  CHECK_THAT(refusal({.epoch = rig_epoch, .number = 2}).text, ContainsSubstring("batches before it are missing"));
  CHECK_THAT(refusal({.epoch = rig_epoch, .number = 1, .seen = 2}).text, ContainsSubstring("it confirms batches"));
  CHECK_FALSE(refusal({.epoch = rig_epoch, .number = 1, .seen = 1, .controller_batch = 5}));
  CHECK(one.links[0]->followed() == 5);
  CHECK_THAT(refusal({.epoch = rig_epoch, .number = 2, .seen = 0}).text, ContainsSubstring("it confirms batches"));
  decision_writer out{rig_epoch};
  out.has_seen(1, full_batch_bytes);
  static_cast<void>(out.take());
  out.has_seen(1, full_batch_bytes);
  out.add({.kind = decision_record::form::message, .world = 0, .from = process_address{1}, .message = "?"});
  out.add({.kind = decision_record::form::message, .world = 9, .from = process_address{1}, .message = "early"});
  CHECK_FALSE(one.links[0]->receive(out.take()));
}

TEST_CASE("the end of an order that names a rank names it to all who wait",
          "[collectives][sequencing][distributed][ONE-1]") {
  distributed_rig one{2};
  const auto log = one.ask(0, one.add(0, 4));
  error turn;
  one.orders[0]->turn({.name = "work"}, [&](const error& why, auto) { turn = why; });
  one.links[0]->close({.code = errc::rank_lost, .text = "killed", .rank = rank{1}});
  CHECK(log.failure().rank == rank{1});
  CHECK(turn.rank == rank{1});
}

TEST_CASE("progress is told once", "[collectives][sequencing][distributed]") {
  distributed_rig one{2};
  one.ask_each({}, 4);
  one.deliver_all();
  one.finish();
  const std::uint64_t before = one.links[0]->sent();
  one.links[0]->tell_progress();
  CHECK(one.links[0]->sent() == before + 1);
  one.deliver_all();
  one.links[0]->tell_progress();
  CHECK(one.links[0]->sent() == before + 1);
}

TEST_CASE("the end of an order tells the controller what has been done, and later records are dropped",
          "[collectives][sequencing][distributed][resume]") {
  distributed_rig one{2};
  one.ask_each({}, 4);
  one.deliver_all();
  one.finish();
  const std::uint64_t before = one.links[0]->sent();
  one.links[0]->close({.code = errc::rebuilding, .text = "the epoch is over"});
  REQUIRE(one.links[0]->sent() == before + 1);
  wire_reader in{one.up[0].back()};
  CHECK(batch_header::read(in).succeeded == 1);
  REQUIRE(one.deliver_up(0));
  const auto open = one.keeper.open_operations();
  REQUIRE(open.size() == 1); // rank 1 has not told
  CHECK(open.front().ranks.at(0).has_finished);
  // More than a batch of messages, each of which would be sent when a batch is full.
  for (std::size_t bytes = 0; bytes < 2 * full_batch_bytes; bytes += 2 * longest_plan_name_bytes)
    one.orders[0]->peers()->drop_plan(std::string(longest_plan_name_bytes, 'x'));
  CHECK(one.links[0]->sent() == before + 1);
}

TEST_CASE("nothing behind a refused decision in its batch is done", "[collectives][sequencing][distributed][SEC-2]") {
  distributed_rig one{2};
  const auto log = one.ask(0, one.add(0, 4));
  decision_writer out{rig_epoch};
  out.release(9, 0);
  out.release(1, 0);
  CHECK(one.links[0]->receive(out.take()).code == errc::internal);
  CHECK(one.links[0]->waiting() == 1);
  one.links[0]->close({.code = errc::stopping});
  one.finish();
  CHECK(one.notes[0]->empty());
  CHECK(log.failure().code == errc::stopping);
}

TEST_CASE("a capture has the place of its turn, and is over with its last answer",
          "[collectives][plans][distributed][SEC-2]") {
  distributed_rig one{2};
  std::vector<std::shared_ptr<captured_plan>> plans;
  std::vector<std::shared_ptr<capture_agreement>> made(2);
  for (const int r : {0, 1}) {
    const auto& order = one.orders[static_cast<std::size_t>(r)];
    one.turn(r, [] {});
    plans.push_back(std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{.name = "plan"}));
    order->capture(plans.back(), 1h, 1h, [&made, r](std::shared_ptr<capture_agreement> all, const error& why) {
      CHECK_FALSE(why);
      made[static_cast<std::size_t>(r)] = std::move(all);
    });
  }
  one.deliver_all();
  REQUIRE(made[0]);
  REQUIRE(made[1]);
  std::atomic<int> ended{0}, failed{0};
  {
    std::vector<std::jthread> all;
    for (const int r : {0, 1})
      all.emplace_back([&, r] {
        if (error_of([&] { made[static_cast<std::size_t>(r)]->end(rank{r}); })) ++failed;
        ++ended;
      });
    while (ended < 2 && !one.refused_above && !one.refused_below) one.deliver_all();
    for (const auto& order : one.orders) // ends what has not ended
      if (ended < 2) order->close({.code = errc::stopping});
  }
  CHECK(failed == 0);
  decision_writer out{rig_epoch};
  const auto next_batch = [&] {
    out.has_seen(one.links[0]->sent(), full_batch_bytes);
    return out.take();
  };
  for (std::uint64_t i = 0; i < one.keeper.batches_for(rank{0}); ++i) static_cast<void>(next_batch());
  out.add({.kind = decision_record::form::capture, .number = 2, .agreed = 1});
  CHECK_THAT(one.links[0]->receive(next_batch()).text, ContainsSubstring("capture that is not under way"));
}
