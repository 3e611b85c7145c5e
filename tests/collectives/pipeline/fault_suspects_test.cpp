// Whom a fault's report suspects, and how it says so.
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/pipeline/fault_suspects.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::fault_suspects_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr time_point taken{100s};

struct place {
  std::uint64_t asked = 0;
  std::uint64_t launched = 0;
  std::uint64_t finished = 0;
  bool runs = false;
};

/// Ranks that stand as \p places say, in a world whose collectives are all barriers.
fault_report standing_at(const std::vector<place>& places) {
  const auto mark = [](std::uint64_t number) -> std::optional<operation_mark> {
    if (number == 0) return std::nullopt;
    return operation_mark{.what = "barrier", .position = number - 1};
  };
  fault_report made{.fault = {.code = errc::deadline_exceeded, .text = "hung"},
                    .world = 3,
                    .epoch = epoch{2},
                    .world_size = static_cast<int>(places.size()),
                    .taken = taken};
  for (const place& one : places) {
    fault_report::standing rank_at{.rank = rank{static_cast<int>(made.ranks.size())},
                                   .in_flight = one.asked - one.finished};
    rank_at.progress.submitted = mark(one.asked);
    rank_at.progress.launched = mark(one.launched);
    rank_at.progress.finished = mark(one.finished);
    rank_at.progress.started = mark(one.finished + (one.runs ? 1 : 0));
    if (one.runs) rank_at.progress.running_since = taken - 30s;
    rank_at.progress.collectives = {one.asked, one.launched, one.finished};
    made.ranks.push_back(std::move(rank_at));
  }
  return made;
}

struct accused {
  int who = 0;
  suspicion why{};
  friend bool operator==(const accused&, const accused&) = default;
};

std::vector<accused> accused_in(const diagnosis& found) {
  std::vector<accused> all;
  for (const suspect& one : found.suspects) all.push_back({one.rank.value(), one.why});
  return all;
}

void transfers(fault_report& report, int from, int to, bool receives) {
  auto& at = report.ranks[static_cast<std::size_t>(from)];
  at.in_flight = 1;
  at.progress.running_since = taken - 2s;
  at.progress.started = operation_mark{
      .what = receives ? "recv of 4 f32" : "send of 4 f32", .reach = operation_reach::peers, .peer = rank{to}};
}

} // namespace

TEST_CASE("a rank that has not come where the others wait is suspected", "[collectives][report]") {
  const place waits{.asked = 18, .launched = 18, .finished = 17, .runs = true};
  SECTION("because nobody asked it") {
    const auto found = diagnose(standing_at({waits, {17, 17, 17}, waits}));
    CHECK(accused_in(found) == std::vector<accused>{{1, suspicion::not_asked}});
    CHECK(found.suspects.front().reason == "it has been asked for 17 collectives, and ranks 0, 2 wait in the 18th, "
                                           "barrier (lane default, request 17): it has not been asked for that");
  }
  SECTION("because its launcher is held up") {
    const auto found = diagnose(standing_at({waits, {20, 17, 17}, waits}));
    CHECK(accused_in(found) == std::vector<accused>{{1, suspicion::not_launched}});
    CHECK_THAT(found.suspects.front().reason, ContainsSubstring("20 collectives and has launched 17"));
  }
  SECTION("however far the others have launched ahead") {
    const auto found = diagnose(standing_at({{90, 80, 17, true}, {16, 16, 16}, {17, 17, 16, true}}));
    CHECK(accused_in(found) == std::vector<accused>{{1, suspicion::not_asked}});
  }
  SECTION("and not the one that waits for it inside a launch call") {
    auto report = standing_at({{18, 17, 17}, {17, 17, 17}, waits});
    report.ranks[0].progress.launching_since = taken - 12s;
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{1, suspicion::not_asked}});
  }
}

TEST_CASE("a rank whose launch call does not return is suspected", "[collectives][report]") {
  const place waits{.asked = 18, .launched = 18, .finished = 17, .runs = true};
  auto report = standing_at({waits, {18, 17, 17}, waits});
  report.ranks[1].progress.launching_since = taken - 12s;
  auto found = diagnose(report);
  CHECK(accused_in(found) == std::vector<accused>{{1, suspicion::stuck_launch}});
  CHECK(found.suspects.front().reason == "its launch call has not returned for 12.0 s");
  for (auto& one : report.ranks) {
    one.progress.collectives.launched = 17;
    one.progress.launching_since = taken - 12s;
  }
  found = diagnose(report);
  CHECK(found.suspects.empty());
  CHECK(found.remark == "all ranks here are inside a launch call");
}

