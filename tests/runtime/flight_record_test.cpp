#include <troupe/runtime/recording/flight_record.hpp>
#include <troupe/runtime/recording/record_on_signal.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_all.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace troupe::tests {

namespace {

using json = nlohmann::json;
using namespace std::chrono_literals;

std::filesystem::path fresh_folder(const char* name) {
  auto folder =
      std::filesystem::temp_directory_path() / (std::string{"troupe-flight-"} + name + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  return folder;
}

configuration two_mock_ranks() {
  configuration settings;
  settings.backend = backend_choice::mock;
  settings.mock.devices = 2;
  settings.profile = latency_profile::frugal;
  return settings;
}

json record_of(const runtime& rt, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ifstream from{rt.write_flight_record(folder / "record.json")};
  return json::parse(from);
}

} // namespace

TEST_CASE("the record of a world has every rank's requests, with the line that asked", "[runtime]") {
  const auto folder = fresh_folder("life");
  runtime rt{two_mock_ranks()};
  world where = rt.form_world();
  std::vector<buffer> values = {where.allocate(rank{0}, 64), where.allocate(rank{1}, 64)};
  const unsigned line = __LINE__ + 1;
  where.all_reduce(values, values, 16, dtype::f32, reduction::sum).get();
  where.ask(rank{1}, copy{{values[1]}, {where.allocate(rank{1}, 64)}}).get();

  const json record = record_of(rt, folder);
  CHECK(record.at("schema") == 1);
  CHECK(record.at("pid") == ::getpid());
  REQUIRE(record.at("lines").size() == 2);
  for (const json& rank : record.at("lines")) {
    const json& one = rank.at("requests").at(0);
    CHECK(one.at("what") == "all_reduce of 16 f32, sum");
    CHECK(one.at("of_world") == true);
    CHECK(one.at("bytes") == 64);
    CHECK(one.at("site") == std::string{__FILE__} + ':' + std::to_string(line));
    CHECK(one.at("asked") <= one.at("matched"));
    CHECK(one.at("matched") <= one.at("launch_began"));
    CHECK(one.at("launch_began") <= one.at("launched"));
    CHECK(one.at("launched") <= one.at("finished"));
    CHECK_FALSE(one.contains("result"));
  }
  const json& second = record.at("lines").at(1).at("requests").at(1);
  CHECK(second.at("what") == "copy of 64 bytes");
  CHECK(second.contains("replied"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a request that waits for a peer is in the record, and so is its error", "[runtime]") {
  const auto folder = fresh_folder("wait");
  runtime rt{two_mock_ranks()};
  world where = rt.form_world();
  const buffer mine = where.allocate(rank{0}, 64);
  auto alone = where.ask(rank{0}, all_reduce{{mine}, {mine}, 16, dtype::f32, reduction::sum}, {.deadline = 1s});
  json one;
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!one.contains("asked") && std::chrono::steady_clock::now() < end) { // until its actor has taken it
    const json record = record_of(rt, folder);
    for (const json& line : record.at("lines"))
      if (!line.at("requests").empty()) one = line.at("requests").at(0);
    std::this_thread::sleep_for(1ms);
  }
  CHECK(one.contains("asked"));
  CHECK_FALSE(one.contains("matched"));
  CHECK_THROWS_AS(alone.get(), exception);

  const json after = record_of(rt, folder).at("lines").at(0).at("requests").at(0);
  CHECK(after.at("result") == "deadline_exceeded");
  CHECK(after.contains("replied"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a recorder of no requests keeps none", "[runtime]") {
  const auto folder = fresh_folder("none");
  configuration settings = two_mock_ranks();
  settings.recorder.requests = 0;
  runtime rt{settings};
  world where = rt.form_world();
  where.barrier().get();
  CHECK(record_of(rt, folder).at("lines").at(0).at("requests").empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("a record is its owner's alone, and follows no link", "[runtime]") {
  const auto folder = fresh_folder("mode");
  std::filesystem::create_directories(folder);
  std::ofstream{folder / "victim"} << "as it was";
  std::filesystem::create_symlink(folder / "victim", folder / "record.json.part");
  runtime rt{two_mock_ranks()};
  static_cast<void>(rt.write_flight_record(folder / "record.json"));
  using std::filesystem::perms;
  CHECK(std::filesystem::status(folder / "record.json").permissions() == (perms::owner_read | perms::owner_write));
  CHECK(std::filesystem::file_size(folder / "victim") == 9);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a record that cannot be written says where", "[runtime]") {
  runtime rt{two_mock_ranks()};
  const auto pipe = fresh_folder("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0); // stands for /dev/null, which root could replace
  CHECK_THROWS_WITH(rt.write_flight_record(pipe), Catch::Matchers::ContainsSubstring("not a regular file"));
  CHECK(std::filesystem::is_fifo(pipe));
  std::filesystem::remove(pipe);
  CHECK_THROWS_WITH(rt.write_flight_record("/dev/null/record.json"),
                    Catch::Matchers::ContainsSubstring("/dev/null/record.json"));
}

TEST_CASE("a signal has the record written", "[runtime]") {
  const auto folder = fresh_folder("signal");
  configuration settings = two_mock_ranks();
  settings.recorder.signal = SIGUSR2;
  settings.report_folder = folder;
  settings.log_level = "off";
  {
    runtime rt{settings};
    world where = rt.form_world();
    where.barrier().get();
    CHECK_THROWS_WITH(runtime{settings}, Catch::Matchers::ContainsSubstring("recorder.signal")); // one in a process
    ::raise(SIGUSR2);
    const auto is_there = [&] { return std::filesystem::exists(folder) && !std::filesystem::is_empty(folder); };
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < end &&
           (!is_there() || std::filesystem::directory_iterator { folder } -> path().extension() != ".json"))
      std::this_thread::sleep_for(5ms);
    REQUIRE(is_there());
    std::ifstream from{std::filesystem::directory_iterator{folder} -> path()};
    CHECK(json::parse(from).at("why") == "a signal");
  }
  struct sigaction now {};
  ::sigaction(SIGUSR2, nullptr, &now);
  CHECK(now.sa_handler == SIG_DFL);
  std::filesystem::remove_all(folder);
}

} // namespace troupe::tests
