// Groups: one message, one launch, one reply, and an outcome for each part (GRP-1).
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/collectives/operation/request.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/world_group.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <vector>

namespace troupe::tests::world_group_test {

using Catch::Matchers::ContainsSubstring;
using troupe::tests::error_of;
using troupe::tests::failure_of;
using troupe::tests::mock_settings;
using troupe::tests::outcome_of;
using troupe::tests::ranked_values;
using troupe::tests::read_back;

namespace {

std::size_t at(rank one) {
  return static_cast<std::size_t>(one.value());
}

} // namespace

TROUPE_WORLD_TEST(2, "a group mixes collectives and transfers, and answers once", "[runtime][GRP-1][ONE-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto sums = ranked_values(where, 5);
  const auto largest = ranked_values(where, 3);
  const auto given = ranked_values(where, 4);
  const auto taken = ranked_values(where, 4);
  world_group asked{where};
  asked.on_all([&](rank self) {
         return all_reduce{sums[at(self)], sums[at(self)], 5};
       })
      .transfer(rank{0}, given[0], rank{1}, taken[1], 4, dtype::f32, 7)
      .on_all([&](rank self) {
        return all_reduce{.send = largest[at(self)], .recv = largest[at(self)], .count = 3, .op = reduction::max};
      })
      .transfer(rank{1}, given[1], rank{0}, taken[0], 4, dtype::f32, 3);
  const auto whole = outcome_of(asked.ask());
  REQUIRE(troupe::failure_of(whole) == nullptr);
  CHECK(part_outcomes(asked.of(rank{0}), whole).size() == 4);
  for (const rank self : where.local_ranks()) {
    CHECK(read_back(where, self, sums[at(self)]) == std::vector<float>(5, 3.0F));
    CHECK(read_back(where, self, largest[at(self)]) == std::vector<float>(3, 2.0F));
    CHECK(read_back(where, self, taken[at(self)]) == std::vector<float>(4, self == rank{0} ? 2.0F : 1.0F));
  }
  world_group nothing{where};
  CHECK_FALSE(failure_of(nothing.ask()));
}

TROUPE_WORLD_TEST(2, "a group holds copies and barriers beside collectives and transfers", "[runtime][GRP-1][ORD-2]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto sums = ranked_values(where, 5);
  const auto given = ranked_values(where, 4);
  const auto taken = ranked_values(where, 4);
  const auto sources = ranked_values(where, 3);
  const auto targets = ranked_values(where, 6);
  const buffer pinned = where.allocate_pinned(3 * sizeof(float));
  world_group asked{where};
  asked.on_all([&](rank self) {
         return all_reduce{sums[at(self)], sums[at(self)], 5};
       })
      .on_all([](rank) { return barrier{}; })
      .on_all([&](rank self) { return copy{.from = sources[at(self)], .to = targets[at(self)]}; })
      .transfer(rank{0}, given[0], rank{1}, taken[1], 4, dtype::f32)
      .on(rank{1}, copy{.from = given[1].slice(0, 3 * sizeof(float)), .to = pinned}); // copies are local to a rank
  REQUIRE_FALSE(failure_of(asked.ask()));
  for (const rank self : where.local_ranks()) {
    const auto own = static_cast<float>(self.value() + 1);
    CHECK(read_back(where, self, sums[at(self)]) == std::vector<float>(5, 3.0F));
    CHECK(read_back(where, self, targets[at(self)]) == std::vector<float>(6, own));
  }
  CHECK(read_back(where, rank{1}, taken[1]) == std::vector<float>(4, 1.0F));
  CHECK(std::ranges::all_of(pinned.host_span<float>(), [](float one) { return one == 2.0F; }));

  // Copies and transfers without a collective: only the two ranks of the transfer take part.
  const auto again = ranked_values(where, 4);
  rank_lane one{where, rank{0}, lane::named("copies")};
  rank_lane other{where, rank{1}, lane::named("copies")};
  auto sent = one.ask(
      group{{copy{.from = sources[0], .to = targets[0]}, send{.memory = given[0], .count = 4, .peer = rank{1}}}});
  auto received = other.ask(group{{recv{.memory = again[1], .count = 4, .peer = rank{0}}}});
  CHECK_FALSE(failure_of(std::move(sent)));
  CHECK_FALSE(failure_of(std::move(received)));
  CHECK(read_back(where, rank{1}, again[1]) == std::vector<float>(4, 1.0F));
  // Copies alone need no peer.
  CHECK_FALSE(failure_of(one.ask(group{{copy{.from = sources[0], .to = targets[0]}}})));

  // Barriers are matched as collectives are.
  world_group lopsided{where};
  lopsided.on(rank{0}, barrier{});
  CHECK(failure_of(lopsided.ask()).code == errc::mismatch);
}

TROUPE_WORLD_TEST(2, "a copy in a group is refused where it is staged, or overlaps another part", "[runtime][GRP-1]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = ranked_values(where, 4);
  std::vector<float> pageable(4);
  const buffer host = where.adopt_host(pageable.data(), pageable.size() * sizeof(float), nullptr);
  world_group staged{where};
  staged.on(rank{0}, copy{.from = host, .to = memory[0]});
  const error why = failure_of(staged.ask());
  CHECK(why.code == errc::invalid_argument);
  CHECK_THAT(why.text, ContainsSubstring("use pinned memory"));

  const auto other = ranked_values(where, 4);
  world_group overlapping{where};
  overlapping.on_all([&](rank self) {
               return all_reduce{memory[at(self)], memory[at(self)], 4};
             })
      .on(rank{1}, copy{.from = memory[1], .to = other[1]});
  CHECK_THAT(failure_of(overlapping.ask()).text, ContainsSubstring("overlap"));
  CHECK_FALSE(failure_of(where.barrier()));
}

TROUPE_WORLD_TEST(2, "a group with one bad part does nothing, and says which", "[runtime][GRP-1][ORD-2]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = ranked_values(where, 4);
  const auto other = ranked_values(where, 4);
  world_group asked{where};
  asked.on_all([&](rank self) {
         return all_reduce{memory[at(self)], memory[at(self)], 4};
       })
      .on_all([&](rank self) {
        return all_reduce{other[at(self)], other[at(self)], 5};
      }); // one too many
  const outcome whole = outcome_of(asked.ask());
  const error* failure = troupe::failure_of(whole);
  REQUIRE(failure != nullptr);
  CHECK(failure->part == 1U);
  CHECK_THAT(failure->text, ContainsSubstring("part 1 of the group"));
  const auto parts = part_outcomes(asked.of(rank{0}), whole);
  CHECK_THAT(troupe::failure_of(parts[0])->text, ContainsSubstring("because part 1"));
  CHECK_THAT(troupe::failure_of(parts[1])->text, ContainsSubstring("too short"));
  for (const rank self : where.local_ranks())
    CHECK(read_back(where, self, memory[at(self)]) == std::vector<float>(4, static_cast<float>(self.value() + 1)));

  // A transfer that nobody receives is found before anything hangs, and the next request works.
  world_group lonely{where};
  lonely.on(rank{0}, send{.memory = memory[0], .count = 1, .peer = rank{1}});
  CHECK(failure_of(lonely.ask()).code == errc::mismatch);
  CHECK_FALSE(failure_of(where.barrier()));
}

TEST_CASE("parts for another world or another's rank are refused", "[runtime][GRP-1]") {
  runtime rt{mock_settings(2)};
  const world one = rt.form_world();
  const world other = rt.form_world();
  world_group asked{one};
  CHECK_THAT(error_of([&] { asked.append(world_group{other}); }).text, ContainsSubstring("another world"));
  CHECK_NOTHROW(asked.append(world_group{one}));
  CHECK_THAT(error_of([&] { asked.on(rank{2}, send{}); }).text, ContainsSubstring("rank 2 is not in this world"));
  CHECK_THAT(error_of([&] { asked.transfer(rank{0}, {}, rank{2}, {}, 0, dtype::f32); }).text,
             ContainsSubstring("rank 2"));
  CHECK(asked.of(rank{0}).parts.empty());
}

} // namespace troupe::tests::world_group_test
