/// Processes that wait for their controller or for each other: for how long, and what they say.
#include "processes/membership/heard_log.hpp"
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"
#include "support/transport/loopback_client.hpp"

#include <troupe/device/error.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

const std::string secret = "a secret of these tests";

controller_options options_of(int size) {
  controller_options made{.terms = {.world_size = size}};
  made.terms.token = secret;
  return made;
}

configuration settings_of(const std::string& address, int place) {
  configuration made;
  made.backend = backend_choice::mock;
  made.profile = latency_profile::frugal;
  made.mock.devices = 1;
  made.log_level = "off";
  made.control = {.address = address, .patience = 60s};
  made.control.assignment = {.token = secret, .name = std::to_string(place), .place = place};
  return made;
}

std::string nobody() {
  return "127.0.0.1:" + std::to_string(free_port());
}

/// The error with which \p settings form no world, and the time until it came.
struct failed_forming {
  explicit failed_forming(const configuration& settings) {
    const auto began = std::chrono::steady_clock::now();
    try {
      static_cast<void>(runtime{settings}.form_world());
    } catch (const exception& failure) {
      why = failure.why();
    }
    took = std::chrono::steady_clock::now() - began;
  }
  error why;
  nanoseconds took{};
};

} // namespace

TEST_CASE("deadlines.form bounds how long a process waits for others", "[processes][TIM-1]") {
  for (const auto& [limit, text] : {std::pair{100ms, "100ms"}, {2'000ms, "2s"}, {20'000ms, "20s"}}) {
    const controller control{options_of(2)};
    configuration settings = settings_of(control.address(), 0);
    settings.deadlines.form = limit;
    const failed_forming outcome{settings};
    CHECK(outcome.why.code == errc::deadline_exceeded);
    CHECK_THAT(outcome.why.text, ContainsSubstring("within " + std::string{text} + " (deadlines.form)"));
    CHECK(outcome.took < limit + 30s); // the controller waits for 60 s
    if (outcome.why.text.find("waits for other processes") != std::string::npos) return;
    // On a busy machine it may not have reached its controller in this time.
    CHECK_THAT(outcome.why.text, ContainsSubstring("has not answered"));
  }
  FAIL("it has not said that it waits for other processes");
}

TEST_CASE("deadlines.form bounds how long a process waits for its controller", "[processes][TIM-1]") {
  configuration settings = settings_of(nobody(), 0);
  settings.deadlines.form = 100ms;
  const failed_forming outcome{settings};
  CHECK(outcome.why.code == errc::deadline_exceeded);
  CHECK_THAT(outcome.why.text, ContainsSubstring("within 100ms (deadlines.form)"));
  CHECK_THAT(outcome.why.text, ContainsSubstring("no process listens there"));
  CHECK(outcome.took < 30s); // control.patience is 60 s
}

TEST_CASE("a process that stands by waits longer than deadlines.form", "[processes]") {
  controller control{options_of(1)};
  auto first = std::make_unique<runtime>(settings_of(control.address(), 0));
  const world held = first->form_world();
  configuration settings = settings_of(control.address(), 0);
  settings.control.assignment.name = "0 again";
  settings.control.assignment.attempt =
      1; // the controller finds that the place is taken, and the process learns it from there
  settings.deadlines.form = 20ms;
  runtime second{settings};
  auto stands_by = std::async(std::launch::async, [&] { return second.form_world(); });
  CHECK(stands_by.wait_for(3s) == std::future_status::timeout);
  control.stop();
  CHECK_THROWS_AS(stands_by.get(), exception);
}

TEST_CASE("a process that stands by warms up: a spare, and one that was started again and has lost its place",
          "[processes]") {
  const bool is_spare = GENERATE(true, false);
  const heard_log log;
  controller control{options_of(1)};
  runtime first{settings_of(control.address(), 0)};
  const world held = first.form_world();
  configuration settings = settings_of(control.address(), 0);
  settings.log_level = configuration{}.log_level;
  settings.control.assignment.name = "0 again";
  settings.control.assignment.spare = is_spare;
  settings.control.assignment.attempt = 1;
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{0}).forming(0).fail(); // as all that can be seen of it
  settings.faults = script;
  runtime second{settings};
  auto stands_by = second.form_world_async();
  CHECK(log.await("a spare could not be warmed up"));
  CHECK(stands_by.wait_for(0s) == std::future_status::timeout);
  control.stop();
  CHECK_THROWS_AS(stands_by.get(), exception);
}

TEST_CASE("a process whose forming is to stop leaves its controller's world, and may join it again", "[processes]") {
  std::atomic<int> joined{0};
  const controller control{options_of(2), {.joined = [&](const process_identity&) { ++joined; }}};
  runtime first{settings_of(control.address(), 0)};
  for (const bool has_joined : {false, true}) { // while it waits for its controller, and for the other process
    const int before = joined;
    std::stop_source stop;
    auto forming = first.form_world_async({.stop = stop.get_token()});
    if (has_joined) REQUIRE(comes_true([&] { return joined > before; }));
    stop.request_stop();
    REQUIRE(forming.wait_for(30s) == std::future_status::ready);
    CHECK(code_of([&] { static_cast<void>(forming.get()); }) == errc::stopping);
  }
  auto again = first.form_world_async();
  runtime second{settings_of(control.address(), 1)};
  const world other = second.form_world();
  const world formed = again.get();
  CHECK(formed.status().phase == world_phase::ready);
}

TEST_CASE("a process says at the default level why it has no controller", "[processes]") {
  const heard_log log;
  configuration settings = settings_of(nobody(), 0);
  settings.log_level = configuration{}.log_level;
  settings.control.patience = 400ms;
  CHECK(failed_forming{settings}.why.code == errc::missing);
  CHECK(log.await("no process listens there; this process has waited for it for 100ms and gives up after 400ms "
                  "(control.patience)"));
}

} // namespace troupe::tests
