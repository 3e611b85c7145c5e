/// What scripts of faults do to a world.
#include "support/outcomes.hpp"

#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tests::fault_script_test {

using namespace troupe::testing;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using troupe::tests::code_of;
using troupe::tests::error_of;

namespace {

constexpr std::size_t count = 64;

virtual_options keeping_size() {
  return {.recovery = {.policy = recovery_policy::keep_size}, .fusion = {.mode = fusion::off}};
}

/// One after the other, so that each is launched by itself.
std::vector<virtual_reply> ask_sums(virtual_world& world, const std::vector<buffer>& values, int how_many) {
  std::vector<virtual_reply> replies;
  for (int i = 0; i < how_many; ++i) {
    replies.push_back(world.ask(sums_of(values)));
    world.advance(1ms);
  }
  return replies;
}

} // namespace

TEST_CASE("a script tells what each rank launched, in which order and epoch", "[testing][faults]") {
  // [launches]
  virtual_world world{2};
  const auto values = make_ranked<float>(world, count);
  CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
  CHECK_THAT(world.barrier().get(), succeeds());
  const auto seen = world.script().launches(rank{1});
  CHECK(names_of(seen) == std::vector<std::string_view>{"all_reduce", "barrier"});
  CHECK(seen[0].count == count);
  CHECK(seen[0].recv == values[1].data());
  CHECK(seen[0].by->of_world); // who asked for it
  // [launches]
  CHECK(seen[0].rank == rank{1});
  CHECK(seen[0].epoch == epoch{1});
  CHECK(seen[0].number == 0);
  CHECK(seen[1].number == 1);
  CHECK(seen[1].count == 0);
  CHECK(seen[0].fate == launch_fate::launched);
  CHECK(seen[0].at < seen[1].at);
  CHECK_THAT(seen[0].text, ContainsSubstring("all_reduce of 64 f32"));
  CHECK(world.script().launches(rank{7}).empty());
}

TEST_CASE("a script tells for which request of whom each rank launches", "[testing][faults]") {
  // [by_whom]
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  const lane prefill = lane::named("prefill");
  const per_rank sums = sums_of(values);
  for (const rank self : world.local_ranks()) {
    static_cast<void>(world.ask(self, {.what = sums[self], .lane = prefill}));
    static_cast<void>(world.ask(self, barrier{}));
  }
  world.advance(1ms);
  CHECK_THAT(world.ask(sums_of(values)).get(), succeeds());
  CHECK_THAT(world.script().launches(rank{1}),
             are_launches(is_launch("all_reduce", count) && asked_in(prefill), is_launch("barrier") && asked_in(lane{}),
                          is_launch("all_reduce", count) && asked_of_world()));
  // [by_whom]
  const auto seen = world.script().launches(rank{1});
  CHECK(seen[0].by->position == 0);
  CHECK(seen[1].by->position == 0);
  CHECK(seen[0].by->request != seen[1].by->request);
  CHECK(seen[0].by->client == 1);
  CHECK(seen[2].by->client == 1);
  CHECK(seen[2].by->rank == rank{1});
  CHECK(seen[2].by->epoch == epoch{1});
  CHECK_THAT(describe(seen[0]), ContainsSubstring("all_reduce of 64 f32") &&
                                    ContainsSubstring("in lane prefill (request 0), by client 1; epoch 1, launched"));
  CHECK_THAT(describe(seen[2]), ContainsSubstring("; of the world (request "));
}

TEST_CASE("each of several that one call launches has its own asker", "[testing][faults]") {
  virtual_world world{2}; // fusion is free
  const auto values = make_ranked<float>(world, count);
  const auto others = make_ranked<float>(world, count);
  const lane first = lane::named("first");
  const lane second = lane::named("second");
  world.script().on(rank{0}).operation(0).delay(2ms); // behind it, and another, what comes meanwhile is fused
  std::vector<virtual_reply> replies{world.barrier(), world.barrier()};
  world.advance(1ms);
  for (const rank self : world.local_ranks()) {
    const auto mine = static_cast<std::size_t>(self.value());
    replies.push_back(world.ask(self, {.what = sums_of(values)[mine], .lane = first}));
    replies.push_back(world.ask(self, {.what = sums_of(others)[mine], .lane = second}));
  }
  for (const auto& one : replies) CHECK_THAT(one.get(), succeeds());
  const auto seen = world.script().launches(rank{0});
  CHECK_THAT(seen,
             are_launches(is_launch("barrier") && asked_of_world(), is_launch("barrier") && asked_of_world(),
                          is_launch("all_reduce") && asked_in(first), is_launch("all_reduce") && asked_in(second)));
  CHECK(seen[2].call == seen[3].call);
}

