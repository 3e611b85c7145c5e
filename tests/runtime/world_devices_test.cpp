// Worlds on chosen devices of one runtime (world_options::devices).
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::world_devices_test {

using Catch::Matchers::ContainsSubstring;
using testing::fault_script;

namespace {

constexpr std::size_t count = 64;

std::vector<device_id> numbers(std::initializer_list<int> all) {
  std::vector<device_id> made;
  for (const int one : all) made.emplace_back(one);
  return made;
}

std::vector<device_id> devices_of(const world& where) {
  std::vector<device_id> all;
  for (const rank self : where.local_ranks()) all.push_back(where.device_of(self)->id());
  return all;
}

void check_sum(world& where) {
  const auto values = ranked_values(where, count);
  CHECK_FALSE(failure_of(where.all_reduce(values, values, count, dtype::f32, reduction::sum)));
  for (const rank self : where.local_ranks())
    CHECK(read_back(where, self, values[static_cast<std::size_t>(self.value())]) ==
          std::vector<float>(count, ranked_sum(where.size())));
}

} // namespace

TROUPE_WORLD_TEST(4, "worlds of one runtime form on the devices that are named, in that order", "[runtime][devices]") {
  settings.ranks = 4;
  runtime rt{settings};
  world rollouts = rt.form_world({.devices = numbers({3, 1})});
  world trainer = rt.form_world({.devices = numbers({0, 2})});
  world all = rt.form_world(); // shares each device with one of them
  CHECK(devices_of(rollouts) == numbers({3, 1}));
  CHECK(devices_of(trainer) == numbers({0, 2}));
  CHECK(devices_of(all) == numbers({0, 1, 2, 3}));
  for (world* const one : {&rollouts, &trainer, &all}) check_sum(*one);
  rollouts.stop();
  for (world* const one : {&trainer, &all}) check_sum(*one);
}

TEST_CASE("devices that do not exist or are named twice are refused before anything is made", "[runtime][devices]") {
  configuration settings = mock_settings(3);
  runtime rt{settings};
  const auto refusal = [&](std::initializer_list<int> named) {
    const error why = error_of([&] { static_cast<void>(rt.form_world({.devices = numbers(named)})); });
    CHECK(why.code == errc::invalid_argument);
    return why.text;
  };
  CHECK_THAT(refusal({0, 3}), ContainsSubstring("device 3") && ContainsSubstring("devices 0 to 2"));
  CHECK_THAT(refusal({-1}), ContainsSubstring("device -1"));
  CHECK_THAT(refusal({1, 0, 1}), ContainsSubstring("device 1 twice"));
  CHECK_THAT(refusal({0, 1, 2, 0}), ContainsSubstring("device 0 twice"));
  for (int i = 0; i < 3; ++i) CHECK(mock_of(rt).used_bytes(device_id{i}) == 0); // no device has been opened
  world where = rt.form_world({.devices = numbers({2})});
  CHECK(devices_of(where) == numbers({2}));
  CHECK(where.size() == 1);
}

TEST_CASE("a process that holds one rank of a larger world names no devices", "[runtime][devices]") {
  configuration settings = mock_settings(2);
  settings.position = process_position{.rank = 0, .world_size = 2};
  runtime rt{settings};
  const error why = error_of([&] {
    static_cast<void>(rt.form_world({.devices = numbers({0, 1}), .id = rt.make_unique_id()}));
  });
  CHECK(why.code == errc::invalid_argument);
  CHECK_THAT(why.text, ContainsSubstring("one rank of a world over processes"));
}

TEST_CASE("a fault of one world leaves a world on other devices serving in its epoch", "[runtime][devices][FLT-1]") {
  const auto script = std::make_shared<fault_script>();
  configuration settings = mock_settings(5);
  settings.faults = script;
  settings.limits.hang = settings.limits.launch = 2s; // longer than any operation takes on a busy machine
  runtime rt{settings};
  world trainer = rt.form_world({.devices = numbers({0, 1, 2})});
  world rollouts = rt.form_world({.devices = numbers({3, 4})});
  check_sum(trainer);
  check_sum(rollouts);
  SECTION("a hang") {
    script->on(rank{2}).next_operation().hang(); // only the trainer has a rank 2
    const auto values = ranked_values(trainer, count);
    auto hung = trainer.all_reduce(values, values, count, dtype::f32, reduction::sum);
    for (int i = 0; i < 20; ++i) check_sum(rollouts); // beside the hang, its abort and the rebuild
    CHECK(failure_of(std::move(hung)).effect == effect::unknown_outcome);
  }
  SECTION("a lost device") {
    mock_of(rt).fail_next(device_id{2}, {.code = errc::device_failed, .text = "the test says so"});
    CHECK(failure_of(trainer.barrier()).code == errc::device_failed);
  }
  check_sum(rollouts);
  const world_event now = trainer.wait_ready(epoch{1}, 30s);
  CHECK(now.phase == world_phase::ready);
  CHECK(now.epoch == epoch{2});
  CHECK(rollouts.epoch() == epoch{1});
  CHECK(rollouts.status().phase == world_phase::ready);
  check_sum(trainer);
  check_sum(rollouts);
}

} // namespace troupe::tests::world_devices_test
