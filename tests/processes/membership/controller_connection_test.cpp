/// The connection of a process to a controller whose messages the test writes.
#include "processes/membership/heard_log.hpp"
#include "processes/membership/scripted_controller.hpp"
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"

#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/membership/controller_connection.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::controller_connection_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

/// A connection whose hooks note how they were called.
struct noted_connection {
  explicit noted_connection(const std::string& address, nanoseconds patience = 60s,
                            const std::string& token = scripted_controller::token)
    : connection{std::make_unique<controller_connection>(control_settings{.address = address, .patience = 60s}, token,
                                                         patience)} {}

  void begin() {
    connection->begin({.introduction = [this] { return "this is " + std::to_string(++introduced); },
                       .receive =
                           [this](std::string_view bytes) {
                             const std::lock_guard lock{mutex};
                             received.emplace_back(bytes);
                           },
                       .disconnected =
                           [this](const transport_fault& why, bool admitted) {
                             const std::lock_guard lock{mutex};
                             losses.emplace_back(why, admitted);
                           },
                       .tick =
                           [this] {
                             ++ticks;
                             std::array<char, 16> name{};
                             ::pthread_getname_np(::pthread_self(), name.data(), name.size());
                             const std::lock_guard lock{mutex};
                             thread = name.data();
                             return std::exchange(found, {.over = found.over});
                           },
                       .gave_up =
                           [this](const error& why) {
                             const std::lock_guard lock{mutex};
                             given_up.push_back(why);
                           }},
                      "a test's thread");
  }
  void find(controller_connection::finding what) {
    const std::lock_guard lock{mutex};
    found = std::move(what);
  }
  template <class Value>
  [[nodiscard]] Value read(const Value& of) {
    const std::lock_guard lock{mutex};
    return of;
  }
  [[nodiscard]] bool has_lost(std::size_t count) {
    return comes_true([&] { return read(losses).size() >= count; });
  }

  std::mutex mutex;
  std::atomic<int> introduced{0};
  std::atomic<int> ticks{0};
  std::string thread;
  controller_connection::finding found;
  std::vector<std::string> received;
  std::vector<std::pair<transport_fault, bool>> losses;
  std::vector<error> given_up;
  std::unique_ptr<controller_connection> connection; ///< Destroyed first, because it calls into the other members.
};

} // namespace

TEST_CASE("a process introduces itself to its controller, and they exchange messages", "[processes]") {
  scripted_controller control;
  noted_connection one{control.address()};
  CHECK(one.connection->obstacle() == "the controller at " + control.address() + " has not answered");
  CHECK(one.introduced == 0);
  one.begin();
  CHECK(control.next() == "this is 1");
  CHECK(comes_true([&] { return !one.connection->obstacle(); }));
  one.connection->send("a request");
  CHECK(control.next() == "a request");
  control.send("an answer");
  CHECK(comes_true([&] { return one.read(one.received) == std::vector<std::string>{"an answer"}; }));
  CHECK(comes_true([&] { return one.ticks > 2; }));
  CHECK(one.read(one.thread) == "a test's thread");
  CHECK_FALSE(one.connection->wait_ended(0s));
  CHECK(one.introduced == 1);
}

TEST_CASE("a process that stops its connection hears nothing more, and its controller hears so", "[processes]") {
  scripted_controller control;
  noted_connection one{control.address()};
  one.begin();
  CHECK(control.next() == "this is 1");
  one.connection->stop();
  CHECK(control.loses(1));
  const int ticks = one.ticks;
  CHECK_FALSE(control.loses(2, 50ms));
  CHECK(one.ticks == ticks);
  CHECK(one.losses.empty());
  CHECK(one.given_up.empty());
  one.connection->stop();
}

TEST_CASE("a process whose connection is lost is told so, and connects again", "[processes]") {
  scripted_controller control;
  noted_connection one{control.address()};
  one.begin();
  CHECK(control.next() == "this is 1");
  CHECK(comes_true([&] { return !one.connection->obstacle(); }));
  control.close();
  REQUIRE(one.has_lost(2));
  CHECK(one.read(one.losses)[0].second);
  CHECK_FALSE(one.read(one.losses)[1].second);
  CHECK_THAT(one.read(one.losses)[1].first.text, ContainsSubstring("no process listens there"));
  CHECK(comes_true([&] { return one.connection->obstacle() == one.read(one.losses).back().first.text; }));
  control.open();
  CHECK(control.next() == "this is 2");
  one.connection.reset(); // which ends it without stop()
  CHECK(control.loses(1));
  CHECK(one.given_up.empty());
}

TEST_CASE("a process connects again to a controller that it finds silent", "[processes]") {
  scripted_controller control;
  noted_connection one{control.address()};
  one.begin();
  CHECK(control.next() == "this is 1");
  CHECK(comes_true([&] { return !one.connection->obstacle(); }));
  one.find({.is_silent = true});
  CHECK(control.next() == "this is 2");
  CHECK(control.loses(1));
  CHECK(one.read(one.losses).empty()); // it has ended the first connection itself
}

