/// The controller's connections when its decisions are written into a store, and when it takes a world over.
#include "support/manual_time.hpp"

#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/control_server.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::takeover_server_test {

namespace {

using namespace std::chrono_literals;

/// A controller of two processes and a store that answers when the test says so.
struct server_scene {
  explicit server_scene(const std::optional<control_record>& found = std::nullopt)
    : server{terms(), order_service_settings{}, nullptr,
             controller_hooks{.send =
                                  [this](peer_id to, const std::string& bytes) {
                                    error why;
                                    auto frame = decode_controller_frame(bytes, why);
                                    REQUIRE(frame);
                                    sessions[to] = frame->session;
                                    sent[to].push_back(std::move(frame->what));
                                  },
                              .decide = [this](const control_record& what) { decisions.push_back(what); }},
             control_sources{.draw_session = [this] { return drawn += 2; },
                             .wall_clock = [] { return std::int64_t{0}; }}} {
    server.take_over(found);
  }
  static controller_terms terms() {
    controller_terms made{.world_size = 2};
    made.recovery.policy = recovery_policy::shrink;
    made.clock_skew = nanoseconds::max();
    made.has_successors = true;
    return made;
  }
  void join(peer_id from, int place, epoch kept = {}) {
    server.hear(from,
                encode(process_frame{0, join_request{.who = {.name = std::to_string(place), .host = "h", .pid = 7},
                                                     .facts = {{"troupe", "1"}},
                                                     .place = place,
                                                     .device_count = 8,
                                                     .last_epoch = kept,
                                                     .last_ranks = {"0", "1"},
                                                     .last_lease = 9s,
                                                     .kept = kept,
                                                     .nonce = ring_session{{100 + std::uint64_t(place), 0}}}}));
  }
  void attach_host(peer_id from) {
    server.hear(from, encode(process_frame{
                          0, attach_request{.who = {.name = "s", .host = "h", .pid = 9}, .is_order_service = true}}));
  }
  void say(peer_id from, process_message what) {
    server.hear(from, encode(process_frame{sessions.at(from), std::move(what)}));
  }
  template <class Message>
  [[nodiscard]] std::vector<Message> told(peer_id to) {
    std::vector<Message> found;
    for (const auto& one : sent[to])
      if (const auto* what = std::get_if<Message>(&one)) found.push_back(*what);
    return found;
  }

  session_id drawn = 1;
  std::map<peer_id, session_id> sessions;
  std::map<peer_id, std::vector<controller_message>> sent;
  std::vector<control_record> decisions;
  control_server server;
};

constexpr peer_id first{1}, second{2}, host{3}, again{4};

/// The record of a world that serves in epoch 5, whose ranks have said their nonces at the gate of their host.
control_record serving_record() {
  control_record made{
      .incarnation = 3, .world_size = 2, .of = epoch{5}, .size = 2, .latest = epoch{5}, .longest_lease = 9s};
  for (int place : {0, 1})
    made.ranks.push_back({.who = {.name = std::to_string(place), .host = "h", .pid = 7},
                          .place = place,
                          .self = rank{place},
                          .nonce = ring_session{{100 + std::uint64_t(place), 0}}});
  return made;
}

} // namespace

TEST_CASE("nothing that follows from a decision is sent before the store has it", "[control][takeover]") {
  server_scene at;
  REQUIRE(at.decisions.size() == 1);
  at.join(first, 0);
  CHECK(at.sent[first].empty()); // the controller has not written its own beginning
  at.server.decided();
  CHECK(at.told<join_welcome>(first).size() == 1);
  at.join(second, 1);
  REQUIRE(at.decisions.size() == 2);
  CHECK(at.decisions[1].of == epoch{1});
  REQUIRE(at.decisions[1].ranks.size() == 2);
  CHECK(at.decisions[1].ranks[1].nonce == ring_session{{101, 0}});
  CHECK(at.told<id_wanted>(first).empty());
  CHECK(at.told<commits_wanted>(second).empty());
  at.server.decided();
  CHECK(at.told<id_wanted>(first).size() == 1);
  CHECK(at.told<commits_wanted>(second).size() == 1);
}

