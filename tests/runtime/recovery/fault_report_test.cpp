// Reports of faults for programs: as JSON, in files and in the log.
#include <troupe/collectives/pipeline/fault_suspects.hpp>
#include <troupe/collectives/recording/flight_recorder.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/world_log.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <nlohmann/json.hpp>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace troupe::tests::fault_report_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const record_stamp stamp{.pid = 4711, .system = std::chrono::system_clock::time_point{1769903999s + 123456us}};

fault_report sample() {
  constexpr time_point taken{100s};
  fault_report made{.fault = {.code = errc::deadline_exceeded,
                              .effect = effect::unknown_outcome,
                              .text = "hung",
                              .call = "ncclAllReduce",
                              .native_code = 6,
                              .native_text = "a \"quoted\" \xff word",
                              .rank = rank{0},
                              .epoch = epoch{2}},
                    .world = 3,
                    .epoch = epoch{2},
                    .world_size = 2,
                    .taken = taken,
                    .asking = {"ncclras -v"}};
  fault_report::standing waits{.rank = rank{0}, .device = device_id{4}, .in_flight = 1, .last_error = "a warning"};
  waits.progress.submitted = waits.progress.launched = waits.progress.started =
      operation_mark{.what = "all_reduce of 8 f32, sum", .position = 1};
  waits.progress.finished = operation_mark{.what = "barrier"};
  waits.progress.collectives = {2, 2, 1};
  waits.progress.running_since = taken - 1500ms;
  fault_report::standing absent{.rank = rank{1}, .device = device_id{5}};
  absent.progress.collectives = {1, 1, 1};
  made.ranks = {waits, absent};
  made.suspects = diagnose(made).suspects;
  return made;
}

/// A folder of the test's own, gone with it.
class scratch {
public:
  scratch() : path_{std::filesystem::temp_directory_path() / ("troupe-report-" + std::to_string(::getpid()))} {
    std::filesystem::remove_all(path_);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& one : std::filesystem::directory_iterator{path_}) all.push_back(one.path());
    return all;
  }

private:
  std::filesystem::path path_;
};

json read(const std::filesystem::path& path) {
  std::ifstream file{path};
  return json::parse(file);
}

/// What troupe's log says while this lives.
class kept_log {
public:
  kept_log() {
    spdlog::drop("troupe");
    spdlog::register_logger(
        std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
    open_log("debug");
  }
  kept_log(const kept_log&) = delete;
  kept_log& operator=(const kept_log&) = delete;
  ~kept_log() {
    flush_log(20s);
    spdlog::drop("troupe");
  }
  [[nodiscard]] std::string text() const {
    CHECK(flush_log(20s));
    return text_.str();
  }

private:
  std::ostringstream text_;
};

world_event faulty_event() {
  auto report = std::make_shared<const fault_report>(sample());
  return {.phase = world_phase::failed,
          .epoch = epoch{2},
          .world_size = 2,
          .local_ranks = {rank{0}, rank{1}},
          .reason = report->fault,
          .report = report};
}

} // namespace

TEST_CASE("a report as JSON has what the report has", "[runtime][report]") {
  const json read_back = json::parse(as_json(sample(), stamp));
  CHECK(read_back["schema"] == 1);
  CHECK(read_back["written"] == "2026-01-31T23:59:59.123456Z");
  CHECK(read_back["pid"] == 4711);
  CHECK(read_back["world"] == 3);
  CHECK(read_back["epoch"] == 2);
  CHECK(read_back["world_size"] == 2);
  CHECK(read_back["fault"]["code"] == "deadline_exceeded");
  CHECK(read_back["fault"]["effect"] == "unknown_outcome");
  CHECK(read_back["fault"]["call"]["code"] == 6);
  CHECK(read_back["fault"]["call"]["text"] == "a \"quoted\" \xEF\xBF\xBD word"); // what is no UTF-8 is replaced
  CHECK(read_back["fault"]["ticket"].is_null());
  REQUIRE(read_back["suspects"].size() == 1);
  CHECK(read_back["suspects"][0]["rank"] == 1);
  CHECK(read_back["suspects"][0]["why"] == "not_asked");
  CHECK(read_back["remark"].is_null());
  REQUIRE(read_back["ranks"].size() == 2);
  const json& waits = read_back["ranks"][0];
  CHECK(waits["device"] == 4);
  CHECK(waits["started"] == json{{"what", "all_reduce of 8 f32, sum"}, {"lane", lane{}.name()}, {"request", 1}});
  CHECK(waits["collectives"] == json{{"asked", 2}, {"launched", 2}, {"finished", 1}});
  CHECK(waits["in_flight"] == 1);
  CHECK(waits["running_for_s"] == 1.5);
  CHECK(waits["launching_for_s"].is_null());
  CHECK(waits["library_error"] == "a warning");
  CHECK(waits["fault"].is_null());
  CHECK(read_back["ranks"][1]["asked"].is_null());
  CHECK(read_back["ask"] == json::array({"ncclras -v"}));
}

