// Drivers with rings in shared memory: which way their requests go, and what happens when rings fail or end.
#include "processes/transport/ring_rig.hpp"
#include "support/comes_true.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"

#include <troupe/processes/control/attached_drivers.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/driver_session.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::driver_rings_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

constexpr session_id session = 5;
constexpr rank address{-1}; ///< Of the first driver.

/// A driver on the controller's host; the test is its controller.
struct link_scene {
  explicit link_scene(bool has_gate = true) {
    link =
        std::make_shared<driver_session>(session_services{.time = time,
                                                          .send =
                                                              [this](const std::string& bytes) {
                                                                error why;
                                                                auto frame = decode_process_frame(bytes, why);
                                                                REQUIRE(frame);
                                                                const std::lock_guard lock{mutex};
                                                                said.push_back(*std::move(frame));
                                                              }},
                                         process_identity{.name = "driver", .host = "here", .pid = 1}, "token",
                                         driver_services{.knock = [this, has_gate]() -> std::optional<gate_connection> {
                                                           if (!has_gate) return std::nullopt;
                                                           ring_sockets ends;
                                                           gate = std::move(ends.service);
                                                           return gate_connection{std::move(ends.rank), nonce};
                                                         },
                                                         .warned =
                                                             [this](const error& why) {
                                                               const std::lock_guard lock{mutex};
                                                               warnings.push_back(why.text);
                                                             },
                                                         .holder = 7});
    error why;
    const auto first = decode_process_frame(link->introduction(), why);
    REQUIRE(first);
    CHECK(std::get<attach_request>(first->what).nonce == (has_gate ? std::optional{nonce} : std::nullopt));
    hear(join_welcome{.session = session, .heartbeat = 1s, .suspicion = 10s});
  }
  ~link_scene() { link->close({.code = errc::stopping, .text = "the test is over"}); }

  void hear(controller_message what) { link->receive(encode(controller_frame{session, std::move(what)})); }
  [[nodiscard]] ring_connection offer(epoch of) const {
    return ring_connection::offer(gate, session_in(nonce, of), address, {}, bell);
  }
  void begin(epoch of) {
    hear(world_report{
        .of = of, .world_size = 2, .address = address.value(), .is_ready = true, .has_rings = true, .reason = {}});
  }
  outcome_log ask() {
    outcome_log log;
    link->ask({.parts = {barrier{}, barrier{}}, .deadline = 1h}, log.make_reply_promise());
    return log;
  }
  [[nodiscard]] std::size_t batches() const {
    const std::lock_guard lock{mutex};
    std::size_t found = 0;
    for (const process_frame& one : said) found += std::holds_alternative<order_batch>(one.what) ? 1 : 0;
    return found;
  }
  [[nodiscard]] std::vector<std::string> warned() const {
    const std::lock_guard lock{mutex};
    return warnings;
  }

  ring_session nonce = ring_session::make();
  file_descriptor gate; ///< The controller's end.
  std::shared_ptr<shared_doorbell> bell =
      std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}));
  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  mutable std::mutex mutex; ///< The thread of the rings calls, too.
  std::vector<process_frame> said;
  std::vector<std::string> warnings;
  std::shared_ptr<driver_session> link;
};

} // namespace

TEST_CASE("requests of a driver on the controller's host go through rings, until their epoch ends",
          "[control][drivers]") {
  link_scene at;
  auto service = at.offer(epoch{1});
  at.begin(epoch{1});
  CHECK(at.link->state().phase == world_phase::ready);
  CHECK(at.link->has_rings());
  const outcome_log log = at.ask();
  std::string got;
  REQUIRE(comes_true([&] { return service.receive(got); }));
  CHECK(at.batches() == 0);
  CHECK(threads_come_to("troupe/rings", 1));
  at.hear(world_report{.of = epoch{1}, .world_size = 2, .reason = {.code = errc::rank_lost, .text = "rank 1 is lost"}});
  CHECK_FALSE(at.link->has_rings());
  CHECK(log.failure().effect == effect::unknown_outcome);
  CHECK(threads_come_to("troupe/rings", 0)); // at once
  CHECK_FALSE(at.link->tick());              // which joins the thread
  CHECK(threads_named("troupe/rings").empty());

  auto next = at.offer(epoch{2});
  at.begin(epoch{2});
  CHECK(at.link->has_rings());
  const outcome_log later = at.ask();
  REQUIRE(comes_true([&] { return next.receive(got); }));
  CHECK(at.batches() == 0);
  CHECK(later.count() == 0);
  CHECK(at.warned().empty());
  at.link->close({.code = errc::stopping, .text = "it ends"});
  CHECK(threads_named("troupe/rings").empty());
}

