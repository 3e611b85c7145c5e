// Ranks that leave, lanes that are retired and worlds that are closed: what is refused, with which words, and what goes
// on.
#include "collectives/order/sequencer_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <memory>
#include <string>
#include <vector>

namespace troupe::tests::departures_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using operations = sequencer_rig::operations;

const error gone{.code = errc::rank_lost, .effect = effect::unknown_outcome, .text = "rank 2 is gone"};

} // namespace

TEST_CASE("a rank that leaves takes along what needs it, and what needs only others goes on",
          "[collectives][sequencing]") {
  sequencer_rig rig{4};
  const lane free = lane::named("departures/free");
  rig.ask(0, from(2));                                       // 0/0: needs it
  rig.ask(0, to(1));                                         // 0/1: stood behind that
  rig.ask(1, from(0));                                       // 1/0
  rig.ask(1, sum_of(1));                                     // 1/1: needs all
  rig.ask(3, to(1, 5));                                      // 3/0: waits for rank 1, which waits for the sum
  rig.ask(3, group{{to(1, 6), from(2, 6)}}, {.lane = free}); // 3/1
  rig.ask(2, to(3, 9), {.lane = free});                      // 2/0: its own
  CHECK(rig.released.empty());
  rig.leave(2, gone);
  CHECK(rig.released == operations{{"0/1", "1/0"}});
  for (const auto& [name, who] : {std::pair{"0/0", 0}, {"1/1", 1}, {"3/1", 3}, {"2/0", 2}}) {
    CAPTURE(name);
    REQUIRE(rig.refused.contains(name));
    CHECK(rig.code(name) == errc::rank_lost);
    CHECK(rig.text(name) == "rank 2 is gone");
    CHECK(rig.refused.at(name).effect == effect::rejected);
    CHECK(rig.refused.at(name).rank == rank{who});
  }
  CHECK(rig.order.waiting() == 1); // 3/0
  rig.ask(1, from(3, 5));
  CHECK(rig.released.size() == 2);

  // What comes later and needs it is refused, too.
  for (const auto& name :
       {rig.ask(0, sum_of(1)), rig.ask(0, to(2)), rig.ask(0, from(2)), rig.ask(0, group{{to(1), from(2)}}),
        rig.ask(0, barrier{}), rig.ask(2, copy{}), rig.ask(2, to(0))}) {
    CAPTURE(name);
    CHECK(rig.code(name) == errc::rank_lost);
    CHECK(rig.refused.at(name).effect == effect::rejected);
    CHECK(rig.refused.at(name).rank == rank{name[0] - '0'});
  }
  CHECK(rig.code(rig.ask(0, copy{})) == errc::none);
  CHECK(rig.code(rig.ask(0, to(3))) == errc::none);
  rig.ask(3, from(0));
  CHECK(rig.released.size() == 4);
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("a rank leaves once, and only one that there is", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, to(1), {.lane = lane::named("departures/some")});
  for (const int nobody : {-1, 2}) rig.leave(nobody, gone);
  CHECK(rig.refused.empty());
  rig.leave(1, {.code = errc::rank_lost, .text = "first"});
  rig.leave(1, {.code = errc::abandoned, .text = "second"});
  CHECK(rig.text(rig.ask(0, barrier{})) == "first");
  rig.close({.code = errc::world_failed, .text = "closed"});
  rig.leave(0, {.code = errc::rank_lost, .text = "third"});
  CHECK(rig.text(rig.ask(0, copy{})) == "closed");
}

TEST_CASE("copies that wait at a rank go with it, and those of others stay", "[collectives][sequencing]") {
  sequencer_rig rig{3};
  rig.ask(0, from(1)); // 0/0
  rig.ask(0, copy{});  // 0/1
  rig.ask(2, from(1)); // 2/0
  rig.ask(2, copy{});  // 2/1
  rig.leave(2, gone);
  CHECK(rig.code("2/0") == errc::rank_lost);
  CHECK(rig.code("2/1") == errc::rank_lost);
  CHECK(rig.code("0/0") == errc::none);
  CHECK(rig.code("0/1") == errc::none);
  rig.ask(1, to(0));
  CHECK(rig.released == operations{{"0/0", "1/0"}, {"0/1"}});
}

