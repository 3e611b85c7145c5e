/// What a world does with its rank that a controller directs, where no controller keeps the order of requests.
#include "actors/world/executor_scene.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <future>
namespace troupe::tests::world_executor_guided_test {

namespace {

using Catch::Matchers::ContainsSubstring;

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};

/// A world of two processes, seen from the one that is given rank 1 at first.
struct guided_scene {
  void form(epoch of, rank self = rank{1}, int world_size = 2) {
    one.direct({formation_directive{.of = of, .self = self, .world_size = world_size}});
  }
  void serve(epoch of) {
    form(of);
    one.run_until_ready(of);
  }

  std::shared_ptr<heard_channel> channel = std::make_shared<heard_channel>();
  executor_scene one{{.locals = {rank{0}}, .ordering = ordering::caller, .channel = channel}};
};

} // namespace

TEST_CASE("a guided world forms as it is told, with the rank that it is given", "[actors][executor]") {
  guided_scene at;
  CHECK(at.one.log->all().empty());
  at.form(epoch{3});
  CHECK(at.channel->begun.size() == 1);
  CHECK(at.channel->begun[0]);
  at.form(epoch{3}); // once
  CHECK(at.channel->begun.size() == 1);
  at.one.run_until_ready(epoch{3});
  CHECK(at.one.log->count("create 1") == 1);
  CHECK(at.one.executor->plan().locals[0].self == rank{1});
  CHECK(at.one.executor->plan().world_size == 2);
  CHECK(at.one.executor->event().local_ranks == std::vector{rank{1}});
  const auto formed = at.channel->all<formed_report>();
  REQUIRE(formed.size() == 1);
  CHECK(formed[0].of == epoch{3});
  CHECK_FALSE(at.one.executor->has_newcomers());
  CHECK(at.one.formed_count == 0); // nobody keeps its order
  CHECK(at.one.ask({barrier{}, barrier{}}).failure().code == errc::unsupported);
  auto plan = at.one.capture({.steps = {{barrier{}}}, .epoch = {}});
  const error refused = at.one.failure_of(plan);
  CHECK(refused.code == errc::unsupported);
  CHECK_THAT(refused.text, ContainsSubstring("only 1 of the world's 2 ranks live in this process"));
  const outcome_log served;
  at.one.states[0]->accept({.what = barrier{}, .epoch = epoch{3}}, served.make_reply_promise(), 1);
  await("the barrier", [&] { return served.count() == 1; });
  CHECK_FALSE(served.failure());
}

TEST_CASE("a communicator that the controller's channel has made is not formed again", "[actors][executor]") {
  guided_scene at;
  at.channel->formed = std::make_shared<logging_peers>(rank{1}, 2, at.one.devices[0], at.one.log);
  at.serve(epoch{1});
  CHECK(at.one.log->all().empty());
  at.one.direct({failure_directive{.of = epoch{1}, .why = some_fault}});
  at.serve(epoch{2}); // of another one, which it creates
  CHECK(at.one.log->count("create 1") == 1);
  CHECK(at.one.log->count("init 1") == 1);
}

TEST_CASE("a guided world tells its commits when it is asked, also before its first epoch", "[actors][executor]") {
  guided_scene at;
  at.one.direct({commits_wanted{.of = epoch{1}}});
  const auto told = at.channel->all<commits_report>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].of == epoch{1});
  at.serve(epoch{1});
  at.one.direct({commits_wanted{.of = epoch{2}}});
  CHECK(at.channel->all<commits_report>().size() == 2);
  CHECK(at.channel->all<commits_report>().back().of == epoch{2});
  const auto late = std::make_shared<agreed_value>(agreed_value{.epoch = epoch{1}});
  CHECK_FALSE(at.channel->begun.back()->note(lane{}, late)); // the report tells all that its clients have received
}

