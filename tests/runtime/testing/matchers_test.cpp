/// Matchers for how requests end.
#include <troupe/testing/catch2.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <future>

using namespace troupe;
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
  auto [answer, reply] = make_future_answer();
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

TEST_CASE("what has not been answered matches nothing", "[testing]") {
  auto [answer, reply] = virtual_reply::make();
  CHECK_FALSE(succeeds().match(reply));
  CHECK_FALSE(was_rejected().match(reply));
  const auto matcher = fails_with(errc::busy);
  CHECK_FALSE(matcher.match(reply));
  CHECK(matcher.describe() == "fails with busy (it has not been answered)");
  answer.deliver(done);
  CHECK(succeeds().match(reply));
}

TEST_CASE("a matcher says what was there instead", "[testing]") {
  const auto matcher = succeeds();
  CHECK_FALSE(matcher.match(rejected));
  CHECK_THAT(matcher.describe(), ContainsSubstring("succeeds (it was: busy") && ContainsSubstring("too many"));
  CHECK(matcher.match(done));
  CHECK_THAT(matcher.describe(), ContainsSubstring("it succeeded"));
}
