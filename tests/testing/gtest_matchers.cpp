/// GoogleTest's matchers for how requests end and what was launched, and how it prints troupe's values.
#include <troupe/actors/world/world_event.hpp>
#include <troupe/processes/control/controller_terms.hpp>
#include <troupe/testing/gtest.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

// As in a user's test: with both namespaces, ::testing is GoogleTest's.
using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::PrintToString;

const outcome done = completion{};
const outcome rejected = error{.code = errc::busy, .text = "too many"};
const outcome unknown = error{.code = errc::device_failed, .effect = effect::unknown_outcome, .text = "gone"};

const launch_record sum{.epoch = epoch{1},
                        .operation = "all_reduce",
                        .count = 8,
                        .text = "all_reduce of 8 f32, sum",
                        .by = launch_asker{.request = ticket{4}, .in = lane{}, .position = 3, .client = 17}};
const launch_record whole{.epoch = epoch{2},
                          .operation = "barrier",
                          .text = "barrier",
                          .fate = launch_fate::withheld,
                          .by = launch_asker{.request = ticket{5}, .of_world = true}};
const std::vector<launch_record> both{sum, whole};

virtual_reply reply_of(const outcome& result) {
  auto [answer, reply] = virtual_reply::make();
  answer.deliver(result);
  return reply;
}

std::future<completion> future_of(const outcome& result) {
  auto [answer, reply] = make_future_promise();
  answer.deliver(result);
  return std::move(reply);
}

/// What a matcher tells about a value that it has seen.
template <class Matcher, class Value>
std::string told(const Matcher& matcher, const Value& value) {
  ::testing::StringMatchResultListener listener;
  EXPECT_FALSE(::testing::ExplainMatchResult(matcher, value, &listener));
  return listener.str();
}

} // namespace

TEST(GtestMatchers, TellOutcomesApart) {
  EXPECT_THAT(done, succeeds());
  EXPECT_THAT(done, Not(fails_with(errc::busy)));
  EXPECT_THAT(done, Not(was_rejected()));
  EXPECT_THAT(done, Not(has_unknown_outcome()));
  EXPECT_THAT(rejected, Not(succeeds()));
  EXPECT_THAT(rejected, AllOf(fails_with(errc::busy), was_rejected()));
  EXPECT_THAT(rejected, Not(fails_with(errc::cancelled)));
  EXPECT_THAT(rejected, Not(has_unknown_outcome()));
  EXPECT_THAT(unknown, AllOf(has_unknown_outcome(), fails_with(errc::device_failed)));
  EXPECT_THAT(unknown, Not(was_rejected()));
}

TEST(GtestMatchers, LookAtSharedFuturesAndVirtualReplies) {
  EXPECT_THAT(future_of(done).share(), succeeds());
  const auto kept = future_of(rejected).share();
  EXPECT_THAT(kept, AllOf(fails_with(errc::busy), was_rejected()));
  EXPECT_TRUE(kept.valid());
  EXPECT_THAT(reply_of(unknown), has_unknown_outcome());
  EXPECT_THAT(std::get<completion>(done), succeeds()); // what get() returns
}

TEST(GtestMatchers, SayWhatWasThereInstead) {
  EXPECT_EQ(told(succeeds(), rejected), "it was: busy: too many");
  EXPECT_EQ(told(was_rejected(), done), "it succeeded");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(rejected, fails_with(errc::cancelled)), "Expected: fails with cancelled\n");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(rejected, fails_with(errc::cancelled)),
                          "with value busy: too many), it was: busy: too many");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(rejected, Not(was_rejected())), "Expected: is not one that was rejected\n");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(done, has_unknown_outcome()), "Expected: has an unknown outcome\n");
}

TEST(GtestMatchers, MatchNoReplyThatHasNotBeenAnswered) {
  auto [answer, reply] = virtual_reply::make();
  EXPECT_THAT(told(succeeds(), reply), HasSubstr("it has not been answered: let virtual time pass first"));
  EXPECT_EQ(PrintToString(reply), "a reply in virtual time, not answered");
  answer.deliver(done);
  EXPECT_THAT(reply, succeeds());
  EXPECT_EQ(PrintToString(reply), "a reply in virtual time, answered: succeeded");
  EXPECT_THAT(told(succeeds(), std::shared_future<completion>{}), HasSubstr("its outcome has been taken: share()"));
}