TEST_CASE("a successor goes on with the ranks and the order service that return", "[control][takeover]") {
  server_scene at{serving_record()};
  REQUIRE(at.decisions.size() == 1);
  CHECK(at.decisions[0].incarnation == 4);
  CHECK(at.decisions[0].ranks[1].nonce == ring_session{{101, 0}});
  at.server.decided();
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  REQUIRE(at.told<lease_grant>(second).size() == 1);
  CHECK(at.told<lease_grant>(second)[0].of == epoch{5});
  CHECK(at.told<lease_grant>(second)[0].outlasts);
  at.attach_host(host);
  REQUIRE(at.told<join_welcome>(host).size() == 1);
  CHECK(at.told<join_welcome>(host)[0].has_successors); // it goes on, too
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{0}, rank{1}}});
  // It goes on with the order: what the service reports about ranks is heard.
  at.say(host, order_batch{epoch{5}, encode(host_frame{.losses = {{rank{1}, {.code = errc::rank_lost}}}})});
  REQUIRE(at.told<failure_directive>(first).size() == 1);
  CHECK(at.told<failure_directive>(first)[0].why.rank == rank{1});
}

TEST_CASE("ranks neither change nor stop before the order service of an epoch that was taken over has joined",
          "[control][takeover][planned]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  const bool stops = GENERATE(false, true);
  if (stops)
    at.server.stop();
  else
    at.say(second, change_request{1, {.kind = rank_change_kind::leave}});
  at.server.tick();
  CHECK(at.told<quiesce_directive>(first).empty()); // nobody could close the order behind what it has decided
  CHECK(at.told<stop_directive>(first).empty());
  at.attach_host(host);
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{0}, rank{1}}});
  at.server.tick();
  if (stops) at.server.decided();
  error why;
  const auto told = at.told<order_batch>(host);
  REQUIRE_FALSE(told.empty());
  CHECK(decode_host_frame(told.back().bytes, 2, why).closed.code == (stops ? errc::stopping : errc::rebuilding));
  if (stops) {
    REQUIRE(at.told<stop_directive>(first).size() == 1);
    CHECK(at.told<stop_directive>(first).front().decided == 1);
  } else {
    REQUIRE(at.told<quiesce_directive>(first).size() == 1);
    CHECK(at.told<quiesce_directive>(first).front().decided == 1);
  }
}

TEST_CASE("a process that is refused while the store writes a decision does not end an epoch that changes as planned",
          "[control][takeover][planned][SEC-2]") {
  server_scene at;
  at.server.decided();
  at.attach_host(host);
  constexpr peer_id spare{5}, other_spare{6}, stranger{7};
  const auto enter = [&](peer_id from, int place, bool is_spare) {
    const auto number = static_cast<int>(from);
    at.server.hear(
        from, encode(process_frame{0, join_request{.who = {.name = std::to_string(number), .host = "h", .pid = number},
                                                   .facts = {{std::string{fact_of_planned_changes}, "yes"}},
                                                   .place = place,
                                                   .spare = is_spare,
                                                   .nonce = ring_session{{static_cast<std::uint64_t>(number), 0}}}}));
  };
  enter(first, 0, false);
  enter(second, 1, false);
  at.server.decided();
  at.say(first, id_offer{epoch{1}, {}});
  for (const peer_id one : {first, second}) at.say(one, commits_report{epoch{1}, {}});
  at.say(host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  for (const peer_id one : {first, second}) at.say(one, formed_report{epoch{1}});
  REQUIRE(at.server.state().event().phase == control_phase::serving);
  enter(spare, 1, true);
  enter(other_spare, 0, true);
  at.say(second, change_request{1, {.kind = rank_change_kind::leave}});
  at.server.hear(stranger, encode(process_frame{0, join_request{.who = {.name = "x", .host = "h", .pid = 77}}}));
  CHECK(at.told<join_refusal>(stranger).empty()); // it is told when the store has answered
  at.server.tick();
  at.say(first, change_request{1, {.kind = rank_change_kind::leave}}); // the controller prepares anew
  at.server.decided();
  CHECK(at.told<join_refusal>(stranger).size() == 1);
  CHECK(at.told<quiesce_directive>(first).empty());
  at.server.decided();
  REQUIRE(at.told<id_wanted>(other_spare).size() == 1);
  CHECK(at.told<id_wanted>(other_spare).front().of == epoch{3});
}

TEST_CASE("batches of an order service that come before a rank has shown that it decides are heard then",
          "[control][takeover]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.attach_host(host);
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{0}, rank{1}}});
  const auto batch = [&](std::uint64_t number) {
    request_writer asks;
    asks.add({.kind = request_record::form::message, .to = process_address{-1}, .message = "to a driver"});
    const std::string bytes = asks.take({.epoch = epoch{5}, .number = number});
    at.say(host, order_batch{epoch{5}, encode(host_frame{.batches = {{rank{0}, bytes}}})});
  };
  batch(1);
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  batch(2);
  CHECK(at.told<failure_directive>(first).empty());
}

