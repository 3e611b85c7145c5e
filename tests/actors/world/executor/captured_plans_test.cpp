// The plans of a world, by themselves: names, turns, and captures in later epochs.
#include "actors/world/executor/part_scene.hpp"

#include <troupe/actors/world/executor/captured_plans.hpp>
#include <troupe/collectives/pipeline/plans/capture_match.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <atomic>

namespace troupe::tests::captured_plans_test {

using Catch::Matchers::ContainsSubstring;

namespace {

struct plans_scene : part_scene {
  explicit plans_scene(std::shared_ptr<controller_channel> channel = nullptr) : part_scene{std::move(channel)} {}

  std::future<capture_reply> ask(plan_options options = {}, epoch of = {}) {
    auto [promise, answer] = make_value_promise<capture_reply>();
    part.perform({.function = [this](rank_capture&) { ++calls; }, .options = std::move(options), .epoch = of}, promise);
    return std::move(answer);
  }
  void start_capture() {
    auto next = std::move(order->captures.front());
    order->captures.erase(order->captures.begin());
    next.start(std::make_shared<capture_match>(2), {});
  }
  void refuse_capture(error why) {
    auto next = std::move(order->captures.front());
    order->captures.erase(order->captures.begin());
    next.start(nullptr, std::move(why));
  }
  static std::shared_ptr<captured_plan> plan_in(std::future<capture_reply>& answer) {
    await("the capture", [&] { return answer.wait_for(0s) == std::future_status::ready; });
    return answer.get().plan;
  }