TEST_CASE("a driver without a gate, or to which nothing was offered, asks through its connection",
          "[control][drivers]") {
  const bool has_gate = GENERATE(false, true);
  link_scene at{has_gate};
  at.begin(epoch{1});
  CHECK(at.link->state().phase == world_phase::ready);
  CHECK_FALSE(at.link->has_rings());
  const outcome_log log = at.ask();
  CHECK(at.batches() == 1);
  CHECK(log.count() == 0);
  REQUIRE(at.warned().size() == (has_gate ? 1 : 0));
  if (!has_gate) return;
  CHECK_THAT(at.warned()[0], ContainsSubstring("go through the control connection, not through shared memory: "));
  char byte = 0;
  CHECK(::recv(at.gate.native(), &byte, 1, MSG_DONTWAIT) == 0); // so that none are offered again
}

TEST_CASE("a driver that is told that it has no rings looks for none, and keeps its gate", "[control][drivers]") {
  link_scene at;
  at.hear(world_report{.of = epoch{1}, .world_size = 2, .address = address.value(), .is_ready = true});
  CHECK(at.link->state().phase == world_phase::ready);
  CHECK_FALSE(at.link->has_rings());
  CHECK(at.warned().empty());
  const auto service = at.offer(epoch{2});
  at.begin(epoch{2});
  CHECK(at.link->has_rings());
}

TEST_CASE("rings that a driver cannot read end its requests, and it goes on with the next epoch",
          "[control][drivers][SEC-2]") {
  link_scene at;
  auto service = at.offer(epoch{1});
  at.begin(epoch{1});
  const outcome_log log = at.ask();
  REQUIRE_FALSE(service.send("what is this?", steady_now()));
  REQUIRE(comes_true([&] { return log.count() == 1; }));
  CHECK(log.failure().effect == effect::unknown_outcome);
  CHECK(at.warned().size() == 1);
  CHECK(at.link->state().phase != world_phase::ready);
  CHECK(at.link->state().phase != world_phase::stopped);
  CHECK(at.ask().failure().code == errc::rebuilding);
  auto next = at.offer(epoch{2});
  at.begin(epoch{2});
  CHECK(at.link->has_rings());
  CHECK(at.ask().count() == 0);
}

TEST_CASE("rings that are forged end a driver's requests with the reason", "[control][drivers][SEC-2]") {
  link_scene at;
  auto rings = offer_forgeable(at.gate, session_in(at.nonce, epoch{1}), address, at.bell);
  at.begin(epoch{1});
  REQUIRE(at.link->has_rings());
  const outcome_log log = at.ask();
  rings.forge();
  REQUIRE(comes_true([&] { return log.count() == 1; }));
  CHECK(log.failure().effect == effect::unknown_outcome);
  REQUIRE(at.warned().size() == 1);
  CHECK_THAT(at.warned()[0], ContainsSubstring("has written a sequence word"));
  CHECK(at.link->state().phase != world_phase::ready);
  CHECK(at.link->state().phase != world_phase::stopped);
}

TEST_CASE("the thread of rings does not keep a driver alive, and a batch in it is a sign of life",
          "[control][drivers]") {
  link_scene at;
  auto service = at.offer(epoch{1});
  at.begin(epoch{1});
  at.time->advance(500ms);
  CHECK_FALSE(at.link->tick());
  const std::weak_ptr<driver_session> seen = at.link;
  at.link->close({.code = errc::stopping, .text = "it ends"});
  at.link = std::make_shared<driver_session>(session_services{.time = at.time, .send = [](auto) {}}, process_identity{},
                                             "", driver_services{});
  CHECK(seen.expired());
}

