#include <troupe/actors/world/recovery/world_recovery.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

const error some_error{.code = errc::communicator_failed, .text = "a fault"};
const world_fault some_fault{.why = some_error, .world_size = 4};
const running_time start = running_time{} + 1h;

world_fault blaming(std::vector<rank> blamed) {
  return {.why = some_error, .world_size = 4, .blamed = std::move(blamed)};
}

/// Returns the step after a fault of a world that serves.
recovery_step while_serving(world_recovery& of, const world_fault& fault = some_fault, running_time now = start) {
  of.on_serving();
  return of.on_fault(fault, now);
}

recovery_terms three_in_a_minute() {
  return {.policy = recovery_policy::keep_size, .rebuilds = 3, .window = 60s, .backoff = 100ms};
}

} // namespace

TEST_CASE("under fail_fast the first fault is the last", "[actors]") {
  world_recovery recovery{{.policy = recovery_policy::fail_fast}};
  const recovery_step step = while_serving(recovery);
  CHECK(step.rung == recovery_rung::give_up);
  CHECK(step.why.text == "a fault");
}

TEST_CASE("under fail_fast a world over processes ends with a loss, and recovers from other faults", "[actors]") {
  world_recovery recovery{{.policy = recovery_policy::fail_fast}};
  world_fault fault = some_fault;
  fault.loses = fault_loss::nothing;
  CHECK(while_serving(recovery, fault).rung == recovery_rung::form_beside);
  fault.loses = fault_loss::process;
  const recovery_step last = while_serving(recovery, fault);
  CHECK(last.rung == recovery_rung::give_up);
  CHECK(last.why.text == "a fault");
  CHECK(recovery.fails_fast());
  CHECK_FALSE(world_recovery{{.policy = recovery_policy::keep_size}}.fails_fast());
}

TEST_CASE("a world shrinks to its smallest size, and one that keeps its size needs all ranks", "[actors]") {
  world_recovery recovery{{.policy = recovery_policy::shrink, .smallest = 2}};
  CHECK(recovery.suffices(2, 4));
  CHECK_FALSE(recovery.suffices(1, 4));
  CHECK(recovery.suffices(1, 1)); // all of a world that was never larger
  CHECK(while_serving(recovery, blaming({rank{0}, rank{1}})).without == std::vector{rank{0}, rank{1}});
  const recovery_step last = while_serving(recovery, blaming({rank{0}, rank{1}, rank{3}}));
  CHECK(last.rung == recovery_rung::give_up);
  CHECK(last.why.text == "a fault; 1 ranks would remain, and recovery.smallest is 2");
  const world_recovery keeping{{.policy = recovery_policy::keep_size, .smallest = 2}};
  CHECK(keeping.suffices(4, 4));
  CHECK_FALSE(keeping.suffices(3, 4));
}

TEST_CASE("a fault that does not count is recovered from beyond the budget", "[actors]") {
  world_recovery recovery{{.rebuilds = 1, .window = 60s}};
  world_fault known = some_fault;
  known.counts = false;
  for (int i = 0; i < 3; ++i) CHECK(while_serving(recovery, known).rung == recovery_rung::form_beside);
  CHECK(while_serving(recovery).rung == recovery_rung::form_beside);
  CHECK(while_serving(recovery, known).rung == recovery_rung::form_beside);
  CHECK(while_serving(recovery).rung == recovery_rung::give_up);
}

TEST_CASE("the pause of a fault doubles until an epoch serves, and one without a limit is always the same",
          "[actors]") {
  world_recovery recovery{{.rebuilds = 100, .window = 60s, .backoff = 0ms}};
  world_fault vain = some_fault;
  vain.pause = 50ms;
  vain.longest_pause = 300ms;
  world_fault other = some_fault;
  other.pause = 7ms;
  for (int round = 0; round < 2; ++round) {
    for (const auto pause : {50ms, 100ms, 200ms, 300ms, 300ms}) {
      CHECK(recovery.on_fault(vain, start).delay == pause);
      CHECK(recovery.on_fault(other, start).delay == 7ms);
    }
    recovery.on_serving();
  }
  // The delay is the longer one of the pause and the back-off.
  world_recovery patient{three_in_a_minute()};
  CHECK(patient.on_fault(other, start).delay == 7ms);
  CHECK(patient.on_fault(other, start).delay >= 50ms);
}