  restored_parts restored{context()};
  request_gate gate{1h, plan.pending, {}};
  captured_plans part{context(), 1, gate, restored};
  std::atomic<int> calls{0};
};

} // namespace

TEST_CASE("a plan is captured on every rank once its turn has come", "[actors][executor][plans]") {
  plans_scene one;
  auto answer = one.ask({.deadline = 20s});
  REQUIRE(one.order->captures.size() == 1);
  CHECK(one.order->captures[0].limit == 20s);
  CHECK(one.order->captures[0].deadline == 20s);
  CHECK(one.calls == 0);
  const auto plan = one.order->captures[0].plan;
  CHECK_FALSE(plan->objection_to_replay({1, epoch{1}})); // a replay may be asked for before the turn
  one.start_capture();
  CHECK(one.plan_in(answer) == plan);
  CHECK(one.calls == 2);
  CHECK_FALSE(plan->objection_to_replay({1, epoch{1}}));
  CHECK(one.ask().wait_for(0s) == std::future_status::timeout);
  CHECK(one.order->captures[0].limit == one.plan.deadlines.form);
}

TEST_CASE("a capture whose turn does not come is rejected, and so are its replays", "[actors][executor][plans]") {
  plans_scene one;
  auto answer = one.ask();
  const auto plan = one.order->captures[0].plan;
  one.refuse_capture({.code = errc::deadline_exceeded, .text = "a rank has not asked"});
  const error why = one.failure_of(answer);
  CHECK(why.code == errc::deadline_exceeded);
  CHECK(why.effect == effect::rejected);
  CHECK_THAT(plan->objection_to_replay({1, epoch{1}}).text, ContainsSubstring("a rank has not asked"));
}

TEST_CASE("a capture that the order or the epoch does not permit is refused at once", "[actors][executor][plans]") {
  plans_scene one;
  auto stale = one.ask({}, epoch{3});
  CHECK(one.failure_of(stale).code == errc::stale_epoch);
  one.order->objection = {.code = errc::unsupported};
  auto unordered = one.ask();
  CHECK(one.failure_of(unordered).code == errc::unsupported);
  CHECK(one.order->captures.empty());
  one.part.capture_again();
  CHECK(one.order->captures.empty()); // it was not kept
}

TEST_CASE("plans of processes are numbered if they have no names, and the last of a name is kept",
          "[actors][executor][plans]") {
  plans_scene one{std::make_shared<heard_channel>()};
  std::vector<std::shared_ptr<captured_plan>> plans;
  for (const char* const name : {"", "sum", "", "sum"}) {
    auto answer = one.ask({.name = name});
    one.start_capture();
    plans.push_back(one.plan_in(answer));
  }
  CHECK(plans[0]->options().name == "#1");
  CHECK(plans[2]->options().name == "#2");
  CHECK(one.part.directory()->find("sum") == plans[3]);
  one.part.capture_again();
  REQUIRE(one.order->captures.size() == 3);
  for (const auto& each : one.order->captures) CHECK(each.plan != plans[1]);
}

TEST_CASE("in one process plans keep the names that they have", "[actors][executor][plans]") {
  plans_scene one;
  std::vector<std::shared_ptr<captured_plan>> plans;
  for (const char* const name : {"", "sum", "sum"}) {
    auto answer = one.ask({.name = name});
    one.start_capture();
    plans.push_back(one.plan_in(answer));
  }
  CHECK(plans[0]->options().name.empty());
  one.part.capture_again();
  CHECK(one.order->captures.size() == 3);
}

TEST_CASE("living plans are captured again, and wait for a newcomer without limit",
          "[actors][executor][plans][recovery]") {
  plans_scene one;
  auto answer = one.ask();
  one.start_capture();
  const auto plan = one.plan_in(answer);
  {
    auto dropped = one.ask();
    one.start_capture();
    static_cast<void>(one.plan_in(dropped));
  }
  await("the end of the plan that nobody holds", [&] {
    one.order->captures.clear();
    one.part.capture_again();
    return one.order->captures.size() == 1;
  });
  CHECK(one.order->captures[0].plan == plan);
  CHECK(one.order->captures[0].deadline == nanoseconds::max());
  one.start_capture();
  const auto told = one.take<restored_report>();
  CHECK(told.epoch == epoch{1});
  CHECK(told.what.kind == restored_kind::plan);
  CHECK(told.what.number == plan->number());
  CHECK(told.what.state == restored_state::back);
}

TEST_CASE("a plan in streams of ranks that have left is lost", "[actors][executor][plans][recovery]") {
  plans_scene one;
  const std::array<stream, 2> own{stream{one.rig.devices[0]}, stream{one.rig.devices[1]}};
  auto answer = one.ask({.streams = {own[0].ref().native(), own[1].ref().native()}});
  one.start_capture();
  const auto plan = one.plan_in(answer);
  one.plan.locals.pop_back();
  one.plan.world_size = 1;
  one.part.capture_again();
  CHECK(one.order->captures.empty());
  const auto told = one.restored.latest();
  REQUIRE(told);
  CHECK(told->front().state == restored_state::lost);
  CHECK_THAT(told->front().failure.text, ContainsSubstring("capture another"));
  CHECK_THAT(plan->objection_to_replay({1, epoch{1}}).text, ContainsSubstring("capture another"));
}

TEST_CASE("a rank that cannot capture a peer's steps joins the capture, and fails it", "[actors][executor][plans]") {
  plans_scene one;
  error told;
  std::shared_ptr<captured_plan> made;
  std::atomic<bool> is_over{false};
  one.part.perform(peer_capture{epoch{1},
                                {},
                                {},
                                {.code = errc::missing, .text = "no such memory"},
                                [&](std::shared_ptr<captured_plan> plan, const error& why) {
                                  made = std::move(plan);
                                  told = why;
                                  is_over = true;
                                }});
  REQUIRE(one.order->captures.size() == 1);
  one.start_capture();
  await("the answer", [&] { return is_over.load(); });
  CHECK_FALSE(made);
  CHECK(told.code == errc::missing);
  one.part.perform(peer_capture{
      epoch{0}, {}, {}, {}, [](const auto&, const auto&) { FAIL("a capture of an epoch that has ended"); }});
  CHECK(one.order->captures.empty());
}

} // namespace troupe::tests::captured_plans_test
