/// What is started where, and what it finds in its environment.

#include "../../support/outcomes.hpp"
#include "../../support/settings_sources.hpp"

#include <troupe/collectives/transport/join_secret.hpp>
#include <troupe/runtime/launch/launch_plan.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>

namespace troupe::tests {

namespace {

using launch::launch_host;
using launch::launch_place;
using launch::launch_plan;
using launch::launch_request;
using launch::make_launch_plan;
using launch::variable_change;

launch_request request(std::optional<std::size_t> processes, std::vector<launch_host> hosts = {}) {
  return {.processes = processes, .hosts = std::move(hosts), .program = "sh", .arguments = {"-c", "true"}};
}

/// What a place's environment says: "-" where the variable is removed, "?" where it is left alone.
std::string value(const launch_plan& plan, std::size_t place, const std::string& name) {
  const auto all = plan.spec_of(plan.places.at(place)).environment;
  CHECK(std::ranges::count(all, name, &variable_change::name) <= 1);
  const auto found = std::ranges::find(all, name, &variable_change::name);
  if (found == all.end()) return "?";
  return found->value.value_or("-");
}

std::string refused(launch_request wanted) {
  return refusal_of([&] { static_cast<void>(make_launch_plan(std::move(wanted), {})); });
}

} // namespace

TEST_CASE("processes here are places of one host", "[launch]") {
  const launch_plan plan = make_launch_plan(request(3), {"TROUPE_LOG=debug"});
  CHECK(plan.places.size() == 3);
  CHECK(value(plan, 2, "RANK") == "2");
  CHECK(value(plan, 2, "WORLD_SIZE") == "3");
  CHECK(value(plan, 2, "LOCAL_RANK") == "2");
  CHECK(value(plan, 2, "LOCAL_WORLD_SIZE") == "3");
  CHECK(value(plan, 2, "NODE_RANK") == "0");
  CHECK(value(plan, 2, "GROUP_RANK") == "0");
  CHECK(value(plan, 2, "MASTER_ADDR") == "127.0.0.1");
  CHECK(std::stoi(value(plan, 2, "MASTER_PORT")) > 0);
  CHECK(value(plan, 1, "MASTER_PORT") == value(plan, 2, "MASTER_PORT"));
  CHECK(value(plan, 2, "TROUPE_PROCESS") == "2");
  CHECK(value(plan, 2, "TROUPE_PLACE") == "2");
  CHECK(value(plan, 2, "TROUPE_SPARE") == "-"); // Whoever launched us may have set it.
  CHECK(value(plan, 2, "TROUPE_CONTROL") == "-");
  CHECK(value(plan, 2, "TROUPE_JOIN_TOKEN") == plan.token);
  CHECK(value(plan, 2, "TROUPE_LOG") == "?"); // It is inherited.
  CHECK(plan.describe(plan.places[2]) == "process 2");
  CHECK(plan.spec_of(plan.places[2]).prefix == "[2] ");
  CHECK(plan.spec_of(plan.places[2]).directory.empty());
}

TEST_CASE("hosts are filled in their order, and one that is not needed is left out", "[launch]") {
  const launch_plan plan = make_launch_plan(request(3, {{"me@a", 2}, {"b", 2}, {"c", 2}}),
                                            {"TROUPE_LOG=debug", "NCCL_DEBUG=INFO", "PATH=/bin", "RANK=9", "A_B=x=y"});
  CHECK(plan.hosts == std::vector<launch_host>{{"me@a", 2}, {"b", 1}});
  CHECK(value(plan, 2, "RANK") == "2");
  CHECK(value(plan, 2, "LOCAL_RANK") == "0");
  CHECK(value(plan, 2, "LOCAL_WORLD_SIZE") == "1");
  CHECK(value(plan, 2, "NODE_RANK") == "1");
  CHECK(value(plan, 2, "MASTER_ADDR") == "a");
  CHECK(value(plan, 2, "TROUPE_LOG") == "debug");
  CHECK(value(plan, 2, "NCCL_DEBUG") == "INFO");
  CHECK(value(plan, 2, "PATH") == "?");
  CHECK(plan.describe(plan.places[2]) == "process 2 on b");
  CHECK(plan.spec_of(plan.places[2]).directory == std::filesystem::current_path());

  launch_request exporting = request({}, {{"a", 1}, {"b", 3}});
  exporting.exported = {"A_B"};
  const launch_plan all = make_launch_plan(exporting, {"A_B=x=y"});
  CHECK(all.processes == 4);
  CHECK(value(all, 3, "A_B") == "x=y");
}

TEST_CASE("a spare stands by on the host of the place that it is for, and has no rank", "[launch]") {
  launch_request wanted = request({}, {{"a", 1}, {"b", 1}});
  wanted.spares = 3;
  const launch_plan plan = make_launch_plan(wanted, {});
  REQUIRE(plan.places.size() == 5);
  CHECK(plan.processes == 2);
  CHECK(value(plan, 3, "TROUPE_PROCESS") == "s1");
  CHECK(value(plan, 3, "TROUPE_PLACE") == "1");
  CHECK(value(plan, 3, "TROUPE_SPARE") == "1");
  CHECK(value(plan, 3, "NODE_RANK") == "1");
  CHECK(value(plan, 3, "TROUPE_DEVICE") == "0");
  CHECK(value(plan, 3, "LOCAL_RANK") == "-");
  CHECK(value(plan, 3, "RANK") == "-");
  CHECK(value(plan, 3, "WORLD_SIZE") == "-");
  CHECK(value(plan, 4, "TROUPE_PLACE") == "0");
  CHECK(plan.describe(plan.places[3]) == "spare s1 on b");
  CHECK(plan.spec_of(plan.places[3]).prefix == "[s1] ");
}

TEST_CASE("processes are told where the controller is, when it is somewhere", "[launch]") {
  launch_request wanted = request(1);
  wanted.control_host = "10.0.0.1";
  CHECK(value(make_launch_plan(wanted, {}), 0, "TROUPE_CONTROL") == "-"); // Not yet known.
  wanted.control_port = 4321;
  CHECK(value(make_launch_plan(wanted, {}), 0, "TROUPE_CONTROL") == "10.0.0.1:4321");
  wanted.control_host = "fe80::1";
  CHECK(value(make_launch_plan(wanted, {}), 0, "TROUPE_CONTROL") == "[fe80::1]:4321");
  wanted.master_port = 27700;
  wanted.prefixed = false;
  const launch_plan plan = make_launch_plan(wanted, {});
  CHECK(value(plan, 0, "MASTER_PORT") == "27700");
  CHECK(plan.spec_of(plan.places[0]).prefix.empty());
}

TEST_CASE("numbers of processes that do not fit are refused", "[launch]") {
  CHECK(refused(request(0)) == "-n is 0 and must be at least 1");
  CHECK(says(refused(request({})), "the number of processes is not given"));
  CHECK(refused(request(5, {{"a", 2}, {"b", 2}})) == "-n is 5, but the hosts take 4: allow more with HOST:COUNT");
  launch_request exporting = request({}, {{"a", 1}});
  exporting.exported = {"NO_SUCH"};
  CHECK(says(refused(exporting), "the variable NO_SUCH cannot be exported"));
}

TEST_CASE("a program that is not here is found out before anything is started, unless it is for other hosts",
          "[launch]") {
  launch_request wanted = request(2);
  wanted.program = "no-such-program-anywhere";
  CHECK(code_of([&] { static_cast<void>(make_launch_plan(wanted, {})); }) == errc::missing);
  wanted.hosts = {{"a", 2}};
  CHECK(code_of([&] { static_cast<void>(make_launch_plan(wanted, {})); }) == errc::none);
}

TEST_CASE("each job has a secret of its own", "[launch]") {
  const std::string one = make_join_token();
  CHECK(one.size() == 64);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(one != make_join_token());
}

} // namespace troupe::tests