TEST_CASE("rebuilds are counted in a window and wait longer each time", "[actors]") {
  world_recovery recovery{three_in_a_minute()};
  CHECK(while_serving(recovery).delay == 0ms);
  const nanoseconds second = while_serving(recovery, some_fault, start + 1s).delay;
  CHECK((second >= 50ms && second <= 100ms));
  const nanoseconds third = while_serving(recovery, some_fault, start + 2s).delay;
  CHECK((third >= 100ms && third <= 200ms));
  const recovery_step last = while_serving(recovery, some_fault, start + 3s);
  CHECK(last.rung == recovery_rung::give_up);
  CHECK_THAT(last.why.text, ContainsSubstring("a fault; given up after 3 rebuilds within 60s"));
  const recovery_step later = while_serving(recovery, some_fault, start + 61s); // the first has left the window
  CHECK(later.rung == recovery_rung::form_beside);
  CHECK((later.delay >= 100ms && later.delay <= 200ms));
}

TEST_CASE("delays are drawn, so that worlds do not come back in step, and from the seed alone (DET-1)", "[actors]") {
  std::set<nanoseconds> drawn;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    world_recovery one{three_in_a_minute(), seed};
    world_recovery same{three_in_a_minute(), seed};
    for (int i = 0; i < 3; ++i) {
      const nanoseconds delay = while_serving(one).delay;
      CHECK(delay == while_serving(same).delay);
      if (i == 1) drawn.insert(delay);
    }
  }
  CHECK(drawn.size() > 15);
}

TEST_CASE("an attempt that fails during a rebuild is aborted before the next one", "[actors]") {
  world_recovery recovery{three_in_a_minute()};
  CHECK(while_serving(recovery).rung == recovery_rung::form_beside);
  CHECK(recovery.on_fault(some_fault, start).rung == recovery_rung::abort_first);
}

TEST_CASE("a recovery begins with the rung that was chosen", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::abort_first;
  world_recovery recovery{terms};
  CHECK(while_serving(recovery).rung == recovery_rung::abort_first);
  CHECK(recovery.on_fault(some_fault, start).rung == recovery_rung::abort_first);
}

TEST_CASE("a world that shrinks goes on without those to blame, and whole where nobody is", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.policy = recovery_policy::shrink;
  world_recovery recovery{terms};
  const recovery_step fewer = while_serving(recovery, blaming({rank{2}}));
  CHECK(fewer.rung == recovery_rung::form_beside);
  CHECK(fewer.without == std::vector{rank{2}});
  CHECK(while_serving(recovery).without.empty());
  const recovery_step nobody = while_serving(recovery, blaming({rank{0}, rank{1}, rank{2}, rank{3}}));
  CHECK(nobody.rung == recovery_rung::give_up);
  CHECK_THAT(nobody.why.text, ContainsSubstring("none would remain"));
}

TEST_CASE("a world that keeps its size blames in vain", "[actors]") {
  world_recovery recovery{three_in_a_minute()};
  CHECK(while_serving(recovery, blaming({rank{2}})).without.empty());
}

TEST_CASE("the last rank is not gone on without", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.policy = recovery_policy::shrink;
  world_recovery recovery{terms};
  const recovery_step last = while_serving(recovery, {.why = some_error, .world_size = 1, .blamed = {rank{0}}});
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
  world_recovery recovery{terms};
  CHECK(while_serving(recovery, blaming({rank{2}})).rung == recovery_rung::shrink);
  CHECK(recovery.on_fault(some_fault, start).rung == recovery_rung::form_beside);
  CHECK(recovery.on_fault(some_fault, start).rung == recovery_rung::abort_first);
  CHECK(while_serving(recovery).rung == recovery_rung::form_beside); // nobody leaves
  CHECK(while_serving(recovery, blaming({rank{0}, rank{1}, rank{2}})).rung == recovery_rung::form_beside);
  CHECK(while_serving(recovery, blaming({rank{0}})).rung == recovery_rung::shrink);
  recovery.fell_back();
  CHECK(recovery.on_fault(some_fault, start).rung == recovery_rung::abort_first);
}

