/// Requests marked retry_safe: run again in the next epoch instead of being answered with the fault that took them.
#include "support/outcomes.hpp"

#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::tests::retry_safe_test {

using namespace troupe::testing;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t count = 16;

virtual_options keeping_size() {
  return {.recovery = {.policy = recovery_policy::keep_size, .rebuilds = 4}};
}

/// Inputs that hold rank + 1, and results of their own.
struct operands {
  explicit operands(const virtual_world& world, std::size_t length = count)
    : in{make_ranked<float>(world, length)},
      out{make_values<float>(world, length, [](rank) { return -1; })},
      elements{length} {}

  [[nodiscard]] operation sum(int self) const {
    const auto at = static_cast<std::size_t>(self);
    return all_reduce{.send = in[at], .recv = out[at], .count = elements};
  }
  [[nodiscard]] std::vector<operation> sums() const {
    std::vector<operation> all;
    for (std::size_t r = 0; r < in.size(); ++r) all.push_back(sum(static_cast<int>(r)));
    return all;
  }
  [[nodiscard]] bool are_summed() const {
    const auto n = in.size();
    for (const buffer& one : out)
      if (values_of<float>(one) != std::vector<float>(elements, static_cast<float>(n * (n + 1) / 2))) return false;
    return true;
  }
  [[nodiscard]] bool are_untouched() const {
    for (const buffer& one : out)
      if (values_of<float>(one) != std::vector<float>(elements, -1.F)) return false;
    return true;
  }

  std::vector<buffer> in;
  std::vector<buffer> out;
  std::size_t elements;
};

/// Counts tell operations apart where they were launched.
std::vector<std::size_t> launched_in(virtual_world& world, std::uint64_t epoch_number, rank self = rank{0}) {
  std::vector<std::size_t> counts;
  for (const launch_record& one : world.script().launches(self))
    if (one.epoch == epoch{epoch_number}) counts.push_back(one.count);
  return counts;
}

/// errc::none where it succeeded.
error error_in(const virtual_reply& reply) {
  const outcome result = reply.result();
  const error* const failure = failure_of(result);
  return failure == nullptr ? error{} : *failure;
}

/// Each rank of the world asks for its part of \p what in \p in, so marked, in the present epoch.
std::vector<virtual_reply> ask_marked(virtual_world& world, const operands& what, lane in = {},
                                      nanoseconds deadline = world_default_deadline) {
  std::vector<virtual_reply> all;
  for (const rank self : world.local_ranks())
    all.push_back(world.ask(self, {.what = what.sum(self.value()),
                                   .epoch = world.epoch(),
                                   .deadline = deadline,
                                   .lane = in,
                                   .retry_safe = true}));
  return all;
}

} // namespace

TEST_CASE("what all ranks marked retry_safe is run again after a fault, and answered once (ONE-1, EPO-1)",
          "[runtime][retry]") {
  virtual_options options = keeping_size();
  options.seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{10}));
  virtual_world world{3, options};
  world.script().on(rank{1}).operation(0).fail();
  const operands what{world};
  const auto replies = ask_marked(world, what, lane::named("retry"));
  for (const auto& one : replies) CHECK(one.get().epoch == epoch{2});
  CHECK(what.are_summed());
  CHECK(launched_in(world, 1, rank{1}) == std::vector{count});
  CHECK(launched_in(world, 2) == std::vector{count});
  CHECK(world.retries() == retry_counts{.put_aside = 1, .run_again = 1});
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("a request to the world is run again as a whole", "[runtime][retry]") {
  virtual_world world{3, keeping_size()};
  world.script().on(rank{2}).operation(0).hang();
  const operands what{world};
  const auto reply = world.ask(what.sums(), {.retry_safe = true});
  CHECK(reply.get().epoch == epoch{2});
  CHECK(what.are_summed());
  CHECK(world.retries() == retry_counts{.put_aside = 1, .run_again = 1});
}

TEST_CASE("copies, transfers and groups are run again, too", "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  const operands held{world};
  const operands what{world};
  world.script().on(rank{0}).operation(0).fail();
  const auto first = ask_marked(world, held);
  // These stand behind what hangs.
  const auto copied = world.ask(rank{0}, copy{what.in[0], what.out[0]}, {.retry_safe = true});
  const auto sent =
      world.ask(rank{0}, send{.memory = what.in[0], .count = 4, .peer = rank{1}, .tag = 3}, {.retry_safe = true});
  const auto received =
      world.ask(rank{1}, recv{.memory = what.out[1], .count = 4, .peer = rank{0}, .tag = 3}, {.retry_safe = true});
  const operands grouped{world};
  std::vector<virtual_reply> groups;
  for (int r = 0; r < 2; ++r) groups.push_back(world.ask(rank{r}, group{{grouped.sum(r)}}, {.retry_safe = true}));
  for (const auto& one : {first[0], first[1], copied, sent, received, groups[0], groups[1]})
    CHECK(one.get().epoch == epoch{2});
  CHECK(held.are_summed());
  CHECK(grouped.are_summed());
  CHECK(values_of<float>(what.out[0]) == std::vector<float>(count, 1.F));
  CHECK(values_of<float>(what.out[1])[3] == 1.F);
  CHECK(world.retries().run_again == 4);
}

