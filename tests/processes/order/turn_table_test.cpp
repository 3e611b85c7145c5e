// Turns by name, and captures compared by the controller: a state machine, without threads.
#include <troupe/processes/order/turn_table.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>

namespace troupe::tests::turn_table_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using form = turn_answer::form;

namespace {

constexpr std::size_t most = 4;

struct table_scene {
  explicit table_scene(int world_size) { table.open(world_size, most); }

  turn_table::answers ask(int from, std::string name, nanoseconds deadline = 1h, nanoseconds limit = 1h) {
    turn_table::answers out;
    table.ask(rank{from}, {.name = std::move(name), .deadline = deadline, .capture_limit = limit}, now, out);
    return out;
  }
  turn_table::answers take(int from, request_record record) {
    turn_table::answers out;
    refusal = table.take(rank{from}, record, out);
    return out;
  }
  turn_table::answers launch(int from, operation what, std::uint64_t place = 1) {
    request_record record{.kind = request_record::form::capture_launch};
    record.place = place;
    record.launch.push_back(std::move(what));
    return take(from, std::move(record));
  }
  turn_table::answers end(int from, std::uint64_t place = 1) {
    request_record record{.kind = request_record::form::capture_end};
    record.place = place;
    return take(from, std::move(record));
  }
  turn_table::answers fail(int from, std::uint64_t place = 1) {
    request_record record{.kind = request_record::form::capture_failure};
    record.why = {.code = errc::cancelled, .text = "the function threw"};
    record.place = place;
    return take(from, std::move(record));
  }
  turn_table::answers pass(nanoseconds time) {
    now += time;
    turn_table::answers out;
    table.expire(now, out);
    return out;
  }

  turn_table table;
  time_point now{1h};
  error refusal;
};

operation sum(std::size_t count) {
  return all_reduce{.send = {}, .recv = {}, .count = count};
}

/// Describes answers in a few characters: "0:turn 1", "1:capture 2 failed".
std::vector<std::string> told(const turn_table::answers& all) {
  std::vector<std::string> text;
  for (const turn_answer& one : all)
    text.push_back(to_string(one.to) + (one.kind == form::turn ? ":turn " : ":capture ") + std::to_string(one.number) +
                   (one.why ? " failed" : ""));
  return text;
}

using lines = std::vector<std::string>;

} // namespace

TEST_CASE("turns meet by name, and each rank is told its own number", "[collectives][plans][distributed]") {
  table_scene with{2};
  CHECK(with.ask(0, "a").empty());
  CHECK(with.ask(0, "b").empty());
  CHECK(told(with.ask(1, "b")) == lines{"0:turn 2", "1:turn 1"});
  CHECK(told(with.ask(1, "a")) == lines{"0:turn 1", "1:turn 2"});
  SECTION("the k-th of one name with the k-th") {
    CHECK(with.ask(0, "a").empty());
    CHECK(with.ask(0, "a").empty());
    CHECK(told(with.ask(1, "a")) == lines{"0:turn 3", "1:turn 3"});
    CHECK(told(with.ask(1, "a")) == lines{"0:turn 4", "1:turn 4"});
  }
  SECTION("a new epoch has none of them") {
    CHECK(with.ask(0, "c").empty());
    with.table.open(2, most);
    CHECK(with.ask(1, "c").empty());
    CHECK(told(with.ask(0, "c")) == lines{"0:turn 1", "1:turn 1"});
  }
  SECTION("a rank may have only so many pending") {
    for (std::size_t i = 0; i < most; ++i) CHECK(with.ask(0, "x").empty());
    const auto refused = with.ask(0, "y");
    CHECK(told(refused) == lines{"0:turn 7 failed"});
    CHECK(refused[0].why.code == errc::busy);
    CHECK(told(with.ask(1, "x")) == lines{"0:turn 3", "1:turn 3"});
    CHECK(with.ask(0, "y").empty());
  }
}

