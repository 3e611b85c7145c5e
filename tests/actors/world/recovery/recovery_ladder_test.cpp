#include <troupe/actors/world/recovery/recovery_ladder.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

const error some_fault{.code = errc::communicator_failed, .text = "a fault"};
const time_point start = time_point{} + 1h;

const recovery_view serving{.world_size = 4};
const recovery_view forming{.while_rebuilding = true, .world_size = 4};

recovery_view blaming(std::vector<rank> blamed, bool while_rebuilding = false) {
  return {.while_rebuilding = while_rebuilding, .world_size = 4, .blamed = std::move(blamed)};
}

recovery_terms three_in_a_minute() {
  return {.policy = recovery_policy::keep_size, .rebuilds = 3, .window = 60s, .backoff = 100ms};
}

} // namespace

TEST_CASE("under fail_fast the first fault is the last", "[actors]") {
  recovery_ladder ladder{{.policy = recovery_policy::fail_fast}};
  const recovery_step step = ladder.on_fault(some_fault, start, serving);
  CHECK(step.rung == recovery_rung::give_up);
  CHECK(step.why.text == "a fault");
}

TEST_CASE("rebuilds are counted in a window and wait longer each time", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  CHECK(ladder.on_fault(some_fault, start, serving).delay == 0ms);
  const nanoseconds second = ladder.on_fault(some_fault, start + 1s, serving).delay;
  CHECK((second >= 50ms && second <= 100ms));
  const nanoseconds third = ladder.on_fault(some_fault, start + 2s, serving).delay;
  CHECK((third >= 100ms && third <= 200ms));
  const recovery_step last = ladder.on_fault(some_fault, start + 3s, serving);
  CHECK(last.rung == recovery_rung::give_up);
  CHECK_THAT(last.why.text, ContainsSubstring("a fault; given up after 3 rebuilds"));
  const recovery_step later = ladder.on_fault(some_fault, start + 61s, serving); // the first has left the window
  CHECK(later.rung == recovery_rung::form_beside);
  CHECK((later.delay >= 100ms && later.delay <= 200ms));
}

TEST_CASE("delays are drawn, so that worlds do not come back in step, and from the seed alone (DET-1)", "[actors]") {
  std::set<nanoseconds> drawn;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    recovery_ladder one{three_in_a_minute(), seed};
    recovery_ladder same{three_in_a_minute(), seed};
    for (int i = 0; i < 3; ++i) {
      const nanoseconds delay = one.on_fault(some_fault, start, serving).delay;
      CHECK(delay == same.on_fault(some_fault, start, serving).delay);
      if (i == 1) drawn.insert(delay);
    }
  }
  CHECK(drawn.size() > 15);
}

TEST_CASE("an attempt that fails during a rebuild is aborted before the next one", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  CHECK(ladder.on_fault(some_fault, start, serving).rung == recovery_rung::form_beside);
  CHECK(ladder.on_fault(some_fault, start, forming).rung == recovery_rung::abort_first);
}

TEST_CASE("a recovery begins with the rung that was chosen", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::abort_first;
  recovery_ladder ladder{terms};
  CHECK(ladder.on_fault(some_fault, start, serving).rung == recovery_rung::abort_first);
  CHECK(ladder.on_fault(some_fault, start, forming).rung == recovery_rung::abort_first);
}

TEST_CASE("a world that shrinks goes on without those to blame, and whole where nobody is", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.policy = recovery_policy::shrink;
  recovery_ladder ladder{terms};
  const recovery_step fewer = ladder.on_fault(some_fault, start, blaming({rank{2}}));
  CHECK(fewer.rung == recovery_rung::form_beside);
  CHECK(fewer.without == std::vector{rank{2}});
  CHECK(ladder.on_fault(some_fault, start, serving).without.empty());
  const recovery_step nobody = ladder.on_fault(some_fault, start, blaming({rank{0}, rank{1}, rank{2}, rank{3}}));
  CHECK(nobody.rung == recovery_rung::give_up);
  CHECK_THAT(nobody.why.text, ContainsSubstring("none would remain"));
}

TEST_CASE("a world that keeps its size blames in vain", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  CHECK(ladder.on_fault(some_fault, start, blaming({rank{2}})).without.empty());
}

TEST_CASE("the last rank is not gone on without", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.policy = recovery_policy::shrink;
  recovery_ladder ladder{terms};
  const recovery_step last = ladder.on_fault(some_fault, start, {.world_size = 1, .blamed = {rank{0}}});
  CHECK(last.rung == recovery_rung::give_up);
  CHECK_THAT(last.why.text, ContainsSubstring("it was the last rank"));
}