TEST_CASE("what one participant did not mark is answered with the fault at all (EPO-1)", "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  world.script().on(rank{1}).operation(0).fail();
  const operands what{world};
  const auto marked = world.ask(rank{0}, what.sum(0), {.retry_safe = true});
  const auto unmarked = world.ask(rank{1}, what.sum(1));
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(marked, has_unknown_outcome());
  CHECK_THAT(unmarked, has_unknown_outcome());
  CHECK(world.retries() == retry_counts{});
  CHECK(launched_in(world, 2).empty());
}

TEST_CASE("what not all ranks had asked for is rejected by a fault, marked or not", "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  world.script().on(rank{1}).operation(0).fail();
  const operands what{world};
  const operands other{world};
  const auto alone = world.ask(rank{0}, {.what = what.sum(0), .lane = lane::named("waits"), .retry_safe = true});
  const auto failing = world.ask(other.sums());
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(failing, has_unknown_outcome());
  CHECK_THAT(alone, fails_with(errc::communicator_failed) && was_rejected());
  CHECK(world.retries() == retry_counts{});
}

TEST_CASE(
    "what may have been launched waits for the failed work to end; the newer of its lane wait for it, other lanes "
    "do not (BUF-1, ORD-1)",
    "[runtime][retry]") {
  virtual_options options = keeping_size();
  options.seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{10}));
  options.fusion = {.mode = fusion::off};
  virtual_world world{2, options};
  const lane blocked = lane::named("blocked");
  const lane free = lane::named("free");
  world.script().on(rank{1}).operation(0).fail();
  world.script().on(rank{0}).aborting(0).delay(60ms);
  const operands launched{world, 1};
  const auto old = ask_marked(world, launched, blocked);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  const nanoseconds ready = world.now();
  CHECK_FALSE(old[0].is_ready());

  const operands newer{world, 2};
  const operands beside{world, 3};
  const operands of_all{world, 4};
  const auto behind = ask_marked(world, newer, blocked);
  const auto others = ask_marked(world, beside, free);
  const auto whole = world.ask(of_all.sums());
  world.advance(30ms);
  CHECK_THAT(others[0], succeeds());
  CHECK_THAT(others[1], succeeds());
  CHECK_THAT(whole, succeeds());
  CHECK_FALSE(old[0].is_ready());
  CHECK_FALSE(behind[0].is_ready());
  CHECK(launched.are_untouched());

  for (const auto& one : old) CHECK(one.get().epoch == epoch{2});
  for (const auto& one : behind) CHECK(one.get().epoch == epoch{2});
  CHECK(world.now() - ready >= 55ms);
  CHECK(launched.are_summed());
  CHECK(newer.are_summed());
  for (int r = 0; r < 2; ++r) {
    const auto order = launched_in(world, 2, rank{r});
    REQUIRE(order.size() == 4);
    CHECK(order[2] == 1);
    CHECK(order[3] == 2);
  }
}

TEST_CASE("what certainly was not launched is run again at once, in the old order of its lane", "[runtime][retry]") {
  virtual_options options = keeping_size();
  options.fusion = {.mode = fusion::off};
  virtual_world world{2, options};
  const operands stuck{world, 9};
  for (int r = 0; r < 2; ++r) {
    world.script().on(rank{r}).operation(0).delay(60ms); // longer than limits.launch: what is behind is not launched
    world.script().on(rank{r}).aborting(0).delay(90ms);
  }
  const lane mine = lane::named("queued");
  const auto first = world.ask(stuck.sums());
  std::vector<operands> queued;
  std::vector<virtual_reply> replies;
  world.advance(1ms);
  for (std::size_t i = 1; i <= 3; ++i) {
    queued.emplace_back(world, i);
    for (const auto& one : ask_marked(world, queued.back(), mine)) replies.push_back(one);
  }
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(first, has_unknown_outcome());
  for (const auto& one : replies) CHECK(one.get().epoch == epoch{2});
  CHECK(world.now() < 120ms); // the aborts have not ended
  for (const auto& one : queued) CHECK(one.are_summed());
  CHECK(launched_in(world, 1) == std::vector<std::size_t>{9});
  CHECK(launched_in(world, 2) == std::vector<std::size_t>{1, 2, 3});
  CHECK(world.retries().run_again == 3);
}