TEST_CASE("communicators are revoked where no device has failed", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::revoke;
  terms.rebuilds = 10;
  world_recovery recovery{terms};
  CHECK(while_serving(recovery).rung == recovery_rung::revoke);
  CHECK(recovery.on_fault(some_fault, start).rung == recovery_rung::form_beside);
  const error device{.code = errc::device_failed, .text = "a device"};
  CHECK(while_serving(recovery, {.why = device, .world_size = 4}).rung == recovery_rung::form_beside);
  CHECK(while_serving(recovery, {.why = some_error, .world_size = 1}).rung == recovery_rung::form_beside);
}

TEST_CASE("a poisoned process is not rebuilt, and it is said why", "[actors]") {
  world_recovery recovery{three_in_a_minute()};
  world_fault sticky = some_fault;
  sticky.why.code = errc::process_poisoned;
  const recovery_step poisoned = while_serving(recovery, sticky);
  CHECK(poisoned.rung == recovery_rung::give_up);
  CHECK_THAT(poisoned.why.text, ContainsSubstring("the process must be replaced"));
  sticky.loses = fault_loss::process;
  CHECK(while_serving(recovery, sticky).rung == recovery_rung::form_beside); // another process replaces it
}

TEST_CASE("terms that contradict each other are refused with the arithmetic", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  CHECK_NOTHROW(check(terms));
  CHECK(total_backoff(terms) == 300ms);
  SECTION("no budget") {
    terms.rebuilds = 0;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.rebuilds is 0"));
  }
  SECTION("no rank") {
    terms.smallest = 0;
    CHECK_THROWS_WITH(check(terms), ContainsSubstring("recovery.smallest is 0 and must be at least 1"));
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
    CHECK_THROWS_WITH(
        parse_recovery_policy("respawn"),
        ContainsSubstring("recovery policy 'respawn' is called keep_size since troupe 0.3.0: choose one of "
                          "fail_fast, keep_size, shrink"));
    CHECK_THROWS_WITH(parse_recovery_policy("fail"), ContainsSubstring("'fail' is called fail_fast"));
    CHECK_THROWS_WITH(parse_recovery_policy("grow"), ContainsSubstring("choose one of fail_fast, keep_size, shrink"));
  }
}

TEST_CASE("where memory was short no communicator is derived from the failed ones", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.first_rung = recovery_rung::revoke;
  world_recovery recovery{terms};
  const error memory{.code = errc::out_of_memory, .text = "no memory"};
  CHECK(while_serving(recovery, {.why = memory, .world_size = 4}).rung == recovery_rung::form_beside);
  CHECK(while_serving(recovery, {.why = some_error, .world_size = 2}).rung == recovery_rung::revoke);
}

TEST_CASE("a rebuild leaves the window when it is older, and the budget is that of the terms", "[actors]") {
  recovery_terms terms = three_in_a_minute();
  terms.rebuilds = 1;
  for (const auto& [after, rung] :
       {std::pair{60s, recovery_rung::give_up}, std::pair{61s, recovery_rung::form_beside}}) {
    world_recovery recovery{terms};
    CHECK(while_serving(recovery).rung == recovery_rung::form_beside);
    const recovery_step next = while_serving(recovery, some_fault, start + after);
    CHECK(next.rung == rung);
    CHECK(next.delay == 0ns);
  }
  world_recovery none{{.policy = recovery_policy::keep_size, .rebuilds = 0}};
  const recovery_step last = while_serving(none);
  CHECK(last.why.text == "a fault; given up after 0 rebuilds within 600s");
}

