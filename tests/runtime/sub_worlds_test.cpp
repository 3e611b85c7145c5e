// Worlds that are split off: named groups, meshes, one order of launches, and how they end.
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/runtime/mesh.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <thread>

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using troupe::tests::comes_true;
using troupe::tests::error_of;
using troupe::tests::held_client;
using troupe::tests::mock_settings;
using troupe::tests::reaches;

namespace {

/// BLK-2: as few scheduler threads as there can be.
configuration one_worker(configuration settings) {
  settings.scheduler_threads = 1;
  return settings;
}

rank_group group_of(std::string name, std::initializer_list<int> members) {
  rank_group made{.name = std::move(name), .members = {}};
  for (const int one : members) made.members.emplace_back(one);
  return made;
}

/// Every rank's buffer of one number.
std::vector<buffer> numbers(const world& where, const std::vector<float>& values) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) {
    const auto at = static_cast<std::size_t>(self.value());
    const buffer host = where.allocate_pinned(sizeof(float));
    host.host_span<float>()[0] = values.at(at);
    made.push_back(where.allocate(self, sizeof(float)));
    world asked = where;
    static_cast<void>(asked.copy(self, host, made.back()).get());
  }
  return made;
}

float number_in(const world& where, rank self, const buffer& memory) {
  const buffer host = where.allocate_pinned(sizeof(float));
  world asked = where;
  static_cast<void>(asked.copy(self, memory, host).get());
  return host.host_span<float>()[0];
}

/// All ranks' sum of \p values, as every rank sees it; NaN where they differ. Called from threads, so it checks
/// nothing.
float sum_of(world where, const std::vector<float>& values) {
  const auto memory = numbers(where, values);
  static_cast<void>(where.all_reduce(memory, memory, 1, dtype::f32, reduction::sum).get());
  const float first = number_in(where, rank{0}, memory.front());
  for (const rank self : where.local_ranks())
    if (number_in(where, self, memory[static_cast<std::size_t>(self.value())]) != first)
      return std::numeric_limits<float>::quiet_NaN();
  return first;
}

TEST_CASE("a world tells how its sub-worlds came back, or that they did not", "[runtime][recovery]") {
  configuration settings = mock_settings(2);
  const bool comes_back = GENERATE(true, false);
  settings.recovery.policy = comes_back ? recovery_policy::keep_size : recovery_policy::fail_fast;
  runtime rt{settings};
  world whole = rt.form_world();
  whole.split({group_of("first", {0})}).front().handle->stop();
  world pair = *whole.split({group_of("pair", {0, 1})}).front().handle;
  CHECK_FALSE(whole.status().restored); // nothing had to come back
  compat::post(
      caf::actor_cast<world_inner_handle>(actor_of(pair)),
      world_notice{rank_report{rank_report::kind::faulted,
                               rank{1},
                               epoch{1},
                               {.code = errc::communicator_failed, .text = "the test says so", .rank = rank{1}}}});
  REQUIRE(comes_true([&] { return whole.status().restored != nullptr; }));
  const world_event now = whole.status();
  CHECK(now.phase == world_phase::ready);
  CHECK(now.epoch == epoch{1});
  REQUIRE(now.restored->size() == 1);
  const restored_part& told = now.restored->front();
  CHECK(told.kind == restored_kind::sub_world);
  CHECK(told.number == 1);
  CHECK(told.name == "pair");
  CHECK(told.state == (comes_back ? restored_state::back : restored_state::lost));
  CHECK(told.failure.code == (comes_back ? errc::none : errc::communicator_failed));
  nanoseconds took{0};
  if (comes_back) {
    REQUIRE(pair.status().recovery);
    for (const recovery_try& one : *pair.status().recovery) took += one.took;
    CHECK(took > 0ns);
  }
  CHECK(told.took == took);
}

