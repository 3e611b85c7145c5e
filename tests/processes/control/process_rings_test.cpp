// A process's link with rings in shared memory: which way its requests go, and what must wait for the decisions.
#include "processes/order/connected_order.hpp"
#include "processes/transport/ring_rig.hpp"
#include "support/frames_scene.hpp"
#include "support/ordering_rig.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/socket.h>

#include <functional>
#include <thread>

namespace troupe::tests::process_rings_test {

namespace {

/// Waits for what a link's thread does.
bool await(const std::function<bool()>& reached) {
  for (const auto until = steady_now() + 20s; steady_now() < until; std::this_thread::sleep_for(1ms))
    if (reached()) return true;
  return false;
}

/// A link whose controller, which is the test, is on the same host.
struct rings_scene {
  ordering_rig rig{2};
  ring_session nonce = ring_session::make();
  file_descriptor gate; ///< The controller's end.
  std::shared_ptr<shared_doorbell> bell =
      std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}));
  frames_scene one{orphan_policy::leave, rig.time, [this] {
                     ring_sockets ends;
                     gate = std::move(ends.service);
                     return std::optional{gate_connection{std::move(ends.rank), nonce}};
                   }};
  std::shared_ptr<distributed_order> order;
  outcome_log log;

  rings_scene() {
    CHECK(one.introduction().nonce == nonce);
    one.join();
  }
  ~rings_scene() {
    if (order) order->close({.code = errc::stopping});
    one.link->close_rings();
  }
  [[nodiscard]] ring_connection offer(epoch of) const {
    return ring_connection::offer(gate, session_in(nonce, of), rank{0}, {}, bell);
  }
  void form(epoch of) { one.hear(formation_directive{.of = of, .self = rank{0}, .world_size = 2, .has_rings = true}); }
  void open() { order = connected(one.link->open_order(rig.rig.ranks[0])); }
  void ask(std::uint64_t number) {
    order->ask(rank{0},
               {.what = rig.sum(0, 4), .name = ticket{number}, .deadline = 1h, .reply = log.make_reply_promise()});
  }
};

/// Reads one batch of requests.
std::string read_batch(ring_connection& service) {
  std::string got;
  const bool has_come = await([&] { return service.receive(got); });
  REQUIRE(has_come);
  return got;
}

std::string release(decision_writer& out, std::uint64_t number) {
  out.release(number, number - 1);
  return out.take();
}

} // namespace

TEST_CASE("requests and decisions of a process on the controller's host go through rings", "[control][order][ORD-1]") {
  rings_scene at;
  auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  CHECK_FALSE(at.one.without_rings);
  at.open();
  CHECK(at.one.link->has_rings());
  at.ask(1);
  static_cast<void>(read_batch(service));
  CHECK(at.one.told<order_batch>().empty());
  decision_writer out{rig_epoch};
  REQUIRE_FALSE(service.send(release(out, 1), steady_now()));
  CHECK(await([&] { return at.order->waiting() == 0; }));
}

TEST_CASE("a message of the controller waits for the decisions that were written before it",
          "[control][order][ORD-1]") {
  rings_scene at;
  auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  at.ask(1);
  at.ask(2);
  decision_writer out{rig_epoch};
  const std::string first = release(out, 1), second = release(out, 2);
  SECTION("quiescing and stopping") {
    at.one.hear(quiesce_directive{rig_epoch, {.code = errc::rebuilding}, 2});
    at.one.hear(stop_directive{{.code = errc::stopping}, 2});
    CHECK(at.one.got<quiesce_directive>().empty());
    REQUIRE_FALSE(service.send(first, steady_now()));
    REQUIRE(await([&] { return at.order->waiting() == 1; }));
    CHECK(at.one.got<quiesce_directive>().empty());
    REQUIRE_FALSE(service.send(second, steady_now()));
    REQUIRE(await([&] { return at.one.got<stop_directive>().size() == 1; }));
    CHECK(at.order->waiting() == 0);
    CHECK(at.one.got<quiesce_directive>().size() == 1);
    CHECK(std::holds_alternative<quiesce_directive>(at.one.delivered[at.one.delivered.size() - 2].what));
  }
  SECTION("not when all have been followed") {
    REQUIRE_FALSE(service.send(first, steady_now()));
    REQUIRE(await([&] { return at.order->waiting() == 1; }));
    at.one.hear(quiesce_directive{rig_epoch, {.code = errc::rebuilding}, 1});
    CHECK(await([&] { return at.one.got<quiesce_directive>().size() == 1; }));
  }
  SECTION("not after a failure, which ends the epoch in any case") {
    at.one.hear(quiesce_directive{rig_epoch, {.code = errc::rebuilding}, 2});
    at.one.hear(failure_directive{rig_epoch, {.code = errc::communicator_failed}});
    REQUIRE(at.one.got<failure_directive>().size() == 1);
    CHECK(at.one.got<quiesce_directive>().size() == 1); // later, so that the world ignores it
    CHECK(std::holds_alternative<quiesce_directive>(at.one.delivered.back().what));
  }
}

