// Which operation of several worlds is named when one does not end.
#include <troupe/processes/order/hang_verdict.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::hang_verdict_test {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

enum class at : std::uint8_t { missing, waits, ended };

open_operation operation_of(std::uint64_t number, const std::string& world,
                            const std::vector<std::pair<int, at>>& ranks) {
  open_operation made{
      .number = number, .sub_world = world, .what = {.what = "barrier", .position = number}, .ranks = {}};
  for (const auto& one : ranks)
    made.ranks.push_back(
        {.rank = rank{one.first}, .has_launched = one.second != at::missing, .has_finished = one.second == at::ended});
  return made;
}

error verdict(int from, const std::vector<open_operation>& all) {
  return judge_hang({.code = errc::deadline_exceeded, .text = "too late", .rank = rank{from}}, rank{from}, all).why;
}

} // namespace

TEST_CASE("a verdict follows the ranks from world to world, to the operation that waits behind no other",
          "[collectives][distributed][hang]") {
  // "c" hangs at ranks 2 and 3; "b" waits behind it at rank 2, and "a" behind "b" at rank 1. "d" has its own fault.
  std::vector<open_operation> all{operation_of(9, "a", {{0, at::waits}, {1, at::waits}}),
                                  operation_of(7, "b", {{1, at::waits}, {2, at::waits}}),
                                  operation_of(5, "c", {{2, at::waits}, {3, at::missing}}),
                                  operation_of(2, "d", {{4, at::waits}, {5, at::missing}})};
  for (int turn = 0; turn < 4; ++turn) {
    std::rotate(all.begin(), all.begin() + 1, all.end());
    for (const int from : {0, 1, 2, 3}) {
      const error why = verdict(from, all);
      CHECK(why.rank == rank{3});
      CHECK_THAT(why.text,
                 StartsWith("barrier (lane default, request 5) of sub-world 'c' hangs: rank 3 has not launched "
                            "it, and rank 2 waits in it; barrier (lane default, request 7) of sub-world 'b', "
                            "barrier (lane default, request 9) of sub-world 'a' wait behind it; rank "));
    }
    CHECK(verdict(4, all).rank == rank{5});
    CHECK_THAT(verdict(5, all).text, ContainsSubstring("of sub-world 'd' hangs") && !ContainsSubstring("behind"));
  }
}

TEST_CASE("an operation does not wait behind one that has ended at the rank which both have",
          "[collectives][distributed][hang]") {
  const std::vector<open_operation> all{operation_of(1, "a", {{0, at::waits}, {1, at::ended}}),
                                        operation_of(2, "b", {{1, at::waits}, {2, at::missing}})};
  CHECK(verdict(1, all).rank == rank{2});
  CHECK_THAT(verdict(1, all).text, StartsWith("barrier (lane default, request 2) of sub-world 'b' hangs"));
  const std::vector<open_operation> other{operation_of(1, "a", {{0, at::waits}, {1, at::missing}}),
                                          operation_of(2, "b", {{1, at::ended}, {2, at::waits}})};
  CHECK_THAT(verdict(2, other).text, StartsWith("barrier (lane default, request 2) of sub-world 'b' hangs"));
}

TEST_CASE("the ranks of an operation that hangs are told apart by what they have reported",
          "[collectives][distributed][hang]") {
  const auto of = [](const std::vector<std::pair<int, at>>& ranks, int from = 0) {
    return verdict(from, {operation_of(3, "", ranks)});
  };
  const std::string name = "barrier (lane default, request 3) hangs: ";
  SECTION("not launched at some") {
    const error why = of({{2, at::missing}, {1, at::missing}, {0, at::waits}, {3, at::ended}});
    CHECK(why.rank == rank{1});
    CHECK_THAT(why.text,
               StartsWith(name + "ranks 1, 2 have not launched it, and rank 0 waits in it; rank 0 reported: "));
  }
  SECTION("ended at most") {
    CHECK(of({{0, at::waits}, {1, at::ended}, {2, at::ended}}).rank == rank{0});
  }
  SECTION("ended at few") {
    const error why = of({{0, at::waits}, {1, at::ended}, {2, at::waits}});
    CHECK(why.rank == rank{1});
    CHECK_THAT(why.text, StartsWith(name + "rank 1 reports to have finished it, and ranks 0, 2 wait in it"));
  }
  SECTION("waited for by all") {
    CHECK(of({{0, at::waits}, {1, at::waits}}, 1).rank == rank{1});
    CHECK_THAT(of({{0, at::waits}, {1, at::waits}}).text, StartsWith(name + "ranks 0, 1 wait in it; rank 0 reported"));
  }
  SECTION("launched by none, or unknown") {
    CHECK(of({{0, at::missing}, {1, at::missing}}).text == "too late");
    CHECK(of({{0, at::ended}, {1, at::waits}}).text == "too late");
    CHECK(verdict(0, {}).text == "too late");
  }
}

TEST_CASE("a verdict names the two ranks of an operation that both have launched", "[collectives][distributed][hang]") {
  const auto ends = [](const std::vector<std::pair<int, at>>& ranks) {
    return judge_hang({.code = errc::deadline_exceeded}, rank{1}, {operation_of(3, "", ranks)}).ends;
  };
  CHECK(ends({{1, at::waits}, {4, at::waits}}) == std::pair{rank{1}, rank{4}});
  CHECK(ends({{1, at::waits}, {4, at::ended}}) == std::pair{rank{1}, rank{4}}); // what it sent may have been lost
  CHECK_FALSE(ends({{1, at::waits}, {4, at::missing}}));
  CHECK_FALSE(ends({{1, at::waits}, {4, at::waits}, {5, at::waits}}));
  CHECK_FALSE(ends({{1, at::waits}}));
}

TEST_CASE("a verdict names few of many operations that wait", "[collectives][distributed][hang]") {
  std::vector<open_operation> all;
  for (std::uint64_t i = 1; i <= 8; ++i) all.push_back(operation_of(i, "w", {{0, at::waits}, {1, at::waits}}));
  CHECK_THAT(verdict(1, all).text, ContainsSubstring("request 5) of sub-world 'w' and 3 more wait behind it; "));
}

} // namespace troupe::tests::hang_verdict_test
