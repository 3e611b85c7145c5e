// Requests that are taken back, or whose client or time ends: nobody hangs, and nobody gets out of step.
#include "collectives/order/sequencer_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;
using operations = sequencer_rig::operations;

TEST_CASE("a cancellation is reported to peers that have asked and to those that will, and the lane continues",
          "[collectives][sequencing]") {
  sequencer_rig rig{3};
  rig.ask(0, sum_of(8));
  rig.ask(1, sum_of(8));
  CHECK(rig.cancel(1, 0));
  CHECK_FALSE(rig.cancel(1, 0));
  CHECK_FALSE(rig.cancel(2, 0));
  CHECK_FALSE(rig.cancel(1, 0, lane::named("nobody asked here")));
  CHECK(rig.code("0/0") == errc::cancelled);
  CHECK(rig.code("1/0") == errc::cancelled);
  CHECK_THAT(rig.text("0/0"), ContainsSubstring("rank 1 cancelled all_reduce of 8 f32, sum in lane default"));
  for (int r = 0; r < 3; ++r) rig.ask(r, sum_of(9));
  CHECK(rig.code("2/0") == errc::cancelled);
  CHECK(rig.released.empty());
  rig.ask(2, sum_of(9));
  CHECK(rig.released == operations{{"0/1", "1/1", "2/1"}});
  CHECK_FALSE(rig.cancel(0, 1));
}

TEST_CASE("a request behind a cancelled one is released when nothing else is before it", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, from(1));   // 0/0
  rig.ask(0, sum_of(1)); // 0/1
  rig.ask(0, copy{});    // 0/2
  rig.ask(1, sum_of(1)); // 1/0
  CHECK(rig.released.empty());
  CHECK(rig.cancel(0, 0));
  CHECK(rig.released == operations{{"0/1", "1/0"}, {"0/2"}});
}

TEST_CASE("operations withdrawn in any order are forgotten as everybody comes by", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, from(1)); // holds up the lane of rank 0
  for (int i = 0; i < 3; ++i) {
    rig.ask(0, sum_of(1)); // 0/1 …
    rig.ask(1, sum_of(1)); // 1/0 …
  }
  CHECK(rig.cancel(0, 2)); // the middle one, to which all have come
  CHECK(rig.cancel(0, 0));
  CHECK(rig.released == operations{{"0/1", "1/0"}, {"0/3", "1/2"}});
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("a client that ends withdraws all that it waits for in its lanes, and no more", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  const lane mine = lane::named("mine");
  const lane second = lane::named("second");
  const lane others = lane::named("others");
  rig.ask(0, sum_of(1), {.lane = mine, .client = 7});   // 0/0
  rig.ask(0, copy{}, {.lane = mine, .client = 7});      // 0/1: must not be released on the way
  rig.ask(0, to(1), {.lane = second, .client = 7});     // 0/2
  rig.ask(0, sum_of(2), {.lane = others, .client = 8}); // 0/3
  rig.ask(1, sum_of(1), {.lane = mine});                // 1/0
  CHECK(rig.released == operations{{"0/0", "1/0"}, {"0/1"}});
  rig.ask(0, sum_of(1), {.lane = mine, .client = 7}); // 0/4
  rig.ask(0, copy{}, {.lane = mine, .client = 7});    // 0/5
  rig.withdraw(0, 7, {.code = errc::abandoned, .effect = effect::unknown_outcome, .text = "client 7 is gone"});
  for (const auto* name : {"0/2", "0/4", "0/5"}) {
    CHECK(rig.code(name) == errc::abandoned);
    CHECK(rig.refused.at(name).effect == effect::rejected);
  }
  CHECK(rig.order.waiting() == 1); // 0/3
  rig.ask(1, sum_of(1), {.lane = mine});
  CHECK(rig.code("1/1") == errc::cancelled);
  CHECK_THAT(rig.text("1/1"),
             ContainsSubstring("rank 0 withdrew all_reduce of 1 f32") && ContainsSubstring("client 7 is gone"));
  rig.ask(1, from(0), {.lane = second});
  CHECK(rig.code("1/2") == errc::cancelled);
}

