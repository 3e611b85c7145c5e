/// What a world's events say in words.
#include <troupe/actors/world/world_event.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

TEST_CASE("an event of a world says its size, its phase, and what it has lost and tried", "[actors]") {
  world_event event{.phase = world_phase::ready,
                    .epoch = epoch{1},
                    .world_size = 3,
                    .local_ranks = {rank{0}, rank{1}, rank{2}},
                    .reason = {}};
  CHECK(describe(event) == "world of 3 is ready (epoch 1, 3 ranks here)");
  event.is_suspended = true;
  CHECK(describe(event) == "world of 3 is ready (epoch 1, 3 ranks here); suspended, its memory released");
  event.is_suspended = false;
  event.one_shot = std::make_shared<const one_shot_status>(one_shot_status{.part_bytes = 64, .blocks = 8});
  CHECK(describe(event) == "world of 3 is ready (epoch 1, 3 ranks here); one-shot kernels up to 64 B, 8 blocks");
  event.one_shot = nullptr;
  event.epoch = epoch{4};
  event.lost = {{.origin = rank{1}, .last_in = epoch{1}}, {.origin = rank{4}, .last_in = epoch{3}}};
  event.recovery = std::make_shared<const std::vector<recovery_try>>(std::vector<recovery_try>{
      {.rung = recovery_rung::shrink, .took = 1250us, .failure = {.code = errc::internal, .text = "not here"}},
      {.rung = recovery_rung::abort_first, .took = 12ms}});
  const std::string tries = "; not by " + std::string{to_string(recovery_rung::shrink)} +
                            " in 1.2 ms (internal: not here), back by " +
                            std::string{to_string(recovery_rung::abort_first)} + " in 12.0 ms";
  CHECK(describe(event) == "world of 3 is ready (epoch 4, 3 ranks here); degraded: it began with 5, and rank 1 left it "
                           "after epoch 1, rank 4 left it after epoch 3" +
                               tries);
  event.lost.clear();
  event.restored = std::make_shared<const restoration>(restoration{{.kind = restored_kind::plan}});
  CHECK(describe(event) == "world of 3 is ready (epoch 4, 3 ranks here)" + tries + "; restoration: 1 plan under way");
  event.restored = nullptr;
  event.recovery = nullptr;
  event.resume = std::make_shared<const resume_points>();
  CHECK(describe(event) == "world of 3 is ready (epoch 4, 3 ranks here)");
  event.reason = {.code = errc::device_failed, .text = "it burns"};
  CHECK(describe(event) == "world of 3 is ready (epoch 4, 3 ranks here): " + to_string(event.reason));
}

TEST_CASE("restored objects are counted by kind, with their times and reasons", "[actors]") {
  const error why{.code = errc::internal, .text = "gone"};
  CHECK(describe(restoration{}).empty());
  const restoration all{
      {.kind = restored_kind::registration, .state = restored_state::back, .took = 200us},
      {.kind = restored_kind::plan, .number = 1, .state = restored_state::back, .took = 900us},
      {.kind = restored_kind::plan, .number = 2, .state = restored_state::back, .took = 600us},
      {.kind = restored_kind::plan, .number = 3},
      {.kind = restored_kind::plan, .number = 4},
      {.kind = restored_kind::plan, .number = 5, .state = restored_state::lost, .failure = why},
      {.kind = restored_kind::plan, .number = 6, .state = restored_state::lost, .failure = {.text = "another"}},
      {.kind = restored_kind::sub_world, .name = "left", .state = restored_state::back, .took = 40'200us},
      {.kind = restored_kind::sub_world, .name = "right", .state = restored_state::lost, .failure = why}};
  CHECK(describe(all) ==
        "1 registration in 0.2 ms, 2 plans in 1.5 ms (the slowest in 0.9 ms), 2 plans under way, 2 plans "
        "not (internal: gone), sub-world left in 40.2 ms, sub-world right not (internal: gone)");
  const restored_sum plans = sum_of(all, restored_kind::plan);
  CHECK(plans.back == 2);
  CHECK(plans.under_way == 2);
  CHECK(plans.lost == 2);
  CHECK(plans.took == 1500us);
  CHECK(plans.slowest == 900us);
  CHECK(in_tenths_of_milliseconds(59us) == "0.0 ms");
  CHECK(in_tenths_of_milliseconds(12'345us) == "12.3 ms");
}

} // namespace troupe::tests
