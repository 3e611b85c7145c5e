/// Two tests of serving_loop_test.cpp for GoogleTest, which prints troupe's values in words and has the same matchers.
#include "serving_loop.hpp"

#include <troupe/testing/gtest.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace std::chrono_literals;
using namespace troupe::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

namespace {

/// A server on four ranks, which a rank's fault does not end.
class ServingLoop : public ::testing::Test {
protected:
  /// Submits three requests, and runs a turn of the server every 100 µs of virtual time until they are answered.
  void serve() {
    for (const float number : {1.F, 2.F, 3.F}) server.submit(number);
    for (int turns = 0; turns < 10'000 && server.answers().size() < 3; ++turns) {
      server.turn();
      world.advance(100us);
    }
  }

  static constexpr std::size_t width = 8;
  virtual_world world{4, {.recovery = {.policy = troupe::recovery_policy::keep_size}}};
  serving_loop<virtual_world> server{world, width};
};

} // namespace

TEST_F(ServingLoop, ServesRequestsInOrder) {
  serve();
  EXPECT_THAT(server.answers(), ElementsAre(4, 8, 12));
  EXPECT_EQ(server.repeats(), 0);
}

// [hang]
TEST_F(ServingLoop, RepeatsARequestThatFailedBecauseOfAHang) {
  world.script().on(troupe::rank{2}).operation(1).hang(); // the second request
  serve();
  EXPECT_THAT(server.answers(), ElementsAre(4, 8, 12));
  EXPECT_EQ(server.repeats(), 1);
  EXPECT_EQ(world.epoch(), troupe::epoch{2});
  const auto is_sum = is_launch("all_reduce", width);
  EXPECT_THAT(world.script().launches(troupe::rank{2}),
              ElementsAre(AllOf(is_sum, was(launch_fate::launched)), AllOf(is_sum, was(launch_fate::withheld)),
                          AllOf(is_sum, launched_in(troupe::epoch{2})), AllOf(is_sum, launched_in(troupe::epoch{2}))));
  EXPECT_THAT(world.script().waiting(), IsEmpty());
}
// [hang]