TEST_CASE("a request that waits past its deadline learns which ranks are missing, and so do its peers",
          "[collectives][sequencing]") {
  sequencer_rig rig{4};
  const lane decode = lane::named("decode");
  rig.ask(2, barrier{}, {.lane = decode, .asked = at_ms(0)});
  rig.ask(0, sum_of(1024), {.lane = decode, .asked = at_ms(1000), .deadline = at_ms(3000)});
  rig.ask(1, sum_of(1024), {.lane = decode, .asked = at_ms(2000), .deadline = at_ms(9000)});
  CHECK(rig.order.next_due() == at_ms(3000));
  rig.expire(2999);
  CHECK(rig.refused.empty());
  rig.expire(3000);
  // Their first collective is rank 2's barrier: it is told, too.
  CHECK(rig.code("0/0") == errc::deadline_exceeded);
  CHECK(rig.refused.at("0/0").effect == effect::rejected);
  CHECK_THAT(rig.text("0/0"),
             ContainsSubstring("all_reduce of 1024 f32, sum in lane decode has waited 2.0 s: rank 3 has not asked, "
                               "ranks 0, 1, 2 have; rank 3 has asked for nothing yet"));
  CHECK(rig.code("1/0") == errc::cancelled);
  CHECK_THAT(rig.text("1/0"), ContainsSubstring("rank 0 gave up after 2.0 s"));
  CHECK(rig.code("2/0") == errc::cancelled);
  const absence_report& report = *rig.absences.at("1/0");
  CHECK(rig.absences.at("0/0").get() == &report);
  CHECK(report.missing() == std::vector{rank{3}});
  CHECK(report.waited == std::chrono::seconds{2});
  CHECK(report.world == rig.world);
  CHECK(report.lane == decode);
  REQUIRE(report.ranks.size() == 4);
  CHECK(report.ranks[2].last_asked->what == "barrier");
  CHECK(report.ranks[1].last_asked->what == "all_reduce of 1024 f32, sum");
  CHECK(report.ranks[1].last_asked->position == 0);
  CHECK_FALSE(report.ranks[3].last_asked);
  CHECK(rig.order.next_due() == time_point::max());
  rig.ask(3, sum_of(1024), {.lane = decode});
  CHECK(rig.code("3/0") == errc::cancelled);
  CHECK(rig.absences.at("3/0").get() == &report);
  for (int r = 0; r < 4; ++r) rig.ask(r, barrier{}, {.lane = decode});
  CHECK(rig.released.size() == 1);
}

TEST_CASE("all who are due at once are told that their own time is over", "[collectives][sequencing]") {
  sequencer_rig rig{3};
  rig.ask(0, barrier{}, {.asked = at_ms(0), .deadline = at_ms(100)});
  rig.ask(1, barrier{}, {.asked = at_ms(50), .deadline = at_ms(90)});
  rig.expire(100);
  CHECK(rig.code("0/0") == errc::deadline_exceeded);
  CHECK(rig.code("1/0") == errc::deadline_exceeded);
  CHECK(rig.refused.at("1/0").rank == rank{1});
}

TEST_CASE("a transfer's report names its two ranks, and what holds up the lane where both have asked",
          "[collectives][sequencing]") {
  sequencer_rig rig{3};
  rig.ask(0, to(2, 7), {.asked = at_ms(0), .deadline = at_ms(100)});
  rig.expire(100);
  CHECK(rig.absences.at("0/0")->missing() == std::vector{rank{2}});
  CHECK_FALSE(rig.absences.at("0/0")->ranks[1].participates);
  rig.ask(2, from(0, 7));
  CHECK(rig.code("2/0") == errc::cancelled);

  rig.ask(0, to(1, 1), {.asked = at_ms(200), .deadline = at_ms(300)}); // crossed with the other's order
  rig.ask(0, to(1, 2), {.asked = at_ms(200)});
  rig.ask(1, from(0, 2), {.asked = at_ms(200)});
  rig.ask(1, from(0, 1), {.asked = at_ms(200)});
  CHECK(rig.released.empty());
  rig.expire(300);
  CHECK_THAT(rig.text("0/1"),
             ContainsSubstring("waits behind other requests of ranks 0, 1") && ContainsSubstring("different lanes"));
  CHECK(rig.released == operations{{"0/2", "1/0"}});
}