TEST_CASE("what no longer fits when the world comes back is rejected if it was not launched (BUF-2)",
          "[runtime][retry][BUF-2]") {
  virtual_world world{2, keeping_size()};
  for (int r = 0; r < 2; ++r) world.script().on(rank{r}).operation(0).delay(80ms); // longer than limits.launch
  const operands launched{world, 9};
  const operands queued{world, 3};
  const auto first = world.ask(launched.sums(), {.retry_safe = true});
  world.advance(1ms);
  const auto second = world.ask(queued.sums(), {.retry_safe = true});
  REQUIRE(world.run_until([&] { return world.status().phase == world_phase::rebuilding; }, 1s));
  world.device_of(rank{1})->declare_memory_lost();
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  world.advance(200ms);
  CHECK_THAT(first, fails_with(errc::deadline_exceeded) && has_unknown_outcome()); // the fault
  CHECK_THAT(second, fails_with(errc::stale_buffer) && was_rejected());
  CHECK(error_in(second).ticket);
  CHECK(launched_in(world, 2).empty());
  CHECK(world.retries() == retry_counts{.put_aside = 2, .given_up = 2});
  CHECK_THAT(world.ask(operands{world}.sums(), {.retry_safe = true}).get(), succeeds());
}

TEST_CASE("a deadline counts on while a request is put aside, and is answered with the fault (TIM-1)",
          "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  world.script().on(rank{1}).operation(0).fail();
  world.script().on(rank{0}).aborting(0).delay(90ms);
  const operands what{world};
  const auto whole = world.ask(what.sums(), {.deadline = 60ms, .retry_safe = true});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_FALSE(whole.is_ready());
  world.advance(65ms);
  CHECK_THAT(whole, fails_with(errc::communicator_failed) && has_unknown_outcome());
  CHECK(world.retries() == retry_counts{.put_aside = 1, .given_up = 1});
  world.advance(200ms);
  CHECK(launched_in(world, 2).empty());
}

TEST_CASE("where an abort is given up, what was launched is not run into memory that may still be written (BUF-1)",
          "[runtime][retry]") {
  virtual_world world{2, keeping_size()}; // deadlines.abort is 100 ms
  world.script().on(rank{1}).operation(0).fail();
  world.script().on(rank{0}).aborting(0).delay(150ms);
  const operands what{world};
  const auto replies = ask_marked(world, what);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  world.advance(250ms);
  for (const auto& one : replies) CHECK_THAT(one, fails_with(errc::communicator_failed) && has_unknown_outcome());
  CHECK(launched_in(world, 2).empty());
  CHECK(world.retries() == retry_counts{.put_aside = 1, .given_up = 1});
  CHECK_THAT(world.ask(operands{world}.sums()).get(), succeeds());
}

TEST_CASE("a second fault puts aside again what it takes, and what still waits", "[runtime][retry]") {
  virtual_options options = keeping_size();
  options.seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{10}));
  virtual_world world{2, options};
  const lane a = lane::named("a");
  world.script().on(rank{1}).operation(0).fail();
  world.script().on(rank{0}).aborting(0).delay(60ms);
  const operands waits{world, 1};
  const auto first = ask_marked(world, waits, a);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  world.script().on(rank{0}).in(epoch{2}).operation(0).fail();
  const operands fails{world, 2};
  const auto second = world.ask(fails.sums(), {.retry_safe = true});
  REQUIRE(world.run_until_ready(epoch{3}, 1s));
  for (const auto& one : first) CHECK(one.get().epoch == epoch{3});
  CHECK(second.get().epoch == epoch{3});
  CHECK(waits.are_summed());
  CHECK(fails.are_summed());
}

TEST_CASE("where no epoch follows, what is put aside is answered with its fault (ONE-1, FLT-1)", "[runtime][retry]") {
  SECTION("the policy is fail_fast") {
    virtual_world world{2, {.recovery = {.policy = recovery_policy::fail_fast}}};
    world.script().on(rank{1}).operation(0).fail();
    const auto reply = world.ask(operands{world}.sums(), {.retry_safe = true});
    REQUIRE(reply.wait_for(1s) == std::future_status::ready);
    CHECK_THAT(reply, fails_with(errc::communicator_failed) && has_unknown_outcome());
    CHECK(world.retries() == retry_counts{});
  }
  SECTION("the budget is used up") {
    virtual_options options = keeping_size();
    options.recovery.rebuilds = 1;
    virtual_world world{2, options};
    world.script().on(rank{1}).operation(0).fail();
    world.script().on(rank{0}).in(epoch{2}).operation(0).fail();
    const auto reply = world.ask(operands{world}.sums(), {.deadline = 300ms, .retry_safe = true});
    REQUIRE(reply.wait_for(200ms) == std::future_status::ready);
    CHECK_THAT(reply, fails_with(errc::communicator_failed) && has_unknown_outcome());
    CHECK(world.status().phase == world_phase::failed);
  }
  SECTION("the world is stopped") {
    virtual_world world{2, keeping_size()};
    world.script().on(rank{1}).operation(0).fail();
    world.script().on(rank{0}).aborting(0).delay(80ms);
    const auto reply = world.ask(operands{world}.sums(), {.retry_safe = true});
    REQUIRE(world.run_until_ready(epoch{2}, 1s));
    CHECK(world.stop(1s));
    CHECK_THAT(reply, fails_with(errc::communicator_failed) && has_unknown_outcome());
    CHECK(world.retries() == retry_counts{.put_aside = 1, .given_up = 1});
  }
}

