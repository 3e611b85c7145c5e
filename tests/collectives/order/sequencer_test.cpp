// Collectives: what meets, in which order it is released, and what is refused.
#include "collectives/order/sequencer_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests::sequencer_test {

using Catch::Matchers::ContainsSubstring;
using operations = sequencer_rig::operations;

TEST_CASE("a collective is released when the last rank has asked, in rank order", "[collectives][sequencing][ORD-1]") {
  sequencer_rig rig{3};
  rig.ask(2, sum_of(8));
  rig.ask(0, sum_of(8));
  CHECK(rig.released.empty());
  CHECK(rig.order.waiting() == 2);
  rig.ask(1, sum_of(8));
  CHECK(rig.released == operations{{"0/0", "1/0", "2/0"}});
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("the k-th collective of a lane meets the k-th of the others, however far a rank is ahead",
          "[collectives][sequencing][ORD-1]") {
  sequencer_rig rig{2};
  for (std::size_t i = 0; i < 100; ++i) rig.ask(0, sum_of(i));
  for (std::size_t i = 0; i < 100; ++i) {
    CHECK(rig.released.size() == i);
    rig.ask(1, sum_of(i));
  }
  REQUIRE(rig.released.size() == 100);
  for (std::size_t i = 0; i < 100; ++i)
    CHECK(rig.released[i] == std::vector{"0/" + std::to_string(i), "1/" + std::to_string(i)});
}

TEST_CASE("lanes that cross at two ranks are both released, in one order for all", "[collectives][sequencing][ORD-1]") {
  sequencer_rig rig{2};
  const lane a = lane::named("a");
  const lane b = lane::named("b");
  rig.ask(0, a, sum_of(1)); // 0/0
  rig.ask(0, b, sum_of(2)); // 0/1
  rig.ask(1, b, sum_of(2)); // 1/0
  rig.ask(1, a, sum_of(1)); // 1/1
  CHECK(rig.released == operations{{"0/1", "1/0"}, {"0/0", "1/1"}});
}

TEST_CASE("worlds do not wait for each other, and share one order", "[collectives][sequencing][ORD-1]") {
  sequencer_rig rig{2};
  const std::uint32_t other = rig.order.open_world(1);
  rig.ask(0, sum_of(1));                   // 0/0
  rig.ask(0, sum_of(2), {.world = other}); // 0/1
  rig.ask(1, sum_of(1));                   // 1/0
  CHECK(rig.released == operations{{"0/1"}, {"0/0", "1/0"}});
}

TEST_CASE("a copy and an empty group wait for what their rank asked before, and for nobody else",
          "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, copy{});
  CHECK(rig.released == operations{{"0/0"}});
  rig.ask(0, sum_of(1)); // 0/1
  rig.ask(0, copy{});    // 0/2
  rig.ask(0, group{});   // 0/3
  CHECK(rig.released.size() == 1);
  rig.ask(1, sum_of(1)); // 1/0
  CHECK(rig.released == operations{{"0/0"}, {"0/1", "1/0"}, {"0/2"}, {"0/3"}});
}

TEST_CASE("barriers and groups with a collective are matched like collectives", "[collectives][sequencing][GRP-1]") {
  sequencer_rig rig{2};
  const operation mixed = group{{sum_of(1), sum_of(2)}};
  rig.ask(0, barrier{});
  rig.ask(0, mixed);
  rig.ask(1, barrier{});
  rig.ask(1, mixed);
  CHECK(rig.released == operations{{"0/0", "1/0"}, {"0/1", "1/1"}});
}

TEST_CASE("ranks that disagree are all refused by name, and the lane goes on", "[collectives][sequencing][ORD-2]") {
  sequencer_rig rig{3};
  rig.ask(0, sum_of(8));
  rig.ask(1, sum_of(9));
  rig.ask(2, sum_of(8));
  CHECK(rig.released.empty());
  for (int r = 0; r < 3; ++r) {
    const error& why = rig.refused.at(std::to_string(r) + "/0");
    CHECK(why.code == errc::mismatch);
    CHECK(why.effect == effect::rejected);
    CHECK(why.rank == rank{r});
    CHECK_THAT(why.text, ContainsSubstring("all_reduce of 8 f32, sum") && ContainsSubstring("rank 1") &&
                             ContainsSubstring("all_reduce of 9 f32, sum"));
  }
  for (int r = 0; r < 3; ++r) rig.ask(r, sum_of(8));
  CHECK(rig.released == operations{{"0/1", "1/1", "2/1"}});
}

TEST_CASE("every field that ranks must agree on is compared", "[collectives][sequencing][ORD-2]") {
  const auto is_agreed = [](const operation& one, const operation& other) {
    sequencer_rig rig{2};
    rig.ask(0, one);
    rig.ask(1, other);
    CHECK(rig.released.size() + rig.refused.size() / 2 == 1);
    return rig.refused.empty();
  };
  const auto reduced = [](dtype type, reduction op, bool staged) {
    return all_reduce{.send = {}, .recv = {}, .count = 4, .type = type, .op = op, .factor = {}, .staged = staged};
  };
  const auto parts = [](std::vector<std::size_t> counts) {
    return all_gather_v{.send = {}, .recv = {}, .recv_parts = partition::packed(std::move(counts))};
  };
  const auto crossing = [](std::vector<std::size_t> out, std::vector<std::size_t> in) {
    return all_to_all_v{.send = {},
                        .recv = {},
                        .send_parts = partition::packed(std::move(out)),
                        .recv_parts = partition::packed(std::move(in))};
  };
  const operation base = reduced(dtype::f32, reduction::sum, false);
  CHECK(is_agreed(base, base));
  CHECK_FALSE(is_agreed(base, reduced(dtype::i32, reduction::sum, false)));
  CHECK_FALSE(is_agreed(base, reduced(dtype::f32, reduction::max, false)));
  CHECK_FALSE(is_agreed(base, reduced(dtype::f32, reduction::sum, true)));
  CHECK_FALSE(is_agreed(base, barrier{}));
  CHECK_FALSE(is_agreed(base, group{{base, base}}));
  CHECK_FALSE(is_agreed(broadcast{.send = {}, .recv = {}, .root = rank{0}},
                        broadcast{.send = {}, .recv = {}, .root = rank{1}}));
  CHECK(is_agreed(parts({1, 2}), parts({1, 2})));
  CHECK_FALSE(is_agreed(parts({1, 2}), parts({2, 1})));
  CHECK(is_agreed(crossing({1, 2}, {1, 3}), crossing({3, 4}, {2, 4})));
  CHECK_FALSE(is_agreed(crossing({1, 2}, {1, 3}), crossing({3, 4}, {3, 4})));
  CHECK(is_agreed(group{{base, to(1)}}, group{{from(0), base}}));
  CHECK_FALSE(is_agreed(group{{base, to(1)}}, group{{base, from(0, 0, 5)}}));
}

TEST_CASE("a lane belongs to the client that asked there first, until it is withdrawn", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  const lane mine = lane::named("mine");
  rig.ask(0, barrier{}, {.lane = mine, .client = 7});
  const auto other = rig.ask(0, barrier{}, {.lane = mine, .client = 8});
  CHECK(rig.code(other) == errc::invalid_argument);
  CHECK_THAT(rig.text(other), ContainsSubstring("lane mine of rank 0") && ContainsSubstring("use another lane"));
  CHECK(rig.code(rig.ask(0, barrier{}, {.lane = mine})) == errc::invalid_argument);
  rig.ask(1, barrier{}, {.lane = mine, .client = 8}); // at another rank it is nobody's yet
  CHECK(rig.released == operations{{"0/0", "1/0"}});
  rig.withdraw(0, 7, error{.code = errc::abandoned, .text = "client 7 is gone"});
  rig.ask(0, barrier{}, {.lane = mine, .client = 8, .position = 1});
  rig.ask(1, barrier{}, {.lane = mine, .client = 8});
  CHECK(rig.released.size() == 2);
}

TEST_CASE("a gap and a repetition in a lane are refused and take no place", "[collectives][sequencing]") {
  sequencer_rig rig{1};
  rig.ask(0, barrier{}, {.position = 0});
  const auto repeated = rig.ask(0, barrier{}, {.position = 0});
  CHECK(rig.code(repeated) == errc::invalid_argument);
  CHECK_THAT(rig.text(repeated), ContainsSubstring("request 0") && ContainsSubstring("repetition: 1 is the next"));
  const auto early = rig.ask(0, barrier{}, {.position = 3});
  CHECK(rig.code(early) == errc::invalid_argument);
  CHECK_THAT(rig.text(early), ContainsSubstring("request 3") && ContainsSubstring("gap: 1 is the next"));
  rig.ask(0, barrier{}, {.position = 1});
  CHECK(rig.released.size() == 2);
}

TEST_CASE("a rank too far ahead is told so and may ask again later", "[collectives][sequencing]") {
  sequencer_rig rig{2, {.lead = 2}};
  const lane other = lane::named("other");
  rig.ask(0, barrier{});
  rig.ask(0, other, barrier{});
  const auto refused = rig.ask(0, barrier{});
  CHECK(rig.code(refused) == errc::busy);
  CHECK(rig.refused.at(refused).effect == effect::rejected);
  CHECK_THAT(rig.text(refused), ContainsSubstring("2 requests of rank 0") && ContainsSubstring("the limit is 2"));
  rig.ask(1, barrier{});
  CHECK(rig.code(rig.ask(0, barrier{})) == errc::none);
}

TEST_CASE("a rank or a world that does not exist is refused", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  CHECK(rig.code(rig.ask(2, barrier{})) == errc::invalid_argument);
  CHECK(rig.code(rig.ask(0, barrier{}, {.world = 77})) == errc::invalid_argument);
  CHECK(rig.code(rig.ask(0, to(5))) == errc::invalid_argument);
  CHECK_THROWS_AS(rig.order.open_world(0), exception);
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("a closed world refuses what waits and what comes, and the others go on", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  const std::uint32_t other = rig.order.open_world(2);
  rig.ask(0, barrier{});
  rig.ask(0, to(1, 0), {.lane = lane::named("p2p")});
  rig.ask(0, barrier{}, {.world = other});
  rig.close({.code = errc::world_failed, .effect = effect::unknown_outcome, .text = "rank 1 is gone"});
  CHECK(rig.refused.at("0/0").code == errc::world_failed);
  CHECK(rig.refused.at("0/0").effect == effect::rejected);
  CHECK(rig.refused.at("0/1").rank == rank{0});
  CHECK(rig.code(rig.ask(1, barrier{})) == errc::world_failed);
  rig.ask(1, barrier{}, {.world = other});
  CHECK(rig.released == operations{{"0/2", "1/1"}});
  CHECK(rig.order.waiting() == 0);
}

} // namespace troupe::tests::sequencer_test