TEST_CASE("the first attempt in a window comes at once, the next ones later and later, up to the longest delay",
          "[actors]") {
  recovery_budget budget{{.count = 6, .window = 10min, .first_delay = 1s, .longest_delay = 5s}};
  std::vector<nanoseconds> delays;
  while (const auto delay = budget.take(start)) delays.push_back(*delay);
  CHECK(delays == std::vector<nanoseconds>{0s, 1s, 2s, 4s, 5s, 5s});
  recovery_budget hasty{{.count = 3, .first_delay = 9s, .longest_delay = 5s}};
  CHECK(hasty.take(start) == 0s);
  CHECK(hasty.take(start) == 5s);
  CHECK(doubled(0ns, std::numeric_limits<std::size_t>::max(), 1s) == 0ns);
  CHECK(doubled(1ns, 1000, nanoseconds::max()) == nanoseconds::max()); // without overflow
}

TEST_CASE("attempts count until they are older than the window is long, or the budget is renewed", "[actors]") {
  recovery_budget budget{{.count = 2, .window = 10s, .first_delay = 1s}};
  CHECK(budget.taken() == 0);
  CHECK(budget.take(start) == 0s);
  CHECK(budget.take(start + 6s) == 1s);
  CHECK_FALSE(budget.take(start + 10s));
  CHECK(budget.taken() == 2);
  CHECK(budget.take(start + 10s + 1ns) == 1s); // the first has left it, the second not yet
  CHECK_FALSE(budget.take(start + 15s));
  CHECK(budget.take(start + 31s) == 0s);
  budget.renew();
  CHECK(budget.taken() == 0);
  CHECK(budget.take(start + 31s) == 0s);
  CHECK_FALSE(recovery_budget{{.count = 0}}.take(start));
  CHECK(budget.limit(" rebuilds") == "2 rebuilds within 10s");
  CHECK(recovery_budget{{.count = 3, .window = 1500ms}}.limit({}) == "3 within 1500ms");
}

TEST_CASE("a world may rebuild as often as all its processes may be started again", "[actors]") {
  CHECK(count_of_all(3, 5) == 15);
  CHECK(count_of_all(0, 5) == 0);
  CHECK(count_of_all(3, 0) == 0);
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK(count_of_all(most / 2, 3) == most);
  CHECK(count_of_all(most / 2, 2) == most - 1);
  CHECK(count_of_all(most / 2 + 1, 2) == most - 1);
}

TEST_CASE("delays double with each rebuild up to a limit, and their sum is that of all", "[actors]") {
  const recovery_terms terms{.rebuilds = 100, .window = 60s, .backoff = 3ms};
  recovery_budget budget{budget_of(terms)};
  std::vector<nanoseconds> delays;
  while (const auto delay = budget.take(start)) delays.push_back(*delay);
  REQUIRE(delays.size() == 100);
  CHECK(delays[0] == 0ms);
  CHECK(delays[1] == 3ms);
  CHECK(delays[2] == 6ms);
  CHECK(delays[10] == 3ms * 512);
  CHECK(delays[11] == 3ms * 1024);
  CHECK(delays[12] == 3ms * 1024);
  nanoseconds sum{};
  for (std::size_t rebuilds = 0; rebuilds <= delays.size(); ++rebuilds) {
    CAPTURE(rebuilds);
    recovery_terms some = terms;
    some.rebuilds = rebuilds;
    CHECK(total_backoff(some) == sum);
    if (rebuilds < delays.size()) sum += delays[rebuilds];
  }
  const nanoseconds century{std::chrono::years{100}};
  CHECK(budget_of({.backoff = century}).longest_delay == century); // no sum overflows
  CHECK(total_backoff({.rebuilds = 1000, .backoff = century}) == century);
  world_recovery without{{.policy = recovery_policy::keep_size, .rebuilds = 9, .window = 60s, .backoff = 0ms}};
  for (int i = 0; i < 3; ++i) CHECK(while_serving(without).delay == 0ns);
  world_recovery least{{.policy = recovery_policy::keep_size, .rebuilds = 100, .window = 60s, .backoff = 1ns}};
  static_cast<void>(while_serving(least));
  std::set<nanoseconds> drawn;
  for (int i = 0; i < 12; ++i) drawn.insert(while_serving(least).delay);
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