TEST_CASE("a lane that is retired begins anew, and the others go on", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  const lane old = lane::named("departures/old");
  rig.ask(0, sum_of(1), {.lane = old, .client = 7}); // 0/0
  rig.ask(0, to(1), {.lane = old, .client = 7});     // 0/1
  rig.ask(0, copy{}, {.lane = old, .client = 7});    // 0/2
  rig.ask(1, from(0), {.lane = old});                // 1/0
  rig.ask(0, sum_of(2));                             // 0/3
  rig.retire(lane::named("departures/unknown"), gone);
  CHECK(rig.refused.empty());
  rig.retire(old, gone);
  for (const auto& [name, who] : {std::pair{"0/0", 0}, {"0/1", 0}, {"0/2", 0}, {"1/0", 1}}) {
    CAPTURE(name);
    CHECK(rig.code(name) == errc::rank_lost);
    CHECK(rig.refused.at(name).effect == effect::rejected);
    CHECK(rig.refused.at(name).rank == rank{who});
  }
  CHECK(rig.order.waiting() == 1);
  rig.ask(1, sum_of(2)); // 1/1
  rig.ask(0, sum_of(1), {.lane = old, .client = 8, .position = 0});
  rig.ask(1, sum_of(1), {.lane = old, .position = 0});
  CHECK(rig.released == operations{{"0/3", "1/1"}, {"0/4", "1/2"}});
  for (int i = 0; i < 3; ++i) { // also what was withdrawn there is forgotten
    rig.ask(0, to(1, 3), {.lane = old, .client = 8});
    CHECK(rig.cancel(0, static_cast<std::uint64_t>(i == 0 ? 1 : 0), old));
    rig.retire(old, gone);
  }
  rig.ask(1, from(0, 3), {.lane = old});
  CHECK(rig.order.waiting() == 1);
}

TEST_CASE("a world is closed once, and its requests are refused by the rank that asks", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(1, from(0));
  rig.close({.code = errc::world_failed, .text = "first"});
  rig.close({.code = errc::stopping, .text = "second"});
  CHECK(rig.text("1/0") == "first");
  CHECK(rig.refused.at("1/0").rank == rank{1});
  const auto later = rig.ask(1, copy{});
  CHECK(rig.text(later) == "first");
  CHECK(rig.refused.at(later).rank == rank{1});
  CHECK_FALSE(rig.cancel(1, 0));
  rig.withdraw(1, 7, gone); // nobody
  sequencer_rig named{2};
  named.close({.code = errc::rank_lost, .text = "rank 0 is lost", .rank = rank{0}});
  CHECK(named.refused.at(named.ask(1, copy{})).rank == rank{0});
}

TEST_CASE("a withdrawal in vain changes nothing, and a client's end concerns only its own requests",
          "[collectives][sequencing]") {
  sequencer_rig rig{2};
  const lane others = lane::named("departures/others");
  rig.ask(0, sum_of(1));                                // 0/0: nobody's
  rig.ask(0, copy{}, {.client = 7});                    // 0/1: now the lane is client 7's
  rig.ask(0, sum_of(2), {.lane = others, .client = 8}); // 0/2
  for (const int nobody : {-1, 2}) rig.withdraw(nobody, 7, gone);
  rig.withdraw(0, 0, gone);
  rig.withdraw(1, 7, gone);
  rig.order.withdraw(99, rank{0}, 7, gone, *std::make_unique<sequencing_effects>());
  CHECK(rig.refused.empty());
  rig.withdraw(0, 7, {.code = errc::abandoned, .effect = effect::unknown_outcome, .text = "client 7 is gone"});
  CHECK(rig.refused.size() == 1);
  CHECK(rig.code("0/1") == errc::abandoned);
  CHECK(rig.refused.at("0/1").rank == rank{0});
  CHECK(rig.refused.at("0/1").effect == effect::rejected);
  CHECK(rig.code(rig.ask(0, copy{}, {.lane = others, .client = 9})) ==
        errc::invalid_argument); // it is still client 8's
  CHECK(rig.code(rig.ask(0, copy{}, {.client = 9})) == errc::none);
  rig.ask(1, sum_of(1));
  CHECK(rig.released == operations{{"0/0", "1/0"}, {"0/4"}});
}