TEST_CASE("the odd one of ranks that have all launched the same is suspected", "[collectives][report]") {
  const place waits{.asked = 18, .launched = 18, .finished = 17, .runs = true};
  const place done{.asked = 18, .launched = 18, .finished = 18};
  SECTION("that has not begun") {
    CHECK(accused_in(diagnose(standing_at({waits, {18, 18, 17, false}, waits}))) ==
          std::vector<accused>{{1, suspicion::not_started}});
  }
  SECTION("whose device is busy with a copy of its own") {
    auto report = standing_at({waits, waits, waits});
    report.ranks[1].progress.started = operation_mark{.what = "copy of 8 bytes", .reach = operation_reach::itself};
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{1, suspicion::runs_other}});
  }
  SECTION("that alone has not finished") {
    CHECK(accused_in(diagnose(standing_at({done, waits, done}))) == std::vector<accused>{{1, suspicion::unfinished}});
  }
  SECTION("that alone has finished: its part was never there") {
    CHECK(accused_in(diagnose(standing_at({waits, done, waits}))) == std::vector<accused>{{1, suspicion::alone_done}});
  }
  SECTION("and nobody, where all stand alike") {
    const auto found = diagnose(standing_at({waits, waits, waits}));
    CHECK(found.suspects.empty());
    CHECK_THAT(found.remark, StartsWith("all ranks here have made the same progress in the 18th"));
    const auto even = diagnose(standing_at({waits, done}));
    CHECK(even.suspects.empty());
  }
}

TEST_CASE("a rank that another waits for in a transfer is suspected", "[collectives][report]") {
  auto report = standing_at({{5, 5, 5}, {5, 5, 5}, {5, 5, 5}});
  transfers(report, 0, 2, false);
  CHECK(accused_in(diagnose(report)) == std::vector<accused>{{2, suspicion::absent_peer}});
  transfers(report, 2, 0, true); // both are there
  const auto found = diagnose(report);
  CHECK(found.suspects.empty());
  CHECK_THAT(found.remark, StartsWith("no collective is in flight"));
}

TEST_CASE("the end of a transfer that reports to have finished is suspected", "[collectives][report]") {
  auto report = standing_at({{5, 5, 5}, {5, 5, 5}, {5, 5, 5}});
  transfers(report, 0, 2, false);
  auto& other = report.ranks[2].progress;
  other.finished = operation_mark{.what = "recv of 4 f32", .reach = operation_reach::peers, .peer = rank{0}};
  const auto found = diagnose(report);
  CHECK(accused_in(found) == std::vector<accused>{{2, suspicion::alone_done}});
  CHECK(found.suspects.front().reason ==
        "rank 0 has waited in send of 4 f32 (lane default, request 0) for 2.0 s, and it "
        "reports that it has finished its end, which may never have reached the device");
  other.finished->position = 1; // another transfer
  CHECK(accused_in(diagnose(report)) == std::vector<accused>{{2, suspicion::absent_peer}});
}

TEST_CASE("nothing unknown is claimed of a group of transfers with several peers", "[collectives][report]") {
  auto report = standing_at({{5, 5, 5}, {5, 5, 5}, {5, 5, 5}});
  transfers(report, 0, 2, false);
  report.ranks[0].progress.started = operation_mark{.what = "group of 2", .reach = operation_reach::peers};
  const auto found = diagnose(report);
  CHECK(found.suspects.empty());
  CHECK(found.remark == "no collective is in flight, and it cannot be determined for which of its peers a group of "
                        "transfers waits");
}

TEST_CASE("a rank that the fault names is suspected, if it is in another process or the controller has found it",
          "[collectives][report]") {
  auto report = standing_at({{5, 5, 5}});
  report.world_size = 4;
  report.fault = {.code = errc::communicator_failed, .text = "process 2 has ended", .rank = rank{2}};
  const auto found = diagnose(report);
  CHECK(accused_in(found) == std::vector<accused>{{2, suspicion::named}});
  report.suspects = found.suspects;
  CHECK_THAT(describe(report),
             ContainsSubstring("process 2 has ended (rank 2); suspected: rank 2, because the fault names it"));
  report.fault.rank = rank{0};
  CHECK(diagnose(report).suspects.empty()); // it has only noticed the fault
  report.is_verdict = true;
  CHECK(accused_in(diagnose(report)) == std::vector<accused>{{0, suspicion::named}});
}

TEST_CASE("the fault for clients names the suspect, and who has noticed it", "[collectives][report]") {
  const place waits{.asked = 18, .launched = 18, .finished = 17, .runs = true};
  auto report = standing_at({waits, {17, 17, 17}, waits});
  report.fault = {.code = errc::deadline_exceeded, .text = "hung", .rank = rank{0}};
  CHECK(describe_reason(fault_of(report)) == "deadline_exceeded: hung (rank 0)");
  report.suspects = diagnose(report).suspects;
  CHECK(describe_reason(fault_of(report)) ==
        "deadline_exceeded: hung; rank 0 has noticed it; rank 1 is suspected (rank 1)");
  report.suspects.push_back({.rank = rank{2}});
  CHECK(describe_reason(fault_of(report)) ==
        "deadline_exceeded: hung; rank 0 has noticed it; ranks 1, 2 are suspected");
  report.suspects.push_back({.rank = rank{0}});
  CHECK(describe_reason(fault_of(report)) == "deadline_exceeded: hung (rank 0)");
}

