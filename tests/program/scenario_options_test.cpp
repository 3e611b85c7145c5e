/// The commands by which a failed seed of `troupe simulate` is repeated are ones that the program accepts, and run the
/// same requests and faults.

#include <troupe/device/error.hpp>
#include <troupe/program/simulate/scenario_options.hpp>

#include <CLI/CLI.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::tests::scenario_options_test {

namespace {

using program::scenario_options;
using simulation::scenario;

constexpr std::uint64_t seed = 7;

/// Returns the options that the program reads from what command_of() has printed.
scenario_options read_back(const scenario_options& options) {
  CLI::App app;
  CLI::App* const command = app.add_subcommand("simulate");
  std::string seeds;
  command->add_option("--seeds", seeds);
  scenario_options made;
  program::add_scenario_options(*command, made);
  app.parse(program::command_of(options, seed), true);
  REQUIRE(seeds == std::to_string(seed));
  return made;
}

std::vector<std::size_t> numbers_of(const auto& all) {
  std::vector<std::size_t> numbers;
  for (const auto& one : all) numbers.push_back(one.number);
  return numbers;
}

void check_is_repeated(const scenario_options& options, const scenario& wanted) {
  const scenario repeated = program::scenario_of(read_back(options), seed);
  CHECK(repeated.ranks == wanted.ranks);
  CHECK(repeated.processes.has_value() == wanted.processes.has_value());
  CHECK(simulation::host_count(repeated) == simulation::host_count(wanted));
  CHECK(numbers_of(repeated.requests) == numbers_of(wanted.requests));
  CHECK(numbers_of(repeated.faults) == numbers_of(wanted.faults));
}

} // namespace

TEST_CASE("a printed command of a seed is accepted, and runs the same", "[program][simulation]") {
  const bool over_processes = GENERATE(false, true);
  const scenario_options options{.ranks = 3, .processes = over_processes, .hosts = over_processes ? 3 : 0};
  const scenario all = program::scenario_of(options, seed);
  REQUIRE(all.requests.size() > 2);
  REQUIRE_FALSE(all.faults.empty());
  if (over_processes) CHECK(simulation::host_count(all) == 3);
  check_is_repeated(options, all);
  scenario few = all;
  SECTION("with some requests and faults") {
    few.requests.resize(2);
    few.faults.resize(1);
  }
  SECTION("without requests") {
    few.requests.clear();
  }
  SECTION("without faults") {
    few.faults.clear();
  }
  SECTION("without anything") {
    few.requests.clear();
    few.faults.clear();
  }
  const scenario_options restricted = program::restricted_to(options, few);
  check_is_repeated(restricted, few);
  check_is_repeated(program::restricted_to(restricted, few), few); // what a shorter command prints as its own
}

TEST_CASE("a printed command of a seed names the kinds of faults", "[program][simulation]") {
  const scenario_options options{.faults = GENERATE("withheld,refused", "none", "")};
  check_is_repeated(options, program::scenario_of(options, seed));
}

TEST_CASE("a list of requests that is none is refused", "[program][simulation]") {
  CHECK_THROWS_WITH(static_cast<void>(program::scenario_of({.only_requests = "3,many"}, seed)),
                    Catch::Matchers::ContainsSubstring("'3,many' is not a list of numbers: write 3,7,12"));
}

} // namespace troupe::tests::scenario_options_test
