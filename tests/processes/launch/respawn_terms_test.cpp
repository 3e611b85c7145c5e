/// How often and how soon a process is started again, and what is decided without a controller.

#include <troupe/processes/launch/respawn_policy.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using launch::after_exit;
using launch::exit_status;
using launch::respawn_policy;
using instant = std::chrono::steady_clock::time_point;

launch::launch_plan plan_of(std::size_t processes, std::size_t spares) {
  return launch::make_launch_plan({.processes = processes, .spares = spares, .program = "sh"});
}

} // namespace

TEST_CASE("without a controller, a process that dies is started again until it has been too often", "[launch]") {
  const auto plan = plan_of(2, 1);
  respawn_policy policy{plan, {.budget = {.count = 2}, .hasty = 0s}};
  const exit_status died{.signal = 9};
  CHECK(policy.on_exit(0, true, died, instant{}).what == after_exit::respawn);
  const auto second = policy.on_exit(0, true, died, instant{});
  CHECK(second.what == after_exit::respawn);
  CHECK(second.delay == 500ms);
  CHECK(second.reason == "is started again in 500ms (2 of 2 within 600s)");
  // Each place has a budget of its own.
  CHECK(policy.on_exit(1, true, {.code = 1}, instant{}).what == after_exit::respawn);
  const auto third = policy.on_exit(0, true, died, instant{});
  CHECK(third.what == after_exit::end_job);
  CHECK(third.reason == "has been started again too often (2 within 600s)");
  // A spare that does not live is no reason to end what does.
  CHECK(policy.on_exit(2, true, died, instant{}).what == after_exit::respawn);
  CHECK(policy.on_exit(2, true, died, instant{}).what == after_exit::respawn);
  CHECK(policy.on_exit(2, true, died, instant{}).what == after_exit::done);
}

TEST_CASE("a place where no process has joined is given up after two quick ends, others are not", "[launch]") {
  const auto plan = plan_of(2, 1);
  respawn_policy policy{plan, {.hasty = 1h}};
  const auto ends = [&](launch::place_index place, exit_status how = {.code = 1}) {
    policy.on_started(place, instant{});
    return policy.on_exit(place, true, how, instant{1min}).what;
  };
  CHECK(ends(0) == after_exit::respawn);
  CHECK(ends(0) == after_exit::end_job);
  policy.on_joined(1);
  for (int i = 0; i < 5; ++i) CHECK(ends(1) == after_exit::respawn);
  CHECK(ends(2) == after_exit::respawn);
  CHECK(ends(2) == after_exit::done); // a spare
}

TEST_CASE("a spare that took a rank, and a process that is needed again, keep the job from ending", "[launch]") {
  const auto plan = plan_of(2, 1);
  respawn_policy policy{plan, {.budget = {.count = 2}}};
  const auto ends_well = [&](launch::place_index place) { return policy.on_exit(place, true, {}, instant{}).what; };
  policy.on_rank(2);
  policy.on_rank(2); // in the next epoch
  CHECK(ends_well(0) == after_exit::done);
  CHECK(policy.on_wanted(0, instant{}) == 0s);
  CHECK(ends_well(1) == after_exit::done);
  CHECK(ends_well(0) == after_exit::done);
  CHECK(policy.on_wanted(1, instant{}) == 0s);
  CHECK(ends_well(2) == after_exit::done);
  CHECK(ends_well(1) == after_exit::end_job);
  CHECK(policy.on_wanted(0, instant{}) == 500ms);
  CHECK_FALSE(policy.on_wanted(0, instant{})); // the budget of the place is spent
}

TEST_CASE("without a controller, the job ends when all but the spares are done", "[launch]") {
  const auto plan = plan_of(2, 1);
  respawn_policy policy{plan, {}};
  CHECK(policy.on_exit(2, true, {}, instant{}).what == after_exit::done);
  CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::done);
  CHECK(policy.on_exit(1, true, {}, instant{}).what == after_exit::end_job);
}

