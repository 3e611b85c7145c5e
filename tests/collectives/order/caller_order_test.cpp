// What a world without an order of its own does: ordering::caller over processes, and between two epochs.
#include "support/ordering_rig.hpp"

#include <troupe/collectives/order/caller_order.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests::caller_order_test {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("without an order, turns are granted at once, and requests are launched as they are asked",
          "[collectives][sequencing]") {
  ordering_rig rig{2};
  caller_order one{{rig.sets[0][1]}}; // this process has the second of two ranks
  int granted = 0;
  one.turn({.name = "work", .deadline = 1ms}, [&granted](const error& why, std::span<const opened_world> opened) {
    CHECK_FALSE(why);
    CHECK(opened.empty());
    ++granted;
  });
  CHECK(granted == 1);
  const outcome_log log;
  one.ask(rank{1},
          {.what = rig.sum(1, 4), .name = ticket{7}, .deadline = 1h, .reply = log.make_reply_promise(), .client = 3});
  rig.settle();
  CHECK(rig.notes[1]->size() == 1); // it has not waited for the other rank
  CHECK(rig.notes[0]->empty());
  const world_entry entry = one.entry();
  CHECK_FALSE(entry.here);
  CHECK_FALSE(entry.peers);
  CHECK_FALSE(one.opens_sub_worlds());
  CHECK_FALSE(one.ending());
  CHECK_FALSE(one.close({.code = errc::stopping}, true));
  CHECK_FALSE(one.leave({.code = errc::stopping}));
}

TEST_CASE("without an order, captures are refused", "[collectives][sequencing][plans]") {
  ordering_rig rig{2};
  caller_order one{{rig.sets[0][1]}};
  CHECK(one.objection_to_capture().code == errc::unsupported);
  CHECK_THAT(one.objection_to_capture().text, ContainsSubstring("only 1 of the world's 2 ranks"));
  error told;
  one.capture(std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{}), 1h, 1h,
              [&told](const std::shared_ptr<capture_agreement>& peers, const error& why) {
                CHECK_FALSE(peers);
                told = why;
              });
  CHECK(told.code == errc::unsupported);
}

} // namespace troupe::tests::caller_order_test
