// The exchange of scratch between ranks in several processes: all ranks get the same result in every order, and what a
// rank sends or leaves out harms no other meeting.
#include "processes/meeting/meeting_rig.hpp"
#include "support/process_resources.hpp"

#include <troupe/processes/meeting/meeting_table.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::meeting_table_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A table, and what it has answered to each connection.
struct scene {
  /// What the ranks of a meeting bring. Each rank has the connection 10 * number + self.
  error offer(const meeting_offer& what, int descriptors = 1, int number = 1) {
    std::vector<file_descriptor> all;
    for (int i = 0; i < descriptors; ++i) {
      all.push_back(some_memory());
      memory[connection(what.self, number)] = memory_of(all.back().native());
    }
    return say(connection(what.self, number), encode(what), std::move(all));
  }
  error confirm(int self, const std::string& why = {}, int number = 1) {
    return say(connection(self, number), encode(meeting_confirmation{why}));
  }
  error say(meeting_table::connection from, const std::string& bytes, std::vector<file_descriptor> descriptors = {}) {
    error why = table.receive(from, bytes, std::move(descriptors), now);
    if (why) table.lose(from); // as the service does
    collect();
    return why;
  }
  void lose(int self, int number = 1) {
    table.lose(connection(self, number));
    collect();
  }
  void wait(nanoseconds span) {
    now += span;
    table.expire(now);
    collect();
  }
  void collect() {
    for (auto& one : table.take_outgoing()) {
      error why;
      auto answer = decode_meeting_answer(one.bytes, why);
      REQUIRE(answer);
      CHECK(one.is_last == (answer->kind != meeting_answer::form::shared));
      auto& got = answers[one.to];
      got.push_back(*std::move(answer));
      for (const auto& each : one.descriptors) received[one.to].push_back(memory_of(each->native()));
    }
  }
  static meeting_table::connection connection(int self, int number = 1) {
    return static_cast<meeting_table::connection>(10 * number + self);
  }
  /// Returns the answer that was sent last on the connection of a rank.
  const meeting_answer& last(int self, int number = 1) {
    const auto& all = answers[connection(self, number)];
    REQUIRE_FALSE(all.empty());
    return all.back();
  }
  bool has_answer(int self, int number = 1) { return !answers[connection(self, number)].empty(); }

  meeting_table table{meeting_limits{.patience = 10s, .remembered = 2}};
  time_point now{1h};
  std::map<meeting_table::connection, std::vector<meeting_answer>> answers;
  std::map<meeting_table::connection, ino_t> memory;                ///< That each rank has brought.
  std::map<meeting_table::connection, std::vector<ino_t>> received; ///< In their order.
};

void check_concluded(scene& s, int ranks, const std::string& why, int number = 1) {
  for (int r = 0; r < ranks; ++r) {
    CHECK(s.last(r, number).kind == meeting_answer::form::concluded);
    if (why.empty())
      CHECK(s.last(r, number).why.empty());
    else
      CHECK_THAT(s.last(r, number).why, ContainsSubstring(why));
    CHECK(s.last(r, number).why == s.last(0, number).why);
  }
}

} // namespace

TEST_CASE("ranks that come in any order get each other's scratch by rank", "[processes][meeting]") {
  std::vector<int> order{0, 1, 2};
  do {
    scene s;
    for (const int r : order) {
      for (const int other : order) CHECK_FALSE(s.has_answer(other));
      meeting_offer mine = offer_of(r, 3);
      mine.layout.ranks = 3;
      mine.blocks = 8U + static_cast<unsigned>(r);
      mine.gpu = "gpu " + std::to_string(r);
      REQUIRE_FALSE(s.offer(mine));
    }
    for (int r = 0; r < 3; ++r) {
      const meeting_answer& got = s.last(r);
      CHECK(got.kind == meeting_answer::form::shared);
      CHECK(got.blocks == 8);
      REQUIRE(got.seats.size() == 3);
      CHECK(got.seats[2].gpu == "gpu 2");
      CHECK(got.seats[1].scratch_bytes == 4096);
      std::vector<ino_t> expected;
      for (int other = 0; other < 3; ++other)
        if (other != r) expected.push_back(s.memory[scene::connection(other)]);
      CHECK(s.received[scene::connection(r)] == expected);
    }
    for (const int r : order) {
      CHECK(s.last(order.back()).kind == meeting_answer::form::shared); // nobody has kernels before all have mapped
      REQUIRE_FALSE(s.confirm(r));
    }
    check_concluded(s, 3, {});
    CHECK(s.table.size() == 0);
  } while (std::ranges::next_permutation(order).found);
}

TEST_CASE("if one rank brings nothing, none has kernels, and each knows why", "[processes][meeting]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0)));
  meeting_offer without = offer_of(1);
  without.why = "there is no room";
  REQUIRE_FALSE(s.offer(without, 0));
  check_concluded(s, 2, "rank 1: there is no room");
}

