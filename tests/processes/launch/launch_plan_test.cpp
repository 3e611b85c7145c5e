/// What is started where, and what it finds in its environment.

#include "refused_calls.hpp"
#include "support/outcomes.hpp"

#include <troupe/processes/launch/launch_plan.hpp>
#include <troupe/processes/transport/join_secret.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tests {

namespace {

using launch::launch_plan;
using launch::launch_request;
using launch::make_launch_plan;
using launch::variable_change;

launch_request request(std::size_t processes) {
  return {.processes = processes, .program = "sh", .arguments = {"-c", "true"}};
}

/// What a place's environment says: "-" where the variable is removed, "?" where it is left alone.
std::string value(const launch_plan& plan, std::size_t place, const std::string& name) {
  const auto all = plan.spec_of(plan.places.at(place)).environment;
  CHECK(std::ranges::count(all, name, &variable_change::name) <= 1);
  const auto found = std::ranges::find(all, name, &variable_change::name);
  if (found == all.end()) return "?";
  return found->value.value_or("-");
}

} // namespace

TEST_CASE("processes are places of this host", "[launch]") {
  const launch_plan plan = make_launch_plan(request(3));
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
  CHECK(value(plan, 2, "TROUPE_DEVICE") == "2");
  CHECK(value(plan, 2, "TROUPE_SPARE") == "-"); // Whoever launched us may have set it.
  CHECK(value(plan, 2, "TROUPE_HOST") == "-");
  CHECK(value(plan, 2, "TROUPE_CONTROL") == "-");
  CHECK(value(plan, 2, "TROUPE_JOIN_TOKEN") == plan.token);
  CHECK(value(plan, 2, "TROUPE_LOG") == "?"); // It is inherited.
  CHECK(plan.places[2].describe() == "process 2");
  CHECK(plan.spec_of(plan.places[2]).prefix == "[2] ");
}

TEST_CASE("a spare stands by for a place, and has no rank", "[launch]") {
  launch_request wanted = request(2);
  wanted.spares = 3;
  const launch_plan plan = make_launch_plan(wanted);
  REQUIRE(plan.places.size() == 5);
  CHECK(value(plan, 3, "TROUPE_PROCESS") == "s1");
  CHECK(value(plan, 3, "TROUPE_PLACE") == "1");
  CHECK(value(plan, 3, "TROUPE_SPARE") == "1");
  CHECK(value(plan, 3, "NODE_RANK") == "0");
  CHECK(value(plan, 3, "TROUPE_DEVICE") == "1");
  CHECK(value(plan, 3, "CUDA_MODULE_LOADING") == "EAGER");
  CHECK(value(plan, 3, "LOCAL_RANK") == "-");
  CHECK(value(plan, 3, "RANK") == "-");
  CHECK(value(plan, 3, "WORLD_SIZE") == "-");
  CHECK(value(plan, 3, "LOCAL_WORLD_SIZE") == "2");
  CHECK(value(plan, 4, "TROUPE_PLACE") == "0");
  CHECK(plan.places[3].describe() == "spare s1");
  CHECK(plan.spec_of(plan.places[3]).prefix == "[s1] ");
}

TEST_CASE("processes are told what the launcher was told", "[launch]") {
  launch_request wanted = request(1);
  wanted.master_port = 27700;
  wanted.prefixed = false;
  wanted.environment = {{"TROUPE_CONTROL_CA", "ca.pem"}};
  launch_plan plan = make_launch_plan(wanted);
  plan.control = "10.0.0.1:4321";
  CHECK(value(plan, 0, "TROUPE_CONTROL") == "10.0.0.1:4321");
  CHECK(value(plan, 0, "TROUPE_CONTROL_CA") == "ca.pem");
  CHECK(value(plan, 0, "MASTER_PORT") == "27700");
  CHECK(plan.spec_of(plan.places[0]).prefix.empty());
}

TEST_CASE("a program that is not here is found out before anything is started", "[launch]") {
  launch_request wanted = request(2);
  wanted.program = "no-such-program-anywhere";
  CHECK(code_of([&] { static_cast<void>(make_launch_plan(wanted)); }) == errc::missing);
}

TEST_CASE("the processes of a job get its program, its arguments and its variables first", "[launch]") {
  launch_request wanted = request(1);
  wanted.environment = {{"FIRST", "1"}, {"SECOND", std::nullopt}};
  const launch_plan plan = make_launch_plan(wanted);
  const launch::process_spec spec = plan.spec_of(plan.places[0]);
  CHECK(spec.program == "sh");
  CHECK(spec.arguments == std::vector<std::string>{"-c", "true"});
  CHECK(spec.environment[0].name == "FIRST");
  CHECK(value(plan, 0, "SECOND") == "-");
  CHECK(value(plan, 0, "CUDA_MODULE_LOADING") == "?");
  CHECK(plan.request.processes == 1);
}

TEST_CASE("the places of a job are named and numbered, and spares stand by in turn", "[launch]") {
  launch_request wanted = request(2);
  wanted.spares = 3;
  std::string all;
  for (const launch::launch_place& one : make_launch_plan(wanted).places)
    all += one.name + ":" + std::to_string(one.number) + (one.spare ? "s " : " ");
  CHECK(all == "0:0 1:1 s0:0s s1:1s s2:0s ");
}

TEST_CASE("a port for MASTER_PORT is free, and its lack an error that names the remedy", "[launch]") {
  CHECK(make_launch_plan(request(1)).master_port != 0);
  for (const unsigned call : std::initializer_list<unsigned>{SYS_socket, SYS_bind, SYS_getsockname}) {
    const error why = error_of([&] {
      with_refused({call, EADDRINUSE}, [] { static_cast<void>(make_launch_plan(request(1))); });
    });
    CHECK(why.code == errc::unsupported);
    CHECK(why.call == "bind");
    CHECK(why.native_code == EADDRINUSE);
    CHECK(why.text == "no free TCP port could be found: for MASTER_PORT, name one with --master-port");
  }
  launch_request wanted = request(1);
  wanted.master_port = 1;
  with_refused({SYS_socket, EADDRINUSE}, [&] { CHECK(make_launch_plan(wanted).master_port == 1); });
}

TEST_CASE("an IPv6 address of a controller has brackets where it is written, and none where it is used", "[launch]") {
  for (const char* text : {"[fe80::1]:4321", "[::1]:1", "127.0.0.1:65535", "controller:27700"})
    CHECK(to_string(parse_control_address(text)) == text);
  CHECK(parse_control_address("[fe80::1]:4321").host == "fe80::1");
  CHECK(parse_control_address("[::1]:1").is_loopback());
  CHECK_FALSE(parse_control_address("[fe80::1]:1").is_loopback());
  CHECK(code_of([] { static_cast<void>(parse_control_address("[::1]")); }) == errc::invalid_argument);
}

TEST_CASE("each job has a secret of its own", "[launch]") {
  const std::string one = make_join_token();
  CHECK(one.size() == 64);
  CHECK(one.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(one != make_join_token());
}

} // namespace troupe::tests
