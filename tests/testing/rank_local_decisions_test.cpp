// The published patterns of ranks that decide by themselves: without an agree they end in a report, with it they serve.
#include "support/any_world.hpp"

#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/testing/memory.hpp>
#include <troupe/testing/simulation/rank_local_decisions.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::rank_local_decisions_test {

namespace {

using namespace simulation;
using Catch::Matchers::ContainsSubstring;
using courses = std::vector<rank_course>;

/// All ranks have taken the same decisions, beyond the step at which each would have decided something else.
void check_serves(const deciding_server& server, const courses& all) {
  for (const rank_course& one : all) {
    INFO(to_string(one.why));
    CHECK(one.why.code == errc::none);
    CHECK(one.wrong == 0);
    CHECK(one.right >= static_cast<std::size_t>(server.difference_at()));
    CHECK(one.decisions.size() > static_cast<std::size_t>(server.difference_at()));
    CHECK(one.decisions == all.front().decisions);
  }
}

/// The requests at difference_at() were refused at every rank, with what ranks asked for in the text. Nothing has run.
void check_mismatch(const deciding_server& server, const courses& all, const std::vector<std::string>& asked) {
  const auto before = static_cast<std::size_t>(server.difference_at());
  for (const rank_course& one : all) {
    INFO(to_string(one.why));
    CHECK(one.why.code == errc::mismatch);
    CHECK(one.why.effect == effect::rejected);
    for (const std::string& text : asked) CHECK_THAT(one.why.text, ContainsSubstring(text));
    CHECK((one.right == before && one.wrong == 0 && one.decisions.size() == before + 1));
  }
}

/// The stages that have not heard of the end wait for the last one, and are told that it is missing.
void check_missing(const deciding_server& server, const courses& all) {
  const rank last{server.ranks() - 1};
  const auto before = static_cast<std::size_t>(server.difference_at());
  CHECK(all.back().why.code == errc::none);
  for (const rank_course& one : all) {
    INFO(to_string(one.why));
    CHECK((one.right == before && one.wrong == 0 && one.decisions.size() == before + 1));
    if (&one == &all.back()) continue;
    CHECK((one.why.code == errc::deadline_exceeded || one.why.code == errc::cancelled));
    CHECK(one.why.effect == effect::rejected);
  }
  const rank_course& neighbour = all[all.size() - 2];
  REQUIRE(neighbour.why.absence);
  CHECK_THAT(describe(*neighbour.why.absence), ContainsSubstring(to_string(last)));
  CHECK(neighbour.why.absence->missing() == std::vector{last});
}

void check_reports(decision_pattern pattern, const deciding_server& server, const courses& all) {
  switch (pattern) {
    case decision_pattern::own_clocks:
      return check_mismatch(server, all, {"all_reduce of 24 i64", "all_reduce of 20 i64"});
    case decision_pattern::free_blocks: {
      std::vector<std::string> texts;
      for (int r = 0; r < server.ranks(); ++r) {
        const std::int64_t users = server.see(rank{r}, server.difference_at()).front() / 4;
        texts.push_back(users == 0 ? "all_gather of 1 i64" : "all_reduce of " + std::to_string(4 * users) + " i64");
      }
      return check_mismatch(server, all, texts);
    }
    case decision_pattern::cancellation:
      return check_mismatch(server, all, {"all_gather of 1 i64", " gather of 1 i64"});
    case decision_pattern::pipeline_end: return check_missing(server, all);
  }
}

/// Serves with a client on a thread of its own for each rank.
courses serve_in(any_world& all, const deciding_server& server, decided_by how) {
  std::vector<rank_lane> lanes;
  std::vector<std::future<rank_course>> ends;
  for (int r = 0; r < all.size(); ++r) lanes.emplace_back(all.of(r), rank{r}, lane::named("steps"));
  for (int r = 0; r < all.size(); ++r)
    ends.push_back(std::async(std::launch::async, [&, r] {
      constexpr std::size_t bytes = deciding_server::most_elements * sizeof(std::int64_t);
      const deciding_server::memory on{all.of(r).allocate(rank{r}, bytes), all.of(r).allocate(rank{r}, bytes)};
      for (const buffer& one : {on.input, on.output}) std::ranges::fill(testing::elements_of<std::int64_t>(one), 0);
      return serve(server, how, rank{r}, on, [&](operation what, int at) {
        // Only requests for which a rank is missing end at their deadlines.
        const bool may_wait = how == decided_by::each_rank && at == server.difference_at();
        return outcome_of(
            lanes[static_cast<std::size_t>(r)].ask(std::move(what), {.deadline = may_wait ? nanoseconds{300ms} : 20s}));
      });
    }));
  courses done;
  for (auto& one : ends) done.push_back(one.get());
  return done;
}

void check_both_arms(const std::function<std::unique_ptr<any_world>()>& make, decision_pattern pattern) {
  constexpr std::uint64_t seed = 17;
  const auto all = make();
  const auto server = draw_server(pattern, all->size(), seed);
  check_serves(*server, serve_in(*all, *server, decided_by::agree));
  const auto other = make(); // positions in a lane count on
  check_reports(pattern, *server, serve_in(*other, *server, decided_by::each_rank));
}

} // namespace

TEST_CASE("in simulated worlds, ranks that decide by themselves end in a report, and with an agree they serve",
          "[simulation][agree][ORD-2]") {
  const auto pattern = GENERATE(from_range(enum_values<decision_pattern>));
  const bool over_processes = GENERATE(false, true);
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 4);
    const auto server = draw_server(pattern, ranks, seed);
    INFO(to_string(pattern) << ", seed " << seed << ", " << ranks << " ranks" << (over_processes ? ", processes" : ""));
    const auto alone = simulate_decisions(pattern, decided_by::each_rank, ranks, seed, over_processes);
    CAPTURE(alone.findings);
    REQUIRE(alone.findings.empty());
    check_reports(pattern, *server, alone.ranks);
    const auto together = simulate_decisions(pattern, decided_by::agree, ranks, seed, over_processes);
    CAPTURE(together.findings);
    REQUIRE(together.findings.empty());
    check_serves(*server, together.ranks);
  }
}

TEST_CASE("a simulated server that decides gives the same trace for the same seed (DET-1)", "[simulation][agree]") {
  const auto pattern = GENERATE(from_range(enum_values<decision_pattern>));
  const bool over_processes = GENERATE(false, true);
  std::set<std::string> traces;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto trace = [&] { return simulate_decisions(pattern, decided_by::agree, 3, seed, over_processes).trace; };
    const std::string first = trace();
    CHECK(first == trace());
    traces.insert(first);
  }
  CHECK(traces.size() == 3);
}

TEST_CASE("in mock worlds, ranks that decide by themselves end in a report, and with an agree they serve",
          "[runtime][agree][ORD-2]") {
  const auto pattern = GENERATE(from_range(enum_values<decision_pattern>));
  check_both_arms([] { return std::make_unique<any_world>(mock_settings(4)); }, pattern);
}

TEST_CASE(
    "in mock worlds over processes, ranks that decide by themselves end in a report, and with an agree they serve",
    "[runtime][agree][ORD-2][processes]") {
  const auto pattern = GENERATE(from_range(enum_values<decision_pattern>));
  check_both_arms([] { return std::make_unique<any_world>(3); }, pattern);
}

} // namespace troupe::tests::rank_local_decisions_test
