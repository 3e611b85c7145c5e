/// Configurations: made from the process's environment, checked, with errors that say what to do.

#include "support/settings_sources.hpp"

#include <troupe/actors/world/recovery/recovery_budget.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

// NOLINTBEGIN(concurrency-mt-unsafe): no other thread looks at the environment
/// Sets variables of this process, and takes back all that troupe reads when it ends.
class environment {
public:
  explicit environment(const std::map<std::string, std::string>& set) {
    clear();
    for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  ~environment() { clear(); }

private:
  static void clear() {
    for (const setting& one : all_settings()) unsetenv(one.variable.c_str());
    for (const char* name : {"TROUPE_CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_STEP_ID"})
      unsetenv(name);
  }
};
// NOLINTEND(concurrency-mt-unsafe)

std::string complaint(const std::map<std::string, std::string>& given) {
  return refusal_of([&] { check(gather_settings(variables(given)).settings()); });
}

} // namespace

TEST_CASE("an empty environment leaves the defaults", "[runtime]") {
  const environment none{{}};
  const auto settings = configuration::from_environment();
  CHECK(settings.backend == backend_choice::automatic);
  CHECK(settings.placement == thread_placement::near_device);
  CHECK(!settings.position);
}

TEST_CASE("a variable that is set to nothing counts as unset", "[runtime]") {
  const environment set{{{"TROUPE_RANKS", ""}, {"RANK", ""}}};
  CHECK(configuration::from_environment().ranks == 0);
}

TEST_CASE("the process's environment sets values and place, over what its settings file says", "[runtime]") {
  const settings_on_disk file{R"({"backend": "nccl", "log_level": "error"})"};
  const environment set{{{"TROUPE_CONFIG", file.path().string()},
                         {"TROUPE_BACKEND", "mock"},
                         {"TROUPE_PROFILE", "frugal"},
                         {"TROUPE_STRATEGY", "event"},
                         {"TROUPE_PLACEMENT", "none"},
                         {"TROUPE_NCCL_LIBRARY", "/some/libnccl.so"},
                         {"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"}}};
  const auto settings = configuration::from_environment();
  CHECK(settings.backend == backend_choice::mock);
  CHECK(settings.profile == latency_profile::frugal);
  CHECK(settings.strategy == completion_strategy::event);
  CHECK(settings.placement == thread_placement::anywhere);
  CHECK(settings.nccl.library == "/some/libnccl.so");
  CHECK(settings.log_level == "error");
  CHECK(settings.position.value().rank == 5);
}

TEST_CASE("a settings file that is named is loaded in place of the environment's", "[runtime]") {
  const settings_on_disk named{R"({"ranks": 2, "profile": "frugal"})"}, other{R"({"ranks": 3, "strategy": "event"})"};
  const environment set{{{"TROUPE_CONFIG", other.path().string()}, {"TROUPE_PROFILE", "latency"}}};
  const auto settings = configuration::load(named.path());
  CHECK(settings.ranks == 2);
  CHECK(settings.strategy == completion_strategy::automatic);
  CHECK(settings.profile == latency_profile::latency);
}

TEST_CASE("a bad setting is refused with its name, its value and what it may be", "[runtime]") {
  CHECK(complaint({{"TROUPE_BACKEND", "cuda"}}) ==
        "TROUPE_BACKEND: unknown backend 'cuda': choose one of auto, mock, nccl, gloo");
  CHECK(says(complaint({{"TROUPE_GLOO_INTERFACE_ADDRESS", "localhost"}}), "not a numeric IPv4 or IPv6 address"));
  CHECK(complaint({{"TROUPE_GLOO_INTERFACE_ADDRESS", "::1"}, {"TROUPE_BACKEND", "gloo"}}).empty());
  CHECK(says(complaint({{"TROUPE_PROFILE", "fast"}}), "latency, balanced, frugal"));
  CHECK(says(complaint({{"TROUPE_STRATEGY", "poll"}}), "flag, event"));
  CHECK(complaint({{"TROUPE_RANKS", "-1"}}) == "TROUPE_RANKS: '-1' must be a whole number from 0 to 1024");
  CHECK(says(complaint({{"TROUPE_RANKS", "4x"}}), "'4x'"));
  CHECK(says(complaint({{"TROUPE_LOG", "loud"}}), "TROUPE_LOG: unknown log level 'loud'"));
  CHECK(complaint({{"TROUPE_LIMITS_HANG", "30"}}) ==
        "TROUPE_LIMITS_HANG: '30' has no unit: write 30s, 30ms, 30us or 30ns");
}

TEST_CASE("nodes share out the ranks of a world", "[runtime]") {
  CHECK(complaint({{"TROUPE_HIERARCHY_NODES", "2,3"}, {"TROUPE_RANKS", "5"}}).empty());
  CHECK(complaint({{"TROUPE_HIERARCHY_NODES", "2,3"}}).empty());                 // how many GPUs there are shows later
  const std::pair<std::string, std::string> pretended{"TROUPE_BACKEND", "mock"}; // a rank for each of four devices
  CHECK(complaint({{"TROUPE_HIERARCHY_NODES", "1,3"}, pretended}).empty());
  CHECK_THAT(complaint({{"TROUPE_HIERARCHY_NODES", "2,3"}, pretended}), ContainsSubstring("the world's 4 ranks"));
  CHECK_THAT(complaint({{"TROUPE_HIERARCHY_NODES", "2,2"}, {"TROUPE_RANKS", "5"}}),
             ContainsSubstring("the world's 5 ranks"));
  CHECK_THAT(complaint({{"TROUPE_HIERARCHY_NODES", "18446744073709551615,5"}, pretended}),
             ContainsSubstring("must be a whole number from 1 to 65536"));
  CHECK_THAT(complaint({{"TROUPE_HIERARCHY_NODES", "2,0,2"}}), ContainsSubstring("must be a whole number from 1"));
}