TEST_CASE("a turn that a rank does not ask for is refused at its deadline, and the rank is named",
          "[collectives][plans][distributed][TIM-1]") {
  table_scene with{3};
  CHECK(with.ask(0, "decode", 10ms).empty());
  CHECK(with.ask(2, "decode", 20ms).empty());
  CHECK(with.table.next_due() == with.now + 10ms);
  CHECK(with.pass(9ms).empty());
  const auto refused = with.pass(1ms);
  CHECK(told(refused) == lines{"0:turn 1 failed"});
  CHECK(refused[0].why.code == errc::deadline_exceeded);
  CHECK_THAT(refused[0].why.text, ContainsSubstring("plan 'decode'") && ContainsSubstring("rank 1 has not asked"));
  // Rank 0 asks again in time.
  CHECK(with.ask(1, "decode", 1h).empty());
  CHECK(told(with.ask(0, "decode", 1h)) == lines{"0:turn 2", "1:turn 1", "2:turn 1"});
  // One behind another that has no limit.
  CHECK(with.ask(0, "again", nanoseconds::max()).empty());
  CHECK(with.ask(0, "again", 1ms).empty());
  CHECK(told(with.pass(1ms)) == lines{"0:turn 4 failed"});
  CHECK(with.table.next_due() >= with.now + 30min); // of what was granted above, and nothing sooner
  CHECK(with.ask(0, "#3", 1ms).empty());
  CHECK_THAT(with.pass(1ms)[0].why.text, ContainsSubstring("unnamed plan 3") && ContainsSubstring("ranks 1, 2 have"));
}

TEST_CASE("a rank in a capture goes on when its peers have launched the same", "[collectives][plans][distributed]") {
  table_scene with{2};
  with.ask(0, "a");
  with.ask(1, "a");
  CHECK(with.launch(0, sum(4)).empty());
  CHECK(told(with.launch(1, sum(4))) == lines{"0:capture 1", "1:capture 1"});
  CHECK(with.end(1).empty());
  CHECK(told(with.end(0)) == lines{"0:capture 1", "1:capture 1"});
  CHECK(with.table.next_due() == with.now + 1h); // nothing is due before that
  CHECK(with.pass(2h).empty());
  CHECK(with.table.next_due() == time_point::max());

  SECTION("turns without a capture begin none") {
    with.ask(0, "", 1h, nanoseconds{0});
    CHECK(told(with.ask(1, "", 1h, nanoseconds{0})) == lines{"0:turn 2", "1:turn 2"});
    CHECK(with.launch(0, sum(1), 2).empty());
    CHECK(with.refusal.code == errc::none); // ignored, as after the end of a capture
  }
  SECTION("two captures at a time are kept apart") {
    for (const char* name : {"b", "c"})
      for (const int r : {0, 1}) with.ask(r, name);
    CHECK(with.launch(0, sum(1), 2).empty());
    CHECK(with.launch(1, sum(2), 3).empty());
    CHECK(told(with.launch(1, sum(1), 2)) == lines{"0:capture 2", "1:capture 2"});
    CHECK(told(with.launch(0, sum(2), 3)) == lines{"0:capture 3", "1:capture 3"});
  }
}

TEST_CASE("as many collectives share a launch as every rank offers", "[collectives][plans][distributed]") {
  table_scene with{2};
  with.ask(0, "a");
  with.ask(1, "a");
  const auto offer = [&](int from, std::vector<operation> all, bool divisible) {
    request_record record{.kind = request_record::form::capture_launch};
    record.place = 1;
    record.launch = std::move(all);
    record.divisible = divisible;
    return with.take(from, std::move(record));
  };
  CHECK(offer(0, {sum(1), sum(2), sum(3)}, true).empty());
  SECTION("the shorter one counts") {
    const auto agreed = offer(1, {sum(1), sum(2)}, true);
    REQUIRE(told(agreed) == lines{"0:capture 1", "1:capture 1"});
    for (const turn_answer& one : agreed) CHECK(one.agreed == 2);
    CHECK(offer(0, {sum(3)}, true).empty());
    CHECK(offer(1, {sum(3), sum(4)}, true)[0].agreed == 1);
  }
  SECTION("a launch that cannot be divided must be offered by all") {
    CHECK(told(offer(1, {sum(1)}, false)) == lines{"0:capture 1 failed", "1:capture 1 failed"});
  }
  SECTION("what is compared must be the same") {
    const auto failed = offer(1, {sum(1), sum(9)}, true);
    CHECK(told(failed) == lines{"0:capture 1 failed", "1:capture 1 failed"});
    CHECK(failed[0].why.code == errc::mismatch);
  }
}

