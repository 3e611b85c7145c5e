/// The order service of a host whose controller's messages the test writes.
#include "processes/membership/heard_log.hpp"
#include "processes/membership/scripted_controller.hpp"
#include "processes/transport/ring_rig.hpp"
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"

#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/membership/order_host.hpp>
#include <troupe/processes/transport/shared_memory/local_socket.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::order_host_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

/// The names of this process's threads that begin with troupe/.
std::vector<std::string> threads() {
  std::vector<std::string> found;
  std::error_code ended;
  for (const auto& one : std::filesystem::directory_iterator{"/proc/self/task", ended}) {
    std::string name;
    std::getline(std::ifstream{one.path() / "comm"}, name);
    if (name.starts_with("troupe/")) found.push_back(std::move(name));
  }
  return found;
}
bool has_thread(const std::string& name) {
  return std::ranges::count(threads(), name) > 0;
}

/// A service, and processes of its host.
struct host_scene {
  explicit host_scene(nanoseconds patience = 60s) : settings{.address = control.address(), .patience = patience} {}

  void start() {
    host = std::make_unique<order_host>(settings, scripted_controller::token, wait_profile{}, sequencer_limits{},
                                        [this](epoch of, std::size_t ranks) {
                                          const std::lock_guard lock{mutex};
                                          served.emplace_back(of, ranks);
                                        });
  }
  attach_request attach() {
    const auto asked = control.next_of<attach_request>();
    REQUIRE(asked);
    control.welcome();
    return *asked;
  }
  /// A process of this host comes to the gate. Returns its end of the connection.
  gate_connection& knock() {
    auto made = knock_at_gate(control.port());
    REQUIRE(made);
    return processes.emplace_back(*std::move(made));
  }
  /// The controller asks for an epoch with all processes, as ranks in the order of their coming.
  serving_report serve(epoch of) {
    serve_directive directive{.of = of, .world_size = static_cast<int>(processes.size())};
    for (std::size_t r = 0; r < processes.size(); ++r)
      directive.candidates.push_back({rank{static_cast<int>(r)}, processes[r].nonce});
    control.say(directive);
    const auto report = control.next_of<serving_report>();
    REQUIRE(report);
    return *report;
  }
  ring_client client(std::size_t which, epoch of) {
    const gate_connection& gate = processes[which];
    const rank self{static_cast<int>(which)};
    return {ring_connection::accept(gate.socket, session_in(gate.nonce, of), self, peer_process::of_socket(gate.socket),
                                    handover_limit()),
            of, static_cast<int>(processes.size())};
  }
  [[nodiscard]] std::vector<std::pair<epoch, std::size_t>> all_served() {
    const std::lock_guard lock{mutex};
    return served;
  }

  scripted_controller control;
  control_settings settings;
  std::mutex mutex;
  std::vector<std::pair<epoch, std::size_t>> served;
  std::vector<gate_connection> processes;
  std::unique_ptr<order_host> host; ///< Destroyed first, because it calls into the other members.
};

time_point limit() {
  return steady_now() + 20s;
}

} // namespace

TEST_CASE("an order service introduces itself to its controller, and lives until the world ends",
          "[order][processes]") {
  host_scene at;
  at.start();
  const attach_request asked = at.attach();
  CHECK(asked.is_order_service);
  CHECK(asked.token == scripted_controller::token);
  CHECK(asked.who.pid == ::getpid());
  CHECK_FALSE(asked.who.host.empty());
  CHECK(asked.who.name == asked.who.host + ":" + std::to_string(::getpid()));
  for (int i = 0; i < 2; ++i) CHECK(at.control.next_of<heartbeat>());
  CHECK(at.control.said_in() == scripted_controller::session);
  CHECK(has_thread("troupe/host"));
  CHECK(has_thread("troupe/order"));
  CHECK(has_thread("troupe/meetings"));
  CHECK(connect_locally(meeting_address(at.control.port())));
  CHECK_FALSE(at.host->wait(0s));
  at.control.say(stop_directive{});
  const auto why = at.host->wait(20s);
  REQUIRE(why);
  CHECK(why->code == errc::stopping);
  CHECK(why->text == "the world has ended");
  at.host.reset();
  CHECK(at.control.loses(1));
  CHECK(comes_true([] { return !has_thread("troupe/host") && !has_thread("troupe/order"); }));
}