TEST_CASE("a copy that hangs is its own rank's fault", "[collectives][report]") {
  auto report = standing_at({{5, 5, 5}, {5, 5, 5}});
  report.ranks[1].in_flight = 1;
  report.ranks[1].progress.running_since = taken - 2s;
  report.ranks[1].progress.started = operation_mark{.what = "copy of 8 bytes", .reach = operation_reach::itself};
  CHECK(accused_in(diagnose(report)) == std::vector<accused>{{1, suspicion::runs_other}});
}

TEST_CASE("a rank that reported a failure of its own is suspected before any that stands oddly",
          "[collectives][report]") {
  const place waits{.asked = 18, .launched = 18, .finished = 17, .runs = true};
  auto report = standing_at({{17, 17, 17}, waits, waits});
  SECTION("of its device") {
    report.ranks[2].fault = {.code = errc::device_failed, .text = "the copy engine", .rank = rank{2}};
    const auto found = diagnose(report);
    CHECK(accused_in(found) == std::vector<accused>{{2, suspicion::reported}});
    CHECK_THAT(found.suspects.front().reason, ContainsSubstring("device_failed: the copy engine"));
  }
  SECTION("of its actor, which the world reports for it") {
    report.fault = {.code = errc::abandoned, .text = "its actor ended", .rank = rank{1}};
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{1, suspicion::reported}});
  }
  SECTION("of its communicator") {
    report.ranks[2].fault = {.code = errc::communicator_failed, .rank = rank{2}};
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{2, suspicion::reported}});
  }
  SECTION("but not of what it only saw") {
    report.ranks[2].fault = {.code = errc::deadline_exceeded, .rank = rank{2}};
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{0, suspicion::not_asked}});
    for (auto& one : report.ranks) one.fault = {.code = errc::communicator_failed, .rank = one.rank};
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{0, suspicion::not_asked}});
  }
  SECTION("and only the first, where the whole process is poisoned") {
    for (auto& one : report.ranks) one.fault = {.code = errc::process_poisoned, .rank = one.rank};
    report.fault = report.ranks[1].fault;
    CHECK(accused_in(diagnose(report)) == std::vector<accused>{{1, suspicion::reported}});
  }
}

TEST_CASE("where nothing can be told, the report says why", "[collectives][report]") {
  CHECK(diagnose(fault_report{}).remark == "no rank of this process had been formed");
  auto report = standing_at({{5, 5, 5}, {5, 5, 5}});
  report.world_size = 4;
  CHECK(diagnose(report).remark ==
        "no rank here has anything in flight; 2 ranks of other processes cannot be seen from here");
  report = standing_at({{5, 5, 4, true}, {4, 4, 4}});
  report.fault = {.code = errc::mismatch};
  CHECK_THAT(diagnose(report).remark, StartsWith("the ranks disagree"));
}

TEST_CASE("a report of many ranks names the first eight, those suspected first", "[collectives][report]") {
  std::vector<place> places(20, place{.asked = 18, .launched = 18, .finished = 17, .runs = true});
  places[13] = {17, 17, 17};
  fault_report report = standing_at(places);
  report.suspects = diagnose(report).suspects;
  for (auto& one : report.ranks) one.last_error = "a warning";
  report.asking = {"ncclras -v"};
  const std::string text = describe(report);
  CHECK_THAT(text,
             StartsWith("world 3, epoch 2: deadline_exceeded: hung; suspected: rank 13, because it has been asked "
                        "for 17 collectives, and ranks 0, 1, 2, 3, 4, 5, 6, 7 and 11 more wait in the 18th"));
  CHECK_THAT(text, ContainsSubstring("; rank 13 was last asked for barrier (lane default, request 16), launched"));
  CHECK_THAT(text,
             ContainsSubstring("; rank 6 was last asked for barrier (lane default, request 17), launched barrier "
                               "(lane default, request 17), has run barrier (lane default, request 17) for "
                               "30.0 s, finished barrier (lane default, request 16), 1 in flight; and 12 more ranks"));
  CHECK_THAT(text, !ContainsSubstring("rank 7 was"));
  CHECK_THAT(text, ContainsSubstring("an older one: a warning; to query it: ncclras -v"));
}

TEST_CASE("NCCL's RAS is asked where its environment says that it is", "[collectives][report]") {
  CHECK(nccl_ras_command("", "") == "ncclras -v");
  CHECK(nccl_ras_command("1", "0.0.0.0:4000") == "ncclras -v -h 0.0.0.0 -p 4000");
  CHECK(nccl_ras_command("", "[::1]:28029") == "ncclras -v -h ::1 -p 28029");
  CHECK(nccl_ras_command("", "nonsense") == "ncclras -v");
  CHECK(nccl_ras_command("0", "").empty());
}

} // namespace troupe::tests::fault_suspects_test