TEST_CASE("an operation that waits long is told of once, before its deadline", "[collectives][sequencing]") {
  sequencer_rig rig{3, {.straggling = std::chrono::milliseconds{100}}};
  rig.ask(0, barrier{}, {.asked = at_ms(0), .deadline = at_ms(1000)});
  rig.ask(1, barrier{}, {.asked = at_ms(50), .deadline = at_ms(1000)});
  rig.ask(1, to(2), {.lane = lane::named("p2p"), .asked = at_ms(80), .deadline = at_ms(1000)});
  CHECK(rig.order.next_due() == at_ms(100));
  rig.expire(100);
  REQUIRE(rig.straggling.size() == 1);
  CHECK(rig.straggling.front()->what == "barrier");
  CHECK(rig.straggling.front()->waited == std::chrono::milliseconds{100});
  CHECK(rig.straggling.front()->missing() == std::vector{rank{2}});
  CHECK(rig.order.next_due() == at_ms(180));
  rig.expire(180);
  CHECK(rig.straggling.size() == 2);
  CHECK(rig.order.next_due() == at_ms(1000));
  rig.expire(900);
  CHECK(rig.straggling.size() == 2);
  CHECK(rig.refused.empty());
  rig.ask(2, barrier{}, {.asked = at_ms(900)});
  rig.ask(2, from(1), {.lane = lane::named("p2p"), .asked = at_ms(900)});
  CHECK(rig.released.size() == 2);
  CHECK(rig.order.next_due() == time_point::max());
}

TEST_CASE("each operation of a lane that waits long is told of in its time", "[collectives][sequencing]") {
  sequencer_rig rig{3, {.straggling = std::chrono::milliseconds{100}}};
  rig.ask(0, barrier{}, {.asked = at_ms(0), .deadline = at_ms(1000)});
  rig.ask(0, barrier{}, {.asked = at_ms(30), .deadline = at_ms(1000)});
  rig.ask(0, barrier{}, {.asked = at_ms(60), .deadline = at_ms(1000)});
  for (const auto& [now, told] : {std::pair{99, 0U}, {100, 1U}, {129, 1U}, {130, 2U}, {160, 3U}, {999, 3U}}) {
    CAPTURE(now);
    rig.expire(now);
    CHECK(rig.straggling.size() == told);
  }
  CHECK(rig.order.next_due() == at_ms(1000));
  rig.expire(1000);
  CHECK(rig.refused.size() == 3);
  CHECK(rig.order.next_due() == time_point::max());
  rig.expire(2000);
  CHECK(rig.straggling.size() == 3);
}