TEST_CASE("decisions that were announced and do not come are given up in time", "[control][order][TIM-1]") {
  rings_scene at;
  const auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  at.ask(1);
  at.one.hear(stop_directive{{.code = errc::stopping}, 1});
  at.one.pass_in_peace(5s);
  CHECK(at.one.got<stop_directive>().empty());
  at.one.pass(20ms);
  CHECK(at.one.got<stop_directive>().size() == 1);
  REQUIRE(at.one.told<failed_report>().size() == 1);
  const failed_report told = at.one.told<failed_report>().front();
  CHECK(told.of == rig_epoch);
  CHECK(told.why.code == errc::deadline_exceeded);
  REQUIRE(at.one.got<failure_directive>().size() == 1);
  CHECK(at.one.got<failure_directive>().front().of == rig_epoch);
  CHECK(at.one.got<failure_directive>().front().why.effect == effect::unknown_outcome);
  CHECK(std::holds_alternative<stop_directive>(at.one.delivered.back().what)); // in this order
  at.one.pass_in_peace(5s);
  CHECK(at.one.told<failed_report>().size() == 1);
}

TEST_CASE("a process that was paused does not give up decisions that it could not read", "[control][order][TIM-1]") {
  rings_scene at;
  auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  at.ask(1);
  at.one.hear(stop_directive{{.code = errc::stopping}, 1});
  at.one.pass_in_peace(1s);
  at.one.time->advance(1min);
  at.one.pass_in_peace(3500ms);
  CHECK(at.one.told<failed_report>().empty());
  CHECK(at.one.got<stop_directive>().empty());
  SECTION("they come") {
    decision_writer out{rig_epoch};
    REQUIRE_FALSE(service.send(release(out, 1), steady_now()));
    CHECK(await([&] { return at.one.got<stop_directive>().size() == 1; }));
    CHECK(at.one.told<failed_report>().empty());
    CHECK(at.order->waiting() == 0);
  }
  SECTION("they do not come") {
    at.one.pass_in_peace(500ms); // of the pause, one heartbeat counts
    CHECK(at.one.got<stop_directive>().size() == 1);
    CHECK(at.one.told<failed_report>().size() == 1);
  }
}

TEST_CASE("a process that was paused keeps what it has lent until it can have read the renewals", "[control][order]") {
  rings_scene at;
  at.one.form(rig_epoch);
  const auto exported = std::make_shared<exported_memory>(5);
  at.order = connected(at.one.link->open_order(at.rig.rig.ranks[0], exported));
  static_cast<void>(exported->lend(rank{0}, at.rig.rig.numbers(0, 4, 1), 9, 10s, at.one.time->now()));
  at.one.pass_in_peace(5s);
  at.one.time->advance(1h);
  SECTION("the renewal is read after the first tick") {
    at.one.pass_in_peace(4s);
    CHECK(exported->size() == 1);
    exported->renew(9, at.one.time->now());
    at.one.pass_in_peace(9900ms);
    CHECK(exported->size() == 1);
  }
  SECTION("it is read before the first tick, and the lease does not last longer for it") {
    exported->renew(9, at.one.time->now());
    at.one.pass_in_peace(9900ms);
    CHECK(exported->size() == 1);
    at.one.pass_in_peace(200ms);
    CHECK(exported->size() == 0);
  }
  SECTION("there is none") {
    at.one.pass_in_peace(5s);
    CHECK(exported->size() == 0);
  }
}

