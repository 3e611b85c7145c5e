// The order service of a host on which the controller does not run: whom it serves, and when.
#include "processes/transport/ring_rig.hpp"

#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/host_session.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/host_frame.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::host_session_test {

namespace {

using namespace std::chrono_literals;

constexpr session_id session = 77;
/// The usual terms of a controller.
constexpr join_welcome usual{.session = session, .heartbeat = 250ms, .suspicion = 10s};

/// The welcome of a controller with a store.
join_welcome with_successors(bool has_them = true) {
  join_welcome made = usual;
  made.has_successors = has_them;
  return made;
}

/// A host_session whose controller and gate are the test.
struct host_scene {
  host_scene() {
    link = std::make_shared<host_session>(
        session_services{.time = time,
                         .send =
                             [this](const std::string& bytes) {
                               error why;
                               auto frame = decode_process_frame(bytes, why);
                               REQUIRE(frame);
                               said.push_back(*std::move(frame));
                             }},
        process_identity{.name = "a:7", .host = "a", .pid = 7}, "secret",
        host_services{.claim = [this](const ring_session& nonce) -> std::optional<gate_connection> {
                        for (auto it = at_gate.begin(); it != at_gate.end(); ++it)
                          if (it->nonce == nonce) {
                            auto found = std::move(*it);
                            at_gate.erase(it);
                            return found;
                          }
                        return std::nullopt;
                      },
                      .serving = [this](epoch, std::size_t ranks) { served.push_back(ranks); },
                      .warned = [this](const error& why) { warnings.push_back(why); }},
        service);
    join({.session = session, .heartbeat = nanoseconds{0}, .suspicion = std::chrono::hours{1}});
  }
  void join(const join_welcome& welcome) {
    static_cast<void>(link->introduction());
    hear(welcome);
  }
  void hear(controller_message what) { link->receive(encode(controller_frame{session, std::move(what)})); }
  /// A process of this host says a nonce at the gate. Returns its end of the connection.
  file_descriptor& knock(std::uint64_t nonce) {
    ring_sockets sockets;
    at_gate.push_back({std::move(sockets.service), ring_session{{nonce, 0}}});
    return processes.emplace_back(std::move(sockets.rank));
  }
  [[nodiscard]] static serve_directive::candidate candidate(int self, std::uint64_t nonce) {
    return {rank{self}, ring_session{{nonce, 0}}};
  }
  [[nodiscard]] serving_report last_report() const {
    REQUIRE_FALSE(said.empty());
    return std::get<serving_report>(said.back().what);
  }

  /// Lets \p span pass with a beat every 20 ms. Returns whether the controller was silent for too long at one of them.
  bool pass(nanoseconds span) {
    bool was_silent = false;
    for (nanoseconds passed{}; passed < span; passed += 20ms) {
      time->advance(20ms);
      was_silent = link->tick() || was_silent;
    }
    return was_silent;
  }

  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  std::vector<gate_connection> at_gate{};
  std::deque<file_descriptor> processes{};
  std::vector<process_frame> said{};
  std::vector<std::size_t> served{};
  std::vector<error> warnings{};
  std::shared_ptr<order_service> service = std::make_shared<order_service>();
  std::shared_ptr<host_session> link{};
};

} // namespace

TEST_CASE("a host's service introduces itself, and lives", "[control]") {
  host_scene at;
  error why;
  const auto first = decode_process_frame(at.link->introduction(), why);
  REQUIRE(first);
  CHECK(first->session == 0);
  CHECK(std::get<attach_request>(first->what).token == "secret");
  CHECK(std::get<attach_request>(first->what).is_order_service);
  at.hear(join_welcome{.session = session, .heartbeat = nanoseconds{0}, .suspicion = std::chrono::hours{1}});
  CHECK_FALSE(at.link->tick());
  REQUIRE(at.said.size() == 1);
  CHECK(at.said[0].session == session);
  CHECK(std::holds_alternative<heartbeat>(at.said[0].what));
}

TEST_CASE("a host's service notices a controller of which it hears nothing", "[control]") {
  host_scene at;
  CHECK_FALSE(at.link->tick());
  at.join(usual);
  at.said.clear();
  CHECK_FALSE(at.pass(5s));
  CHECK(at.said.size() >= 18); // heartbeats
  CHECK(at.said.size() <= 20);
  at.hear(heartbeat{});
  CHECK_FALSE(at.pass(10s + 20ms)); // the last beat is the first over the limit
  at.hear(heartbeat{});             // it was behind that beat
  CHECK_FALSE(at.pass(9900ms));
  CHECK(at.pass(200ms));
  static_cast<void>(at.link->introduction());
  CHECK_FALSE(at.pass(20s)); // it has not been answered yet
  CHECK_FALSE(at.link->over());
}