TEST_CASE("groups of a world in one process may be larger than a message to a controller", "[runtime]") {
  runtime rt{one_worker(mock_settings(2))};
  world whole = rt.form_world();
  auto parts = whole.split({group_of(std::string(100'000, 'n'), {0, 1})});
  CHECK_NOTHROW(static_cast<void>(parts.front().handle->barrier().get()));
}

} // namespace

TROUPE_WORLD_TEST(4, "a world splits into named groups, also overlapping ones, and serves on itself", "[runtime]") {
  runtime rt{one_worker(settings)};
  world whole = rt.form_world();
  auto made = whole.split({group_of("front", {0, 1}), group_of("back", {3, 2}), group_of("odd", {1, 3, 2}),
                           group_of("alone", {2}), group_of("all", {3, 2, 1, 0})});
  REQUIRE(made.size() == 5);
  CHECK(made[0].group.name == "front");
  CHECK(made[0].handle->size() == 2);
  CHECK(sum_of(*made[0].handle, {1, 2}) == 3);
  CHECK(sum_of(*made[1].handle, {8, 16}) == 24);
  CHECK(sum_of(*made[2].handle, {1, 3, 5}) == 9);
  CHECK(sum_of(*made[3].handle, {9}) == 9);
  CHECK(sum_of(*made[4].handle, {1, 1, 1, 1}) == 4);
  CHECK(sum_of(whole, {1, 2, 3, 4}) == 10);
  // Rank 0 of "back" is rank 3 of the whole: its memory is that rank's device's.
  CHECK(made[1].handle->device_of(rank{0})->id() == whole.device_of(rank{3})->id());
}

TEST_CASE("a mesh has a world along each axis for every place on the others", "[runtime]") {
  runtime rt{one_worker(mock_settings(6))};
  const mesh grid = mesh::form(rt.form_world(), mesh_shape{{{"dp", 3}, {"tp", 2}}});
  for (int r = 0; r < 6; ++r) {
    CHECK(grid.along("tp", rank{r}).size() == 2);
    CHECK(grid.along("dp", rank{r}).size() == 3);
    CHECK(grid.rank_along("tp", rank{r}) == rank{r % 2});
    CHECK(grid.rank_along("dp", rank{r}) == rank{r / 2});
  }
  CHECK(sum_of(grid.along("dp", rank{1}), {1, 3, 5}) == 9);
  CHECK(sum_of(grid.along("tp", rank{4}), {4, 5}) == 9);
  CHECK_THAT(error_of([&] { static_cast<void>(grid.along("pp", rank{0})); }).text, ContainsSubstring("no axis pp"));
  CHECK_THAT(error_of([&] {
               static_cast<void>(mesh::form(grid.whole(), mesh_shape{{{"tp", 4}}}));
             }).text,
             ContainsSubstring("4 ranks, and the world has 6"));
}

TEST_CASE("a split that makes no sense is refused, and the world serves on", "[runtime]") {
  runtime rt{one_worker(mock_settings(2))};
  world whole = rt.form_world();
  const auto refusal = [&](std::vector<rank_group> groups) {
    return error_of([&] { static_cast<void>(whole.split(std::move(groups))); });
  };
  CHECK_THAT(refusal({}).text, ContainsSubstring("at least one group"));
  CHECK_THAT(refusal({group_of("", {0})}).text, ContainsSubstring("no name"));
  CHECK_THAT(refusal({group_of("a", {0}), group_of("a", {1})}).text, ContainsSubstring("called a"));
  CHECK_THAT(refusal({group_of("a", {})}).text, ContainsSubstring("no ranks"));
  CHECK_THAT(refusal({group_of("a", {0, 2})}).text, ContainsSubstring("rank 2 of group a"));
  CHECK_THAT(refusal({group_of("a", {1, 1})}).text, ContainsSubstring("twice"));
  CHECK(sum_of(whole, {1, 2}) == 3);
}

TEST_CASE("a sub-world for which there is no completion slot says what takes them, and the world serves on",
          "[runtime]") {
  runtime rt{one_worker(mock_settings(1))};
  world whole = rt.form_world();
  std::vector<rank_group> many;
  for (int i = 0; i < 256; ++i) many.push_back(group_of("world " + std::to_string(i), {0})); // as many as slots
  const error why = error_of([&] { static_cast<void>(whole.split(many)); });
  CHECK(why.code == errc::out_of_memory);
  CHECK_THAT(why.text, ContainsSubstring("all 256 completion slots") && ContainsSubstring("Stop worlds"));
  CHECK(sum_of(whole, {1}) == 1);
}

TROUPE_WORLD_TEST(3, "requests that come while a world splits wait, and are served after it", "[runtime][ORD-1]") {
  runtime rt{one_worker(settings)};
  world whole = rt.form_world();
  const auto memory = numbers(whole, {1, 1, 1});
  std::vector<std::future<completion>> asked;
  std::jthread client{[&] {
    for (int i = 0; i < 200; ++i) asked.push_back(whole.all_reduce(memory, memory, 1, dtype::f32, reduction::max));
  }};
  for (int i = 0; i < 10; ++i)
    for (auto& one : whole.split({group_of("pair", {0, 2})})) one.handle->stop();
  client.join();
  for (auto& one : asked) CHECK_NOTHROW(static_cast<void>(one.get())); // ONE-1
}

TROUPE_WORLD_TEST(4, "several worlds on the same GPUs are asked at once from many threads, and none waits for ever",
                  "[runtime][ORD-1][BLK-2]") {
  runtime rt{one_worker(settings)};
  const mesh grid = mesh::form(rt.form_world(), mesh_shape{{{"dp", 2}, {"tp", 2}}});
  std::vector<world> worlds{grid.whole()};
  for (const char* axis : {"dp", "tp"})
    for (const int r : {0, 3}) worlds.push_back(grid.along(axis, rank{r}));
  std::vector<std::jthread> clients;
  std::atomic<int> right{0};
  for (std::size_t c = 0; c < 8; ++c)
    clients.emplace_back([&, c] {
      for (std::size_t i = 0; i < 50; ++i) {
        world& where = worlds[(c + i) % worlds.size()];
        std::vector<float> values(static_cast<std::size_t>(where.size()), 1.0F);
        if (sum_of(where, values) == static_cast<float>(where.size())) ++right;
      }
    });
  clients.clear();
  CHECK(right == 8 * 50);
}

TROUPE_WORLD_TEST(2, "worlds that were split off end with their parent, and their handles say so", "[runtime]") {
  runtime rt{one_worker(settings)};
  world whole = rt.form_world();
  world pair = *whole.split({group_of("pair", {1, 0})}).front().handle;
  world grandchild = *pair.split({group_of("one", {1})}).front().handle;
  whole.stop();
  CHECK(pair.status().phase == world_phase::stopped);
  CHECK(grandchild.status().phase == world_phase::stopped);
  CHECK(whole.status().phase == world_phase::stopped);
}

TEST_CASE("a split that is asked for while the world waits for its sub-worlds to stop is refused", "[runtime]") {
  runtime rt{one_worker(mock_settings(2))};
  world whole = rt.form_world();
  world pair = *whole.split({group_of("pair", {0, 1})}).front().handle;
  const auto memory = numbers(pair, {1, 2});
  const held_client held{pair.device_of(rank{0})};
  const std::vector<operand> inputs{held.after(memory[0]), memory[1]};
  auto pending = pair.all_reduce(inputs, memory, 1, dtype::f32, reduction::sum); // until the client's work is done
  auto stopped = std::async(std::launch::async, [&] { whole.stop(); });
  CHECK(reaches(pair, world_phase::stopping));
  auto refusal = std::async(std::launch::async, [&] {
    return error_of([&] {
      for (auto& one : whole.split({group_of("late", {0, 1})})) one.handle->stop();
    });
  });
  const bool is_answered = refusal.wait_for(20s) == std::future_status::ready;
  held.open();
  CHECK(is_answered);
  CHECK(refusal.get().code == errc::stopping);
  CHECK_NOTHROW(static_cast<void>(pending.get()));
  CHECK_NOTHROW(stopped.get());
  CHECK(whole.status().phase == world_phase::stopped);
}