TEST_CASE("a fault of a guided world is reported with whom it blames, and the controller's verdict is the reason",
          "[actors][executor][FLT-1]") {
  guided_scene at;
  at.serve(epoch{1});
  const error named{.code = errc::communicator_failed, .text = "it has gone", .rank = rank{0}};
  at.one.fault(rank{1}, named);
  auto told = at.channel->all<failed_report>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].of == epoch{1});
  CHECK(told[0].why.text == "it has gone"); // as it was noticed
  CHECK(told[0].why.rank == rank{0});
  CHECK(told[0].blamed == std::vector{rank{0}});
  CHECK(at.one.executor->event().phase == world_phase::ready); // the controller decides
  at.one.direct(
      {failure_directive{.of = epoch{1}, .why = {.code = errc::rank_lost, .text = "judged", .rank = rank{0}}}});
  CHECK(at.one.executor->event().phase == world_phase::rebuilding);
  CHECK(at.one.events.back().reason.text == "judged");
  REQUIRE(at.one.events.back().report);
  CHECK(at.one.events.back().report->fault.text == "it has gone"); // the first of its epoch
  CHECK(at.one.ended.size() == 1);
  CHECK_FALSE(at.one.ended[0].second);
  at.one.run_until("the abort", [&] { return at.one.log->count("abort 1") == 1; });
  at.serve(epoch{2});
  at.one.direct(
      {failure_directive{.of = epoch{2}, .why = {.code = errc::rank_lost, .text = "judged", .rank = rank{0}}}});
  REQUIRE(at.one.events.back().report);
  CHECK(at.one.events.back().report->is_verdict);
  CHECK(at.one.events.back().report->epoch == epoch{2});
}

TEST_CASE("a failure of a rank's own that names another rank keeps that name, another gets the rank's",
          "[actors][executor][FLT-1]") {
  guided_scene at;
  at.one.log->fail("init", rank{1}, {.code = errc::communicator_failed, .text = "the peer is gone", .rank = rank{0}});
  at.form(epoch{1});
  at.one.run_until("the report", [&] { return !at.channel->all<failed_report>().empty(); });
  CHECK(at.channel->all<failed_report>().back().why.rank == rank{0});
  at.one.log->fail("init", rank{1}, {.code = errc::communicator_failed, .text = "it broke"});
  at.form(epoch{2});
  at.one.run_until("the report", [&] { return at.channel->all<failed_report>().size() == 2; });
  CHECK(at.channel->all<failed_report>().back().why.rank == rank{1});
  CHECK(at.channel->all<failed_report>().back().why.text == "it broke");
}

TEST_CASE("a guided world comes to rest when its sub-worlds have, and reports it", "[actors][executor]") {
  guided_scene at;
  at.serve(epoch{1});
  at.one.quiet = std::make_shared<latch>();
  const error larger{.code = errc::rebuilding, .text = "more ranks have come"};
  at.one.direct({quiesce_directive{.of = epoch{2}, .why = larger}}); // not of this epoch
  CHECK(at.one.quiesced.empty());
  at.one.direct({quiesce_directive{.of = epoch{1}, .why = larger}});
  REQUIRE(at.one.quiesced.size() == 1);
  CHECK(at.one.quiesced[0].text == larger.text);
  CHECK(at.one.executor->event().phase == world_phase::rebuilding);
  CHECK(at.channel->all<drained_report>().empty());
  CHECK_FALSE(at.one.mail->take()); // the drain waits
  at.one.quiet->open();
  at.one.run_until("its rest", [&] { return at.channel->all<drained_report>().size() == 1; });
  CHECK(at.channel->all<drained_report>()[0].of == epoch{1});
  CHECK(at.one.log->count("abort") == 0);
  at.serve(epoch{2});
  at.one.run_until("the abort", [&] { return at.one.log->count("abort 1") == 1; });
}