TEST_CASE("if one part is an agree, all get one reason, also those that come later",
          "[collectives][sequencing][agree]") {
  SECTION("whoever asked first") {
    sequencer_rig rig{3};
    rig.ask(0, barrier{});
    rig.ask(1, agree{});
    CHECK(rig.cancel(1, 0));
    rig.ask(2, agree{});
    for (const char* one : {"0/0", "2/0"}) {
      CHECK(rig.code(one) == errc::cancelled);
      CHECK(rig.text(one) == rig.text("1/0"));
    }
  }
  SECTION("whoever else leaves") {
    sequencer_rig rig{4};
    rig.ask(0, agree{});
    rig.leave(3, {.code = errc::rank_lost, .text = "rank 3 has left"});
    rig.leave(1, {.code = errc::cancelled, .text = "rank 1 has left"});
    rig.ask(2, agree{});
    CHECK(rig.code("2/0") == errc::rank_lost);
    CHECK(rig.text("2/0") == rig.text("0/0"));
  }
}

TEST_CASE("an immediate refusal names the limits", "[collectives][sequencing]") {
  sequencer_rig rig{3};
  CHECK_THAT(rig.text(rig.ask(3, barrier{})), ContainsSubstring("rank 3 is not in this world: its ranks are 0 to 2"));
  CHECK(rig.code(rig.ask(-1, barrier{})) == errc::invalid_argument);
  CHECK_THAT(rig.text(rig.ask(0, barrier{}, {.world = 77})),
             ContainsSubstring("world 77 has not been opened: 1 have been"));
  CHECK_THAT(rig.text(rig.ask(0, to(3))), ContainsSubstring("peer 3 is not in this world: its ranks are 0 to 2"));
  CHECK(rig.code(rig.ask(0, to(-1))) == errc::invalid_argument);
  CHECK(rig.code(rig.ask(0, from(3))) == errc::invalid_argument);
  const auto grouped = rig.ask(0, group{{to(1), from(3)}});
  CHECK(rig.code(grouped) == errc::invalid_argument);
  CHECK(rig.refused.at(grouped).rank == rank{0});
  CHECK(rig.order.waiting() == 0);
  CHECK(rig.code(rig.ask(0, to(2))) == errc::none);
  CHECK_THROWS_WITH(rig.order.open_world(-1),
                    ContainsSubstring("a world of -1 ranks is impossible: it needs at least 1"));
}