TEST_CASE("a host's service that was paused does not take its own pause for the controller's silence", "[control]") {
  host_scene at;
  at.join(usual);
  for (const auto pause : {10s, 60s, 3600s}) {
    CHECK_FALSE(at.pass(5s));
    at.time->advance(pause);
    CHECK_FALSE(at.pass(4500ms)); // nothing has been read yet
    at.hear(heartbeat{});
  }
  bool is_silent = false; // many short pauses do not hide a silent controller
  for (int i = 0; i < 100 && !is_silent; ++i) {
    at.time->advance(1s);
    is_silent = at.pass(20ms);
  }
  CHECK(is_silent);
}

TEST_CASE("a host's service serves the candidates that have come to its gate, if there are two", "[control]") {
  host_scene at;
  file_descriptor& first = at.knock(1);
  file_descriptor& second = at.knock(2);
  at.hear(claim_directive{ring_session{{1, 0}}});
  CHECK(at.at_gate.size() == 1);
  at.hear(claim_directive{ring_session{{9, 0}}}); // of a process of another host
  at.hear(serve_directive{
      .of = epoch{3},
      .world_size = 4,
      .candidates = {host_scene::candidate(0, 9), host_scene::candidate(1, 1), host_scene::candidate(3, 2)}});
  CHECK(at.last_report().of == epoch{3});
  CHECK(at.last_report().ranks == std::vector{rank{1}, rank{3}});
  CHECK_FALSE(at.last_report().resume); // ranks of other hosts take part
  CHECK(at.service->connected() == 2);
  CHECK_NOTHROW(ring_connection::accept(first, session_in(ring_session{{1, 0}}, epoch{3}), rank{1},
                                        peer_process::of_socket(first), std::chrono::steady_clock::now()));
  CHECK_NOTHROW(ring_connection::accept(second, session_in(ring_session{{2, 0}}, epoch{3}), rank{3},
                                        peer_process::of_socket(second), std::chrono::steady_clock::now()));

  // One of them ends. The other is alone, and is not served.
  first = file_descriptor{};
  at.hear(serve_directive{.of = epoch{4},
                          .world_size = 4,
                          .previous = epoch{3},
                          .candidates = {host_scene::candidate(1, 1), host_scene::candidate(3, 2)}});
  CHECK(at.last_report().of == epoch{4});
  CHECK(at.last_report().ranks.empty());
  CHECK(at.warnings.size() == 1);
  CHECK(at.served == std::vector<std::size_t>{2, 0});
}

TEST_CASE("a host's service tells the controller what it cannot read", "[control]") {
  host_scene at;
  at.knock(1);
  at.knock(2);
  at.hear(serve_directive{
      .of = epoch{3}, .world_size = 2, .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)}});
  CHECK(at.last_report().ranks.size() == 2);
  at.hear(order_batch{epoch{2}, "of an epoch that has ended"});
  CHECK(at.said.size() == 1);
  at.hear(order_batch{epoch{3}, encode(host_frame{})}); // which it can read
  CHECK(at.said.size() == 1);
  CHECK(at.warnings.empty());
  at.hear(order_batch{epoch{3}, "what is this?"});
  REQUIRE(at.said.size() == 2);
  error why;
  const host_frame told = decode_host_frame(std::get<order_batch>(at.said[1].what).bytes, 2, why);
  REQUIRE(told.losses.size() == 1);
  CHECK(told.losses[0].of == rank{0}); // what names no rank is that of the first
  at.link->receive("nothing that a controller says");
  CHECK(at.warnings.size() == 2);
}

TEST_CASE("a host's service that serves all ranks reports where their lanes stand, which nobody else knows",
          "[control][resume]") {
  host_scene at;
  at.knock(1);
  at.knock(2);
  const int world_size = GENERATE(2, 3);
  at.hear(serve_directive{.of = epoch{3},
                          .world_size = world_size,
                          .told = {.of = epoch{2}, .lanes = {{.number = 4}}},
                          .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)}});
  CHECK(at.last_report().ranks.size() == 2);
  const auto points = at.last_report().resume;
  REQUIRE((points != nullptr) == (world_size == 2));
  if (!points) return;
  REQUIRE(points->lanes.size() == 1);
  CHECK(points->lanes[0].commit == 4);
}