TEST_CASE("a process that cannot accept its rings sends its requests through its connection", "[control][order]") {
  rings_scene at;
  SECTION("nothing was offered") {}
  SECTION("rings of another epoch were offered") {
    static_cast<void>(at.offer(epoch{rig_epoch.value() + 1}));
  }
  at.form(rig_epoch);
  REQUIRE(at.one.without_rings);
  char byte = 0;
  CHECK(::recv(at.gate.native(), &byte, 1, MSG_DONTWAIT) == 0); // so that none are offered again
  at.open();
  CHECK_FALSE(at.one.link->has_rings());
  at.ask(1);
  REQUIRE(at.one.told<order_batch>().size() == 1);
  decision_writer out{rig_epoch};
  at.one.hear(order_batch{rig_epoch, release(out, 1)});
  CHECK(at.order->waiting() == 0);
  at.one.hear(quiesce_directive{rig_epoch, {.code = errc::rebuilding}, 1});
  CHECK(at.one.got<quiesce_directive>().size() == 1);
}

TEST_CASE("a process connects again to a gate that was closed, and has rings from the next epoch on",
          "[control][order]") {
  rings_scene at;
  at.one.form(rig_epoch);
  at.one.pass_in_peace(5s);
  CHECK(at.one.told<gate_notice>().empty()); // its connection is open
  at.nonce = ring_session::make();
  at.gate = file_descriptor{}; // the order service of its host has ended, and another one comes
  at.one.pass_in_peace(1s);
  REQUIRE(at.one.told<gate_notice>().size() == 1);
  CHECK(at.one.told<gate_notice>()[0].nonce == at.nonce);
  const epoch next{rig_epoch.value() + 1};
  const auto service = at.offer(next);
  at.form(next);
  CHECK_FALSE(at.one.without_rings);
  at.one.pass_in_peace(5s);
  CHECK(at.one.told<gate_notice>().size() == 1);
  at.one.link->close_rings();
  at.one.pass_in_peace(5s);
  CHECK(at.one.told<gate_notice>().size() == 1);
}

TEST_CASE("a process that finds no gate on its host looks for one until it opens", "[control][order]") {
  int attempts = 0;
  bool is_open = false;
  std::vector<file_descriptor> gates;
  frames_scene one{orphan_policy::leave, std::make_shared<manual_clock>(), [&]() -> std::optional<gate_connection> {
                     ++attempts;
                     if (!is_open) return std::nullopt;
                     ring_sockets ends;
                     gates.push_back(std::move(ends.service));
                     return gate_connection{std::move(ends.rank), ring_session{{1, 2}}};
                   }};
  CHECK_FALSE(one.introduction().nonce);
  one.join();
  one.pass_in_peace(10s);
  CHECK(attempts <= 11);
  CHECK(one.told<gate_notice>().empty());
  is_open = true;
  one.pass_in_peace(10s);
  REQUIRE(one.told<gate_notice>().size() == 1);
  CHECK(one.told<gate_notice>()[0].nonce == ring_session{{1, 2}});
}

TEST_CASE("rings that cannot be read fail the epoch here and at the controller", "[control][order][SEC-2]") {
  rings_scene at;
  auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  REQUIRE_FALSE(service.send("what is this?", steady_now()));
  REQUIRE(await([&] { return at.one.told<failed_report>().size() == 1; }));
  CHECK(at.one.told<failed_report>().front().of == rig_epoch);
  REQUIRE(at.one.got<failure_directive>().size() == 1);
  CHECK(at.one.got<failure_directive>().front().why.effect == effect::unknown_outcome);
}

TEST_CASE("rings that are forged fail the epoch here and at the controller", "[control][order][SEC-2]") {
  rings_scene at;
  auto rings = offer_forgeable(at.gate, session_in(at.nonce, rig_epoch), rank{0}, at.bell);
  at.form(rig_epoch);
  at.open();
  REQUIRE(at.one.link->has_rings());
  rings.forge();
  REQUIRE(await([&] { return at.one.told<failed_report>().size() == 1; }));
  CHECK(at.one.told<failed_report>().front().of == rig_epoch);
  CHECK(at.one.told<failed_report>().front().why.text.find("has written a sequence word") != std::string::npos);
  REQUIRE(at.one.got<failure_directive>().size() == 1);
  CHECK(at.one.got<failure_directive>().front().why.effect == effect::unknown_outcome);
}

