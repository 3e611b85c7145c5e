/// What a launcher and its agents tell each other.

#include "../../support/outcomes.hpp"

#include <troupe/runtime/launch/host_agent.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests {

using namespace launch;

TEST_CASE("commands and reports come through as they were", "[launch]") {
  const start_command start{.place = 3,
                            .what = {.program = "a b",
                                     .arguments = {"", "x\ny", "\"$z"},
                                     .environment = {{"A", "1"}, {"B", std::nullopt}, {"C", ""}},
                                     .directory = "/d",
                                     .prefix = "[3] "}};
  const std::string line = encode(agent_command{start});
  CHECK(line.find('\n') == std::string::npos);
  const auto read = std::get<start_command>(decode_command(line));
  CHECK(read.place == 3);
  CHECK(read.what.program == start.what.program);
  CHECK(read.what.arguments == start.what.arguments);
  REQUIRE(read.what.environment.size() == 3);
  CHECK(read.what.environment[0].value == "1");
  CHECK_FALSE(read.what.environment[1].value);
  CHECK(read.what.environment[2].value == "");
  CHECK(read.what.directory == "/d");
  CHECK(read.what.prefix == "[3] ");

  CHECK(std::get<kill_command>(decode_command(encode(agent_command{kill_command{2, 9}}))).signal == 9);
  CHECK(std::get<rename_command>(decode_command(encode(agent_command{rename_command{2, "p"}}))).prefix == "p");
  CHECK(std::get<started_report>(decode_report(encode(agent_report{started_report{1, 77}}))).pid == 77);
  CHECK(std::get<refused_report>(decode_report(encode(agent_report{refused_report{1, "no"}}))).why == "no");
  const auto exited = std::get<exited_report>(decode_report(encode(agent_report{exited_report{1, 77, {.signal = 9}}})));
  CHECK(exited.place == 1);
  CHECK(exited.pid == 77);
  CHECK(exited.status == exit_status{.signal = 9});
}

TEST_CASE("an exit status comes through whole", "[launch]") {
  for (const exit_status& status :
       {exit_status{}, exit_status{.code = 7}, exit_status{.signal = 9}, exit_status{.lost = true}})
    CHECK(std::get<exited_report>(decode_report(encode(agent_report{exited_report{1, 77, status}}))).status == status);
}

TEST_CASE("what is no message is refused", "[launch]") {
  for (const char* line : {"", "{", "[]", "7", "{}", R"({"kill":{"place":1}})", R"({"jump":{"place":1}})",
                           R"({"kill":{"place":1,"signal":9},"start":{}})", R"({"kill":{"place":"a","signal":9}})"}) {
    CAPTURE(line);
    CHECK(code_of([&] { static_cast<void>(decode_command(line)); }) == errc::mismatch);
    CHECK(code_of([&] { static_cast<void>(decode_report(line)); }) == errc::mismatch);
  }
  CHECK(code_of([] { static_cast<void>(encode(agent_command{rename_command{1, "\377"}})); }) == errc::invalid_argument);
}

} // namespace troupe::tests