TEST_CASE("a successor gives drivers no lane in which ranks may have requests of the former one's drivers",
          "[control][takeover][drivers]") {
  server_scene at{serving_record()};
  at.server.decided();
  constexpr peer_id early{20}, late{21};
  const auto attach = [&](peer_id from) {
    at.server.hear(from, encode(process_frame{0, attach_request{.who = {.name = "d", .host = "h", .pid = 8}}}));
  };
  const auto address = [&](peer_id of) {
    const world_report told = at.told<world_report>(of).back();
    CHECK(told.is_ready);
    return process_address{told.address};
  };
  attach(early); // before the order service has said what there was
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  at.attach_host(host);
  const std::vector<process_address> former{attached_address(0, 0), attached_address(2, 4096)};
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{0}, rank{1}}, .retiring = former});
  attach(late);
  CHECK(slot_of(address(early)) == 1);
  CHECK(slot_of(address(late)) == 3);
  CHECK(address(late) != attached_address(3, 0)); // a former driver's: an answer to it may be on its way
  const auto say_farewell = [&](rank by) {
    request_writer asks;
    for (const process_address one : former) asks.add({.kind = request_record::form::message, .to = one});
    const std::string bytes = asks.take({.epoch = epoch{5}, .number = 1});
    at.say(host, order_batch{epoch{5}, encode(host_frame{.batches = {{by, bytes}}})});
  };
  say_farewell(rank{0});
  attach(late);
  CHECK(slot_of(address(late)) > 3);
  say_farewell(rank{1});
  attach(late);
  CHECK(slot_of(address(late)) == 0);
}

TEST_CASE("an epoch ends at once whose order service had stopped for a change of the former controller",
          "[control][takeover][planned]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  at.attach_host(host);
  at.say(host, serving_report{.of = epoch{4}});
  CHECK(at.told<failure_directive>(first).empty());
  at.say(host, serving_report{.of = epoch{5}});
  CHECK(at.told<failure_directive>(first).size() == 1);
}

TEST_CASE("a successor takes no order over from a service that has not all ranks, or another epoch",
          "[control][takeover]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  at.attach_host(host);
  at.say(host, serving_report{.of = epoch{4}, .ranks = {rank{0}, rank{1}}});
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{1}}});
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{1}, rank{0}}});
  at.say(host, order_batch{epoch{5}, encode(host_frame{.losses = {{rank{1}, {.code = errc::rank_lost}}}})});
  CHECK(at.told<failure_directive>(first).empty());
}