TEST_CASE("a guided world prepares an epoch beside the one that serves, and forms it from that",
          "[actors][executor][planned][BLK-1]") {
  guided_scene at;
  at.serve(epoch{1});
  at.one.direct({prepare_directive{.of = epoch{3}, .self = rank{0}, .world_size = 3}});
  at.one.run_until("the report", [&] { return at.channel->all<formed_report>().size() == 2; });
  CHECK(at.channel->all<formed_report>().back().of == epoch{3});
  CHECK(at.one.executor->event().epoch == epoch{1});
  CHECK(at.one.executor->event().phase == world_phase::ready);
  CHECK(at.one.log->count("init") == 2);
  SECTION("when it is directed to") {
    at.one.direct({quiesce_directive{.of = epoch{1}, .why = some_fault, .is_planned = true}});
    at.one.run_until("its rest", [&] { return at.channel->all<drained_report>().size() == 1; });
    at.one.direct({formation_directive{.of = epoch{3}, .self = rank{0}, .world_size = 3}});
    at.one.run_until_ready(epoch{3});
    CHECK(at.one.log->count("init") == 2);
    CHECK(at.one.executor->plan().world_size == 3);
    at.one.run_until("the abort of the former epoch", [&] { return at.one.log->count("abort 1") == 1; });
    CHECK(at.one.log->count("abort 0") == 0);
  }
  SECTION("unless it is dropped") {
    at.one.direct({drop_directive{epoch{2}}}); // another one
    CHECK(at.one.log->count("abort") == 0);
    at.one.direct({drop_directive{epoch{3}}});
    at.one.run_until("the abort", [&] { return at.one.log->count("abort 0") == 1; });
    CHECK(at.one.executor->event().phase == world_phase::ready);
    CHECK(at.channel->all<failed_report>().empty());
  }
  SECTION("unless the present one fails first") {
    at.one.direct({failure_directive{.of = epoch{1}, .why = some_fault}});
    at.one.run_until("the aborts", [&] { return at.one.log->count("abort") == 2; });
  }
  SECTION("unless the world stops first") {
    at.one.executor->stop();
    at.one.run_until("the abort", [&] { return at.one.log->count("abort 0") == 1; });
  }
}

TEST_CASE("a guided world whose prepared epoch fails says so, and serves on", "[actors][executor][planned]") {
  guided_scene at;
  at.serve(epoch{1});
  at.one.log->fail("init", rank{0}, {.code = errc::communicator_failed, .text = "it broke"});
  at.one.direct({prepare_directive{.of = epoch{3}, .self = rank{0}, .world_size = 3}});
  at.one.run_until("the report", [&] { return !at.channel->all<failed_report>().empty(); });
  CHECK(at.channel->all<failed_report>().back().of == epoch{3});
  CHECK(at.channel->all<failed_report>().back().why.text == "it broke");
  CHECK(at.one.executor->event().phase == world_phase::ready);
  at.one.run_until("the abort", [&] { return at.one.log->count("abort 0") == 1; });
  const outcome_log served;
  at.one.states[0]->accept({.what = barrier{}, .epoch = epoch{1}}, served.make_reply_promise(), 1);
  await("the barrier", [&] { return served.count() == 1; });
  CHECK_FALSE(served.failure());
}

TEST_CASE("a process that is to leave as planned asks its controller, if it has one",
          "[actors][executor][planned][ONE-1]") {
  const auto ask = [](world_executor& of) {
    auto [reply, future] = make_value_promise<leave_reply>();
    of.perform(leave_request{.renumbers = true}, reply);
    return std::move(future);
  };
  guided_scene at;
  at.serve(epoch{1});
  auto answer = ask(*at.one.executor);
  REQUIRE(at.channel->changes.size() == 1);
  const auto& [asked, reply] = at.channel->changes.front();
  CHECK(asked.kind == rank_change_kind::leave);
  CHECK_FALSE(asked.place);
  CHECK(asked.renumbers);
  REQUIRE(answer.wait_for(0s) == std::future_status::timeout);
  SECTION("and is answered when that is done") {
    reply->deliver(world_processes{});
    CHECK_NOTHROW(answer.get());
  }
  SECTION("and is told why not") {
    reply->deliver(error{.code = errc::invalid_argument, .text = "no"});
    CHECK_THROWS_AS(answer.get(), exception);
  }
  SECTION("else it is refused") {
    executor_scene alone;
    try {
      ask(*alone.executor).get();
      FAIL_CHECK("it was not refused");
    } catch (const exception& failure) {
      CHECK(failure.why().code == errc::unsupported);
    }
  }
}

