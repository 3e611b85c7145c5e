#include <troupe/actors/recovery_ladder.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};
const time_point start = time_point{} + 1h;

recovery_terms three_in_a_minute() {
  return {.policy = recovery_policy::keep_size, .rebuilds = 3, .window = 60s, .backoff = 100ms};
}

} // namespace

TEST_CASE("under fail_fast the first fault is the last", "[actors]") {
  recovery_ladder ladder;
  const recovery_step step = ladder.on_fault(some_fault, start, false);
  CHECK(step.rung == recovery_rung::give_up);
  CHECK(step.why.text == "a fault");
}

TEST_CASE("rebuilds are counted in a window and wait longer each time", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  CHECK(ladder.on_fault(some_fault, start, false).delay == 0ms);
  CHECK(ladder.on_fault(some_fault, start + 1s, false).delay == 100ms);
  CHECK(ladder.on_fault(some_fault, start + 2s, false).delay == 200ms);
  const recovery_step last = ladder.on_fault(some_fault, start + 3s, false);
  CHECK(last.rung == recovery_rung::give_up);
  CHECK_THAT(last.why.text, ContainsSubstring("a fault; given up after 3 rebuilds"));
  const recovery_step later = ladder.on_fault(some_fault, start + 61s, false); // the first has left the window
  CHECK(later.rung == recovery_rung::form_beside);
  CHECK(later.delay == 200ms);
}

TEST_CASE("what fails while it is rebuilt is aborted before the next try", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  CHECK(ladder.on_fault(some_fault, start, false).rung == recovery_rung::form_beside);
  CHECK(ladder.on_fault(some_fault, start, true).rung == recovery_rung::abort_first);
}

TEST_CASE("a recovery begins with the rung that was chosen", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::abort_first;
  recovery_ladder ladder{terms};
  CHECK(ladder.on_fault(some_fault, start, false).rung == recovery_rung::abort_first);
  CHECK(ladder.on_fault(some_fault, start, true).rung == recovery_rung::abort_first);
}

TEST_CASE("a poisoned process is not rebuilt, and it is said why", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  error sticky = some_fault;
  sticky.code = errc::process_poisoned;
  const recovery_step poisoned = ladder.on_fault(sticky, start, false);
  CHECK(poisoned.rung == recovery_rung::give_up);
  CHECK_THAT(poisoned.why.text, ContainsSubstring("the process must be replaced"));
}

TEST_CASE("terms that contradict each other are refused with the arithmetic", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  CHECK_NOTHROW(check(terms));
  CHECK(total_backoff(terms) == 300ms);
  SECTION("no budget") {
    terms.rebuilds = 0;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.rebuilds is 0"));
  }
  SECTION("no window") {
    terms.window = 0s;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.window must be longer"));
  }
  SECTION("waits that outlast the window") {
    terms.rebuilds = 20;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("100 ms, doubled for each of 20 rebuilds"));
  }
  SECTION("one wait that is most of the window") {
    terms.backoff = 31s;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("more than half of recovery.window (60000 ms)"));
  }
  SECTION("a rung that none begins with") {
    terms.first_rung = recovery_rung::give_up;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.first_rung is none of form_beside, abort_first"));
    CHECK(parse_first_rung("abort_first") == recovery_rung::abort_first);
    CHECK_THROWS_WITH(parse_first_rung("give_up"), ContainsSubstring("choose one of form_beside, abort_first"));
  }
  SECTION("a name that there is not") {
    CHECK(parse_recovery_policy("keep_size") == recovery_policy::keep_size);
    CHECK_THROWS_WITH(parse_recovery_policy("grow"), ContainsSubstring("choose one of fail_fast, keep_size"));
  }
}

} // namespace troupe::tests