TEST_CASE("a report's file is named after world, epoch, process and time, and its folder is made",
          "[runtime][report]") {
  const scratch folder;
  const auto path = write_fault_report(folder.path() / "new", sample(), stamp);
  CHECK(path == folder.path() / "new" / "world3-epoch2-pid4711-20260131T235959.123456Z.json");
  CHECK(read(path) == json::parse(as_json(sample(), stamp)));
  CHECK_FALSE(std::filesystem::exists(path.string() + ".part"));
  CHECK_THROWS_AS(write_fault_report(path, sample(), stamp), exception); // a file is no folder
}

TEST_CASE("a report goes into the log in words, and into the folder as JSON", "[runtime][report]") {
  const scratch folder;
  const kept_log log;
  auto helpers = std::make_shared<deadline_pool>();
  make_world_log(folder.path(), helpers)(faulty_event());
  helpers->stop(); // waits for the file
  REQUIRE(folder.files().size() == 1);
  CHECK(read(folder.files().front())["suspects"][0]["rank"] == 1);
  CHECK_THAT(log.text(), ContainsSubstring("world of 2 is failed") &&
                             ContainsSubstring("[warning] world 3, epoch 2: deadline_exceeded") &&
                             ContainsSubstring("suspected: rank 1") &&
                             ContainsSubstring("the report of a fault is in " + folder.path().string()) &&
                             !ContainsSubstring("\"schema\""));
}

TEST_CASE("the flight record that goes beside a report says of what versions it is", "[runtime][report]") {
  const scratch folder;
  const kept_log log;
  auto helpers = std::make_shared<deadline_pool>();
  make_world_log(folder.path(), helpers, {std::make_shared<flight_recorder>(16), "NCCL 1.2"})(faulty_event());
  helpers->stop();
  std::vector<std::filesystem::path> records;
  for (const auto& one : folder.files())
    if (one.filename().string().starts_with("flight-")) records.push_back(one);
  REQUIRE(records.size() == 1);
  CHECK(read(records.front())["about"] == "NCCL 1.2");
}

TEST_CASE("a report without a folder goes into the log as JSON too", "[runtime][report]") {
  const kept_log log;
  make_world_log({}, std::make_shared<deadline_pool>())(faulty_event());
  CHECK_THAT(log.text(), ContainsSubstring("[warning] world 3, epoch 2: ") &&
                             ContainsSubstring("[debug] {\"schema\":1,\"written\":"));
}

TEST_CASE("a report that is of no change of phase is logged alone", "[runtime][report]") {
  const kept_log log;
  world_event late = faulty_event();
  late.phase = world_phase::ready;
  late.reason = {};
  make_world_log({}, std::make_shared<deadline_pool>())(late);
  CHECK_THAT(log.text(), ContainsSubstring("world 3, epoch 2: ") && !ContainsSubstring("world of 2 is"));
}

TEST_CASE("a fault is a warning once: not when the world forms, nor a report that only names the same rank",
          "[runtime][report]") {
  const auto warnings_of = [](world_event event) {
    const kept_log log;
    make_world_log({}, std::make_shared<deadline_pool>())(event);
    const std::string text = log.text();
    std::size_t count = 0;
    for (auto at = text.find("[warning]"); at != std::string::npos; at = text.find("[warning]", at + 1)) ++count;
    return count;
  };
  world_event event = faulty_event();
  event.phase = world_phase::rebuilding;
  CHECK(warnings_of(event) == 2);
  auto named = sample();
  named.fault = {.code = errc::communicator_failed, .text = "process 3 has ended", .rank = rank{3}};
  named.suspects = diagnose(named).suspects;
  event.report = std::make_shared<const fault_report>(named);
  CHECK(warnings_of(event) == 1);
  event.report = nullptr;
  CHECK(warnings_of(event) == 1);
  event.phase = world_phase::forming;
  CHECK(warnings_of(event) == 0);
}

TEST_CASE("a report that cannot be written is a warning and nothing else", "[runtime][report]") {
  const kept_log log;
  auto helpers = std::make_shared<deadline_pool>();
  const auto heard = make_world_log("/dev/null/reports", helpers);
  heard(faulty_event());
  helpers->stop();
  CHECK_THAT(log.text(), ContainsSubstring("cannot be written to /dev/null/reports/world3-epoch2-pid") &&
                             ContainsSubstring("report.folder"));
  CHECK_NOTHROW(heard(faulty_event())); // no helper any more
  CHECK_THAT(log.text(), ContainsSubstring("has no helper thread any more"));
}

} // namespace troupe::tests::fault_report_test
