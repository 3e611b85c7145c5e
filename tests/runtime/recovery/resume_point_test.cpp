/// What clients are told after a fault about where to continue (CUT-1).
#include "support/outcomes.hpp"

#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe::tests::resume_point_test {

using namespace troupe::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t count = 16;

virtual_options keeping_size() {
  return {.recovery = {.policy = recovery_policy::keep_size, .rebuilds = 8}};
}

/// Every rank asks for the commit \p number in \p where.
std::vector<virtual_reply> commit(virtual_world& world, lane where, std::uint64_t number, epoch in) {
  std::vector<virtual_reply> all;
  for (const rank self : world.local_ranks())
    all.push_back(world.ask(self, {.what = barrier{.commit = number}, .epoch = in, .lane = where}));
  return all;
}
std::vector<virtual_reply> add(virtual_world& world, const std::vector<buffer>& values, lane where, epoch in) {
  std::vector<virtual_reply> all;
  for (const rank self : world.local_ranks()) {
    const buffer& mine = values[static_cast<std::size_t>(self.value())];
    all.push_back(world.ask(self, {.what = all_reduce{mine, mine, count}, .epoch = in, .lane = where}));
  }
  return all;
}
void get(const std::vector<virtual_reply>& all) {
  for (const auto& one : all) static_cast<void>(one.get());
}

} // namespace

TEST_CASE("after a fault every event names the last commit that is complete (CUT-1)", "[runtime][resume]") {
  virtual_world world{3, keeping_size()};
  const lane steps = lane::named("resume/steps");
  const auto values = make_ranked<float>(world, count);
  CHECK(world.status().resume == nullptr);
  get(commit(world, steps, 7, epoch{1}));
  get(add(world, values, steps, epoch{1}));
  get(commit(world, steps, 8, epoch{1}));
  world.script().on(rank{2}).operation(3).fail();
  const auto lost = add(world, values, steps, epoch{1});
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  for (const auto& one : lost) CHECK_THAT(one, has_unknown_outcome());
  REQUIRE(world.status().resume);
  const resume_point* const reached = find_point(*world.status().resume, steps);
  REQUIRE(reached != nullptr);
  CHECK(reached->complete == 3);
  CHECK(reached->commit == 8);
  CHECK(reached->incomplete == 1);
  REQUIRE(reached->later.size() == 1);
  CHECK(reached->later[0].position == 3);

  SECTION("positions go on in the next epoch") {
    get(commit(world, steps, 9, epoch{2}));
    world.script().on(rank{0}).operation(1).fail();
    static_cast<void>(add(world, values, steps, epoch{2}));
    REQUIRE(world.run_until_ready(epoch{3}, 1s));
    CHECK(find_point(*world.status().resume, steps)->complete == 4);
    CHECK(find_point(*world.status().resume, steps)->commit == 9);
  }
}

TEST_CASE("an operation that has succeeded at one rank alone is not complete, and both ranks are named (CUT-1)",
          "[runtime][resume]") {
  virtual_world world{2, keeping_size()};
  const lane steps = lane::named("resume/copies");
  const auto values = make_ranked<float>(world, count);
  get(commit(world, steps, 1, epoch{1}));
  const buffer target = world.allocate(rank{0}, count * sizeof(float));
  static_cast<void>(world.ask(rank{0}, {.what = copy{values[0], target}, .lane = steps}).get());
  world.script().on(rank{1}).operation(1).hang();
  const auto hung = add(world, values, steps, epoch{1});
  REQUIRE(world.run_until_ready(epoch{2}, 10min));
  CHECK_THAT(hung[0], has_unknown_outcome()); // its peer's part never comes
  CHECK_THAT(hung[1], succeeds());            // its stream goes on without the operation
  const resume_point* const reached = find_point(*world.status().resume, steps);
  REQUIRE(reached != nullptr);
  CHECK(reached->complete == 2);
  REQUIRE(reached->later.size() == 1);
  CHECK(reached->later[0].succeeded == std::vector{rank{1}});
  CHECK(reached->later[0].unknown == std::vector{rank{0}});
}

TEST_CASE("requests to the world have a resume point of their own, with commits", "[runtime][resume]") {
  virtual_world world{2, keeping_size()};
  const auto values = make_ranked<float>(world, count);
  CHECK(world.commit(3).get().epoch == epoch{1});
  world.script().on(rank{0}).operation(1).fail();
  const auto lost = world.all_reduce(values, values, count, dtype::f32, reduction::sum);
  REQUIRE(world.run_until_ready(epoch{2}, 1s));
  CHECK_THAT(lost, has_unknown_outcome());
  const resume_point* const reached = find_point(*world.status().resume, std::nullopt);
  REQUIRE(reached != nullptr);
  CHECK(reached->complete == 1);
  CHECK(reached->commit == 3);
}

TEST_CASE("ranks must give a commit the same number (ORD-2)", "[runtime][resume]") {
  virtual_world world{2, keeping_size()};
  const lane steps = lane::named("resume/numbers");
  const auto one = world.ask(rank{0}, {.what = barrier{.commit = 1}, .lane = steps});
  const auto other = world.ask(rank{1}, {.what = barrier{.commit = 2}, .lane = steps});
  CHECK_THAT(one, fails_with(errc::mismatch));
  CHECK_THAT(other, fails_with(errc::mismatch));
  const auto large = world.ask(rank{0}, {.what = barrier{.commit = barrier::most_commit + 1}, .lane = steps});
  CHECK_THAT(large, fails_with(errc::invalid_argument));
}

} // namespace troupe::tests::resume_point_test