TEST_CASE("an order service decides the order of the processes that have come to its gate", "[order][processes]") {
  const heard_log log{"info"};
  host_scene at;
  at.start();
  static_cast<void>(at.attach());
  at.knock();
  at.knock();
  at.control.say(claim_directive{at.processes[0].nonce});
  const serving_report report = at.serve(epoch{3});
  CHECK(report.of == epoch{3});
  CHECK(report.ranks == std::vector{rank{0}, rank{1}});
  CHECK(at.control.said_in() == scripted_controller::session);
  CHECK(at.all_served() == std::vector{std::pair{epoch{3}, std::size_t{2}}});
  CHECK(log.await("epoch 3: the requests of 2 ranks of this host are ordered here"));

  ring_client first = at.client(0, epoch{3}), second = at.client(1, epoch{3});
  REQUIRE_FALSE(first.ask(barrier{}));
  REQUIRE_FALSE(second.ask(barrier{}));
  CHECK(first.await(1, {}, limit()));
  CHECK(second.await(1, {}, limit()));
  CHECK(first.released.size() == 1);
  CHECK(second.released.size() == 1);

  // What waits when the controller is lost is refused, and the service joins it again.
  REQUIRE_FALSE(first.ask(barrier{}));
  at.control.close();
  REQUIRE(first.await(2, {}, limit()));
  REQUIRE(first.refused.size() == 1);
  CHECK_THAT(first.refused[0].second.text, ContainsSubstring("the controller is lost: "));
  CHECK_THAT(first.refused[0].second.text, ContainsSubstring("ended the connection"));
  at.control.open();
  static_cast<void>(at.attach());
  CHECK(at.serve(epoch{4}).ranks.size() == 2);
  CHECK(log.await("epoch 4: the requests of 2 ranks of this host are ordered here"));
}

TEST_CASE("an order service without listeners serves, too, and warns of what it cannot read", "[order][processes]") {
  const heard_log log{"warn"};
  host_scene at;
  at.host = std::make_unique<order_host>(at.settings, scripted_controller::token, wait_profile{}, sequencer_limits{});
  static_cast<void>(at.attach());
  at.knock();
  at.knock();
  CHECK(at.serve(epoch{3}).ranks.size() == 2);
  at.control.send("nothing that a controller says");
  error expected;
  CHECK_FALSE(decode_controller_frame("nothing that a controller says", expected));
  CHECK(log.await(to_string(expected)));
}

TEST_CASE("an order service connects again to a controller that is silent", "[order][processes]") {
  host_scene at;
  at.start();
  CHECK(at.control.next_of<attach_request>());
  at.control.say(join_welcome{.session = scripted_controller::session, .heartbeat = 20ms, .suspicion = 100ms});
  static_cast<void>(at.attach());
  CHECK_FALSE(at.host->wait(0s));
}

TEST_CASE("an order service that cannot reach its controller gives up", "[order][processes][TIM-1]") {
  host_scene at{400ms};
  at.control.close();
  at.start();
  const auto why = at.host->wait(20s);
  REQUIRE(why);
  CHECK(why->code == errc::missing);
  CHECK_THAT(why->text, ContainsSubstring("no process listens there"));
}

TEST_CASE("a host has one order service, and needs none beside its controller", "[order][processes]") {
  host_scene at;
  at.start();
  const error why = error_of([&] {
    order_host{at.settings, scripted_controller::token, wait_profile{}, sequencer_limits{}};
  });
  CHECK(why.code == errc::unsupported);
  CHECK(
      why.text.ends_with(": if the controller or another order service for it runs on this host, none is needed here"));
  CHECK(why.text.size() > 100);
  at.host.reset();
  CHECK_NOTHROW(at.start());
  CHECK(code_of([&] {
          order_host{{.address = "nothing"}, scripted_controller::token, wait_profile{}, sequencer_limits{}};
        }) == errc::invalid_argument);
}

TEST_CASE("connections to the gate of an order service that nobody claims are closed", "[order][processes]") {
  host_scene at;
  at.start();
  for (int i = 0; i < 70; ++i) static_cast<void>(at.knock()); // more than are kept
  CHECK(comes_true([&] { return has_left(at.processes.front()); }, 20s));
}

} // namespace troupe::tests::order_host_test