TEST_CASE("communicators are shrunk where ranks leave and several stay; after that it is formed beside, then aborted "
          "first",
          "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.policy = recovery_policy::shrink;
  terms.first_rung = recovery_rung::shrink;
  terms.rebuilds = 10;
  recovery_ladder ladder{terms};
  CHECK(ladder.on_fault(some_fault, start, blaming({rank{2}})).rung == recovery_rung::shrink);
  CHECK(ladder.on_fault(some_fault, start, blaming({}, true)).rung == recovery_rung::form_beside);
  CHECK(ladder.on_fault(some_fault, start, blaming({}, true)).rung == recovery_rung::abort_first);
  CHECK(ladder.on_fault(some_fault, start, serving).rung == recovery_rung::form_beside); // nobody leaves
  CHECK(ladder.on_fault(some_fault, start, blaming({rank{0}, rank{1}, rank{2}})).rung == recovery_rung::form_beside);
  CHECK(ladder.on_fault(some_fault, start, blaming({rank{0}})).rung == recovery_rung::shrink);
  ladder.fell_back();
  CHECK(ladder.on_fault(some_fault, start, blaming({}, true)).rung == recovery_rung::abort_first);
}

TEST_CASE("communicators are revoked where no device has failed", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::revoke;
  terms.rebuilds = 10;
  recovery_ladder ladder{terms};
  CHECK(ladder.on_fault(some_fault, start, serving).rung == recovery_rung::revoke);
  CHECK(ladder.on_fault(some_fault, start, forming).rung == recovery_rung::form_beside);
  const error device{.code = errc::device_failed, .text = "a device"};
  CHECK(ladder.on_fault(device, start, serving).rung == recovery_rung::form_beside);
  CHECK(ladder.on_fault(some_fault, start, {.world_size = 1}).rung == recovery_rung::form_beside);
}

TEST_CASE("a poisoned process is not rebuilt, and it is said why", "[actors]") {
  recovery_ladder ladder{three_in_a_minute()};
  error sticky = some_fault;
  sticky.code = errc::process_poisoned;
  const recovery_step poisoned = ladder.on_fault(sticky, start, serving);
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
    terms.window = -1s;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.window is -1000 ms and cannot be negative"));
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
    CHECK_THROWS_WITH(
        check(terms),
        ContainsSubstring("recovery.first_rung is unknown: choose one of form_beside, abort_first, shrink, revoke"));
    CHECK(parse_first_rung("abort_first") == recovery_rung::abort_first);
    CHECK_THROWS_WITH(parse_first_rung("give_up"),
                      ContainsSubstring("choose one of form_beside, abort_first, shrink, revoke"));
  }
  SECTION("a rung that does not fit the policy") {
    terms.first_rung = recovery_rung::shrink;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("set recovery.policy to shrink"));
    terms.policy = recovery_policy::shrink;
    CHECK_NOTHROW(check(terms));
    terms.first_rung = recovery_rung::revoke;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("set recovery.policy to keep_size"));
  }
  SECTION("a name that there is not") {
    CHECK(parse_recovery_policy("keep_size") == recovery_policy::keep_size);
    CHECK_THROWS_WITH(parse_recovery_policy("grow"), ContainsSubstring("choose one of fail_fast, keep_size, shrink"));
  }
}

TEST_CASE("where memory was short no communicator is derived from the failed ones", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::revoke;
  recovery_ladder ladder{terms};
  const error memory{.code = errc::out_of_memory, .text = "no memory"};
  CHECK(ladder.on_fault(memory, start, serving).rung == recovery_rung::form_beside);
  CHECK(ladder.on_fault(some_fault, start, {.world_size = 2}).rung == recovery_rung::revoke);
}

TEST_CASE("a rebuild leaves the window when it is older, and the budget is that of the terms", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.rebuilds = 1;
  for (const auto& [after, rung] :
       {std::pair{60s, recovery_rung::give_up}, std::pair{61s, recovery_rung::form_beside}}) {
    recovery_ladder ladder{terms};
    CHECK(ladder.on_fault(some_fault, start, serving).rung == recovery_rung::form_beside);
    const recovery_step next = ladder.on_fault(some_fault, start + after, serving);
    CHECK(next.rung == rung);
    CHECK(next.delay == 0ns);
  }
  recovery_ladder none{{.policy = recovery_policy::keep_size, .rebuilds = 0}};
  const recovery_step last = none.on_fault(some_fault, start, serving);
  CHECK(last.why.text == "a fault; given up after 0 rebuilds within recovery.window");
}