TEST_CASE("if one rank cannot map the scratch of another, none has kernels", "[processes][meeting]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0)));
  REQUIRE_FALSE(s.offer(offer_of(1)));
  REQUIRE_FALSE(s.confirm(1, "no peer access"));
  CHECK(s.last(1).kind == meeting_answer::form::shared);
  REQUIRE_FALSE(s.confirm(0));
  check_concluded(s, 2, "rank 1: no peer access");
}

TEST_CASE("ranks whose kernels would not fit together have none", "[processes][meeting]") {
  scene s;
  meeting_offer other = offer_of(1);
  std::string why;
  SECTION("version") {
    other.version = one_shot_version + 1;
    why = "version of the protocol is " + std::to_string(one_shot_version + 1) + " at rank 1";
  }
  SECTION("limit") {
    other.part_bytes = 8192;
    why = "one_shot_bytes is 8192 at rank 1 and 4096 at rank 0";
  }
  SECTION("layout") {
    other.layout.lines_per_block = 2;
    why = "another layout";
  }
  SECTION("size") {
    other.scratch_bytes = small_layout.scratch_bytes() - 1;
    why = "the scratch of rank 1 is too small";
  }
  REQUIRE_FALSE(s.offer(offer_of(0)));
  REQUIRE_FALSE(s.offer(other));
  check_concluded(s, 2, why);
}

TEST_CASE("a rank that ends or aborts while others wait breaks the meeting, also for those that come later",
          "[processes][meeting]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0, 3)));
  REQUIRE_FALSE(s.offer(offer_of(2, 3)));
  s.lose(2);
  CHECK(s.last(0).kind == meeting_answer::form::broken);
  CHECK_THAT(s.last(0).why, ContainsSubstring("rank 2 has ended"));
  CHECK(s.table.size() == 0);
  REQUIRE_FALSE(s.offer(offer_of(1, 3)));
  CHECK(s.last(1).kind == meeting_answer::form::broken);
  CHECK(s.table.size() == 0);
}

TEST_CASE("a rank that ends after it has got the scratch of others breaks the meeting", "[processes][meeting]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0)));
  REQUIRE_FALSE(s.offer(offer_of(1)));
  const bool has_confirmed = GENERATE(false, true);
  if (has_confirmed) REQUIRE_FALSE(s.confirm(1));
  s.lose(1);
  CHECK(s.last(0).kind == meeting_answer::form::broken);
  CHECK(s.last(1).kind == meeting_answer::form::shared); // nothing is sent to the one that has ended
}

TEST_CASE("nobody waits longer than the patience for a rank that does not come, and a late one gets the same result",
          "[processes][meeting]") {
  scene s;
  CHECK(s.table.next_due() == time_point::max());
  REQUIRE_FALSE(s.offer(offer_of(1)));
  CHECK(s.table.next_due() == s.now + 10s);
  s.wait(10s - 1ns);
  CHECK_FALSE(s.has_answer(1));
  s.wait(1ns);
  CHECK_THAT(s.last(1).why, ContainsSubstring("rank 0 has not brought the scratch memory within 10000 ms"));
  REQUIRE_FALSE(s.offer(offer_of(0)));
  check_concluded(s, 2, "rank 0 has not brought");
  CHECK(s.table.size() == 0);
}

TEST_CASE("nobody waits longer than the patience for a rank that maps nothing", "[processes][meeting]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0)));
  s.wait(9s);
  REQUIRE_FALSE(s.offer(offer_of(1)));
  s.wait(9s);
  REQUIRE_FALSE(s.confirm(0));
  CHECK(s.last(0).kind == meeting_answer::form::shared);
  s.wait(1s);
  check_concluded(s, 2, "rank 1 has not mapped");
}

TEST_CASE("two communicators that form at once, and splits of them, are apart", "[processes][meeting]") {
  scene s;
  const meeting_name parent = name_of_formation(formation(1));
  // 1, 2: formations. 3, 4: splits of the first with two colors. 5: its next split. 6: a successor.
  const std::array names{parent,
                         name_of_formation(formation(2)),
                         name_of_derived(parent, 0, 0, 0),
                         name_of_derived(parent, 0, 0, 1),
                         name_of_derived(parent, 0, 1, 0),
                         name_of_derived(parent, 1, 0, 0)};
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 6; ++i) {
      meeting_offer mine = offer_of(r);
      mine.name = names.at(static_cast<std::size_t>(i));
      REQUIRE_FALSE(s.offer(mine, 1, i + 1));
    }
  for (int i = 1; i <= 6; ++i) {
    CHECK(s.last(0, i).kind == meeting_answer::form::shared);
    CHECK(s.received[scene::connection(0, i)] == std::vector{s.memory[scene::connection(1, i)]});
  }
  s.lose(0, 4);
  for (int i = 1; i <= 6; ++i) {
    if (i == 4) continue;
    REQUIRE_FALSE(s.confirm(0, {}, i));
    REQUIRE_FALSE(s.confirm(1, {}, i));
    check_concluded(s, 2, {}, i);
  }
  CHECK(s.last(1, 4).kind == meeting_answer::form::broken);
  CHECK(s.table.size() == 0);
}

