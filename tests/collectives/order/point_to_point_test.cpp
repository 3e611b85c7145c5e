// Sends, receives and groups of them: what meets, and what is released with it.
#include "collectives/order/sequencer_rig.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace troupe::tests::point_to_point_test {

using Catch::Matchers::ContainsSubstring;
using operations = sequencer_rig::operations;

TEST_CASE("a send meets the recv of its source, destination and tag, and nobody else waits",
          "[collectives][sequencing][ORD-1]") {
  sequencer_rig rig{4};
  const lane other = lane::named("other");
  rig.ask(0, to(1, 5));
  rig.ask(1, other, from(0, 5)); // another lane
  rig.ask(2, from(0, 5));        // another destination
  rig.ask(3, from(1, 5));        // another source
  CHECK(rig.released.empty());
  rig.ask(1, from(0, 5));
  CHECK(rig.released == operations{{"0/0", "1/1"}});
  CHECK(rig.order.waiting() == 3);
}

TEST_CASE("tags keep transfers between two ranks apart, and within a tag the k-th meets the k-th",
          "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, to(1, 1));
  rig.ask(0, to(1, 2, 8));
  rig.ask(0, to(1, 1));
  rig.ask(1, from(0, 1));
  rig.ask(1, from(0, 2, 8));
  rig.ask(1, from(0, 1));
  CHECK(rig.released == operations{{"0/0", "1/0"}, {"0/1", "1/1"}, {"0/2", "1/2"}});
}

TEST_CASE("a transfer waits for what its ranks asked before it in the lane", "[collectives][sequencing][ORD-1]") {
  sequencer_rig rig{3};
  rig.ask(0, sum_of(1)); // 0/0
  rig.ask(0, to(1));     // 0/1
  rig.ask(1, sum_of(1)); // 1/0
  rig.ask(1, from(0));   // 1/1
  CHECK(rig.released.empty());
  rig.ask(2, sum_of(1)); // 2/0
  CHECK(rig.released == operations{{"0/0", "1/0", "2/0"}, {"0/1", "1/1"}});
}

TEST_CASE("a send and its recv that differ in count or dtype are both refused", "[collectives][sequencing][ORD-2]") {
  sequencer_rig rig{3};
  rig.ask(1, to(2, 3, 4));
  rig.ask(2, from(1, 3, 5));
  for (const auto* name : {"1/0", "2/0"}) {
    CHECK(rig.code(name) == errc::mismatch);
    CHECK_THAT(rig.text(name), ContainsSubstring("send of 4 f32 to rank 2, tag 3") &&
                                   ContainsSubstring("recv of 5 f32 from rank 1, tag 3"));
  }
  CHECK(rig.refused.at("2/0").rank == rank{2});
  rig.ask(1, to(2, 3, 4));
  rig.ask(2, recv{.memory = {}, .count = 4, .type = dtype::i32, .peer = rank{1}, .tag = 3});
  CHECK(rig.code("2/1") == errc::mismatch);
  rig.ask(1, to(2, 3, 4));
  rig.ask(2, from(1, 3, 4));
  CHECK(rig.released == operations{{"1/2", "2/2"}});
}

TEST_CASE("an exchange of two groups is one operation", "[collectives][sequencing][GRP-1]") {
  sequencer_rig rig{2};
  rig.ask(0, group{{to(1), from(1)}});
  CHECK(rig.released.empty());
  rig.ask(1, group{{from(0), to(0)}});
  CHECK(rig.released == operations{{"0/0", "1/0"}});
}

TEST_CASE("a ring of groups is released whole when the last has come, with the single ends that it reaches",
          "[collectives][sequencing][GRP-1]") {
  sequencer_rig rig{4};
  rig.ask(2, group{{to(3), from(1)}});
  rig.ask(0, to(1));
  rig.ask(3, from(2));
  CHECK(rig.released.empty());
  rig.ask(1, group{{from(0), to(2)}});
  CHECK(rig.released == operations{{"0/0", "1/0", "2/0", "3/0"}});
}