TEST_CASE("delays double with each rebuild up to a limit, and their sum is that of all", "[actors]") {
  const recovery_terms terms{.rebuilds = 100, .backoff = 3ms};
  CHECK(backoff_before(terms, 0) == 0ms);
  CHECK(backoff_before(terms, 1) == 3ms);
  CHECK(backoff_before(terms, 2) == 6ms);
  CHECK(backoff_before(terms, 10) == 3ms * 512);
  CHECK(backoff_before(terms, 11) == 3ms * 1024);
  CHECK(backoff_before(terms, 12) == 3ms * 1024);
  for (const std::size_t rebuilds : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{11}, std::size_t{12},
                                     std::size_t{13}, std::size_t{100}}) {
    CAPTURE(rebuilds);
    recovery_terms some = terms;
    some.rebuilds = rebuilds;
    nanoseconds sum{};
    for (std::size_t before = 0; before < rebuilds; ++before) sum += backoff_before(some, before);
    CHECK(total_backoff(some) == sum);
  }
  const nanoseconds century{std::chrono::years{100}};
  CHECK(backoff_before({.backoff = century}, 5) == century); // no sum overflows
  CHECK(total_backoff({.rebuilds = 1000, .backoff = century}) == century);
  recovery_ladder without{{.policy = recovery_policy::keep_size, .rebuilds = 9, .window = 60s, .backoff = 0ms}};
  for (int i = 0; i < 3; ++i) CHECK(without.on_fault(some_fault, start, serving).delay == 0ns);
  recovery_ladder least{{.policy = recovery_policy::keep_size, .rebuilds = 100, .window = 60s, .backoff = 1ns}};
  static_cast<void>(least.on_fault(some_fault, start, serving));
  std::set<nanoseconds> drawn;
  for (int i = 0; i < 12; ++i) drawn.insert(least.on_fault(some_fault, start, serving).delay);
  CHECK(*drawn.rbegin() > 256ns); // not only the first
  CHECK(*drawn.rbegin() <= 1024ns);
}

TEST_CASE("a window that is not given is twice what the rebuilds or a fault's detection can take, and ten minutes at "
          "least",
          "[actors]") {
  const recovery_terms terms{.rebuilds = 3, .backoff = 100ms}; // 300 ms in all
  CHECK(with_window(terms).window == 10min);
  CHECK(with_window(terms, 60s, 10s).window == 10min);
  CHECK(with_window(terms, 90s, 30s).window == 2 * (300ms + 3 * (90s + 30s)));
  CHECK(with_window(terms, 90s, 30s, 1h).window == 2h);
  CHECK(with_window({.window = 7s}, 90s, 30s, 1h).window == 7s);
}

TEST_CASE("terms at their limits are accepted, and those beyond are refused", "[actors]") {
  recovery_terms terms{.policy = recovery_policy::keep_size, .rebuilds = 2, .window = 60s, .backoff = 30s};
  CHECK_NOTHROW(check(terms));
  terms.backoff += 1ms;
  CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.backoff is 30001 ms, more than half of recovery.window"));
  terms.rebuilds = 3;
  terms.backoff = 20s; // 60 s in all
  CHECK_THROWS_WITH(check(terms), ContainsSubstring("is 60000 ms or more in all, and recovery.window 60000 ms"));
  terms.window = 60'001ms;
  CHECK_NOTHROW(check(terms));
  terms.rebuilds = 1;
  terms.backoff = 0ms;
  CHECK_NOTHROW(check(terms));
  terms.backoff = -1ms;
  CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.backoff cannot be negative"));
  terms.backoff = 1h;
  terms.window = 0s; // it will be derived
  CHECK_NOTHROW(check(terms));
  terms.policy = static_cast<recovery_policy>(99);
  CHECK_THROWS_WITH(check(terms),
                    ContainsSubstring("recovery.policy is unknown: choose one of fail_fast, keep_size, shrink"));
  terms.policy = recovery_policy::shrink;
  terms.first_rung = recovery_rung::revoke;
  CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.first_rung is revoke, which keeps the size, and "
                                                    "recovery.policy is shrink"));
  terms.policy = recovery_policy::keep_size;
  CHECK_NOTHROW(check(terms));
}

} // namespace troupe::tests