TEST_CASE("an operation that is refused at the time at which it waits long is not told of",
          "[collectives][sequencing]") {
  sequencer_rig rig{3, {.straggling = std::chrono::milliseconds{100}}};
  rig.ask(0, barrier{}, {.asked = at_ms(0), .deadline = at_ms(1000)});
  rig.ask(1, barrier{}, {.asked = at_ms(0), .deadline = at_ms(150)});
  rig.expire(200); // late
  CHECK(rig.straggling.empty());
  CHECK(rig.code("1/0") == errc::deadline_exceeded);
  CHECK(rig.refused.contains("0/0"));
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("a closure of transfers waits since its first request, a collective since its own first",
          "[collectives][sequencing]") {
  sequencer_rig rig{3, {.straggling = std::chrono::milliseconds{100}}};
  const bool is_last_alone = GENERATE(false, true);
  rig.ask(0, to(1), {.asked = at_ms(0), .deadline = at_ms(1000)});
  if (is_last_alone)
    rig.ask(1, group{{from(0), to(2)}}, {.asked = at_ms(50), .deadline = at_ms(1000)});
  else
    rig.ask(1, group{{from(0), from(2)}}, {.asked = at_ms(50), .deadline = at_ms(1000)});
  rig.expire(99);
  CHECK(rig.straggling.empty());
  rig.expire(100);
  REQUIRE(rig.straggling.size() == 1);
  rig.expire(200);
  CHECK(rig.straggling.size() == 1);

  sequencer_rig again{2, {.straggling = std::chrono::milliseconds{100}}};
  for (int self = 0; self < 2; ++self) again.ask(self, sum_of(8), {.asked = at_ms(0), .deadline = at_ms(1000)});
  REQUIRE(again.released.size() == 1);
  again.ask(0, sum_of(8), {.asked = at_ms(500), .deadline = at_ms(1000)});
  again.ask(0, copy{}, {.asked = at_ms(500), .deadline = at_ms(550)}); // behind it
  again.expire(550);
  CHECK(again.code("0/2") == errc::deadline_exceeded);
  CHECK(again.straggling.empty());
  again.expire(600);
  CHECK(again.straggling.size() == 1);
}

TEST_CASE("a report of many ranks names the first few", "[collectives][sequencing]") {
  sequencer_rig rig{100};
  rig.ask(0, barrier{}, {.deadline = at_ms(150)});
  rig.expire(150);
  CHECK_THAT(rig.text("0/0"), ContainsSubstring("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more have not asked, rank 0 has"));
  CHECK(describe(std::chrono::milliseconds{20}) == "20.0 ms");
  CHECK(describe(std::chrono::microseconds{3}) == "3.0 us");
}

TEST_CASE("a client that cancels for ever behind a silent peer is bounded, in that lane alone",
          "[collectives][sequencing]") {
  sequencer_rig rig{2, {.lead = 4}};
  for (std::uint64_t i = 0; i < 4; ++i) {
    rig.ask(0, sum_of(8));
    CHECK(rig.cancel(0, i));
  }
  CHECK(rig.order.waiting() == 0);
  rig.ask(0, sum_of(8)); // 0/4
  CHECK(rig.code("0/4") == errc::busy);
  CHECK_THAT(rig.text("0/4"), ContainsSubstring("4 requests of rank 0 in lane default wait or were cancelled before "
                                                "its peers reached them, and the limit is 4"));
  const lane other = lane::named("not bounded");
  rig.ask(0, sum_of(8), {.lane = other}); // 0/5
  CHECK(rig.code("0/5") == errc::none);
  rig.ask(1, sum_of(8)); // the peer comes to the first of them: one place is free
  rig.ask(0, sum_of(8)); // 0/6
  CHECK(rig.code("0/6") == errc::none);
  rig.ask(0, sum_of(8)); // 0/7
  CHECK(rig.code("0/7") == errc::busy);
  for (int i = 0; i < 4; ++i) rig.ask(1, sum_of(8));
  CHECK(rig.released == operations{{"0/6", "1/4"}});
  for (int i = 0; i < 4; ++i) {
    rig.ask(0, sum_of(8)); // all four places are free again
    rig.ask(1, sum_of(8));
  }
  CHECK(rig.released.size() == 5);
}

TEST_CASE("sends that are taken back for ever are bounded too, until their receives have come",
          "[collectives][sequencing]") {
  sequencer_rig rig{2, {.lead = 2}};
  for (std::uint64_t i = 0; i < 2; ++i) {
    rig.ask(0, to(1));
    CHECK(rig.cancel(0, i));
  }
  rig.ask(0, to(1)); // 0/2
  CHECK(rig.code("0/2") == errc::busy);
  rig.ask(1, from(0)); // 1/0
  CHECK(rig.code("1/0") == errc::cancelled);
  rig.ask(0, to(1)); // 0/3
  CHECK(rig.code("0/3") == errc::none);
  for (int i = 0; i < 2; ++i) rig.ask(1, from(0));
  CHECK(rig.released == operations{{"0/3", "1/2"}});
}

TEST_CASE("copies that are taken back behind a request that waits take places until it goes",
          "[collectives][sequencing]") {
  sequencer_rig rig{2, {.lead = 3}};
  rig.ask(0, from(1)); // waits at the head
  for (std::uint64_t i = 1; i < 3; ++i) {
    rig.ask(0, copy{});
    CHECK(rig.cancel(0, i));
  }
  rig.ask(0, copy{}); // 0/3
  CHECK(rig.code("0/3") == errc::busy);
  rig.ask(1, to(0));
  rig.ask(0, copy{}); // 0/4
  CHECK(rig.code("0/4") == errc::none);
}
