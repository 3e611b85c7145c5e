#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/program/trace/trace_record.hpp>

#include <troupe/device/error.hpp>

#include <catch2/catch_all.hpp>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace troupe::program::tests {

namespace {

using json = nlohmann::json;

/// One rank's record of three collectives, 1000 ns apart, each 300 ns on the GPU.
json record(int rank, const char* boot, trace_time steady, trace_time system) {
  json requests = json::array();
  for (int i = 0; i < 3; ++i) {
    const trace_time asked = steady + 1000 * i + 10 * rank;
    requests.push_back({{"ticket", i + 1},
                        {"epoch", 1},
                        {"what", "all_reduce of 4 f32, sum"},
                        {"lane", "x"},
                        {"position", i},
                        {"reach", "all_ranks"},
                        {"bytes", 16},
                        {"asked", asked},
                        {"matched", steady + 1000 * i + 50},
                        {"launch_began", steady + 1000 * i + 100},
                        {"launched", steady + 1000 * i + 200},
                        {"finished", steady + 1000 * i + 500},
                        {"launch", i + 1},
                        {"fused", 1}});
  }
  return {{"schema", 1},
          {"kind", "troupe flight record"},
          {"host", boot},
          {"boot", boot},
          {"pid", 100 + rank},
          {"about", "made up"},
          {"clock", {{"steady_ns", steady}, {"system_ns", system}}},
          {"lines",
           {{{"world", 1},
             {"rank", rank},
             {"world_size", 2},
             {"device", 0},
             {"asked_in_all", 3},
             {"requests", requests}}}}};
}

class record_files {
public:
  record_files() { std::filesystem::create_directories(folder_); }
  ~record_files() { std::filesystem::remove_all(folder_); }
  record_files(const record_files&) = delete;
  record_files& operator=(const record_files&) = delete;
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream{folder_ / name} << text;
    return folder_ / name;
  }

private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("troupe-trace-" + std::to_string(::getpid()));
};

} // namespace

TEST_CASE("records of one machine share its clock", "[runtime]") {
  const record_files files;
  const auto trace = read_flight_records(
      {files.write("0", record(0, "a", 5000, 99).dump()), files.write("1", record(1, "a", 5000, 12345678).dump())});
  REQUIRE(trace.ranks.size() == 2);
  CHECK(trace.remarks.empty());
  CHECK(trace.ranks[1].requests[0].asked == 5010);
  CHECK(trace.collectives().size() == 3);
  CHECK(trace.collectives().front().size() == 2);
}

TEST_CASE("records of another machine are put on the first one's clock by what they finished together", "[runtime]") {
  const record_files files;
  // The hosts' own clocks differ by 777 ns beside what their records say.
  const auto trace = read_flight_records({files.write("0", record(0, "a", 5000, 1'000'000).dump()),
                                          files.write("1", record(1, "b", 900'000, 1'000'777).dump())});
  CHECK(trace.remarks.size() == 1);
  CHECK(trace.ranks[1].requests[0].finished == trace.ranks[0].requests[0].finished);
  CHECK(trace.ranks[1].requests[2].asked == 7010);
}

TEST_CASE("a GPU begins with a request when it is launched, or when what ran before it has ended", "[runtime]") {
  const record_files files;
  json one = record(0, "a", 5000, 0);
  one["lines"][0]["requests"][0]["finished"] = 6400;
  const auto trace = read_flight_records({files.write("0", one.dump())});
  CHECK(trace.ranks[0].requests[0].began == 5200);
  CHECK(trace.ranks[0].requests[1].began == 6400);
  CHECK(trace.ranks[0].requests[2].began == 7200);
}

TEST_CASE("what is no flight record is refused by its name", "[runtime]") {
  using Catch::Matchers::ContainsSubstring;
  const record_files files;
  CHECK_THROWS_WITH(read_flight_records({"/nowhere/record.json"}), ContainsSubstring("/nowhere/record.json"));
  CHECK_THROWS_WITH(read_flight_records({files.write("half.json", record(0, "a", 1, 1).dump().substr(0, 200))}),
                    ContainsSubstring("half.json"));
  CHECK_THROWS_WITH(read_flight_records({files.write("other.json", "{\"schema\": 1}")}),
                    ContainsSubstring("not a flight record"));
  json later = record(0, "a", 1, 1);
  later["schema"] = 2;
  CHECK_THROWS_WITH(read_flight_records({files.write("later.json", later.dump())}), ContainsSubstring("schema is 2"));
}

TEST_CASE("a request that is not over has no end in the viewer", "[runtime]") {
  const record_files files;
  json one = record(0, "a", 5000, 0);
  for (const char* name : {"matched", "launch_began", "launched", "finished", "launch", "fused"})
    one["lines"][0]["requests"][2].erase(name);
  const auto events = trace_events(read_flight_records({files.write("0", one.dump())})).at("traceEvents");
  std::size_t open = 0, begun = 0, ended = 0;
  for (const auto& event : events) {
    open += event.at("ph") == "i" ? 1 : 0;
    begun += event.at("ph") == "b" ? 1 : 0;
    ended += event.at("ph") == "e" ? 1 : 0;
  }
  CHECK(open == 1);
  CHECK(begun == ended);
  CHECK(begun == 6); // two requests, with what they waited for
}

} // namespace troupe::program::tests