TEST_CASE("a guided world that is stopped drains without an order, and takes its leave", "[actors][executor]") {
  guided_scene at;
  at.serve(epoch{1});
  SECTION("by itself") {
    at.one.executor->stop();
  }
  SECTION("by the controller") {
    at.one.direct({stop_directive{.why = {.code = errc::stopping, .text = "all have finished"}}});
  }
  CHECK(at.one.executor->event().phase == world_phase::stopping);
  at.one.run_until("its end", [&] { return at.one.left == 1; });
  REQUIRE(at.channel->all<leave_notice>().size() == 1);
  CHECK_FALSE(at.channel->all<leave_notice>()[0].why);
  CHECK(at.one.log->count("destroy 1") == 1);
}

TEST_CASE("a guided world that the controller stops waits for its sub-worlds", "[actors][executor]") {
  guided_scene at;
  at.serve(epoch{1});
  at.one.has_sub_worlds = true;
  at.one.direct({stop_directive{.why = {.code = errc::stopping, .text = "all have finished"}}});
  CHECK(at.one.executor->event().phase == world_phase::ready); // its lease is theirs
  CHECK(at.one.stopped_sub_worlds == 1);
  at.one.executor->stop(); // they have ended
  at.one.run_until("its end", [&] { return at.one.left == 1; });
  CHECK_FALSE(at.channel->all<leave_notice>()[0].why);
}

TEST_CASE("a guided world that is dismissed fails with the reason", "[actors][executor]") {
  guided_scene at;
  at.serve(epoch{1});
  SECTION("by a fence") {
    at.one.direct({fence_notice{some_fault}});
  }
  SECTION("by a stop for a reason") {
    at.one.direct({stop_directive{.why = some_fault}});
  }
  CHECK(at.one.executor->event().phase == world_phase::failed);
  CHECK(at.one.executor->event().reason.text == "a fault");
  CHECK(at.one.ended.back().second);
  at.one.run_until("the abort", [&] { return at.one.log->count("abort 1") == 1; });
  at.one.executor->stop();
  at.one.run_until("its end", [&] { return at.one.left == 1; });
  CHECK(at.channel->all<leave_notice>()[0].why.text == "a fault");
}

TEST_CASE("memory that is registered is registered again unless a process has joined", "[actors][executor]") {
  guided_scene at;
  at.serve(epoch{1});
  auto memory = at.one.register_memory(4096);
  const auto pool = at.one.result_of(memory).pool;
  CHECK(at.one.log->count("register 4096") == 1);
  static_cast<void>(pool->allocate(256)); // is not reused, because other processes free theirs at other times
  CHECK(pool->free_bytes() == 4096 - 256);
  at.one.direct({failure_directive{.of = epoch{1}, .why = some_fault}});
  at.serve(epoch{2});
  CHECK(at.one.log->count("register 4096") == 2);
  REQUIRE(at.one.executor->event().restored);
  at.one.direct({failure_directive{.of = epoch{2}, .why = some_fault}});
  at.one.direct({formation_directive{.of = epoch{3}, .self = rank{0}, .world_size = 2, .has_newcomers = true}});
  at.one.run_until_ready(epoch{3});
  CHECK(at.one.executor->has_newcomers());
  CHECK(at.one.log->count("register 4096") == 2);
  CHECK_FALSE(at.one.executor->event().restored);
}

} // namespace troupe::tests::world_executor_guided_test