TEST_CASE("a capture that fails fails at every rank, once", "[collectives][plans][distributed][ORD-2]") {
  table_scene with{3};
  for (const int r : {0, 1, 2}) with.ask(r, "a");
  const lines all{"0:capture 1 failed", "1:capture 1 failed", "2:capture 1 failed"};
  turn_table::answers failed;
  errc code = errc::mismatch;
  CHECK(with.launch(0, sum(4)).empty());
  SECTION("ranks launch different things") {
    CHECK(with.launch(1, sum(4)).empty());
    failed = with.launch(2, sum(5));
  }
  SECTION("a rank ends early") {
    CHECK(with.launch(1, sum(4)).empty());
    failed = with.end(2);
  }
  SECTION("a rank fails") {
    failed = with.fail(1);
    code = errc::cancelled;
    CHECK(failed[0].why.rank == rank{1});
  }
  REQUIRE(told(failed) == all);
  for (const turn_answer& one : failed) CHECK(one.why.code == code);
  // What ranks send before they hear of it is ignored.
  CHECK(with.launch(2, sum(4)).empty());
  CHECK(with.fail(1).empty());
  CHECK(with.end(0).empty());
  CHECK(with.refusal.code == errc::none);
}

TEST_CASE("a capture that takes too long is failed, and every rank's state is told",
          "[collectives][plans][distributed][TIM-1]") {
  table_scene with{2};
  with.ask(0, "a", 1h, 30ms);
  with.ask(1, "a", 1h, 20ms); // the shorter limit counts
  CHECK(with.launch(0, sum(4)).empty());
  CHECK(with.pass(19ms).empty());
  const auto failed = with.pass(1ms);
  CHECK(told(failed) == lines{"0:capture 1 failed", "1:capture 1 failed"});
  CHECK(failed[0].why.code == errc::deadline_exceeded);
  CHECK_THAT(failed[0].why.text, ContainsSubstring("rank 0 asks for all_reduce of 4 f32, sum") &&
                                     ContainsSubstring("rank 1 has launched 0 times"));
}

TEST_CASE("the one of two captures that takes too long is failed, once", "[collectives][plans][distributed][TIM-1]") {
  table_scene with{2};
  for (const int r : {0, 1}) with.ask(r, "a", 1h, 30ms);
  for (const int r : {0, 1}) with.ask(r, "b", 1h, 20ms);
  for (const std::uint64_t place : {1U, 2U}) CHECK(with.launch(0, sum(4), place).empty());
  CHECK(with.table.next_due() == with.now + 20ms);
  CHECK(told(with.pass(20ms)) == lines{"0:capture 2 failed", "1:capture 2 failed"});
  CHECK(with.table.next_due() == with.now + 10ms);
  CHECK(with.pass(9ms).empty());
  CHECK(told(with.launch(1, sum(4), 1)) == lines{"0:capture 1", "1:capture 1"});
  CHECK(told(with.pass(1ms)) == lines{"0:capture 1 failed", "1:capture 1 failed"});
  CHECK(with.table.next_due() == time_point::max());
}

TEST_CASE("records of captures that have not begun, or out of turn, are refused", "[collectives][plans][distributed]") {
  table_scene with{2};
  with.ask(0, "a");
  with.launch(0, sum(4));
  CHECK(with.refusal.code == errc::internal);
  CHECK(with.refusal.rank == rank{0});
  with.ask(1, "a");
  with.launch(0, sum(4));
  CHECK_FALSE(with.refusal);
  with.launch(0, sum(4)); // while it waits
  CHECK(with.refusal.code == errc::internal);
  for (const std::uint64_t place : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    with.end(1, place);
    CHECK(with.refusal.code == errc::internal);
  }
}