TEST(GtestMatchers, MatchLaunchesOneByOne) {
  EXPECT_THAT(sum, AllOf(is_launch("all_reduce"), is_launch("all_reduce", 8), asked_in(lane{}), asked_by(17)));
  EXPECT_THAT(sum, AllOf(Not(is_launch("all_reduce", 9)), Not(is_launch("broadcast")), Not(asked_by(18))));
  EXPECT_THAT(sum, AllOf(Not(asked_of_world()), Not(captured()), launched_in(epoch{1}), was(launch_fate::launched)));
  EXPECT_THAT(whole, AllOf(asked_of_world(), Not(asked_in(lane{})), was(launch_fate::withheld)));
  launch_record plan = sum;
  plan.by.reset();
  EXPECT_THAT(plan, AllOf(captured(), Not(asked_of_world()), Not(asked_in(lane{}))));
  EXPECT_THAT(both, ElementsAre(is_launch("all_reduce"), AllOf(is_launch("barrier"), asked_of_world())));
  EXPECT_THAT(both, Not(are_launches(is_launch("all_reduce"))));
  EXPECT_THAT(both, Not(are_launches(is_launch("barrier"), is_launch("all_reduce"))));
  EXPECT_THAT(std::vector<launch_record>{}, are_launches());
}

TEST(GtestMatchers, CombineByTheirOwnOperatorsToo) {
  EXPECT_THAT(rejected, fails_with(errc::busy) && !succeeds() && (was_rejected() || has_unknown_outcome()));
  EXPECT_THAT(both, are_launches(is_launch("all_reduce") && asked_by(17), !asked_in(lane{})));
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(rejected, fails_with(errc::busy) && succeeds()),
                          "Expected: fails with busy and succeeds\n");
}

TEST(GtestMatchers, SayWhichLaunchIsAnother) {
  const std::string actual =
      "  Actual: { all_reduce of 8 f32, sum; in lane default (request 3), by client 17; epoch 1, "
      "launched, barrier; of the world (request 5); epoch 2, withheld }";
  EXPECT_NONFATAL_FAILURE(
      EXPECT_THAT(both, are_launches(is_launch("all_reduce", 8), asked_by(9))),
      "Expected: are 2 launches: number 0 is a launch of all_reduce of 8; number 1 was requested by "
      "client 9\n" +
          actual + ", of which number 1 is another");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(both, are_launches(captured())),
                          "Expected: are 1 launches: number 0 was captured for a plan\n" + actual);
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(both, ElementsAre(is_launch("all_reduce"), Not(asked_of_world()))),
                          "element #1 is not one that was requested from the world\n" + actual +
                              ", whose element #1 doesn't match");
}

TEST(GtestPrinters, PrintTroupesValuesInWords) {
  EXPECT_EQ(PrintToString(errc::busy), "busy");
  EXPECT_EQ(PrintToString(effect::unknown_outcome), "unknown_outcome");
  EXPECT_EQ(PrintToString(launch_fate::withheld), "withheld");
  EXPECT_EQ(PrintToString(rank{2}), "2");
  EXPECT_EQ(PrintToString(epoch{7}), "7");
  EXPECT_EQ(PrintToString(lane{}), "lane default");
  EXPECT_EQ(PrintToString(std::get<error>(rejected)), "busy: too many");
  EXPECT_EQ(PrintToString(completion{}), "a completion");
  EXPECT_EQ(PrintToString(sum),
            "all_reduce of 8 f32, sum; in lane default (request 3), by client 17; epoch 1, launched");
  EXPECT_EQ(PrintToString(world_event{}), describe(world_event{}));
  EXPECT_EQ(PrintToString(control_event{}), describe(control_event{}));
  EXPECT_EQ(PrintToString(std::vector{rank{1}, rank{3}}), "{ 1, 3 }");
  EXPECT_EQ(PrintToString(std::optional{errc::busy}), "(busy)");
  EXPECT_NONFATAL_FAILURE(EXPECT_EQ(errc::busy, errc::none), "Which is: busy");
}

TEST(GtestPrinters, PrintWhatAWorldHas) {
  virtual_world world{2};
  const auto memory = world.make_ranked(16);
  EXPECT_EQ(PrintToString(memory[1]), "64 bytes of device 1");
  EXPECT_EQ(PrintToString(world.allocate_pinned(8)), "8 bytes of host memory");
  EXPECT_EQ(PrintToString(buffer{}), "an empty buffer");
  EXPECT_THAT(PrintToString(world.events().back()), HasSubstr("ready"));
  EXPECT_THAT(world.ask(sums_of(memory)).get(), succeeds());
  EXPECT_EQ(values_of<float>(memory[1]), std::vector<float>(16, 3));
  EXPECT_THAT(world.script().launches(rank{1}), are_launches(is_launch("all_reduce", 16) && asked_of_world()));
}