TEST_CASE("a place that makes no sense is refused in its launcher's words", "[runtime]") {
  CHECK(complaint({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) == "RANK is 4 and must be less than WORLD_SIZE, which is 4");
  CHECK(
      complaint({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}) ==
      "OMPI_COMM_WORLD_RANK is 4 and must be less than OMPI_COMM_WORLD_SIZE, which is 4");
  CHECK(says(complaint({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TROUPE_RANKS", "2"}}),
             "ranks is 2 while WORLD_SIZE is 4: a process of a larger world holds one rank"));
}

TEST_CASE("a process takes its place in a controller's world from the environment", "[runtime]") {
  const auto assigned = [](const std::map<std::string, std::string>& given) {
    return find_process_assignment(variables(given));
  };
  CHECK_FALSE(assigned({}).spare);
  CHECK_FALSE(assigned({}).place);
  CHECK_FALSE(assigned({}).is_watched);
  CHECK(assigned({{"TROUPE_SPARE", "1"}}).spare); // which a refusal of the controller names
  CHECK_FALSE(assigned({{"TROUPE_SPARE", "0"}}).spare);
  const process_assignment found = assigned({{"TROUPE_JOIN_TOKEN", "a secret"},
                                             {"TROUPE_PROCESS", "two"},
                                             {"TROUPE_HOST", "here"},
                                             {"TROUPE_PLACE", "2"},
                                             {"TROUPE_DEVICE", "1"},
                                             {"TROUPE_ATTEMPT", "3"}});
  CHECK(found.token == "a secret");
  CHECK(found.name == "two");
  CHECK(found.host == "here");
  CHECK(found.place == 2);
  CHECK(found.device == 1);
  CHECK(found.attempt == 3);
  CHECK(found.is_watched);
}

TEST_CASE("a deadline of nothing is refused", "[runtime]") {
  configuration settings;
  settings.deadlines.drain = nanoseconds{0};
  CHECK_THROWS_AS(check(settings), exception);
}

TEST_CASE("recoveries that cannot use up their budget are refused with the arithmetic", "[runtime]") {
  configuration settings;
  CHECK(settings.recovery.policy == recovery_policy::keep_size);
  CHECK_NOTHROW(check(settings));
  SECTION("rebuilds that outlast the window") {
    settings.recovery.rebuilds = 5; // 450 s and 1.5 s of back-off
    settings.recovery.window = 451s;
    CHECK_THROWS_WITH(check(settings),
                      ContainsSubstring("5 rebuilds (recovery.rebuilds) that each take deadlines.abort "
                                        "30s and deadlines.form 60s, with 1500ms of back-off, are "
                                        "451500ms, and recovery.window is 451s"));
    settings.recovery.window = 452s;
    CHECK_NOTHROW(check(settings));
  }
  SECTION("hangs that are noticed when it is over") {
    settings.recovery.rebuilds = 1;
    settings.recovery.window = 2min;
    settings.limits.hang = 2min;
    CHECK_THROWS_WITH(check(settings), ContainsSubstring("limits.hang is 120s and recovery.window 120s"));
    settings.limits.hang = 30s;
    settings.limits.launch = 3min;
    CHECK_THROWS_WITH(check(settings), ContainsSubstring("limits.launch is 180s and recovery.window 120s"));
  }
  SECTION("where nothing is rebuilt, it does not matter") {
    settings.recovery.policy = recovery_policy::fail_fast;
    settings.recovery.window = 1s;
    settings.recovery.backoff = 1ms;
    CHECK_NOTHROW(check(settings));
  }
}

TEST_CASE("settings that do not name a window get one in which the budget of rebuilds can be used up", "[runtime]") {
  configuration settings;
  const auto window = [&] {
    CHECK_NOTHROW(check(settings));
    return with_window(settings.recovery, settings.deadlines.form, settings.deadlines.abort,
                       std::max(settings.limits.hang, settings.limits.launch))
        .window;
  };
  CHECK(window() == 10min);
  SECTION("whatever a hang takes to be noticed") {
    settings.limits.hang = 20min;
    CHECK(window() == 40min);
  }
  SECTION("whatever a rebuild may take") {
    settings.deadlines.form = 10min;
    settings.deadlines.abort = 5min;
    CHECK(window() == 2 * (3 * 15min + 300ms));
  }
  SECTION("whatever the budget") {
    settings.recovery.rebuilds = 1'000;
    CHECK(window() > 1'000 * 90s);
  }
  SECTION("and nothing overflows") {
    settings.limits.hang = settings.deadlines.form = 365 * 24h; // the most of each
    settings.recovery.rebuilds = 1'000'000;
    CHECK(window() > 10min);
  }
  SECTION("one that is named stays") {
    settings.recovery.window = 1h;
    CHECK(window() == 1h);
  }
}

TEST_CASE("spinning threads that do not fit the cores fall to frugal", "[runtime]") {
  CHECK(choose_wait(latency_profile::latency, 4, 8).used == latency_profile::latency);
  CHECK(choose_wait(latency_profile::latency, 8, 8).used == latency_profile::frugal);
  CHECK(choose_wait(latency_profile::balanced, 2, 2).used == latency_profile::frugal);
  CHECK(choose_wait(latency_profile::frugal, 1, 64).used == latency_profile::frugal);
}

} // namespace troupe::tests