TEST_CASE("a participant that has its answer keeps the others from being run again (ONE-1)", "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  const auto absent = GENERATE(true, false);
  const operands what{world};
  if (absent)
    world.script().on(rank{1}).operation(0).hang(); // what it says of its own part means nothing, but is an answer
  else
    world.script().on(rank{1}).operation(0).delay(40ms);
  const auto impatient = world.ask(rank{0}, what.sum(0), {.deadline = absent ? 300ms : 10ms, .retry_safe = true});
  const auto patient = world.ask(rank{1}, what.sum(1), {.retry_safe = true});
  if (!absent) {
    world.advance(20ms);
    world.end_rank(rank{0});
  }
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(impatient, fails_with(errc::deadline_exceeded) && has_unknown_outcome());
  if (!absent) CHECK_THAT(patient, fails_with(errc::abandoned) && has_unknown_outcome());
  world.advance(300ms);
  CHECK(launched_in(world, 2).empty());
  CHECK(world.retries() == retry_counts{});
}

TEST_CASE("what cannot be run again is refused at the door, with the reason", "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  const operands what{world};
  const auto in_place = world.ask(rank{0}, all_reduce{what.in[0], what.in[0], count}, {.retry_safe = true});
  CHECK_THAT(in_place, fails_with(errc::invalid_argument) && was_rejected());
  CHECK_THAT(error_in(in_place).text, ContainsSubstring("in place cannot be retry_safe"));
  const auto whole = world.ask(sums_of(what.in), {.retry_safe = true});
  CHECK_THAT(whole, fails_with(errc::invalid_argument) && was_rejected());
  CHECK_THAT(world.ask(what.sums(), {.retry_safe = true}).get(), succeeds());
}

TEST_CASE("an unknown outcome lists the memory that is undefined, of every rank of a request to the world (ONE-2)",
          "[runtime][retry]") {
  virtual_world world{2, keeping_size()};
  world.script().on(rank{1}).operation(0).fail();
  const operands what{world};
  const auto whole = world.ask(what.sums());
  const auto in_place = make_ranked<float>(world, count);
  std::vector<virtual_reply> ranks;
  for (int r = 0; r < 2; ++r) {
    const buffer& one = in_place[static_cast<std::size_t>(r)];
    ranks.push_back(world.ask(rank{r}, all_reduce{one, one, count}));
  }
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  const error failure = error_in(whole);
  REQUIRE(failure.undefined);
  CHECK(*failure.undefined == undefined_buffers{{rank{0}, device_id{0}, what.out[0].data(), count * sizeof(float)},
                                                {rank{1}, device_id{1}, what.out[1].data(), count * sizeof(float)}});
  CHECK_THAT(to_string(failure), ContainsSubstring("buffers are undefined: 64 bytes at 0x"));
  for (std::size_t r = 0; r < 2; ++r) {
    const error mine = error_in(ranks[r]);
    REQUIRE(mine);
    if (mine.effect == effect::rejected) {
      CHECK(mine.undefined == nullptr);
      continue;
    }
    REQUIRE(mine.undefined);
    CHECK(*mine.undefined == undefined_buffers{{rank{static_cast<int>(r)}, device_id{static_cast<int>(r)},
                                                in_place[r].data(), count * sizeof(float)}});
  }
}

TEST_CASE("requests under ordering::caller cannot be retry_safe", "[runtime][retry]") {
  virtual_options by_callers = keeping_size();
  by_callers.ordering = ordering::caller;
  virtual_world world{2, by_callers};
  const operands what{world};
  const auto alone = world.ask(rank{0}, what.sum(0), {.retry_safe = true});
  CHECK_THAT(alone, fails_with(errc::unsupported) && was_rejected());
  const auto whole = world.ask(what.sums(), {.retry_safe = true});
  CHECK_THAT(whole, fails_with(errc::unsupported) && was_rejected());
  CHECK_THAT(error_in(whole).text, ContainsSubstring("ordering::caller"));
}

} // namespace troupe::tests::retry_safe_test