TEST_CASE("an end is hasty before a time, without a world and after a start, and only ends in a row count",
          "[launch]") {
  const auto plan = plan_of(1, 1);
  respawn_policy policy{plan, {.hasty = 10s}};
  const auto ends_after = [&](std::chrono::nanoseconds time, bool has_run = true, exit_status how = {.code = 1}) {
    policy.on_started(0, instant{1h});
    return policy.on_exit(0, has_run, how, instant{1h + time}).what;
  };
  CHECK(ends_after(9999ms) == after_exit::respawn);
  CHECK(ends_after(10s) == after_exit::respawn);
  CHECK(ends_after(9999ms) == after_exit::respawn);
  CHECK(ends_after(0s, false) == after_exit::respawn);
  CHECK(ends_after(0s) == after_exit::respawn);
  CHECK(ends_after(0s) == after_exit::end_job);
  const auto hasty = policy.on_exit(1, true, {.code = 1}, instant{});
  CHECK(hasty.what == after_exit::respawn);
  CHECK(hasty.delay == 0s);
  CHECK(hasty.reason == "is started again (1 of 10 within 600s)");
  CHECK(policy.on_exit(1, true, {.code = 1}, instant{}).reason ==
        "has ended twice within 10s of its start without joining a world, so it is not started again and is given up");
}

TEST_CASE("without respawns, no end is too hasty", "[launch]") {
  const auto plan = plan_of(1, 1);
  respawn_policy policy{plan, {.budget = {.count = 0}}};
  for (int i = 0; i < 3; ++i) {
    const auto decision = policy.on_exit(1, true, {.code = 1}, instant{});
    CHECK(decision.what == after_exit::done);
    CHECK(decision.reason == "is given up");
  }
}

TEST_CASE("a spare beyond its budget is given up with the reason", "[launch]") {
  const auto plan = plan_of(1, 1);
  respawn_policy policy{plan, {.budget = {.count = 1}, .hasty = 0s}};
  CHECK(policy.on_exit(1, true, {.code = 1}, instant{}).what == after_exit::respawn);
  CHECK(policy.on_exit(1, true, {.code = 1}, instant{}).reason ==
        "has been started again too often (1 within 600s) and is given up");
}

TEST_CASE("a place that is done counts once, however often it is filled again", "[launch]") {
  const auto plan = plan_of(2, 0);
  respawn_policy policy{plan, {}};
  for (int i = 0; i < 4; ++i) CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::done);
  CHECK(policy.on_exit(1, true, {}, instant{}).what == after_exit::end_job);
}

TEST_CASE("a place is waited for again only if it was done, and is started again", "[launch]") {
  const auto plan = plan_of(2, 0);
  respawn_policy policy{plan, {.budget = {.count = 2}, .hasty = 0s}};
  CHECK(policy.on_exit(0, true, {.signal = 9}, instant{}).what == after_exit::respawn);
  CHECK(policy.on_wanted(0, instant{})); // it has not been done
  CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::done);
  CHECK_FALSE(policy.on_wanted(0, instant{})); // beyond its budget
  CHECK(policy.on_exit(1, true, {}, instant{}).what == after_exit::end_job);
}

TEST_CASE("a spare counts whenever it has a rank", "[launch]") {
  const auto plan = plan_of(1, 1);
  respawn_policy policy{plan, {}};
  for (int i = 0; i < 2; ++i) {
    policy.on_rank(1);
    CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::done);
    CHECK(policy.on_exit(1, true, {}, instant{}).what == after_exit::end_job);
    CHECK(policy.on_wanted(0, instant{}));
  }
  CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::end_job);
}

TEST_CASE("a spare that dies with its rank leaves it to whoever follows", "[launch]") {
  const auto plan = plan_of(1, 1);
  respawn_policy policy{plan, {.hasty = 0s}};
  policy.on_rank(1);
  CHECK(policy.on_exit(1, true, {.signal = 9}, instant{}).what == after_exit::respawn);
  CHECK(policy.on_exit(1, true, {}, instant{}).what == after_exit::done);
  CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::end_job);
}

TEST_CASE("a process that has a rank of its own takes no further one", "[launch]") {
  const auto plan = plan_of(1, 0);
  respawn_policy policy{plan, {}};
  policy.on_rank(0);
  CHECK(policy.on_exit(0, true, {}, instant{}).what == after_exit::end_job);
}

TEST_CASE("without respawns, a process that dies ends the job", "[launch]") {
  const auto plan = plan_of(2, 0);
  respawn_policy policy{plan, {.budget = {.count = 0}}};
  const auto decision = policy.on_exit(0, true, {.code = 3}, instant{});
  CHECK(decision.what == after_exit::end_job);
  CHECK(decision.reason.empty());
}

} // namespace troupe::tests