TEST_CASE("a capture and a turn of one name do not meet, and neither do splits into different groups",
          "[collectives][plans][distributed]") {
  table_scene with{2};
  const auto split = [&](int from, std::vector<rank_group> groups) {
    turn_table::answers out;
    with.table.ask(rank{from}, {.name = "a", .deadline = 1h, .split = std::move(groups)}, with.now, out);
    return out;
  };
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}}, turned{{"both", {rank{1}, rank{0}}}};
  CHECK(with.ask(0, "a").empty());
  CHECK(with.ask(1, "a", 1h, nanoseconds{0}).empty());
  CHECK(split(0, both).empty());
  CHECK(split(1, turned).empty());
  CHECK(told(with.ask(0, "a", 1h, nanoseconds{0})) == lines{"0:turn 3", "1:turn 1"});
  CHECK(told(with.ask(1, "a")) == lines{"0:turn 1", "1:turn 3"});
  const auto granted = split(1, both);
  REQUIRE(told(granted) == lines{"0:turn 2", "1:turn 4"});
  REQUIRE(granted[0].split);
  CHECK(granted[0].split == granted[1].split);
  CHECK(granted[0].split->at(0).name == "both");
  REQUIRE(granted[0].told);
  CHECK(granted[0].told->size() == 1);
}

TEST_CASE("when turns are closed all that wait are refused with the reason, and so are later ones",
          "[collectives][plans][distributed][ONE-1]") {
  table_scene with{2};
  for (const int r : {0, 1}) with.ask(r, "capture");
  CHECK(with.launch(0, sum(4)).empty());
  CHECK(with.ask(0, "turn", 1h, nanoseconds{0}).empty());
  CHECK(with.ask(1, "other").empty());
  turn_table::answers out;
  with.table.close({.code = errc::stopping, .text = "first"}, out);
  CHECK(told(out) == lines{"1:turn 2 failed", "0:turn 2 failed", "0:capture 1 failed", "1:capture 1 failed"});
  for (const turn_answer& one : out) CHECK(one.why.text == "first");
  CHECK(with.table.next_due() == time_point::max());
  out.clear();
  with.table.close({.code = errc::busy, .text = "second"}, out);
  CHECK(out.empty());
  const auto late = with.ask(0, "turn");
  REQUIRE(told(late) == lines{"0:turn 3 failed"});
  CHECK(late[0].why.text == "first");
  CHECK(with.end(0).empty());
  CHECK_FALSE(with.refusal);
  with.table.open(2, most);
  CHECK(with.ask(0, "turn").empty());
}

TEST_CASE("a refused turn names what is missing, and what the first missing rank waits for",
          "[collectives][plans][distributed][TIM-1]") {
  table_scene with{2};
  const auto refused = [&](std::size_t groups, nanoseconds deadline = 1ms) {
    std::vector<rank_group> split;
    for (std::size_t i = 1; i <= groups; ++i) split.push_back({"g" + std::to_string(i), {rank{0}, rank{1}}});
    turn_table::answers out;
    with.table.ask(rank{0}, {.name = "the split", .deadline = deadline, .split = split}, with.now, out);
    out = with.pass(deadline);
    REQUIRE(out.size() == 1);
    return out[0].why.text;
  };
  CHECK(refused(2) == "the split into 'g1', 'g2' was not begun in time: rank 1 has not asked for it. Every process of "
                      "the world must ask for the same");
  CHECK_THAT(refused(8), ContainsSubstring("'g7', 'g8' was not begun"));
  CHECK_THAT(refused(10), ContainsSubstring("'g7', 'g8' and 2 more was not begun"));
  CHECK(with.ask(0, "all", 2h).empty());
  CHECK(with.ask(1, "plan", 1h).empty());
  CHECK(with.ask(1, "zoo", 3h).empty());
  CHECK(with.table.next_due() == with.now + 1h);
  CHECK_THAT(refused(0), ContainsSubstring("the split was not begun in time: rank 1 has not asked for it, rank 1 waits "
                                           "for the capture of plan 'plan'. Every"));
  CHECK(with.ask(1, "other", 10ms).empty());
  CHECK(with.table.next_due() == with.now + 10ms);
  CHECK(with.pass(10ms).size() == 1);
  CHECK(with.table.next_due() > with.now + 59min); // what was asked for before
  for (std::size_t i = 2; i < most; ++i) CHECK(with.ask(1, "many").empty());
  CHECK(with.ask(1, "many")[0].why.text ==
        "4 captures, splits and registrations of rank 1 wait for its peers, which is "
        "the limit (limits.lead)");
}

} // namespace troupe::tests::turn_table_test