TEST_CASE("a report of absence tells in words how far each missing rank has come", "[collectives][sequencing]") {
  absence_report report{.what = "barrier", .waited = 2s};
  const auto mark = [](const char* what, std::uint64_t position) { return operation_mark{what, {}, position}; };
  report.ranks.push_back({.rank = rank{0}, .participates = true, .asked = true});
  report.ranks.push_back({.rank = rank{1},
                          .participates = true,
                          .last_asked = mark("copy", 4),
                          .last_launched = mark("all_reduce", 3),
                          .last_finished = mark("broadcast", 2)});
  CHECK(report.missing() == std::vector{rank{1}});
  CHECK(describe(report) == "barrier in lane default has waited 2.0 s: rank 1 has not asked, rank 0 has; rank 1 last "
                            "asked for copy (lane default, request 4), launched all_reduce (lane default, request 3), "
                            "finished broadcast (lane default, request 2)");
  report.sub_world = "pair";
  report.ranks.push_back({.rank = rank{2}}); // has no part in it
  report.ranks.push_back({.rank = rank{3}, .participates = true});
  report.ranks[1] = {.rank = rank{1}, .participates = true};
  report.ranks[0].asked = false;
  CHECK(describe(report) == "barrier in lane default of sub-world 'pair' has waited 2.0 s: ranks 0, 1, 3 have not "
                            "asked; rank 0 has asked for nothing yet; rank 1 has asked for nothing yet; rank 3 has "
                            "asked for nothing yet");
  std::vector<rank> many;
  for (int i = 0; i < 8; ++i) many.emplace_back(i);
  CHECK(name_ranks({rank{5}}) == "rank 5");
  CHECK(name_ranks(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7");
  many.emplace_back(8);
  CHECK(name_ranks(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more");
  absence_report large{.what = "barrier", .waited = 1s};
  for (int i = 0; i < 10; ++i) large.ranks.push_back({.rank = rank{i}, .participates = true});
  CHECK_THAT(describe(large), ContainsSubstring("; rank 7 has") && !ContainsSubstring("; rank 8 has"));
}

TEST_CASE("spans are told in the unit that fits", "[collectives][sequencing]") {
  CHECK(describe(0ns) == "0.0 us");
  CHECK(describe(99'900ns) == "99.9 us");
  CHECK(describe(99'999ns) == "100.0 us");
  CHECK(describe(100us) == "0.1 ms");
  CHECK(describe(99'949'999ns) == "99.9 ms");
  CHECK(describe(99'950'001ns) == "100.0 ms");
  CHECK(describe(100ms) == "0.1 s");
  CHECK(describe(1'000'000'000s) == "1000000000.0 s");
}

TEST_CASE("a request that was cancelled behind another is not refused again when its rank leaves",
          "[collectives][sequencing]") {
  sequencer_rig rig{3};
  rig.ask(2, sum_of(1));
  rig.ask(2, copy{});
  rig.ask(2, copy{});
  REQUIRE(rig.cancel(2, 1));
  CHECK(rig.code("2/1") == errc::cancelled);
  SECTION("it leaves") {
    rig.leave(2, gone);
  }
  SECTION("its world is closed") {
    rig.close(gone);
  }
  CHECK(rig.refused.size() == 3);
  CHECK(rig.code("2/0") == errc::rank_lost);
  CHECK(rig.code("2/2") == errc::rank_lost);
  CHECK(rig.doubled == 0);
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("an objection to one request refuses its whole operation, at its place", "[collectives][sequencing][ORD-2]") {
  const auto objection = std::make_shared<const error>(
      error{.code = errc::invalid_argument, .text = "it is not what was registered", .rank = rank{1}});
  sequencer_rig rig{3};
  std::vector<std::string> all;
  SECTION("a transfer") {
    all = {rig.ask(1, from(0), {.objection = objection}), rig.ask(0, to(1))};
  }
  SECTION("the other end of a transfer") {
    all = {rig.ask(0, to(1)), rig.ask(1, from(0), {.objection = objection})};
  }
  SECTION("a collective") {
    all = {rig.ask(0, sum_of(1)), rig.ask(1, sum_of(1), {.objection = objection}), rig.ask(2, sum_of(1))};
  }
  SECTION("a copy") {
    all = {rig.ask(1, copy{}, {.objection = objection})};
  }
  CHECK(rig.released.empty());
  CHECK(rig.refused.size() == all.size());
  for (const std::string& name : all) {
    CHECK(rig.code(name) == errc::invalid_argument);
    CHECK(rig.text(name) == "it is not what was registered");
  }
  CHECK(rig.order.waiting() == 0);
}

} // namespace troupe::tests::departures_test