TEST_CASE("a successor takes the order over once a rank shows that its service has decided it (CUT-1)",
          "[control][takeover]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.attach_host(host);
  // A service that answers after its time believes that it serves an epoch, which was opened without it.
  at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{0}, rank{1}}});
  const order_batch loss{epoch{5}, encode(host_frame{.losses = {{rank{0}, {.code = errc::rank_lost}}}})};
  SECTION("a rank has kept the epoch") {
    at.join(second, 1, epoch{5});
    at.say(host, loss);
    REQUIRE(at.told<failure_directive>(second).size() == 1);
    CHECK(at.told<failure_directive>(second)[0].why.rank == rank{0});
  }
  SECTION("no rank has") {
    for (const int place : {0, 1}) at.join(place == 0 ? first : second, place);
    at.server.decided();
    at.say(first, id_offer{epoch{6}, {}});
    for (const peer_id one : {first, second}) at.say(one, commits_report{epoch{6}, {}});
    REQUIRE(at.told<serve_directive>(host).size() == 1);
    CHECK(at.told<serve_directive>(host)[0].of == epoch{6});
    CHECK(at.told<serve_directive>(host)[0].previous == epoch{}); // it has not recorded that epoch
  }
}

TEST_CASE("an epoch that was taken over fails if its order service does not return in time (TIM-1)",
          "[control][takeover]") {
  manual_time time;
  const bool returns = GENERATE(true, false);
  server_scene at{serving_record()};
  at.server.decided();
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  if (returns) {
    at.attach_host(host);
    at.say(host, serving_report{.of = epoch{5}, .ranks = {rank{0}, rank{1}}});
  }
  const nanoseconds limit = server_scene::terms().suspicion + lease_length(server_scene::terms());
  const auto pass = [&](nanoseconds span) {
    for (nanoseconds passed{}; passed < span; passed += 100ms) {
      time.advance(100ms);
      for (const peer_id one : {first, second}) at.say(one, heartbeat{});
      if (returns) at.say(host, heartbeat{});
      at.server.tick();
    }
  };
  pass(limit - 200ms);
  CHECK(at.told<failure_directive>(first).empty());
  pass(400ms);
  CHECK(at.told<failure_directive>(first).size() == (returns ? 0 : 1));
  CHECK(at.told<failure_directive>(second).size() == (returns ? 0 : 1));
}

TEST_CASE("a single rank that was taken over needs no order service", "[control][takeover]") {
  manual_time time;
  control_record record = serving_record();
  record.size = 1;
  record.ranks.pop_back();
  server_scene at{record};
  at.server.decided();
  at.join(first, 0, epoch{5});
  for (int i = 0; i < 300; ++i) {
    time.advance(100ms);
    at.say(first, heartbeat{});
    at.server.tick();
  }
  CHECK(at.told<failure_directive>(first).empty());
}

TEST_CASE("a process that left the gate of its host has ended, whichever is noticed first", "[control][takeover]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.attach_host(host);
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  SECTION("its connection, then the gate") {
    at.server.lose(second, session_end::closed);
    CHECK(at.told<failure_directive>(first).empty()); // it may be alive
    at.say(host, gate_closed{ring_session{{101, 0}}});
  }
  SECTION("the gate, then its connection") {
    at.say(host, gate_closed{ring_session{{101, 0}}});
    CHECK(at.told<failure_directive>(first).empty());
    at.server.lose(second, session_end::closed);
  }
  CHECK(at.told<failure_directive>(first).size() == 1);
  CHECK(at.decisions.back().of == epoch{6}); // at once
}

TEST_CASE("a process that ended while there was no controller is known by its nonce", "[control][takeover]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.join(first, 0, epoch{5});
  at.attach_host(host);
  at.say(host, gate_closed{ring_session{{101, 0}}});
  CHECK(at.told<failure_directive>(first).size() == 1);
  CHECK(at.decisions.back().of == epoch{6});
}

TEST_CASE("a rank that connects again is not taken for its former connection's end", "[control][takeover]") {
  server_scene at{serving_record()};
  at.server.decided();
  at.attach_host(host);
  at.join(first, 0, epoch{5});
  at.join(second, 1, epoch{5});
  at.join(again, 1, epoch{5}); // before the end of the former connection is noticed
  at.server.lose(second, session_end::closed);
  CHECK(at.told<failure_directive>(first).empty());
  at.say(again, heartbeat{1});
  REQUIRE(at.told<lease_grant>(again).size() == 2);
  CHECK(at.told<lease_grant>(again)[1].number == 1);
}

} // namespace troupe::tests::takeover_server_test
