/// The table of settings: complete, documented, and of one precedence for every line of it.

#include "support/settings_sources.hpp"

#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <troupe/program/support/runtime_options.hpp>

#include <CLI/CLI.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

namespace troupe::tests {

namespace {

const configuration defaults;

/// A value of this setting other than its default and than \p used.
std::string other_value(const setting& one, const std::string& used = {}) {
  if (one.name == "hierarchy.nodes") return used == "2,2" ? "1,3" : "2,2";       // as many as there are ranks
  if (one.name == "recovery.window") return used == "3600s" ? "7200s" : "3600s"; // longer than a hang takes
  for (const char* text : {"3",
                           "5",
                           "7s",
                           "3M",
                           "mock",
                           "frugal",
                           "event",
                           "debug",
                           "/elsewhere/libnccl.so",
                           "none",
                           "0-3,8;4",
                           "0",
                           "1",
                           "maxCTAs=4",
                           "minCTAs=2;netName=IB",
                           "NCCL_X=1",
                           "NCCL_Y=2;NCCL_Z=3",
                           "collnet",
                           "split,shrink",
                           "always",
                           "never",
                           "plans",
                           "caller",
                           "rejoin",
                           "gloo",
                           "device",
                           "10.0.0.1",
                           "10.0.0.2",
                           "127.0.0.1:9464",
                           "127.0.0.1:9465",
                           "yes",
                           "fail_fast",
                           "abort_first",
                           "USR1",
                           "USR2",
                           "on",
                           "off"}) {
    configuration changed;
    try {
      one.set(changed, text);
    } catch (const exception&) {
      continue;
    }
    if (one.text(changed) != one.text(defaults) && one.text(changed) != used) return text;
  }
  FAIL("no value is known here for the setting " << one.name << ": add one to this list");
  return {};
}

std::string file_with(const setting& one, const std::string& value) {
  return "{\"" + std::string{one.name} + "\": \"" + value + "\"}";
}

/// What the program makes of these sources.
class program_run {
public:
  program_run(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment) {
    options_.add_to(command_);
    std::reverse(arguments.begin(), arguments.end()); // as CLI11 wants them
    command_.parse(arguments);
    all_ = options_.gathered(variables(environment));
  }
  [[nodiscard]] std::string value(const setting& one) const { return one.text(all_.settings()); }
  [[nodiscard]] std::string origin(const setting& one) const { return to_string(all_.origin(one)); }

private:
  program::runtime_options options_;
  CLI::App command_;
  gathered_settings all_;
};

/// Converts to whatever a member may be; only the compiler asks.
struct anything {
  template <class T>
  operator T() const { // NOLINT(google-explicit-constructor): that is what it is for
    throw std::logic_error{"never called"};
  }
};

/// The number of members of an aggregate, which takes as many initialisers and no more.
template <class Aggregate, class... Initialisers>
constexpr std::size_t member_count() {
  if constexpr (requires { Aggregate{Initialisers{}..., anything{}}; })
    return member_count<Aggregate, Initialisers..., anything>();
  else
    return sizeof...(Initialisers);
}

} // namespace

TEST_CASE("every member of a configuration but position, faults, assignment and recorder.enabled is a setting",
          "[runtime]") {
  constexpr std::size_t no_settings = 4;
  // control, nccl, gloo, mock, pool, fusion, host_staging, hierarchy, deadlines, recovery, limits, recorder, metrics
  constexpr std::size_t nested = 13;
  // Bases count as members: hierarchy_terms, track_limits. In limits, sequencing and pending are nested.
  constexpr std::size_t nested_deeper = 4;
  CHECK(all_settings().size() ==
        member_count<configuration>() - no_settings - nested - nested_deeper + member_count<control_settings>() +
            member_count<nccl_settings>() + member_count<gloo_options>() + member_count<mock_device_settings>() +
            member_count<pool_settings>() + member_count<fusion_limits>() + member_count<staging_limits>() +
            member_count<hierarchy_settings>() + member_count<hierarchy_terms>() + member_count<world_deadlines>() +
            member_count<recovery_terms>() + member_count<limit_settings>() + member_count<track_limits>() +
            member_count<sequencer_limits>() + member_count<pending_limits>() + member_count<recorder_settings>() +
            member_count<metrics_settings>());
}

TEST_CASE("no two settings share a name, a variable or an option", "[runtime]") {
  std::set<std::string> seen;
  for (const setting& one : all_settings()) {
    CHECK(seen.insert(std::string{one.name}).second);
    CHECK(seen.insert(one.variable).second);
    CHECK(seen.insert(one.option).second);
  }
}

TEST_CASE("each setting changes its own value alone, and prints what it reads", "[runtime]") {
  for (const setting& one : all_settings()) {
    INFO(one.name);
    configuration changed;
    one.set(changed, other_value(one));
    for (const setting& any : all_settings()) CHECK((any.text(changed) == any.text(defaults)) == (&any != &one));
    configuration again;
    one.set(again, one.text(changed));
    CHECK(one.text(again) == one.text(changed));
  }
}

TEST_CASE("options beat the environment, which beats the file, which beats the defaults, for each setting",
          "[runtime]") {
  for (const setting& one : all_settings()) {
    INFO(one.name);
    const std::string standard = one.text(defaults), other = other_value(one);
    const settings_on_disk file{file_with(one, other)};
    const std::string path = file.path().string();

    const program_run nothing{{}, {}};
    CHECK(nothing.value(one) == standard);
    CHECK(nothing.origin(one) == "default");

    const program_run from_file{{"--config", path}, {}};
    CHECK(from_file.value(one) == other);
    CHECK(from_file.origin(one) == "file " + path + ":1");

    // What is empty cannot be said by a variable: that is an unset one.
    const std::string second = standard.empty() ? other_value(one, other) : standard;
    const program_run from_environment{{"--config", path}, {{one.variable, second}}};
    CHECK(from_environment.value(one) == second);
    CHECK(from_environment.origin(one) == "environment " + one.variable);

    const program_run from_option{{"--config", path, one.option, other}, {{one.variable, second}}};
    CHECK(from_option.value(one) == other);
    CHECK(from_option.origin(one) == "option " + one.option);
  }
}

TEST_CASE("the order in which sources are taken does not matter", "[runtime]") {
  const setting& ranks = find_setting("ranks");
  gathered_settings all;
  all.take(ranks, "3", {setting_source::option, "--ranks"});
  all.take(ranks, "2", {setting_source::environment, "TROUPE_RANKS"});
  CHECK(all.settings().ranks == 3);
  CHECK(to_string(all.origin(ranks)) == "option --ranks");
  // What is beaten is looked at all the same.
  CHECK(refusal_of([&] {
          all.take(ranks, "two", {setting_source::environment, "TROUPE_RANKS"});
        }) == "TROUPE_RANKS: 'two' must be a whole number from 0 to 1024");
  CHECK(all.settings().ranks == 3);
}

TEST_CASE("the option --config beats TROUPE_CONFIG", "[runtime]") {
  const setting& ranks = find_setting("ranks");
  const settings_on_disk named{R"({"ranks": 2})"}, other{R"({"ranks": 3})"};
  const std::map<std::string, std::string> environment{{"TROUPE_CONFIG", other.path().string()}};
  CHECK(program_run{{}, environment}.value(ranks) == "3");
  CHECK(program_run{{"--config", named.path().string()}, environment}.value(ranks) == "2");
}

TEST_CASE("a controller takes the limits of the order from file and environment, and no launcher's rank", "[runtime]") {
  const settings_on_disk file{R"({"limits.lead": 300, "limits.straggling": "2s"})"};
  const std::map<std::string, std::string> environment{
      {"TROUPE_CONFIG", file.path().string()}, {"TROUPE_LIMITS_LEAD", "512"}, {"RANK", "no number"}};
  const sequencer_limits found = find_order_limits([&](const std::string& name) -> std::optional<std::string> {
    const auto one = environment.find(name);
    return one == environment.end() ? std::nullopt : std::optional{one->second};
  });
  CHECK(found.lead == 512);
  CHECK(found.straggling == std::chrono::seconds{2});
}

TEST_CASE("a mock that was asked for by name has a device for each rank unless its devices were chosen", "[runtime]") {
  const setting& devices = find_setting("mock.devices");
  const program_run raised{{"--backend", "mock", "--ranks", "8"}, {}};
  CHECK(raised.value(devices) == "8");
  CHECK(raised.origin(devices) == "option --ranks");
  CHECK(program_run{{"--backend", "mock", "--ranks", "2"}, {}}.value(devices) == "4");
  CHECK(program_run{{"--backend", "mock", "--ranks", "8"}, {{"TROUPE_MOCK_DEVICES", "2"}}}.value(devices) == "2");
}

TEST_CASE("settings that are printed as a file are the same when they are loaded", "[runtime]") {
  configuration settings;
  for (const setting& one : all_settings()) one.set(settings, other_value(one));
  for (const configuration& each : {settings, configuration{}}) {
    const settings_on_disk file{format_settings_file(each)};
    gathered_settings loaded;
    for (const setting& one : all_settings()) // so that a setting left out of the file is seen
      loaded.take(one, one.text(defaults) == one.text(each) ? other_value(one) : one.text(defaults),
                  {setting_source::standard, "elsewhere"});
    loaded.take_file(file.path());
    for (const setting& one : all_settings()) {
      INFO(one.name);
      CHECK(one.text(loaded.settings()) == one.text(each));
    }
  }
}

TEST_CASE("every number among the settings is taken in its range and refused outside of it", "[runtime]") {
  std::size_t numbers = 0;
  for (const setting& one : all_settings()) {
    INFO(one.name << " from " << one.range);
    const bool is_number =
        one.form == "NUMBER" || one.form == "SIZE" || one.form == "DURATION" || one.form.starts_with("COUNT");
    REQUIRE(one.range.empty() != is_number); // a new number needs a range
    if (!is_number) continue;
    ++numbers;
    const std::size_t to = one.range.find(" to ");
    const std::string least = one.range.substr(0, to);
    const std::string most = one.range.substr(to + 4, one.range.find(',') - to - 4);
    for (const std::string& value : {least, most}) {
      configuration changed;
      CHECK_NOTHROW(one.set(changed, value));
      CHECK_NOTHROW(one.set(changed, one.text(changed)));
    }
    std::vector<std::string> wrong{"-1", "x", "1x", "99999999999999999999999999"};
    if (one.form == "DURATION") {
      wrong.push_back(format_duration(parse_duration(least) - nanoseconds{1}));
      wrong.push_back(format_duration(parse_duration(most) + nanoseconds{1}));
    } else {
      if (parse_byte_size(least) > 0) wrong.push_back(std::to_string(parse_byte_size(least) - 1));
      wrong.push_back(std::to_string(parse_byte_size(most) + 1));
    }
    for (const std::string& value : wrong) {
      INFO("value '" << value << "'");
      configuration changed;
      CHECK_FALSE(refusal_of([&] { one.set(changed, value); }).empty());
    }
  }
  CHECK(numbers > 30);
}

TEST_CASE("a number or a name that a program has set itself is checked, too", "[runtime]") {
  const auto refused = [](auto change) {
    configuration settings;
    change(settings);
    return refusal_of([&] { check(settings); });
  };
  CHECK(refused([](configuration& c) { c.ranks = 100'000; }) ==
        "ranks: '100000' must be a whole number from 0 to 1024");
  CHECK(refused([](configuration& c) { c.ranks = -1; }) == "ranks: '-1' must be a whole number from 0 to 1024");
  CHECK(refused([](configuration& c) { c.mock.devices = 2'147'483'647; }).starts_with("mock.devices: '2147483647'"));
  CHECK(refused([](configuration& c) { c.limits.hang = nanoseconds{1}; }) ==
        "limits.hang: '1ns' must be from 1ms to 31536000s");
  CHECK(refused([](configuration& c) { c.deadlines.drain = nanoseconds{-1}; }).starts_with("deadlines.drain: '-1ns'"));
  CHECK(refused([](configuration& c) { c.mock.memory_bytes = 0; }).starts_with("mock.memory_bytes: '0' "));
  CHECK(refused([](configuration& c) { c.backend = static_cast<backend_choice>(99); }) ==
        "backend: unknown backend '': choose one of auto, mock, nccl, gloo");
  CHECK(
      says(refused([](configuration& c) { c.fusion.mode = static_cast<fusion>(99); }), "fusion: unknown fusion mode"));
  CHECK(says(refused([](configuration& c) { c.log_level = "loud"; }), "log_level: unknown log level 'loud'"));
  CHECK(refused([](configuration&) {}).empty());
}

TEST_CASE("assignments by NCCL's names may have values with the separator, and are checked by name", "[runtime]") {
  const setting& variables = find_setting("nccl.environment");
  configuration made;
  variables.set(made, "NCCL_ALGO=ring;allreduce:tree;NCCL_DEBUG=INFO");
  CHECK(made.nccl.environment == nccl_values{{"NCCL_ALGO", "ring;allreduce:tree"}, {"NCCL_DEBUG", "INFO"}});
  CHECK(variables.text(made) == "NCCL_ALGO=ring;allreduce:tree;NCCL_DEBUG=INFO");
  for (const char* const bad : {"NCCL_ALGO", "=ring", "NCCL_ALGO=", "PATH=x", "NCCL_X=1;NCCL_X=2"})
    CHECK_THROWS_AS(variables.set(made, bad), exception);
  CHECK_THROWS_AS(find_setting("nccl.config").set(made, "maxCTA=8"), exception);
  CHECK(made.nccl.config.empty());
}

TEST_CASE("a misspelt variable is refused with the nearest one, and a user's own is left alone", "[runtime]") {
  const auto refused = [](const std::string& name) { return refusal_of([&] { check_variable_names({name}); }); };
  CHECK(refused("TROUPE_RANK") ==
        "the environment has TROUPE_RANK, which troupe does not read; the nearest is 'TROUPE_RANKS': set that, or "
        "unset TROUPE_RANK");
  CHECK(says(refused("TROUPE_BAKCEND"), "'TROUPE_BACKEND'"));
  CHECK(says(refused("TROUPE_DEADLINE_FROM"), "'TROUPE_DEADLINES_FORM'"));
  CHECK(says(refused("TROUPE_CONFG"), "'TROUPE_CONFIG'"));
  CHECK(says(refused("TROUPE_LOG_LEVEL"), "'TROUPE_LOG'")); // as in a settings file
  CHECK(says(refused("TROUPE_NCCL_CONFG"), "'TROUPE_NCCL_CONFIG'"));
  CHECK(says(refused("TROUPE_JOIN_TOKENS"), "'TROUPE_JOIN_TOKEN'"));
  for (const char* own : {"TROUPE_HOME", "TROUPE_PREFIX", "TROUPE_HOST", "TROUPE_REQUIRE_GPU", "TROUPE_TEST_KEPT"})
    CHECK(refused(own).empty());
  for (const setting& one : all_settings()) CHECK(refused(one.variable).empty());
}

TEST_CASE("each setting has its line in docs/configuration.md", "[runtime]") {
  std::ifstream file{TROUPE_SOURCE_DIR "/docs/configuration.md"};
  REQUIRE(file);
  std::ostringstream document;
  document << file.rdbuf();
  for (const setting& one : all_settings()) {
    const std::string standard = one.text(defaults);
    const std::string line = "| `" + std::string{one.name} + "` | `" + one.variable + "` | `" + one.option + "` | `" +
                             one.member + "` | " + (standard.empty() ? "empty" : standard) + " | " +
                             std::string{one.description} + (one.range.empty() ? "" : " (" + one.range + ")") + " |\n";
    INFO("expected: " << line);
    CHECK(says(document.str(), line));
  }
}

} // namespace troupe::tests