TEST_CASE("a driver whose rings cannot be read is detached and told so, and the others are not", "[control][drivers]") {
  const auto time = std::make_shared<manual_clock>();
  running_clock running{time->now(), 1s};
  order_service service;
  std::vector<std::pair<peer_id, world_report>> told;
  const std::function<void(peer_id, std::string)> send = [&](peer_id to, const std::string& bytes) {
    error why;
    const auto frame = decode_controller_frame(bytes, why);
    REQUIRE(frame);
    if (const auto* const report = std::get_if<world_report>(&frame->what)) told.emplace_back(to, *report);
  };
  attached_drivers drivers{service, send};
  std::vector<ring_sockets> sockets(2);
  std::vector<ring_session> nonces{ring_session::make(), ring_session::make()};
  std::vector<order_route> ranks(2);
  for (order_route& one : ranks) one.send = [](const std::string&) {};
  service.open(epoch{1}, std::move(ranks));
  for (std::size_t i = 0; i < 2; ++i)
    drivers.admit(peer_id{i + 1}, gate_connection{std::move(sockets[i].service), nonces[i]},
                  {.session = i + 1, .heartbeat = 1s, .suspicion = 10s}, running.last());
  drivers.tell({.of = epoch{1}, .world_size = 2, .is_ready = true}, epoch{1});
  REQUIRE(told.size() >= 2);
  std::vector<ring_connection> ends;
  for (std::size_t i = 0; i < 2; ++i) {
    const world_report& last = told[told.size() - 2 + i].second;
    CHECK(last.has_rings);
    ends.push_back(ring_connection::accept(sockets[i].rank, session_in(nonces[i], epoch{1}), rank{last.address}, {},
                                           handover_limit()));
  }
  told.clear();
  REQUIRE_FALSE(ends[1].send("what is this?", steady_now()));
  while (service.poll(time->now())) {
  }
  CHECK(drivers.size() == 2);
  drivers.detach_failed();
  CHECK(drivers.size() == 1);
  CHECK(drivers.contains(1));
  REQUIRE(told.size() == 1);
  CHECK(told[0].first == peer_id{2});
  CHECK(told[0].second.is_over);
  CHECK_THAT(told[0].second.reason.text, ContainsSubstring("the driver is detached: "));
  drivers.detach_failed(); // once
  CHECK(told.size() == 1);
  // One that has left meanwhile is not told.
  REQUIRE_FALSE(ends[0].send("what is this?", steady_now()));
  while (service.poll(time->now())) {
  }
  drivers.hear(1, leave_notice{}, time->now(), running.last());
  drivers.detach_failed();
  CHECK(drivers.size() == 0);
  CHECK(told.size() == 1);
}

TEST_CASE("a driver that was detached says nothing until it is admitted again", "[control][drivers]") {
  link_scene at;
  at.begin(epoch{1});
  at.said.clear();
  at.hear(world_report{.of = epoch{1}, .is_over = true, .reason = {.code = errc::rank_lost, .text = "it was silent"}});
  REQUIRE(at.said.size() == 1);
  CHECK(at.said[0].session == 0);
  CHECK(std::holds_alternative<attach_request>(at.said[0].what));
  CHECK(at.link->state().phase != world_phase::ready);
  CHECK(at.link->state().phase != world_phase::stopped);
  at.time->advance(5s);
  CHECK_FALSE(at.link->tick());
  CHECK(at.said.size() == 1);
  at.hear(join_welcome{.session = session + 1, .heartbeat = 1s, .suspicion = 10s});
  at.time->advance(900ms);
  CHECK_FALSE(at.link->tick());
  CHECK(at.said.size() == 1);
  at.time->advance(200ms);
  CHECK_FALSE(at.link->tick());
  REQUIRE(at.said.size() == 2);
  CHECK(at.said[1].session == session + 1);
  at.link->disconnected({.code = errc::missing, .text = "the network is down"});
  at.time->advance(5s);
  CHECK(at.link->tick()); // it needs a connection
  at.link->close({.code = errc::stopping, .text = "it ends"});
  CHECK(at.said.size() == 2); // nobody would hear it
}

TEST_CASE("a driver says once that it leaves", "[control][drivers]") {
  link_scene at;
  at.said.clear();
  for (int i = 0; i < 2; ++i) at.link->close({.code = errc::stopping, .text = "it ends"});
  at.time->advance(5s);
  CHECK_FALSE(at.link->tick());
  REQUIRE(at.said.size() == 1);
  CHECK(at.said[0].session == session);
  CHECK(std::get<leave_notice>(at.said[0].what).why.text == "it ends");
}

} // namespace troupe::tests::driver_rings_test
