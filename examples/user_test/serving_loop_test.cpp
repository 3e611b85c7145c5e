/// Tests the server of serving_loop.hpp in virtual time, where hangs and rebuilds take no real time.
#include "serving_loop.hpp"

#include <troupe/testing/catch2.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;
using namespace troupe::testing;

namespace {

constexpr std::size_t width = 8;

/// Runs one turn of \p server every 100 µs of virtual time until there are \p count answers.
void serve(serving_loop<virtual_world>& server, virtual_world& world, std::size_t count) {
  for (int turns = 0; turns < 10'000 && server.answers().size() < count; ++turns) {
    server.turn();
    world.advance(100us);
  }
}

} // namespace

TEST_CASE("requests are served in order") {
  virtual_world world{4};
  serving_loop server{world, width};
  for (const float number : {1.F, 2.F, 3.F}) server.submit(number);
  serve(server, world, 3);
  CHECK(server.answers() == std::vector{4.F, 8.F, 12.F});
  CHECK(server.repeats() == 0);
}

TEST_CASE("a request that failed because of a hang is repeated in the next epoch, and served once") {
  virtual_world world{4, {.recovery = {.policy = troupe::recovery_policy::keep_size}}};
  world.script().on(troupe::rank{2}).operation(1).hang(); // the second request
  serving_loop server{world, width};
  for (const float number : {1.F, 2.F, 3.F}) server.submit(number);
  serve(server, world, 3);
  CHECK(server.answers() == std::vector{4.F, 8.F, 12.F});
  CHECK(server.repeats() == 1);
  CHECK(world.epoch() == troupe::epoch{2});
  CHECK(world.now() < 100ms); // limits.hang detects the hang after 50 ms
  const auto is_sum = is_launch("all_reduce", width);
  const auto seen = world.script().launches(troupe::rank{2});
  CHECK_THAT(seen, are_launches(is_sum && was(launch_fate::launched), is_sum && was(launch_fate::withheld),
                                is_sum && launched_in(troupe::epoch{2}), is_sum && launched_in(troupe::epoch{2})));
  CHECK(seen[2].by->request != seen[1].by->request); // the server repeated the request; troupe did not retry it
  CHECK(world.script().waiting().empty());
}

TEST_CASE("a permanent failure of the world is reported") {
  virtual_world world{4, {.recovery = {.policy = troupe::recovery_policy::fail_fast}}};
  world.script().on(troupe::rank{0}).operation(0).fail();
  serving_loop server{world, width};
  server.submit(1.F);
  CHECK_THROWS_AS(serve(server, world, 1), troupe::exception);
  CHECK(server.answers().empty());
}
