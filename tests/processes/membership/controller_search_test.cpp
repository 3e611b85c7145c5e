/// When a process connects to its controller, what its user is told meanwhile, and when it gives up.
#include <troupe/processes/membership/controller_search.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tests::controller_search_test {

namespace {

using namespace std::chrono_literals;

constexpr transport_event_kind unreachable = transport_event_kind::unreachable;

struct search_scene {
  explicit search_scene(nanoseconds patience = nanoseconds::max(), nanoseconds told = 30s,
                        const std::string& addresses = "10.0.0.1:7000")
    : search{{.address = addresses, .patience = told}, patience, now} {}

  void lose(std::uint64_t attempt, transport_event_kind kind = unreachable, std::string text = "no process listens") {
    search.lose(attempt, {.kind = kind, .text = std::move(text)}, now);
  }
  /// Lets \p span pass with a tick every 20 ms. Returns the notices and the times of their ticks.
  struct notice {
    nanoseconds after;
    std::string text;
  };
  std::vector<notice> pass(nanoseconds span, const controller_finding& found = {}) {
    std::vector<notice> heard;
    for (nanoseconds passed = 20ms; passed <= span; passed += 20ms) {
      now += 20ms;
      search.begin_tick(now);
      if (auto text = search.end_tick(found)) heard.push_back({passed, *std::move(text)});
    }
    return heard;
  }
  /// Begins the next attempt, which must be due, and lets the controller admit it.
  std::uint64_t connect() {
    const auto attempt = search.begin_attempt(now);
    REQUIRE(attempt);
    search.admit();
    return *attempt;
  }

  time_point now{1h};
  controller_search search;
};

std::string waited(const std::string& why, const std::string& span, const std::string& patience = "30s") {
  return why + "; this process has waited for it for " + span + " and gives up after " + patience +
         " (control.patience)";
}
const std::string unanswered = "the controller at 10.0.0.1:7000 has not answered";

} // namespace

TEST_CASE("a process connects at once, and again after delays that double up to a second", "[processes]") {
  search_scene at;
  CHECK(at.search.begin_attempt(at.now) == 1);
  std::uint64_t attempt = 1;
  for (const nanoseconds delay : {20ms, 40ms, 80ms, 160ms, 320ms, 640ms, 1000ms, 1000ms}) {
    at.now += 5s;
    CHECK_FALSE(at.search.begin_attempt(at.now)); // one at a time
    at.lose(attempt);
    at.now += delay - 1ns;
    CHECK_FALSE(at.search.begin_attempt(at.now));
    at.now += 1ns;
    CHECK(at.search.begin_attempt(at.now) == ++attempt);
  }
}

TEST_CASE("a process with several controllers tries one at least every 200 ms", "[processes][takeover]") {
  search_scene at{nanoseconds::max(), 30s, "10.0.0.1:7000,10.0.0.2:7000"};
  std::uint64_t attempt = 0;
  for (const nanoseconds delay : {0ms, 20ms, 40ms, 80ms, 160ms, 200ms, 200ms, 200ms}) {
    at.now += delay - 1ns;
    if (attempt > 0) CHECK_FALSE(at.search.begin_attempt(at.now));
    at.now += 1ns;
    CHECK(at.search.begin_attempt(at.now) == ++attempt);
    at.lose(attempt);
  }
}

TEST_CASE("a process whose connection is lost connects at once, and its delays begin anew", "[processes]") {
  search_scene at;
  for (std::uint64_t attempt = 1; attempt <= 5; ++attempt) {
    CHECK(at.search.begin_attempt(at.now) == attempt);
    CHECK_FALSE(at.search.was_admitted(attempt));
    at.lose(attempt);
    at.now += 1s;
  }
  CHECK(at.connect() == 6);
  CHECK(at.search.was_admitted(6));
  at.now += 1h;
  CHECK_FALSE(at.search.begin_attempt(at.now));
  at.lose(6);
  CHECK(at.search.begin_attempt(at.now) == 7);
  at.lose(7);
  at.now += 20ms;
  CHECK(at.search.begin_attempt(at.now) == 8);
}

TEST_CASE("a process connects again when its controller is silent, and the end of the former connection is no loss",
          "[processes]") {
  search_scene at;
  CHECK(at.connect() == 1);
  at.pass(20ms);
  CHECK_FALSE(at.search.begin_attempt(at.now));
  at.pass(20ms, {.is_silent = true});
  CHECK(at.search.was_admitted(1)); // its end, if it comes now, is that of a connection
  CHECK(at.search.begin_attempt(at.now) == 2);
  CHECK(at.search.was_admitted(1));
  at.lose(1, transport_event_kind::bad_token, "it has ended");
  CHECK_FALSE(at.search.was_admitted(2));
  CHECK(at.search.obstacle() == unanswered);
  CHECK_FALSE(at.search.ended());
  CHECK_FALSE(at.search.begin_attempt(at.now + 1h));
  at.search.admit();
  at.lose(1);
  CHECK(at.search.was_admitted(2));
  CHECK_FALSE(at.search.obstacle());
}

