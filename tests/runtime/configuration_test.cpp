/// Settings: from the environment, checked, with errors that say what to do.

#include <troupe/runtime/configuration.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <map>
#include <string>

namespace troupe::tests {

namespace {

/// Sets variables, and takes back all that troupe reads when it ends.
class environment {
public:
  explicit environment(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~environment() { clear(); }

private:
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "TROUPE_BACKEND", "TROUPE_PROFILE", "TROUPE_STRATEGY",
                             "TROUPE_RANKS", "TROUPE_NCCL_LIBRARY", "TROUPE_LOG"})
      unsetenv(name);
  }
};

std::string complaint(const std::map<std::string, std::string>& variables) {
  const environment set{variables};
  try {
    static_cast<void>(configuration::from_environment());
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
    return failure.why().text;
  }
  return {};
}

} // namespace

TEST_CASE("an empty environment leaves the defaults", "[runtime]") {
  const environment none{{}};
  const auto settings = configuration::from_environment();
  CHECK(settings.backend == backend_choice::automatic);
  CHECK(!settings.position);
}

TEST_CASE("the environment sets backend, profile, strategy, ranks and library", "[runtime]") {
  const environment set{{{"TROUPE_BACKEND", "mock"},
                         {"TROUPE_PROFILE", "frugal"},
                         {"TROUPE_STRATEGY", "event"},
                         {"TROUPE_RANKS", "3"},
                         {"TROUPE_NCCL_LIBRARY", "/some/libnccl.so"}}};
  const auto settings = configuration::from_environment();
  CHECK(settings.backend == backend_choice::mock);
  CHECK(settings.profile == latency_profile::frugal);
  CHECK(settings.strategy == completion_strategy::event);
  CHECK(settings.ranks == 3);
  CHECK(settings.nccl_library == "/some/libnccl.so");
}

TEST_CASE("a launcher's variables give the process its rank and device", "[runtime]") {
  const environment set{{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}}};
  const auto position = configuration::from_environment().position.value();
  CHECK(position.rank == 5);
  CHECK(position.world_size == 8);
  CHECK(position.local_rank == 1);
}

TEST_CASE("a bad setting is refused with its name, its value and what it may be", "[runtime]") {
  CHECK(complaint({{"TROUPE_BACKEND", "cuda"}}) == "'cuda' is no backend: choose one of auto, mock, nccl");
  CHECK(complaint({{"TROUPE_PROFILE", "fast"}}).find("latency, balanced, frugal") != std::string::npos);
  CHECK(complaint({{"TROUPE_STRATEGY", "poll"}}).find("flag, event") != std::string::npos);
  CHECK(complaint({{"TROUPE_RANKS", "-1"}}) == "TROUPE_RANKS is '-1' and must be a whole number from 0");
  CHECK(complaint({{"TROUPE_RANKS", "4x"}}).find("'4x'") != std::string::npos);
  CHECK(complaint({{"TROUPE_LOG", "loud"}}).find("'loud'") != std::string::npos);
  CHECK(complaint({{"RANK", "0"}}).find("belong together") != std::string::npos);
  CHECK(complaint({{"RANK", "4"}, {"WORLD_SIZE", "4"}}) == "RANK is 4 and must be less than WORLD_SIZE, which is 4");
  CHECK(complaint({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TROUPE_RANKS", "2"}}).find("holds one rank") !=
        std::string::npos);
}

TEST_CASE("a deadline of nothing is refused", "[runtime]") {
  configuration settings;
  settings.deadlines.drain = nanoseconds{0};
  CHECK_THROWS_AS(check(settings), exception);
}

TEST_CASE("spinning threads that do not fit the cores fall to frugal", "[runtime]") {
  CHECK(choose_wait(latency_profile::latency, 4, 8).used == latency_profile::latency);
  CHECK(choose_wait(latency_profile::latency, 8, 8).used == latency_profile::frugal);
  CHECK(choose_wait(latency_profile::balanced, 2, 2).used == latency_profile::frugal);
  CHECK(choose_wait(latency_profile::frugal, 1, 64).used == latency_profile::frugal);
}

} // namespace troupe::tests
