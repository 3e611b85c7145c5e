// checkpoints: the state at the last complete commit comes back after a fault, from a copy or from another rank.
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/runtime/checkpoints.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::checkpoints_test {

using Catch::Matchers::ContainsSubstring;
using testing::fault_script;

namespace {

constexpr int rank_count = 3;
constexpr std::size_t count = 1000;
using numbers = std::vector<float>;

/// \p hang: longer than any operation takes on a busy machine.
configuration settings_with(std::shared_ptr<fault_script> script, nanoseconds hang) {
  configuration settings = mock_settings(rank_count);
  settings.faults = std::move(script);
  settings.limits.hang = settings.limits.launch = hang;
  return settings;
}

/// The client of one rank: a lane, the state (a large and a small buffer), and its checkpoints.
struct client {
  client(const world& in, rank own) : where{in}, self{own}, lane{in, own, lane::named("checkpoints")} {}

  [[nodiscard]] std::vector<buffer> allocate() const {
    return {where.allocate(self, count * sizeof(float)), where.allocate(self, sizeof(float))};
  }
  void set(float value) {
    lane.write(numbers(count, value), state[0]).get();
    lane.write(numbers(1, -value), state[1]).get();
  }
  /// Returns the value that set() has set; nothing if the buffers are of different values.
  [[nodiscard]] std::optional<float> value() {
    const numbers large = lane.read<float>(state[0]).get();
    if (large != numbers(count, large[0]) || lane.read<float>(state[1]).get() != numbers{-large[0]}) return {};
    return large[0];
  }
  checkpoints::resumed resume(const world_event& now) {
    state = allocate();
    return saved->resume(now, state);
  }

  world where;
  rank self;
  rank_lane lane;
  std::vector<buffer> state = allocate();
  std::unique_ptr<checkpoints> saved = std::make_unique<checkpoints>(lane, state);
};

struct scene {
  explicit scene(nanoseconds hang = 1min) : owner{settings_with(script, hang)} {}

  /// Calls \p work for each rank, at the same time. Returns the errors, errc::none for success.
  std::vector<error> each(const std::function<void(client&)>& work) {
    std::vector<std::future<error>> ends;
    for (client& one : clients)
      ends.push_back(std::async(std::launch::async, [&] { return error_of([&] { work(one); }); }));
    std::vector<error> all;
    for (auto& one : ends) all.push_back(one.get());
    return all;
  }
  /// Does the same, and checks that all succeed. No other checks on these threads: Catch2 has none that are safe there.
  void succeed(const std::function<void(client&)>& work) {
    for (const error& why : each(work)) {
      INFO(to_string(why));
      CHECK(why.code == errc::none);
    }
  }
  void commit(std::uint64_t number, float value) {
    succeed([&](client& one) {
      one.set(value);
      one.saved->commit(number);
    });
  }
  /// Returns where each rank continues, with new memory.
  std::vector<checkpoints::resumed> resume(const world_event& now) {
    std::vector<checkpoints::resumed> all(clients.size());
    succeed([&](client& one) { all[static_cast<std::size_t>(one.self.value())] = one.resume(now); });
    return all;
  }
  /// Whether all ranks continue from \p number, by their own copies, with the state \p value.
  bool all_continue(const world_event& now, std::uint64_t number, float value) {
    for (const auto& at : resume(now))
      if (at.commit != number || at.received_from) return false;
    return std::ranges::all_of(clients, [&](client& one) { return one.value() == value; });
  }
  /// Ends the epoch by an operation that fails at rank 1, and returns the event of the next.
  world_event end_epoch() {
    const epoch before = where.epoch();
    script->on(rank{1}).next_operation().fail();
    CHECK(failure_of(where.barrier()));
    const world_event now = where.wait_ready(before, 30s);
    REQUIRE(now.phase == world_phase::ready);
    return now;
  }

  std::shared_ptr<fault_script> script = std::make_shared<fault_script>();
  runtime owner;
  world where = owner.form_world();
  std::vector<client> clients{[this] {
    std::vector<client> made;
    made.reserve(rank_count); // checkpoints refer to the lanes
    for (const rank self : where.local_ranks()) made.emplace_back(where, self);
    return made;
  }()};
};

} // namespace

TEST_CASE("after a fault each rank continues from its copy of the last complete commit (CUT-1)",
          "[runtime][checkpoints]") {
  scene on;
  for (const auto& begun : on.resume(on.where.status())) {
    CHECK_FALSE(begun.commit);
    CHECK_FALSE(begun.received_from);
  }
  for (std::uint64_t number = 1; number <= 6; ++number) {
    on.commit(number, static_cast<float>(number));
    if (number % 3 != 0) continue;
    on.succeed([](client& one) { one.set(1000); }); // overwritten after the commit
    CHECK(on.all_continue(on.end_epoch(), number, static_cast<float>(number)));
  }
  CHECK(on.all_continue(on.end_epoch(), 6, 6)); // again, without a commit between: the copy is still there
}

TEST_CASE("a commit that only one rank has seen succeed counts at none (CUT-1)", "[runtime][checkpoints]") {
  scene on{2s};
  on.commit(1, 1);
  on.commit(2, 2);
  on.script->on(rank{1}).next_operation().hang(); // the barrier of the commit: copies do not reach the communicator
  const auto ends = on.each([](client& one) {
    one.set(3);
    one.saved->commit(3);
  });
  CHECK(ends[0].code != errc::none);
  CHECK(ends[1].code == errc::none); // its part was withheld, and its stream has passed the place
  CHECK(ends[2].code != errc::none);
  const world_event now = on.where.wait_ready(epoch{1}, 30s);
  REQUIRE(now.phase == world_phase::ready);
  CHECK(on.all_continue(now, 2, 2));
  on.commit(3, 5); // the number is free again
  CHECK(on.all_continue(on.end_epoch(), 3, 5));
}

TEST_CASE("an event of an epoch in which a rank has committed does not cost the copies", "[runtime][checkpoints]") {
  scene on;
  const world_event first = on.where.status();
  on.commit(1, 1);
  for (const error& why : on.each([&](client& one) { one.saved->resume(first); })) {
    CHECK(why.code == errc::stale_epoch); // for example, because the world has not noticed a fault yet
    CHECK_THAT(why.text, ContainsSubstring("epoch 1") && ContainsSubstring("wait_ready"));
  }
  const world_event now = on.end_epoch();
  CHECK(on.all_continue(now, 1, 1));
  for (const error& why : on.each([&](client& one) { one.saved->resume(now); })) CHECK(why.code == errc::stale_epoch);
  CHECK(on.all_continue(on.end_epoch(), 1, 1));
}

TEST_CASE("a rank without a copy receives the state of the lowest rank that has one", "[runtime][checkpoints]") {
  scene on;
  on.succeed([](client& one) {
    one.set(static_cast<float>(one.self.value() + 1)); // not the same at all ranks
    one.saved->commit(7);
  });
  client& fresh = on.clients[0]; // as in a process that has replaced rank 0's
  fresh.saved = std::make_unique<checkpoints>(fresh.lane, fresh.state);
  const auto at = on.resume(on.end_epoch());
  for (const auto& one : at) CHECK(one.commit == 7);
  CHECK(at[0].received_from == rank{1});
  CHECK_FALSE(at[1].received_from);
  CHECK_FALSE(at[2].received_from);
  CHECK(fresh.value() == 2.F);
  CHECK(on.clients[1].value() == 2.F);
  CHECK(on.clients[2].value() == 3.F);
  for (const auto& one : on.resume(on.end_epoch())) CHECK_FALSE(one.received_from); // what was received is a copy, too
  CHECK(fresh.value() == 2.F);
}

TEST_CASE("if no rank has the state of the last commit, all ranks are told so", "[runtime][checkpoints]") {
  scene on;
  on.commit(7, 1);
  for (client& one : on.clients) one.saved = std::make_unique<checkpoints>(one.lane, one.state);
  const world_event now = on.end_epoch();
  for (const error& why : on.each([&](client& one) { one.resume(now); })) {
    CHECK(why.code == errc::missing);
    CHECK_THAT(why.text, ContainsSubstring("commit 7") && ContainsSubstring("lane checkpoints"));
  }
  on.commit(8, 2); // they have acknowledged the epoch, and begin anew
  CHECK(on.all_continue(on.end_epoch(), 8, 2));
}

TEST_CASE("checkpoints refuse other memory than theirs, and a world without resume points", "[runtime][checkpoints]") {
  scene on;
  client& one = on.clients[0];
  const world_event now = on.where.status();
  CHECK(code_of([&] { one.saved->resume(now, {one.state[0]}); }) == errc::invalid_argument);
  CHECK(code_of([&] { one.saved->resume(now, {one.state[1], one.state[0]}); }) == errc::invalid_argument);

  configuration settings = mock_settings(1);
  settings.ordering = ordering::caller;
  runtime by_callers{settings};
  world where = by_callers.form_world();
  rank_lane lane{where, rank{0}, lane::named("checkpoints")};
  CHECK(code_of([&] { checkpoints{lane, {}}; }) == errc::unsupported);
}

TEST_CASE("a copy that fails is not committed", "[runtime][checkpoints]") {
  scene on;
  const lane elsewhere = lane::named("checkpoints/elsewhere");
  rank_lane lane{on.where, rank{0}, elsewhere};
  checkpoints wrong{lane, {on.where.allocate(rank{1}, 64)}}; // another rank's memory
  CHECK(code_of([&] { wrong.commit(1); }) == errc::wrong_device);
  std::vector<rank_lane> peers;
  std::vector<std::future<completion>> replies;
  for (const rank self : {rank{1}, rank{2}}) {
    peers.emplace_back(on.where, self, elsewhere);
    replies.push_back(peers.back().commit(1, {.deadline = 50ms}));
  }
  for (auto& one : replies) { // rank 0 has not asked
    const error why = failure_of(std::move(one));
    CHECK(why.code != errc::none);
    CHECK(why.effect == effect::rejected);
  }
}

} // namespace troupe::tests::checkpoints_test