TEST_CASE("a connection that is made during a tick is not ended by what that tick has found", "[processes]") {
  search_scene at;
  REQUIRE(at.search.begin_attempt(at.now) == 1);
  CHECK(at.pass(6s - 20ms).size() == 1);
  at.now += 20ms; // the next notice is due
  at.search.begin_tick(at.now);
  at.search.admit();
  CHECK_FALSE(at.search.end_tick({.is_silent = true})); // and there is nothing to tell
  CHECK_FALSE(at.search.obstacle());
  at.lose(1); // before the owner could say that it wants no other
  CHECK_FALSE(at.search.begin_attempt(at.now + 1h));
  at.pass(20ms);
  CHECK(at.search.begin_attempt(at.now) == 2);
}

TEST_CASE("a process connects only while a connection is wanted", "[processes]") {
  search_scene at;
  CHECK(at.pass(10s, {.is_wanted = false}).empty());
  CHECK_FALSE(at.search.begin_attempt(at.now));
  at.pass(20ms);
  CHECK(at.search.begin_attempt(at.now) == 1);
}

TEST_CASE("a process gives up when its controller has been unreachable for longer than its patience",
          "[processes][TIM-1]") {
  search_scene at{4s};
  REQUIRE(at.search.begin_attempt(at.now) == 1);
  at.pass(4s);
  CHECK_FALSE(at.search.ended());
  at.lose(1);
  at.pass(20ms);
  REQUIRE(at.search.ended());
  CHECK(at.search.ended()->code == errc::missing);
  CHECK(at.search.ended()->text == "no process listens");

  search_scene connected{4s};
  connected.connect();
  connected.pass(10s);
  connected.lose(1, transport_event_kind::broken, "it has gone");
  connected.pass(4s);
  CHECK_FALSE(connected.search.ended());
  connected.pass(20ms);
  REQUIRE(connected.search.ended());
  CHECK(connected.search.ended()->text == "it has gone");

  search_scene patient;
  patient.pass(10min);
  CHECK_FALSE(patient.search.ended());
}

TEST_CASE("a quarter of a second of a process's pause counts as time without its controller", "[processes][TIM-1]") {
  search_scene at{4s};
  at.now += 1h;
  CHECK(at.pass(20ms).empty());
  at.pass(3740ms); // 3990 ms
  CHECK_FALSE(at.search.ended());
  at.pass(20ms);
  CHECK(at.search.ended());

  search_scene slow{4s}; // a process that is always late gives up nevertheless
  for (int i = 0; i < 16; ++i) {
    CHECK_FALSE(slow.search.ended());
    slow.now += 1h;
    slow.pass(20ms);
  }
  CHECK_FALSE(slow.search.ended());
  slow.pass(20ms);
  CHECK(slow.search.ended());
}

TEST_CASE("the user is told why there is no controller, ever more rarely", "[processes]") {
  search_scene at;
  REQUIRE(at.search.begin_attempt(at.now));
  auto heard = at.pass(4s);
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].after == 3s);
  CHECK(heard[0].text == waited(unanswered, "3s"));
  at.lose(1);
  heard = at.pass(21s); // until 25 s
  REQUIRE(heard.size() == 3);
  CHECK(heard[0].after == 2s);
  CHECK(heard[0].text == waited("no process listens", "6s"));
  CHECK(heard[1].after == 8s);
  CHECK(heard[1].text == waited("no process listens", "12s"));
  CHECK(heard[2].after == 20s);

  // After a connection it begins anew.
  at.connect();
  CHECK(at.pass(1h).empty());
  at.lose(2);
  heard = at.pass(7s);
  REQUIRE(heard.size() == 2);
  CHECK(heard[0].after == 3s);
  CHECK(heard[1].after == 6s);
}

TEST_CASE("the user of a process with little patience is told after a quarter of it", "[processes]") {
  search_scene at{nanoseconds::max(), 400ms};
  const auto heard = at.pass(380ms);
  REQUIRE(heard.size() == 2);
  CHECK(heard[0].after == 100ms);
  CHECK(heard[0].text == waited(unanswered, "100ms", "400ms"));
  CHECK(heard[1].after == 200ms);
}

TEST_CASE("a search ends with the reason of its owner, or when the controller refuses", "[processes]") {
  search_scene at{4s};
  CHECK_FALSE(at.search.ended());
  at.pass(20ms, {.over = error{.code = errc::stopping, .text = "the world has ended"}});
  REQUIRE(at.search.ended());
  CHECK(at.search.ended()->code == errc::stopping);

  search_scene late{4s};
  late.pass(4s);
  late.pass(20ms, {.over = error{.code = errc::stopping, .text = "the world has ended"}});
  CHECK(late.search.ended()->code == errc::stopping);

  using enum transport_event_kind;
  for (const transport_event_kind kind : {bad_token, bad_certificate, other_version}) {
    CHECK(is_refusal({.kind = kind, .text = {}}));
    search_scene refused;
    REQUIRE(refused.search.begin_attempt(refused.now));
    refused.lose(1, kind, "it is refused");
    REQUIRE(refused.search.ended());
    CHECK(refused.search.ended()->code == errc::missing);
    CHECK(refused.search.ended()->text == "it is refused");
    CHECK(refused.search.obstacle() == "it is refused");
  }
  for (const transport_event_kind kind : {ended, broken, bad_protocol, bad_frame, too_slow, too_many, unreachable}) {
    CHECK_FALSE(is_refusal({.kind = kind, .text = {}}));
    search_scene other;
    REQUIRE(other.search.begin_attempt(other.now));
    other.lose(1, kind, "it is gone");
    CHECK_FALSE(other.search.ended());
    CHECK(other.search.obstacle() == "it is gone");
  }
}

} // namespace troupe::tests::controller_search_test