TEST_CASE("staged and repeated operations keep their asker; captured ones have none", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const lane line = lane::named("line");
  std::vector<buffer> host;
  std::vector<buffer> results;
  for (int i = 0; i < 2; ++i) {
    host.push_back(world.allocate_pinned(count * sizeof(float)));
    results.push_back(world.allocate_pinned(count * sizeof(float)));
  }
  for (int i = 0; i < 2; ++i) {
    const auto mine = static_cast<std::size_t>(i);
    static_cast<void>(world.ask(rank{i}, {.what = all_reduce{host[mine], results[mine], count}, .lane = line}));
  }
  world.advance(1ms);
  const auto values = make_ranked<float>(world, count);
  const auto plan = world.capture(plan_steps{sums_of(values)});
  CHECK_THAT(world.replay(plan).get(), succeeds()); // which comes to no communicator
  const auto inputs = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(2).fail();
  const auto ask = [&](epoch in) {
    std::vector<virtual_reply> replies;
    for (int i = 0; i < 2; ++i) {
      const auto mine = static_cast<std::size_t>(i);
      replies.push_back(
          world.ask(rank{i}, {.what = all_reduce{inputs[mine], values[mine], count}, .epoch = in, .lane = line}));
    }
    return replies;
  };
  const auto failed = ask(epoch{1});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  for (const auto& one : failed) CHECK_THAT(one, has_unknown_outcome());
  world.advance(5ms); // for the plan
  for (const auto& one : ask(epoch{2})) CHECK_THAT(one.get(), succeeds());
  CHECK_THAT(world.script().launches(rank{1}),
             are_launches(is_launch("all_reduce") && asked_in(line), captured() && launched_in(epoch{1}),
                          asked_in(line) && was(launch_fate::refused), captured() && launched_in(epoch{2}),
                          asked_in(line) && asked_by(1) && launched_in(epoch{2}) && was(launch_fate::launched)));
  CHECK_THAT(describe(world.script().launches(rank{0})[1]), ContainsSubstring("; for a plan; epoch 1, launched"));
}

TEST_CASE("under ordering::caller who asked is known as well", "[testing][faults]") {
  virtual_world world{2, {.ordering = ordering::caller}};
  std::vector<virtual_reply> replies;
  for (int i = 0; i < 2; ++i) replies.push_back(world.ask(rank{i}, barrier{}));
  for (const auto& one : replies) CHECK_THAT(one.get(), succeeds());
  CHECK_THAT(world.script().launches(rank{0}), are_launches(is_launch("barrier") && asked_by(1)));
}

TEST_CASE("registrations fail by number", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  world.script().on(rank{1}).registering(1).fail(errc::out_of_memory);
  world.register_memory(1024);
  CHECK_THAT(world.script().waiting().front(), ContainsSubstring("rank 1, registration 1: fails with out_of_memory"));
  CHECK(code_of([&] { world.register_memory(1024); }) == errc::rebuilding);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK(world.script().waiting().empty());
}

TEST_CASE("operations that are launched together share a call; a group is one operation", "[testing][faults]") {
  virtual_world world{2}; // fusion is free
  const auto values = make_ranked<float>(world, count);
  const auto others = make_ranked<float>(world, count);
  const auto third = make_ranked<float>(world, count);
  std::vector<virtual_reply> replies{world.ask(sums_of(values)), world.ask(sums_of(others))};
  std::vector<operation> groups;
  for (std::size_t r = 0; r < 2; ++r)
    groups.emplace_back(group{.parts = {sums_of({values[r]}).front(), sums_of({third[r]}).front()}});
  world.advance(5ms);
  replies.push_back(world.ask(groups));
  for (const auto& one : replies) CHECK_THAT(one.get(), succeeds());
  const auto seen = world.script().launches(rank{0});
  REQUIRE(seen.size() == 3);
  CHECK(seen[1].number == 1);
  CHECK(seen[2].operation == "group");
  CHECK(seen[2].count == 2);
  CHECK(seen[2].recv == values[0].data());
  CHECK(seen[2].call > seen[1].call);
}

