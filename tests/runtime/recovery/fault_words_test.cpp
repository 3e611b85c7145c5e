// What events, reports and errors say about a fault.
#include <troupe/actors.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/testing/catch2.hpp>
#include <troupe/testing/memory.hpp>
#include <troupe/testing/mock_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace troupe::tests::fault_words_test {

using namespace std::chrono_literals;
using namespace troupe::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t count = 8;
constexpr const char* unknown = "may have run";

error failure_at(const virtual_reply& one) {
  const outcome result = one.result();
  const error* const why = failure_of(result);
  return why != nullptr ? *why : error{};
}

/// Returns the first event with a report.
const world_event& reported(const virtual_world& world) {
  const auto found =
      std::ranges::find_if(world.events(), [](const virtual_event& one) { return one.event.report != nullptr; });
  REQUIRE(found != world.events().end());
  return found->event;
}

} // namespace

TEST_CASE("at the hang of a transfer the end that never came is suspected, whichever it is (FLT-1)",
          "[runtime][report]") {
  const rank victim{GENERATE(0, 1)};
  virtual_world world{4, {.recovery = {.policy = recovery_policy::keep_size}}};
  const auto values = make_ranked<float>(world, count);
  world.script().on(victim).operation(0).hang();
  const auto hangs = world.transfer(rank{0}, values[0], rank{1}, values[1], count, dtype::f32);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(hangs, has_unknown_outcome());
  const fault_report& report = *reported(world).report;
  REQUIRE(report.suspects.size() == 1);
  CHECK(report.suspects.front().rank == victim);
  CHECK(report.suspects.front().why == suspicion::alone_done);
  CHECK_THAT(describe(report),
             ContainsSubstring(victim == rank{0} ? "recv of 8 f32 from rank 0" : "send of 8 f32 to rank 1") &&
                 !ContainsSubstring("no rank is suspected") && !ContainsSubstring(unknown));
}

TEST_CASE("the reason of a hang names the rank that is suspected, not only the one that noticed it (FLT-1)",
          "[runtime][report]") {
  virtual_world world{4, {.recovery = {.policy = recovery_policy::keep_size}}};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{2}).operation(0).hang();
  static_cast<void>(world.all_reduce(values, values, count, dtype::f32, reduction::sum));
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  const world_event& event = reported(world);
  CHECK(event.reason.code == errc::deadline_exceeded);
  CHECK(event.reason.rank == rank{2});
  CHECK_THAT(event.reason.text, ContainsSubstring("has noticed it; rank 2 is suspected"));
}

TEST_CASE("an error that says that the work did not run says nothing else because of its reason (ONE-2)",
          "[runtime][report]") {
  const auto policy = GENERATE(recovery_policy::keep_size, recovery_policy::fail_fast);
  virtual_world world{2, {.recovery = {.policy = policy}}};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(0).hang();
  const auto lost = world.all_reduce(values, values, count, dtype::f32, reduction::sum);
  std::vector<virtual_reply> refused;
  REQUIRE(world.run_until([&] { return world.events().back().event.phase != world_phase::ready; }, 1s));
  refused.push_back(world.all_reduce(values, values, count, dtype::f32, reduction::sum));
  refused.push_back(world.ask(rank{0}, barrier{}));
  for (const virtual_reply& one : refused) {
    static_cast<void>(one.wait_for(1s));
    REQUIRE_THAT(one, was_rejected());
    CHECK_THAT(to_string(failure_at(one)),
               ContainsSubstring("the reason was deadline_exceeded") && !ContainsSubstring(unknown));
  }
  for (const virtual_event& one : world.events()) CHECK_THAT(describe(one.event), !ContainsSubstring(unknown));
  static_cast<void>(lost.wait_for(1s));
  CHECK_THAT(lost, has_unknown_outcome());
}

TEST_CASE("a world that stops or has stopped does not say how it came back earlier", "[runtime][report]") {
  virtual_world world{2, {.recovery = {.policy = recovery_policy::keep_size}}};
  world.script().on(rank{0}).operation(0).fail();
  const auto lost = world.ask({barrier{}, barrier{}});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(describe(world.status()), ContainsSubstring("back by "));
  const std::size_t before = world.events().size();
  REQUIRE(world.stop(1s));
  REQUIRE(world.events().size() > before);
  for (std::size_t i = before; i < world.events().size(); ++i)
    CHECK_THAT(describe(world.events()[i].event), !ContainsSubstring("back by "));
  CHECK(world.status().phase == world_phase::stopped);
}

TEST_CASE("a world whose actor was killed does not say how it came back earlier", "[runtime][report]") {
  mock_world mock{2};
  world where = mock.world();
  mock.script().on(rank{0}).operation(0).fail();
  where.barrier().wait();
  CHECK_THAT(describe(where.wait_ready(epoch{1}, 60s)), ContainsSubstring("back by "));
  caf::anon_send_exit(actor_of(where), caf::exit_reason::kill);
  const world_event ended = where.wait_ready(epoch{2}, 60s);
  CHECK(ended.phase == world_phase::stopped);
  CHECK_THAT(describe(ended), !ContainsSubstring("back by "));
}

TEST_CASE("a message has no article before the name of an operation", "[runtime]") {
  virtual_world world{2};
  const auto values = make_ranked<float>(world, count);
  std::vector<operation> nested{group{{barrier{}}}, group{{barrier{}}}};
  std::vector<operation> groups;
  for (operation& one : nested) groups.push_back(group{{one, barrier{}}});
  const auto reply = world.ask(std::move(groups));
  CHECK_THAT(failure_at(reply).text, ContainsSubstring(": group cannot be in a group"));
}

} // namespace troupe::tests::fault_words_test