TEST_CASE("a host's service that joins again serves the processes that have come to its gate before", "[control]") {
  host_scene at;
  at.knock(1);
  at.knock(2);
  file_descriptor& gone = at.knock(3);
  const auto ask = [&](epoch of) {
    at.hear(serve_directive{
        .of = of,
        .world_size = 4,
        .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2), host_scene::candidate(2, 3)}});
    return at.last_report().ranks;
  };
  CHECK(ask(epoch{1}).size() == 3);
  at.link->disconnected({.code = errc::missing, .text = "the connection has ended"});
  gone = file_descriptor{};
  at.join({.session = session, .heartbeat = nanoseconds{0}, .suspicion = std::chrono::hours{1}});
  CHECK(ask(epoch{2}) == std::vector{rank{0}, rank{1}});
}

TEST_CASE("a host's service ends with its world, and when it is refused", "[control]") {
  host_scene at;
  CHECK_FALSE(at.link->over());
  at.link->disconnected({.code = errc::missing, .text = "the connection has ended"});
  CHECK_FALSE(at.link->over()); // the controller may come back
  at.join(usual);
  at.hear(stop_directive{});
  REQUIRE(at.link->over());
  CHECK(at.link->over()->code == errc::stopping);
  host_scene refused;
  refused.link->disconnected({.code = errc::missing, .text = "the connection has ended"});
  static_cast<void>(refused.link->introduction());
  refused.hear(join_refusal{{.code = errc::invalid_argument, .text = "the join token is not that of this world"}});
  REQUIRE(refused.link->over());
  CHECK(refused.link->over()->code == errc::invalid_argument);
}

TEST_CASE("a host's service that orders all ranks goes on without its controller, and tells the next one",
          "[control][takeover]") {
  host_scene at;
  at.join(with_successors());
  at.knock(1);
  at.knock(2);
  const bool has_all = GENERATE(true, false);
  at.hear(serve_directive{.of = epoch{3},
                          .world_size = has_all ? 2 : 3,
                          .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)}});
  REQUIRE(at.service->connected() == 2);
  at.said.clear();
  at.link->disconnected({.code = errc::missing, .text = "it has ended"});
  at.join(with_successors());
  if (has_all) {
    REQUIRE(at.said.size() == 1);
    CHECK(at.last_report().of == epoch{3});
    CHECK(at.last_report().ranks == std::vector{rank{0}, rank{1}});
  } else {
    CHECK(at.said.empty()); // the epoch is over: the controller has decided the order, too
  }
}

TEST_CASE("a host's service that goes on under another controller numbers what it exchanges with it anew",
          "[control][takeover]") {
  host_scene at;
  at.join(with_successors());
  at.knock(1);
  at.knock(2);
  at.hear(serve_directive{
      .of = epoch{3}, .world_size = 2, .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)}});
  REQUIRE(at.service->connected() == 2);
  const auto first_of_controller = [] { // a driver's message to rank 0
    decision_writer batch{epoch{3}};
    batch.add({.kind = decision_record::form::message, .from = process_address{-1}, .message = "asked"});
    return order_batch{epoch{3}, encode(host_frame{.batches = {{rank{0}, batch.take()}}})};
  };
  at.hear(first_of_controller());
  REQUIRE(at.warnings.empty());
  SECTION("with the same controller a batch does not come twice") {
    at.hear(first_of_controller());
    CHECK(at.warnings.size() == 1);
  }
  SECTION("another one begins with the first") {
    at.link->disconnected({.code = errc::missing, .text = "it has ended"});
    at.said.clear();
    at.join(with_successors());
    at.hear(first_of_controller());
    CHECK(at.warnings.empty());
    REQUIRE_FALSE(at.said.empty());
    CHECK(std::holds_alternative<serving_report>(at.said.front().what));
  }
}