TEST_CASE("an operation fails at its place alone, with the code and the words of the script", "[testing][faults]") {
  virtual_world world{3, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(2).fail(errc::device_failed);
  const auto replies = ask_sums(world, values, 4);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(replies[1], succeeds());
  CHECK_THAT(replies[2], fails_with(errc::device_failed) && has_unknown_outcome());
  CHECK_THAT(failure_of(replies[2].result())->text, ContainsSubstring("rank 1, operation 2: fails with device_failed"));
  CHECK(world.script().launches(rank{1})[2].fate == launch_fate::refused);
  CHECK(world.script().waiting().empty());
  CHECK_THAT(ask_sums(world, values, 4)[3], succeeds()); // in the next epoch its place means nothing
}

TEST_CASE("a line can be for one epoch alone: operations are counted in each from 0", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{0}).in(epoch{2}).operation(1).hang();
  CHECK_THAT(ask_sums(world, values, 3)[2], succeeds());
  CHECK(world.script().waiting().size() == 1);
  CHECK_THAT(world.script().waiting().front(), ContainsSubstring("rank 0, operation 1 of epoch 2: hangs"));
  world.script().on(rank{0}).operation(3).fail();
  static_cast<void>(ask_sums(world, values, 1));
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  const auto replies = ask_sums(world, values, 3);
  CHECK_THAT(replies[0], succeeds());
  REQUIRE(world.run_until_ready(epoch{3}, 1s));
  CHECK_THAT(replies[1], has_unknown_outcome());
  const auto seen = world.script().launches(rank{0});
  CHECK(seen.back().fate == launch_fate::withheld); // it comes no more in that epoch
  CHECK(seen.back().epoch == epoch{2});
  CHECK(seen.back().number == 2);
}

TEST_CASE("a line for the next operation of a name withholds these alone, and says when it happened",
          "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  CHECK_THAT(world.barrier().get(), succeeds());
  const auto happened = world.script().on(rank{1}).next_operation("barrier").hang();
  CHECK_THAT(world.script().waiting().front(), ContainsSubstring("rank 1, next barrier: hangs"));
  CHECK_THAT(ask_sums(world, values, 1)[0], succeeds());
  CHECK(happened.wait_for(0s) == std::future_status::timeout);
  const auto withheld = world.barrier();
  world.advance(1ms);
  CHECK(happened.wait_for(0s) == std::future_status::ready);
  static_cast<void>(ask_sums(world, values, 1));
  const auto seen = world.script().launches(rank{1});
  REQUIRE(seen.size() == 4);
  CHECK(seen[2].fate == launch_fate::withheld);
  CHECK(seen[3].fate == launch_fate::launched); // behind a barrier that its peer waits for
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(withheld, has_unknown_outcome());
  CHECK_THAT(world.barrier().get(), succeeds());
}

TEST_CASE("a script without records plants faults as any other", "[testing][faults]") {
  virtual_options options = keeping_size();
  options.script = std::make_shared<fault_script>(launch_recording::off);
  virtual_world world{2, options};
  const auto values = make_ranked<float>(world, count);
  CHECK_THAT(ask_sums(world, values, 1)[0], succeeds());
  static_cast<void>(world.script().on(rank{0}).next_operation().fail());
  CHECK_THAT(ask_sums(world, values, 1)[0], has_unknown_outcome());
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK(world.script().launches(rank{0}).empty());
  auto never = world.script().on(rank{0}).next_abort().delay(1s);
  world.script().release();
  CHECK_THROWS_AS(never.get(), std::future_error);
}

TEST_CASE("a delay makes one launch late, and nothing fails", "[testing][faults]") {
  virtual_world world{2};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(1).delay(3ms);
  const auto first = world.ask(sums_of(values));
  const nanoseconds asked = world.now();
  first.get();
  CHECK(world.now() - asked < 2ms);
  const nanoseconds again = world.now();
  world.ask(sums_of(values)).get();
  CHECK(world.now() - again >= 3ms);
  CHECK(world.status().phase == world_phase::ready);
}

TEST_CASE("a launch that takes longer than limits.launch is a fault", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(0).delay(10s);
  const auto reply = world.ask(sums_of(values));
  REQUIRE(world.run_until([&] { return reply.is_ready(); }, 1s));
  CHECK_THAT(reply, has_unknown_outcome());
}

TEST_CASE("an error that comes later is found by itself", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{0}).operation(0).fail_later();
  world.script().on(rank{1}).operation(0).hang(); // so that something is in flight when it is looked for
  const auto reply = world.ask(sums_of(values));
  REQUIRE(world.run_until([&] { return reply.is_ready(); }, 1s));
  CHECK(world.now() < 50ms); // before the verdict of a hang
  CHECK_THAT(failure_of(reply.result())->text, ContainsSubstring("rank 0, operation 0: fails later"));
}

TEST_CASE("formings fail and hang by number, and the ladder goes on", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{0}).operation(0).fail();
  world.script().on(rank{1}).forming(1).hang();
  world.script().on(rank{0}).forming(2).fail();
  world.script().on(rank{0}).forming(3).delay(20ms);
  static_cast<void>(ask_sums(world, values, 1));
  REQUIRE(world.run_until_ready(epoch{4}, 5s));
  CHECK(world.script().waiting().empty());
  CHECK_THAT(ask_sums(world, values, 1)[0], succeeds());
}