TEST_CASE("a message that is not expected is refused, and breaks no other meeting", "[processes][meeting][SEC-2]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0)));
  const auto stranger = scene::connection(9, 9);
  SECTION("bytes that are no offer") {
    CHECK(s.say(stranger, "hello"));
    CHECK(s.say(stranger, {}));
    CHECK(s.say(stranger, encode(offer_of(1)) + "x"));
    CHECK(s.say(stranger, encode(meeting_confirmation{})));
  }
  SECTION("every prefix, and every byte changed") {
    const std::string right = encode(offer_of(1, 2, 2));
    for (std::size_t i = 0; i < right.size(); ++i) {
      CHECK(s.say(stranger, right.substr(0, i)));
      std::string wrong = right;
      wrong[i] = static_cast<char>(wrong[i] ^ 0x80);
      static_cast<void>(s.say(stranger, wrong)); // some are other offers without a descriptor
      s.table.lose(stranger);
      s.collect();
    }
  }
  SECTION("ranks and worlds that do not exist") {
    CHECK(s.offer(offer_of(2), 1, 9));
    CHECK(s.offer(offer_of(0, 1), 1, 9));
    CHECK(s.offer(offer_of(8, 9), 1, 9));
    CHECK(s.offer(offer_of(-1), 1, 9));
  }
  SECTION("a number of descriptors") {
    CHECK(s.offer(offer_of(1), 0, 9));
    CHECK(s.offer(offer_of(1), 2, 9));
    meeting_offer without = offer_of(1);
    without.why = "no";
    CHECK(s.offer(without, 1, 9));
  }
  SECTION("a rank that has come already, and a world of another size") {
    CHECK(s.offer(offer_of(0), 1, 9));
    CHECK(s.offer(offer_of(1, 3), 1, 9));
  }
  CHECK_FALSE(s.has_answer(0));
  REQUIRE_FALSE(s.offer(offer_of(1)));
  CHECK(s.last(0).kind == meeting_answer::form::shared);
}

TEST_CASE("a confirmation that is early, double or has descriptors breaks the meeting of its rank",
          "[processes][meeting][SEC-2]") {
  scene s;
  REQUIRE_FALSE(s.offer(offer_of(0)));
  SECTION("early") {
    CHECK(s.confirm(0));
  }
  SECTION("an offer in its place") {
    REQUIRE_FALSE(s.offer(offer_of(1)));
    CHECK(s.offer(offer_of(0)));
    CHECK(s.last(1).kind == meeting_answer::form::broken);
  }
  SECTION("double") {
    REQUIRE_FALSE(s.offer(offer_of(1)));
    REQUIRE_FALSE(s.confirm(0));
    CHECK(s.confirm(0));
    CHECK(s.last(1).kind == meeting_answer::form::broken);
  }
  SECTION("with a descriptor") {
    REQUIRE_FALSE(s.offer(offer_of(1)));
    std::vector<file_descriptor> one;
    one.push_back(some_memory());
    CHECK(s.say(scene::connection(0), encode(meeting_confirmation{}), std::move(one)));
    CHECK(s.last(1).kind == meeting_answer::form::broken);
  }
  CHECK(s.table.size() == 0);
}

TEST_CASE("descriptors are closed when a meeting ends, however it does", "[processes][meeting]") {
  const std::size_t before = open_descriptors();
  {
    scene s;
    REQUIRE_FALSE(s.offer(offer_of(0, 3)));
    CHECK(open_descriptors() == before + 1);
    SECTION("a rank ends") {
      s.lose(0);
    }
    SECTION("nobody comes") {
      s.wait(10s);
    }
    SECTION("a rank brings nothing") {
      REQUIRE_FALSE(s.offer(offer_of(1, 3)));
      meeting_offer without = offer_of(2, 3);
      without.why = "no";
      REQUIRE_FALSE(s.offer(without, 0));
    }
    SECTION("all is well: as soon as they are passed on") {
      REQUIRE_FALSE(s.offer(offer_of(1, 3)));
      REQUIRE_FALSE(s.offer(offer_of(2, 3)));
    }
    CHECK(open_descriptors() == before);
  }
}

TEST_CASE("the table forgets the oldest meetings without result", "[processes][meeting]") {
  scene s;
  for (int i = 1; i <= 3; ++i) {
    REQUIRE_FALSE(s.offer(offer_of(0, 2, i), 1, i));
    s.wait(10s);
  }
  REQUIRE_FALSE(s.offer(offer_of(1, 2, 3), 1, 3));
  CHECK(s.has_answer(1, 3));
  REQUIRE_FALSE(s.offer(offer_of(1, 2, 1), 1, 1)); // forgotten: it waits in a meeting of its own
  CHECK_FALSE(s.has_answer(1, 1));
  s.wait(10s);
  CHECK(s.has_answer(1, 1));
}

} // namespace troupe::tests::meeting_table_test