TEST_CASE("a group's transfers of one tag meet in the order given, those of several tags by tag",
          "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, group{{to(1, 2, 20), to(1, 1, 10), to(1, 1, 11)}});
  rig.ask(1, group{{from(0, 1, 10), from(0, 2, 20), from(0, 1, 11)}});
  CHECK(rig.released.size() == 1);
  rig.ask(0, group{{to(1, 1, 10), to(1, 1, 11)}});
  rig.ask(1, group{{from(0, 1, 11), from(0, 1, 10)}});
  CHECK(rig.code("0/1") == errc::mismatch);
  CHECK(rig.code("1/1") == errc::mismatch);
}

TEST_CASE("a group may meet several requests that a rank asks for one after the other", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, group{{to(1, 0), to(1, 1)}});
  rig.ask(1, from(0, 0));
  CHECK(rig.released.empty());
  rig.ask(1, from(0, 1));
  CHECK(rig.released == operations{{"0/0", "1/0", "1/1"}});
}

TEST_CASE("a request between two requests of one closure delays it until it is gone", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, group{{to(1, 0), to(1, 1)}});
  rig.ask(1, from(0, 0)); // 1/0
  rig.ask(1, barrier{});  // 1/1
  rig.ask(1, from(0, 1)); // 1/2
  CHECK(rig.released.empty());
  CHECK(rig.cancel(1, 1));
  CHECK(rig.released == operations{{"0/0", "1/0", "1/2"}});
}

TEST_CASE("a send to oneself meets the recv from oneself, in one request or in two", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(0, group{{to(0), from(0)}});
  CHECK(rig.released == operations{{"0/0"}});
  rig.ask(0, to(0));
  CHECK(rig.released.size() == 1);
  rig.ask(0, from(0));
  CHECK(rig.released == operations{{"0/0"}, {"0/1", "0/2"}});
}

TEST_CASE("a cancelled send is told to the recv that waits, and to one that comes later", "[collectives][sequencing]") {
  sequencer_rig rig{2};
  rig.ask(1, from(0));
  rig.ask(0, barrier{});
  rig.ask(0, to(1));
  CHECK(rig.cancel(0, 1));
  CHECK(rig.code("0/1") == errc::cancelled);
  CHECK(rig.code("1/0") == errc::cancelled);
  CHECK_THAT(rig.text("1/0"), ContainsSubstring("rank 0 cancelled send of 4 f32 to rank 1"));
  rig.ask(0, to(1)); // 0/2
  CHECK(rig.cancel(0, 2));
  rig.ask(0, to(1)); // 0/3, the next
  rig.ask(1, from(0));
  CHECK(rig.code("1/1") == errc::cancelled);
  rig.ask(1, barrier{}); // 1/2
  rig.ask(1, from(0));   // 1/3
  CHECK(rig.released == operations{{"0/0", "1/2"}, {"0/3", "1/3"}});
  CHECK(rig.order.waiting() == 0);
}

TEST_CASE("a cancelled group takes the whole closure with it, and those who come later", "[collectives][sequencing]") {
  sequencer_rig rig{4};
  rig.ask(0, group{{to(1), from(3)}});
  rig.ask(1, group{{from(0), to(2)}});
  CHECK(rig.cancel(0, 0));
  CHECK(rig.code("1/0") == errc::cancelled); // joined
  rig.ask(2, group{{from(1), to(3)}});       // meets what was withdrawn
  CHECK(rig.code("2/0") == errc::cancelled);
  CHECK_THAT(rig.text("2/0"), ContainsSubstring("rank 0 cancelled group of 2"));
  rig.ask(3, group{{to(0), from(2)}}); // meets it from both sides
  CHECK(rig.code("3/0") == errc::cancelled);
  CHECK(rig.order.waiting() == 0);
  for (int r = 0; r < 4; ++r) rig.ask(r, group{{to((r + 1) % 4), from((r + 3) % 4)}});
  CHECK(rig.released == operations{{"0/1", "1/1", "2/1", "3/1"}});
}

} // namespace troupe::tests::point_to_point_test
