/// How pending requests are answered when a fault ends their epoch, and that no later epoch launches them.
#include "support/outcomes.hpp"

#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::tests::fault_outcomes_test {

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
    const std::size_t sum = in.size() * (in.size() + 1) / 2;
    const std::vector<float> summed(elements, static_cast<float>(sum));
    return std::ranges::all_of(out, [&](const buffer& one) { return values_of<float>(one) == summed; });
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

/// Each rank of the world asks for its part of \p what in \p in, in the present epoch.
std::vector<virtual_reply> ask_ranks(virtual_world& world, const operands& what, lane in = {}) {
  std::vector<virtual_reply> all;
  for (const rank self : world.local_ranks())
    all.push_back(world.ask(self, {.what = what.sum(self.value()), .epoch = world.epoch(), .lane = in}));
  return all;
}

} // namespace

TEST_CASE("an operation launched before a fault has an unknown outcome, one that not all ranks had asked for is "
          "rejected (ONE-2)",
          "[runtime][ONE-1]") {
  virtual_options options = keeping_size();
  options.seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{10}));
  virtual_world world{2, options};
  world.script().on(rank{1}).operation(0).fail();
  const operands waits{world};
  const operands fails{world};
  const auto alone = world.ask(rank{0}, {.what = waits.sum(0), .lane = lane::named("waits")});
  const auto failing = ask_ranks(world, fails);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  world.advance(200ms);
  CHECK_THAT(failing[1], fails_with(errc::communicator_failed) && has_unknown_outcome());
  // Rank 0 may learn of the fault before it has launched its part.
  if (launched_in(world, 1, rank{0}).empty())
    CHECK_THAT(failing[0], fails_with(errc::communicator_failed) && was_rejected());
  else
    CHECK_THAT(failing[0], fails_with(errc::communicator_failed) && has_unknown_outcome());
  CHECK_THAT(alone, fails_with(errc::communicator_failed) && was_rejected());
  CHECK(launched_in(world, 1, rank{1}) == std::vector{count});
  CHECK(launched_in(world, 2).empty());
  CHECK(world.forbidden_waits() == 0);
}

TEST_CASE("requests behind a launch that does not return are rejected, and can be asked again in the same order",
          "[runtime][ONE-2][ORD-1]") {
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
  world.advance(1ms);
  std::vector<operands> queued;
  for (std::size_t i = 1; i <= 3; ++i) queued.emplace_back(world, i);
  const auto ask_all = [&] {
    std::vector<virtual_reply> replies;
    for (const operands& one : queued)
      for (const virtual_reply& reply : ask_ranks(world, one, mine)) replies.push_back(reply);
    return replies;
  };
  const auto rejected = ask_all();
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(first, fails_with(errc::deadline_exceeded) && has_unknown_outcome());
  for (const auto& one : rejected) CHECK_THAT(one, fails_with(errc::deadline_exceeded) && was_rejected());
  CHECK(launched_in(world, 2).empty());
  for (const auto& one : ask_all()) CHECK(one.get().epoch == epoch{2});
  CHECK(world.now() < 120ms); // the aborts have not ended
  for (const auto& one : queued) CHECK(one.are_summed());
  CHECK(launched_in(world, 1) == std::vector<std::size_t>{9});
  for (int r = 0; r < 2; ++r) CHECK(launched_in(world, 2, rank{r}) == std::vector<std::size_t>{1, 2, 3});
}

TEST_CASE("memory that was lost while the world formed again is refused in the next epoch", "[runtime][BUF-2]") {
  virtual_world world{2, keeping_size()};
  world.script().on(rank{1}).operation(0).fail();
  const operands what{world};
  const auto first = world.ask(what.sums());
  REQUIRE(world.run_until([&] { return world.status().phase == world_phase::rebuilding; }, 1s));
  world.device_of(rank{1})->declare_memory_lost();
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(first, fails_with(errc::communicator_failed) && has_unknown_outcome());
  const auto again = world.ask(what.sums());
  CHECK_THAT(again, fails_with(errc::stale_buffer) && was_rejected());
  CHECK(error_in(again).ticket);
  CHECK(launched_in(world, 2).empty());
  CHECK_THAT(world.ask(operands{world}.sums()).get(), succeeds());
}

TEST_CASE("where an abort is given up what was launched has been answered, and the next epoch serves (ONE-1, TIM-1)",
          "[runtime][ONE-2]") {
  virtual_world world{2, keeping_size()}; // deadlines.abort is 100 ms
  world.script().on(rank{1}).operation(0).fail();
  world.script().on(rank{0}).aborting(0).delay(150ms);
  const operands what{world};
  const auto replies = ask_ranks(world, what);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  for (const auto& one : replies) CHECK_THAT(one, fails_with(errc::communicator_failed) && has_unknown_outcome());
  world.advance(250ms);
  CHECK(launched_in(world, 2).empty());
  CHECK_THAT(world.ask(operands{world}.sums()).get(), succeeds());
}

TEST_CASE("each epoch's requests are answered with its own fault, those of the last one too (ONE-1, FLT-1)",
          "[runtime][EPO-1]") {
  virtual_options options = keeping_size();
  const bool recovers = GENERATE(false, true);
  options.recovery = recovers ? recovery_terms{.policy = recovery_policy::keep_size, .rebuilds = 1}
                              : recovery_terms{.policy = recovery_policy::fail_fast};
  virtual_world world{2, options};
  world.script().on(rank{1}).in(epoch{1}).operation(0).fail();
  world.script().on(rank{0}).in(epoch{2}).operation(0).fail();
  std::vector<virtual_reply> replies{world.ask(operands{world}.sums())};
  if (recovers) {
    REQUIRE(world.run_until_ready(epoch{2}, 1s));
    replies.push_back(world.ask(operands{world}.sums()));
  }
  REQUIRE(world.run_until([&] { return world.status().phase == world_phase::failed; }, 1s));
  for (std::size_t i = 0; i < replies.size(); ++i) {
    REQUIRE(replies[i].wait_for(200ms) == std::future_status::ready); // the world knows a moment earlier
    CHECK_THAT(replies[i], fails_with(errc::communicator_failed) && has_unknown_outcome());
    CHECK(error_in(replies[i]).epoch == epoch{i + 1});
  }
  CHECK_THAT(world.ask(operands{world}.sums()), fails_with(errc::world_failed) && was_rejected());
}

TEST_CASE("a deadline and the end of a rank's actor answer the parts of one operation once each (ONE-1, ONE-2)",
          "[runtime]") {
  virtual_world world{2, keeping_size()};
  const operands what{world};
  world.script().on(rank{1}).operation(0).delay(40ms);
  const auto impatient = world.ask(rank{0}, what.sum(0), {.deadline = 10ms});
  const auto patient = world.ask(rank{1}, what.sum(1));
  world.advance(20ms);
  world.end_rank(rank{0});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(impatient, fails_with(errc::deadline_exceeded) && has_unknown_outcome());
  CHECK_THAT(patient, fails_with(errc::abandoned) && has_unknown_outcome());
  world.advance(300ms);
  CHECK(launched_in(world, 2).empty());
}

TEST_CASE("an unknown outcome lists the memory that is undefined, of every rank of a request to the world (ONE-2)",
          "[runtime]") {
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

} // namespace troupe::tests::fault_outcomes_test