TEST_CASE("rings of an epoch whose order was never opened are not those of the next", "[control][order][EPO-1]") {
  rings_scene at;
  const auto before = at.offer(epoch{rig_epoch.value() - 1});
  at.form(epoch{rig_epoch.value() - 1});
  at.one.form(rig_epoch); // without rings
  at.open();
  CHECK_FALSE(at.one.link->has_rings());
  at.ask(1);
  CHECK(at.one.told<order_batch>().size() == 1);
}

TEST_CASE("messages that wait for decisions are not delivered to a world that is over", "[control][order]") {
  rings_scene at;
  const auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  at.ask(1);
  at.one.hear(quiesce_directive{rig_epoch, {.code = errc::rebuilding}, 1});
  at.one.hear(fence_notice{{.code = errc::world_failed}});
  at.one.pass(6s);
  CHECK(at.one.got<quiesce_directive>().empty());
  CHECK(at.one.got<failure_directive>().empty());
  CHECK(at.one.got<fence_notice>().size() == 1);
}

TEST_CASE("the rings of an epoch are dropped with it", "[control][order][EPO-1]") {
  rings_scene at;
  auto before = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  at.ask(1);
  static_cast<void>(read_batch(before));
  const epoch next{rig_epoch.value() + 1};
  auto after = at.offer(next);
  at.form(next);
  CHECK_FALSE(at.one.without_rings);
  CHECK_FALSE(at.one.link->has_rings()); // not before its order is open
  decision_writer out{rig_epoch};
  REQUIRE_FALSE(before.send(release(out, 1), steady_now()));
  at.ask(2); // in the order of the epoch that is over
  at.one.pass(40ms);
  std::string got;
  CHECK_FALSE(before.receive(got));
  CHECK(at.order->waiting() == 2);
  at.one.link->disconnected({.code = errc::communicator_failed, .text = "the controller has ended"});
  CHECK(::recv(at.gate.native(), got.data(), 0, MSG_DONTWAIT) == 0);
}

TEST_CASE("the rings of a process end when it has left, and when its session has ended", "[control][order]") {
  rings_scene at;
  const auto service = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  REQUIRE(at.one.link->has_rings());
  SECTION("it leaves") {
    at.one.link->tell(leave_notice{});
    at.one.hear(heartbeat{});
    at.one.hear(quiesce_directive{rig_epoch, {.code = errc::rebuilding}});
    CHECK(at.one.link->has_rings()); // decisions for what it has asked may still come
    at.one.hear(stop_directive{{.code = errc::stopping}});
  }
  SECTION("it is fenced") {
    at.one.hear(fence_notice{{.code = errc::world_failed}});
    CHECK(at.one.abandoned);
  }
  CHECK_FALSE(at.one.link->has_rings());
  CHECK(threads_come_to("troupe/rings", 0)); // at once: no tick follows
}

TEST_CASE("the decisions of an epoch are counted anew in the next", "[control][order][ORD-1]") {
  rings_scene at;
  auto before = at.offer(rig_epoch);
  at.form(rig_epoch);
  at.open();
  at.ask(1);
  at.ask(2);
  decision_writer first{rig_epoch};
  REQUIRE_FALSE(before.send(release(first, 1), steady_now()));
  REQUIRE_FALSE(before.send(release(first, 2), steady_now()));
  REQUIRE(await([&] { return at.order->waiting() == 0; }));
  at.order->close({.code = errc::stopping});
  const epoch next{rig_epoch.value() + 1};
  auto after = at.offer(next);
  at.form(next);
  auto peers = std::make_shared<noting_peers>(rank{0}, 2, at.rig.rig.devices[0], at.rig.notes[0], "later ");
  const auto later =
      rank_pipeline::create(at.rig.rig.services, std::move(peers), at.rig.rig.launchers[0], next, [](const error&) {});
  later->init();
  at.order = connected(at.one.link->open_order(later));
  at.ask(3);
  at.one.hear(stop_directive{{.code = errc::stopping}, 1});
  CHECK(at.one.got<stop_directive>().empty());
  decision_writer second{next};
  REQUIRE_FALSE(after.send(release(second, 1), steady_now()));
  CHECK(await([&] { return at.one.got<stop_directive>().size() == 1; }));
  CHECK(at.order->waiting() == 0);
  at.order->close({.code = errc::stopping});
  at.order = nullptr;
  later->fail({.code = errc::stopping, .text = "the test is over"});
  later->abort();
}

} // namespace troupe::tests::process_rings_test