TEST_CASE("an abort that is slow holds nothing up but itself", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).aborting(0).delay(80ms);
  world.script().on(rank{1}).operation(0).hang();
  const auto reply = world.ask(sums_of(values));
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(reply, has_unknown_outcome());
  CHECK_THAT(world.barrier().get(), succeeds());
  world.advance(200ms);
  CHECK(world.script().waiting().empty());
  CHECK(world.status().phase == world_phase::ready);
}

TEST_CASE("memory runs out after as many bytes as the script says", "[testing][faults]") {
  virtual_world world{2};
  world.script().on(rank{1}).out_of_memory_after(1000);
  const buffer fits = world.allocate(rank{1}, 600);
  CHECK(code_of([&] { static_cast<void>(world.allocate(rank{1}, 600)); }) == errc::out_of_memory);
  CHECK_NOTHROW(world.allocate(rank{0}, 600));
}

TEST_CASE("memory can be short from the beginning", "[testing][faults]") {
  virtual_options options;
  options.script = std::make_shared<fault_script>();
  options.script->on(rank{0}).out_of_memory_after(1000);
  CHECK(options.script->waiting().size() == 1);
  virtual_world world{2, options};
  CHECK(options.script->waiting().empty());
  CHECK(code_of([&] { static_cast<void>(world.allocate(rank{0}, 2000)); }) == errc::out_of_memory);
}

TEST_CASE("a lost device fails the epoch, and a poisoned process the world", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{1}).operation(1).lose_device();
  const auto replies = ask_sums(world, values, 2);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(replies[0], succeeds());
  CHECK_THAT(replies[1], fails_with(errc::device_failed));
  CHECK_THAT(ask_sums(world, values, 1)[0], succeeds());

  world.script().on(rank{0}).lose_device(errc::process_poisoned);
  const auto last = world.ask(sums_of(values));
  REQUIRE(world.run_until([&] { return world.status().phase == world_phase::failed; }, 1s));
  static_cast<void>(last.wait_for(1s)); // the world knows a moment earlier
  CHECK_THAT(last, fails_with(errc::process_poisoned));
  CHECK(world.status().reason.code == errc::process_poisoned);
}

TEST_CASE("an operation's lost device is that of its rank, also after ranks were renumbered", "[testing][faults]") {
  virtual_world world{3, {.recovery = {.policy = recovery_policy::shrink}}};
  for (const std::uint64_t of : {1U, 2U}) {
    const auto values = make_ranked<float>(world, count);
    world.script().on(rank{0}).in(epoch{of}).operation(0).lose_device();
    const auto failing = world.ask(sums_of(values));
    REQUIRE(world.run_until_ready(epoch{of + 1}, 1s));
    CHECK_THAT(failing, fails_with(errc::device_failed));
  }
  CHECK(world.status().origins == std::vector{rank{2}});
}

TEST_CASE("a released script lets go of what hangs, and raises nothing more", "[testing][faults]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  world.script().on(rank{0}).operation(0).delay(10s);
  world.script().on(rank{0}).operation(1).fail();
  const auto reply = world.ask(sums_of(values));
  world.advance(5ms);
  CHECK_FALSE(reply.is_ready());
  world.script().release();
  CHECK_THAT(reply.get(), succeeds());
  CHECK_THAT(ask_sums(world, values, 1)[0], succeeds());
  CHECK(world.script().waiting().empty());
}

TEST_CASE("impossible lines of a script are refused with the remedy", "[testing][faults]") {
  fault_script script;
  const auto refused = [&](const auto& line) { return error_of(line); };
  CHECK(refused([&] { static_cast<void>(script.on(rank{-1})); }).code == errc::invalid_argument);
  CHECK_THAT(refused([&] { script.on(rank{0}).operation(0).fail(errc::none); }).text,
             ContainsSubstring("other than errc::none"));
  CHECK_THAT(refused([&] { script.on(rank{0}).operation(0).delay(-1ms); }).text, ContainsSubstring("-1000000 ns"));
  CHECK_THAT(refused([&] { script.on(rank{0}).lose_device(errc::busy); }).text, ContainsSubstring("not with busy"));
  CHECK(refused([&] { script.on(rank{0}).operation(0).lose_device(errc::busy); }).code == errc::invalid_argument);
  CHECK(refused([&] { script.on(rank{0}).forming(0).fail(errc::none); }).code == errc::invalid_argument);
  CHECK(refused([&] { script.on(rank{0}).registering(0).fail(errc::none); }).code == errc::invalid_argument);
  CHECK(refused([&] { script.on(rank{0}).registering(0).delay(-1ns); }).code == errc::invalid_argument);
  CHECK_THAT(refused([&] { static_cast<void>(script.on(rank{0}).in(epoch{0})); }).text, ContainsSubstring("from 1"));
  CHECK(script.waiting().empty());
}

} // namespace troupe::tests::fault_script_test