TEST_CASE(
    "a host's service holds the order of the epoch that it serves, and goes on in the next with all ranks or none",
    "[control][planned]") {
  host_scene at;
  at.join(with_successors());
  for (const std::uint64_t nonce : {1U, 2U, 3U}) at.knock(nonce);
  const auto serve = [&](serve_directive asked) {
    asked.candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)};
    at.hear(std::move(asked));
    return at.last_report().ranks.size();
  };
  REQUIRE(serve({.of = epoch{3}, .world_size = 2}) == 2);
  const auto hold = [&](epoch of) {
    at.hear(hold_order_directive{of, epoch{4}});
    const auto told = std::get<order_held_report>(at.said.back().what);
    CHECK(told.of == of);
    CHECK(told.next == epoch{4});
    return told.is_held;
  };
  CHECK_FALSE(hold(epoch{2}));
  const order_continuation positions{.before = {rank{0}, rank{1}}, .successes = {0, 0}};
  SECTION("it does not serve an epoch whose positions it does not know") {
    CHECK(serve({.of = epoch{4}, .world_size = 2, .previous = epoch{3}, .continued = positions}) == 0);
  }
  SECTION("with all ranks it goes on") {
    REQUIRE(hold(epoch{3}));
    CHECK(serve({.of = epoch{4}, .world_size = 2, .previous = epoch{3}, .continued = positions}) == 2);
    CHECK_FALSE(hold(epoch{3}));
  }
  SECTION("with some of the ranks it serves none") {
    REQUIRE(hold(epoch{3}));
    CHECK(serve({.of = epoch{4}, .world_size = 3, .previous = epoch{3}, .continued = positions}) == 0);
  }
  SECTION("an epoch that follows a fault begins anew") {
    REQUIRE(hold(epoch{3}));
    CHECK(serve({.of = epoch{5}, .world_size = 3, .previous = epoch{3}}) == 2);
  }
}

TEST_CASE(
    "a host's service that has held its order ends it with the controller, because the next one knows of no change",
    "[control][planned][takeover]") {
  host_scene at;
  at.join(with_successors());
  at.knock(1);
  at.knock(2);
  at.hear(serve_directive{
      .of = epoch{3}, .world_size = 2, .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)}});
  const bool holds = GENERATE(true, false);
  if (holds) at.hear(hold_order_directive{epoch{3}, epoch{4}});
  at.said.clear();
  at.link->disconnected({.code = errc::missing, .text = "it has ended"});
  at.join(with_successors());
  REQUIRE(at.said.size() == 1);
  CHECK(at.last_report().of == epoch{3});
  CHECK(at.last_report().ranks.size() == (holds ? 0 : 2));
  CHECK(at.service->hold({}) == !holds); // it has been closed
}

TEST_CASE("a host's service whose order a controller has closed does not go on with it under the next one",
          "[control][takeover]") {
  host_scene at;
  at.join(with_successors());
  at.knock(1);
  at.knock(2);
  at.hear(serve_directive{
      .of = epoch{3}, .world_size = 2, .candidates = {host_scene::candidate(0, 1), host_scene::candidate(1, 2)}});
  at.hear(order_batch{epoch{3},
                      encode(host_frame{.closed = {.code = errc::communicator_failed, .text = "a rank is lost"}})});
  at.said.clear();
  at.link->disconnected(
      {.code = errc::missing, .text = "it has ended"}); // it had been stopped, and another one was elected
  at.join(with_successors());
  REQUIRE(at.said.size() == 1);
  CHECK(at.last_report().of == epoch{3});
  CHECK(at.last_report().ranks.empty());
}

TEST_CASE("a host's service reports processes that leave its gate, also those that left without a controller",
          "[control][takeover]") {
  host_scene at;
  const bool is_asked = GENERATE(true, false);
  const join_welcome welcome = with_successors(is_asked);
  at.join(welcome);
  file_descriptor& first = at.knock(1);
  file_descriptor& second = at.knock(2);
  at.hear(claim_directive{ring_session{{1, 0}}});
  at.hear(claim_directive{ring_session{{2, 0}}});
  at.pass(20ms);
  at.said.clear();
  const auto reported = [&] {
    std::vector<std::uint64_t> found;
    for (const process_frame& one : at.said)
      if (const auto* closed = std::get_if<gate_closed>(&one.what)) found.push_back(closed->nonce.words[0]);
    return found;
  };
  first = file_descriptor{};
  at.pass(20ms);
  CHECK(reported() == (is_asked ? std::vector<std::uint64_t>{1} : std::vector<std::uint64_t>{}));
  at.link->disconnected({.code = errc::missing, .text = "it has ended"});
  second = file_descriptor{};
  at.pass(20ms);
  at.join(welcome);
  at.pass(100ms);
  CHECK(reported() == (is_asked ? std::vector<std::uint64_t>{1, 2} : std::vector<std::uint64_t>{}));
}

} // namespace troupe::tests::host_session_test
