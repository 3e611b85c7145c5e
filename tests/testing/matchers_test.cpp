/// Matchers for how requests end.
#include <troupe/testing/catch2.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <future>
#include <vector>

namespace troupe::tests::matchers_test {

using namespace troupe::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const outcome done = completion{};
const outcome rejected = error{.code = errc::busy, .text = "too many"};
const outcome unknown = error{.code = errc::device_failed, .effect = effect::unknown_outcome, .text = "gone"};

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

} // namespace

TEST_CASE("outcomes are told apart by matchers (ONE-2)", "[testing]") {
  CHECK_THAT(done, succeeds());
  CHECK_THAT(done, !fails_with(errc::busy));
  CHECK_THAT(done, !was_rejected());
  CHECK_THAT(done, !has_unknown_outcome());
  CHECK_THAT(rejected, !succeeds());
  CHECK_THAT(rejected, fails_with(errc::busy) && was_rejected());
  CHECK_THAT(rejected, !fails_with(errc::cancelled));
  CHECK_THAT(rejected, !has_unknown_outcome());
  CHECK_THAT(unknown, has_unknown_outcome() && fails_with(errc::device_failed));
  CHECK_THAT(unknown, !was_rejected());
}

TEST_CASE("matchers take outcomes out of futures and look at virtual replies", "[testing]") {
  CHECK_THAT(future_of(done), succeeds());
  auto kept = future_of(rejected);
  CHECK_THAT(kept, fails_with(errc::busy));
  CHECK_FALSE(kept.valid());
  CHECK_THAT(reply_of(unknown), has_unknown_outcome());
  CHECK_THAT(std::get<completion>(done), succeeds()); // what get() gives
}

TEST_CASE("combined matchers see the outcome of a future once, and a shared one keeps it", "[testing]") {
  auto taken = future_of(rejected);
  CHECK_THAT(taken, fails_with(errc::busy) && !succeeds() && (was_rejected() || has_unknown_outcome()));
  const auto again = was_rejected();
  CHECK_FALSE(again.match(taken));
  CHECK_THAT(again.toString(), ContainsSubstring("was rejected (its outcome has been taken: share() the future"));
  const auto shared = future_of(rejected).share();
  CHECK_THAT(shared, fails_with(errc::busy));
  CHECK_THAT(shared, was_rejected());
  CHECK(Catch::Detail::stringify(shared) == "a reply");
  const auto neither = !(was_rejected() && succeeds()) && (succeeds() || has_unknown_outcome());
  CHECK_FALSE(neither.match(shared));
  CHECK_THAT(neither.toString(), ContainsSubstring("is not one that was rejected and succeeds and succeeds or has an "
                                                   "unknown outcome (it was: busy"));
}

TEST_CASE("a reply that has not been answered matches nothing", "[testing]") {
  auto [answer, reply] = virtual_reply::make();
  CHECK_FALSE(succeeds().match(reply));
  CHECK_FALSE(was_rejected().match(reply));
  const auto matcher = fails_with(errc::busy);
  CHECK_FALSE(matcher.match(reply));
  CHECK_THAT(matcher.toString(), ContainsSubstring("fails with busy (it has not been answered: let virtual time pass"));
  CHECK(Catch::Detail::stringify(reply) == "a reply in virtual time, not answered");
  answer.deliver(done);
  CHECK(succeeds().match(reply));
  CHECK(Catch::Detail::stringify(reply) == "a reply in virtual time, answered: succeeded");
}

TEST_CASE("a matched value is printed in words", "[testing]") {
  using Catch::Detail::stringify;
  CHECK(stringify(done) == "succeeded");
  CHECK(stringify(completion{}) == "a completion");
  CHECK_THAT(stringify(rejected), ContainsSubstring("busy") && ContainsSubstring("too many"));
  CHECK_THAT(stringify(unknown), ContainsSubstring("gone"));
  auto kept = future_of(rejected);
  CHECK(stringify(kept) == "a reply");
  CHECK_FALSE(succeeds().match(kept));
  CHECK(stringify(kept) == "a reply whose outcome has been taken");
}

TEST_CASE("a matcher says what was there instead", "[testing]") {
  const auto matcher = succeeds();
  CHECK_FALSE(matcher.match(rejected));
  CHECK_THAT(matcher.toString(), ContainsSubstring("succeeds (it was: busy") && ContainsSubstring("too many"));
  CHECK(matcher.match(done));
  CHECK_THAT(matcher.toString(), ContainsSubstring("it succeeded"));
}

TEST_CASE("launches are matched one by one, and what they were is said", "[testing]") {
  const lane line = lane::named("matched");
  const launch_record sum{.epoch = epoch{1},
                          .operation = "all_reduce",
                          .count = 8,
                          .text = "all_reduce of 8 f32, sum",
                          .by = launch_asker{.request = ticket{4}, .in = line, .position = 3, .client = 17}};
  const launch_record whole{.epoch = epoch{2},
                            .operation = "barrier",
                            .text = "barrier",
                            .fate = launch_fate::withheld,
                            .by = launch_asker{.request = ticket{5}, .of_world = true}};
  launch_record plan = sum;
  plan.by.reset();
  CHECK_THAT(sum, is_launch("all_reduce") && is_launch("all_reduce", 8) && asked_in(line) && asked_by(17));
  CHECK_THAT(sum, !is_launch("all_reduce", 9) && !is_launch("broadcast") && !asked_in(lane{}) && !asked_by(18));
  CHECK_THAT(sum, !asked_of_world() && !captured() && launched_in(epoch{1}) && was(launch_fate::launched));
  CHECK_THAT(whole, asked_of_world() && !asked_in(lane{}) && was(launch_fate::withheld) && !launched_in(epoch{1}));
  CHECK_THAT(plan, captured() && !asked_of_world() && !asked_in(line) && !asked_by(17));

  const std::vector<launch_record> all{sum, whole};
  CHECK_THAT(all, are_launches(is_launch("all_reduce"), is_launch("barrier") && asked_of_world()));
  CHECK_THAT(all, !are_launches(is_launch("all_reduce")));
  CHECK_THAT(all, !are_launches(is_launch("barrier"), is_launch("all_reduce")));
  CHECK_THAT(std::vector<launch_record>{}, are_launches());

  const auto first = is_launch("all_reduce", 8);
  const auto second = asked_by(9);
  const auto matcher = are_launches(first, second);
  CHECK_FALSE(matcher.match(all));
  CHECK_THAT(matcher.toString(),
             ContainsSubstring("are 2 launches, of which number 1 is another. They are:") &&
                 ContainsSubstring("all_reduce of 8 f32, sum; in lane matched (request 3), by client 17; epoch 1") &&
                 ContainsSubstring("barrier; of the world (request 5); epoch 2, withheld"));
  CHECK_FALSE(second.match(sum));
  CHECK_THAT(second.toString(), ContainsSubstring("was requested by client 9 (it was: all_reduce of 8 f32, sum; in"));
}

} // namespace troupe::tests::matchers_test