TEST_CASE("a process that is refused gives up, once, and says why", "[processes]") {
  scripted_controller control;
  noted_connection one{control.address(), nanoseconds::max(), "another secret than theirs"};
  one.begin();
  const auto why = one.connection->wait_ended(60s);
  REQUIRE(why);
  CHECK(why->code == errc::missing);
  CHECK_THAT(why->text, ContainsSubstring("token"));
  CHECK(comes_true([&] { return !one.read(one.given_up).empty(); }));
  one.connection->stop();
  REQUIRE(one.losses.size() == 1);
  CHECK_FALSE(one.losses[0].second);
  REQUIRE(one.given_up.size() == 1);
  CHECK(one.given_up[0].text == why->text);
  CHECK(one.introduced == 0);
}

TEST_CASE("a process that cannot reach its controller gives up after its patience", "[processes][TIM-1]") {
  noted_connection one{"127.0.0.1:" + std::to_string(free_port()), 400ms};
  one.begin();
  const auto why = one.connection->wait_ended(60s);
  REQUIRE(why);
  CHECK_THAT(why->text, ContainsSubstring("no process listens there"));
  CHECK(comes_true([&] { return one.read(one.given_up).size() == 1; }));
  const int ticks = one.ticks;
  CHECK(ticks >= 2); // of a pause 250 ms count
  one.connection->stop();
  CHECK(one.ticks == ticks); // none came after it had given up
}

TEST_CASE("a process that needs no connection any more ends it with its own reason", "[processes]") {
  scripted_controller control;
  noted_connection one{control.address()};
  one.find({.over = error{.code = errc::stopping, .text = "the world has ended"}});
  one.begin();
  const auto why = one.connection->wait_ended(60s);
  REQUIRE(why);
  CHECK(why->code == errc::stopping);
  CHECK(why->text == "the world has ended");
  one.connection->stop();
  CHECK(one.given_up.empty()); // its tick has said so itself
  CHECK(one.ticks == 1);
}

TEST_CASE("a process without a hook for it gives up, too", "[processes]") {
  const heard_log log{"warn"};
  controller_connection one{
      {.address = "127.0.0.1:" + std::to_string(free_port()), .patience = 80ms}, scripted_controller::token, 100ms};
  one.begin({.introduction = [] { return std::string{"?"}; },
             .receive = [](std::string_view) {},
             .disconnected = [](const transport_fault&, bool) {},
             .tick = [] { return controller_connection::finding{}; }},
            "a test's thread");
  CHECK(one.wait_ended(60s));
  CHECK(log.await("this process has waited for it for 20ms and gives up after 80ms (control.patience)"));
}

TEST_CASE("the transport to a controller needs an address, a token, and certificates beyond loopback",
          "[processes][SEC-1]") {
  const auto why_not = [](const control_settings& settings, const std::string& token = scripted_controller::token) {
    try {
      static_cast<void>(make_control_dialer(settings, token));
    } catch (const exception& failure) {
      return failure.why();
    }
    return error{};
  };
  CHECK_FALSE(why_not({.address = "127.0.0.1:7000"}));
  CHECK(why_not({.address = "nothing"}).code == errc::invalid_argument);
  const error tokenless = why_not({.address = "127.0.0.1:7000"}, "");
  CHECK(tokenless.code == errc::invalid_argument);
  CHECK(tokenless.text ==
        "TROUPE_JOIN_TOKEN is not set: give this process the token of the controller at 127.0.0.1:7000");
  const error bare = why_not({.address = "10.0.0.1:7000"});
  CHECK(bare.code == errc::invalid_argument);
  CHECK(bare.text == "the controller at 10.0.0.1:7000 is on another machine, which needs certificates: set control.ca, "
                     "control.certificate and control.key (troupe certs makes them)");
  // Any of the files means certificates, which must then be there.
  CHECK(why_not({.address = "127.0.0.1:7000", .ca = "/nowhere/ca.pem"}).code != errc::none);
}

TEST_CASE("a process that knows several controllers finds the one that listens, and leaves one that is silent",
          "[processes][takeover]") {
  scripted_controller first, second;
  first.close(); // it stands by
  noted_connection one{first.address() + "," + second.address()};
  one.begin();
  CHECK(second.next() == "this is 1");
  CHECK(comes_true([&] { return !one.connection->obstacle(); }));
  one.connection->send("a request");
  CHECK(second.next() == "a request");
  first.open();
  SECTION("it ends") {
    second.close();
  }
  SECTION("it is silent") {
    one.find({.is_silent = true, .is_wanted = true});
    CHECK(second.loses(1));
    one.find({});
  }
  CHECK(first.next().has_value());
  one.connection->send("another");
  CHECK(comes_true([&] { return !one.connection->obstacle(); }));
}

TEST_CASE("each of several addresses of controllers is checked", "[processes][takeover]") {
  for (const char* const wrong :
       {"127.0.0.1:27700,", ",127.0.0.1:27700", "127.0.0.1:27700,here", "127.0.0.1:1,10.0.0.1:2"})
    CHECK(error_of([&] {
            static_cast<void>(controller_connection{{.address = wrong}, "secret of these tests", 1s});
          }).code == errc::invalid_argument);
  CHECK(gate_port({.address = "127.0.0.1:27700,127.0.0.1:27701"}) == 27'700);
}

} // namespace troupe::tests::controller_connection_test
