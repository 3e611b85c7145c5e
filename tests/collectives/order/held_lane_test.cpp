// A lane that is held: nothing is released there for a while, and then everything in its order.
#include "collectives/order/sequencer_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests::held_lane_test {

using Catch::Matchers::ContainsSubstring;
using operations = sequencer_rig::operations;

namespace {

const lane held = lane::named("held");

} // namespace

TEST_CASE("a held lane keeps collectives, transfers and copies, and other lanes go on",
          "[collectives][sequencing][retry][ORD-1]") {
  sequencer_rig rig{2};
  rig.order.hold(rig.world, held);
  rig.ask(0, held, sum_of(1)); // 0/0
  rig.ask(1, held, sum_of(1)); // 1/0
  rig.ask(0, held, copy{});    // 0/1
  rig.ask(0, held, to(1));     // 0/2
  rig.ask(1, held, from(0));   // 1/1
  rig.ask(0, sum_of(2));       // 0/3
  rig.ask(1, sum_of(2));       // 1/2
  CHECK(rig.released == operations{{"0/3", "1/2"}});
  CHECK(rig.order.waiting() == 5);
  rig.resume(held);
  CHECK(rig.released == operations{{"0/3", "1/2"}, {"0/0", "1/0"}, {"0/1"}, {"0/2", "1/1"}});
  CHECK(rig.order.waiting() == 0);
  rig.ask(0, held, copy{}); // 0/4
  CHECK(rig.released.back() == std::vector<std::string>{"0/4"});
  CHECK(rig.doubled == 0);
}

TEST_CASE("what heads a held lane of each rank is found again, a transfer or a copy too",
          "[collectives][sequencing][retry]") {
  sequencer_rig rig{3};
  rig.order.hold(rig.world, held);
  rig.ask(0, held, to(1));   // 0/0
  rig.ask(1, held, from(0)); // 1/0
  rig.ask(2, held, copy{});  // 2/0
  rig.ask(0, held, sum_of(1));
  rig.ask(1, held, sum_of(1));
  CHECK(rig.released.empty());
  rig.resume(held);
  CHECK(rig.released == operations{{"0/0", "1/0"}, {"2/0"}});
  rig.ask(2, held, sum_of(1));
  CHECK(rig.released.back() == std::vector<std::string>{"0/1", "1/1", "2/1"});
}

TEST_CASE("what is taken back from a held lane, or has no time left there, is gone when it goes on (ONE-1)",
          "[collectives][sequencing][retry][ONE-1]") {
  sequencer_rig rig{2};
  rig.order.hold(rig.world, held);
  rig.ask(0, sum_of(1), {.lane = held, .asked = at_ms(0), .deadline = at_ms(10)}); // 0/0
  rig.ask(1, sum_of(1), {.lane = held, .asked = at_ms(0), .deadline = at_ms(90)}); // 1/0
  rig.ask(0, held, sum_of(2));                                                     // 0/1
  rig.ask(1, held, sum_of(2));                                                     // 1/1
  rig.ask(0, held, sum_of(3));                                                     // 0/2
  rig.ask(1, held, sum_of(3));                                                     // 1/2
  rig.expire(20);
  CHECK(rig.code("0/0") == errc::deadline_exceeded);
  CHECK_THAT(rig.text("0/0"), ContainsSubstring("requests from before a fault go first in the lane"));
  CHECK(rig.code("1/0") == errc::cancelled);
  CHECK(rig.cancel(1, 1, held));
  CHECK(rig.code("0/1") == errc::cancelled);
  CHECK(rig.released.empty());
  rig.resume(held);
  CHECK(rig.released == operations{{"0/2", "1/2"}});
  CHECK(rig.doubled == 0);
}

TEST_CASE("a lane that nobody holds, or that is not there, goes on as it is", "[collectives][sequencing][retry]") {
  sequencer_rig rig{1};
  rig.resume(held);
  rig.order.hold(rig.world + 7, held);
  rig.ask(0, held, sum_of(1));
  CHECK(rig.released == operations{{"0/0"}});
  rig.close({.code = errc::stopping});
  rig.order.hold(rig.world, held);
  rig.resume(held);
  CHECK(rig.released.size() == 1);
}

} // namespace troupe::tests::held_lane_test
