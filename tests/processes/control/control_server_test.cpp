// A controller without CAF: what it does with the frames of processes and of order services of other hosts.
#include "support/manual_time.hpp"
#include "support/process_resources.hpp"

#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/control_server.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/host_frame.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::control_server_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

/// A controller of a world of two processes, whose connections are the test.
struct server_scene {
  explicit server_scene(std::shared_ptr<order_gate> gate = nullptr)
    : server{{.world_size = 2},
             {.limits = {.straggling = 5s}},
             std::move(gate),
             {.send =
                  [this](peer_id to, const std::string& bytes) {
                    error why;
                    auto frame = decode_controller_frame(bytes, why);
                    REQUIRE(frame);
                    sent.emplace_back(to, *std::move(frame));
                  },
              .heard = [this](const control_event& now) { heard.push_back(now); },
              .straggling = [this](const absence_report&) { ++stragglers; },
              .refused = [this](const error& why) { refused.push_back(why); },
              .without_rings = [this](const error& why) { without_rings.push_back(why.text); },
              .kill = [this](const process_identity& who) { killed.push_back(who.name); },
              .host_joined = [this](const process_identity& who) { hosts.push_back(who.name); },
              .joined = [this](const process_identity& who) { joined.push_back(who.name); },
              .wanted = [this](int place) { wanted.push_back(place); },
              .ended = [this](const error& why) { ended.push_back(why.code); },
              .batch_added = [this](rank self, epoch) { added.push_back(self); },
              .order_closed = [this](epoch of) { closed.push_back(of); }},
             {.draw_session = [this] { return ++last_session; }, .wall_clock = [] { return std::int64_t{0}; }}} {}

  void hear(peer_id from, session_id session, process_message what) {
    report_commits();
    server.hear(from, encode(process_frame{session, std::move(what)}));
    report_commits();
  }
  /// Every process that has been asked reports that it knows no commits.
  void report_commits() {
    for (; answered < sent.size(); ++answered) {
      const auto& [to, frame] = sent[answered];
      if (const auto* const question = std::get_if<commits_wanted>(&frame.what))
        server.hear(to, encode(process_frame{frame.session, commits_report{.of = question->of}}));
    }
  }
  /// A process joins. Returns its session.
  session_id join(peer_id from, int place, std::optional<ring_session> nonce = {}) {
    const std::string name = std::to_string(place);
    hear(from, 0,
         join_request{.who = {.name = name, .host = "h" + name, .pid = place + 1}, .place = place, .nonce = nonce});
    return last_session;
  }
  template <class Message>
  [[nodiscard]] std::vector<Message> told(peer_id to) const {
    std::vector<Message> found;
    for (const auto& [receiver, frame] : sent)
      if (const auto* what = std::get_if<Message>(&frame.what); what && receiver == to) found.push_back(*what);
    return found;
  }

  std::vector<std::pair<peer_id, controller_frame>> sent{};
  std::size_t answered = 0; ///< Frames of `sent` that report_commits() has seen.
  std::vector<control_event> heard{};
  int stragglers = 0;
  std::vector<error> refused{};
  std::vector<std::string> without_rings{};
  std::vector<std::string> killed{}, hosts{}, joined{};
  std::vector<int> wanted{};
  std::vector<errc> ended{};
  std::vector<rank> added{};
  std::vector<epoch> closed{};
  session_id last_session = 100;
  control_server server;
};

constexpr peer_id first{1};
constexpr peer_id second{2};
constexpr peer_id service{3};
constexpr peer_id driver{4};

/// A request of a barrier, as the first batch of a rank.
order_batch asks_barrier(epoch of, nanoseconds deadline = 1h, std::uint64_t number = 1) {
  request_writer asks;
  REQUIRE_FALSE(asks.ask(barrier{}, {}, 0, {}, deadline));
  return {of, asks.take({.epoch = of, .number = number})};
}
/// What a rank has been told of its requests, in order.
std::vector<decision_record::form> decisions(const server_scene& at, peer_id to) {
  std::vector<decision_record::form> found;
  decision_reader reader{2};
  for (const order_batch& batch : at.told<order_batch>(to)) {
    wire_reader in{batch.bytes};
    static_cast<void>(batch_header::read(in));
    for (decision_record one; reader.next(in, one);) found.push_back(one.kind);
    REQUIRE(in.ok());
  }
  return found;
}
using decided = std::vector<decision_record::form>;

attach_request service_on(const std::string& host) {
  return {.who = {.name = "s", .host = host, .pid = 9}, .is_order_service = true};
}

/// A world of two processes that serves, with the order service of another host and a driver, in the test's own time.
struct timed_scene : manual_time, server_scene {
  timed_scene() {
    hear(service, 0, service_on("h9"));
    host = last_session;
    hear(driver, 0, attach_request{.who = {.name = "d", .host = "h8", .pid = 8}});
    drives = last_session;
    ranks = {server_scene::join(first, 0), server_scene::join(second, 1)};
    hear(first, ranks[0], id_offer{epoch{1}, {}});
    hear(first, ranks[0], formed_report{epoch{1}});
    hear(second, ranks[1], formed_report{epoch{1}});
    REQUIRE(server.state().event().phase == control_phase::serving);
  }
  /// Everybody says something each time, except \p silent.
  void pass(nanoseconds span, peer_id silent = {}) {
    for (nanoseconds passed{}; passed < span; passed += control_server::tick_interval) {
      advance(control_server::tick_interval);
      const std::pair<peer_id, session_id> all[] = {
          {first, ranks[0]}, {second, ranks[1]}, {service, host}, {driver, drives}};
      for (const auto& [peer, session] : all)
        if (peer != silent) hear(peer, session, heartbeat{});
      server.tick();
    }
  }

  session_id host = 0;
  session_id drives = 0;
  std::vector<session_id> ranks{};
};

} // namespace

TEST_CASE("a controller says once in each interval that it lives, to everybody", "[control]") {
  timed_scene at;
  at.sent.clear();
  const nanoseconds beat = at.server.state().terms().heartbeat;
  at.pass(40 * beat);
  const auto few = static_cast<std::size_t>(40 * beat / (beat + control_server::tick_interval));
  for (const peer_id one : {service, driver}) {
    CAPTURE(static_cast<int>(one));
    CHECK(at.told<heartbeat>(one).size() >= few);
    CHECK(at.told<heartbeat>(one).size() <= 40);
  }
  for (const peer_id one : {first, second}) { // ranks, whose own heartbeats are answered
    CHECK(at.told<lease_grant>(one).size() >= few);
    CHECK(at.told<heartbeat>(one).size() <= 1);
  }
}

TEST_CASE("drivers and processes are answered what they ask about the ranks, and nobody else is heard",
          "[control][drivers][planned][SEC-2]") {
  timed_scene at;
  at.hear(driver, at.drives, change_request{7, {}});
  REQUIRE(at.told<change_reply>(driver).size() == 1);
  const change_reply listed = at.told<change_reply>(driver).front();
  CHECK(listed.number == 7);
  CHECK_FALSE(listed.why);
  REQUIRE(listed.processes.size() == 2);
  CHECK(listed.processes[1].self == rank{1});
  CHECK(listed.processes[1].place == 1);
  at.hear(first, at.ranks[0], change_request{3, {.kind = rank_change_kind::join, .place = 0}});
  REQUIRE(at.told<change_reply>(first).size() == 1);
  CHECK(at.told<change_reply>(first).front().why.code == errc::invalid_argument);
  // One that has not been admitted.
  constexpr peer_id stranger{77};
  at.sent.clear();
  for (const session_id guess : {session_id{0}, session_id{77}}) {
    at.hear(stranger, guess, change_request{1, {}});
    at.hear(stranger, guess, change_request{2, {.kind = rank_change_kind::drain, .host = "h1", .renumbers = true}});
  }
  CHECK(at.sent.empty());
  for (const world_process& one : at.server.state().processes()) CHECK_FALSE(one.is_leaving);
}

TEST_CASE("a change that is asked for as soon as another one is done is planned, too", "[control][planned]") {
  server_scene at;
  std::map<peer_id, session_id> all;
  const auto enter = [&](peer_id from, int place, bool spare) {
    const std::string name = std::to_string(place) + (spare ? "s" + std::to_string(static_cast<int>(from)) : "");
    join_request asked{.who = {.name = name, .host = "h" + name, .pid = place + 1}, .place = place, .spare = spare};
    asked.facts = {{std::string{fact_of_planned_changes}, "yes"}};
    at.hear(from, 0, std::move(asked));
    all[from] = at.last_session;
  };
  const auto say = [&](peer_id from, process_message what) { at.hear(from, all.at(from), std::move(what)); };
  constexpr peer_id third{3}, fourth{4};
  enter(first, 0, false);
  enter(second, 1, false);
  say(first, id_offer{epoch{1}, {}});
  for (const peer_id one : {first, second}) say(one, formed_report{epoch{1}});
  enter(third, 1, true);
  enter(fourth, 1, true);
  /// The process of place 1 leaves, and \p next takes its place.
  const auto replace = [&](peer_id last, peer_id next, std::uint64_t of) {
    INFO("epoch " << of);
    const epoch before{of - 1}, after{of};
    say(last, change_request{of, {.kind = rank_change_kind::leave}});
    REQUIRE(at.told<id_wanted>(first).back().of == after);
    say(first, id_offer{after, {}});
    for (const peer_id one : {first, next}) say(one, formed_report{after});
    for (const peer_id one : {first, last}) say(one, held_notice{before, after});
    REQUIRE(at.told<quiesce_directive>(first).size() == of - 1);
    CHECK(at.told<quiesce_directive>(first).back().is_planned);
    at.server.tick(); // finds an order that is held
    for (const peer_id one : {first, last}) say(one, drained_report{.of = before});
    for (const peer_id one : {first, next}) say(one, formed_report{after});
    REQUIRE(at.server.state().event().phase == control_phase::serving);
    REQUIRE(at.told<change_reply>(last).size() == 1);
    CHECK_FALSE(at.told<change_reply>(last).front().why);
  };
  replace(second, third, 2);
  replace(third, fourth, 3);
}

TEST_CASE("the order of a planned change is held, and goes on, where the order service of another host decides it",
          "[control][planned][takeover]") {
  server_scene at;
  std::map<peer_id, session_id> all;
  constexpr peer_id third{4};
  at.hear(service, 0, service_on("h9"));
  const session_id host = at.last_session;
  const auto enter = [&](peer_id from, int place, bool spare) {
    join_request asked{
        .who = {.name = std::to_string(static_cast<int>(from)), .host = "h9", .pid = static_cast<int>(from)},
        .place = place,
        .spare = spare,
        .nonce = ring_session{{100 + static_cast<std::uint64_t>(from), 0}}};
    asked.facts = {{std::string{fact_of_planned_changes}, "yes"}};
    at.hear(from, 0, std::move(asked));
    all[from] = at.last_session;
  };
  const auto say = [&](peer_id from, process_message what) { at.hear(from, all.at(from), std::move(what)); };
  enter(first, 0, false);
  enter(second, 1, false);
  const std::vector<rank> both{rank{0}, rank{1}};
  say(first, id_offer{epoch{1}, {}});
  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = both});
  for (const peer_id one : {first, second}) say(one, formed_report{epoch{1}});
  enter(third, 1, true);
  say(second, change_request{1, {.kind = rank_change_kind::leave}});
  REQUIRE(at.told<id_wanted>(first).back().of == epoch{2});
  say(first, id_offer{epoch{2}, {}});
  for (const peer_id one : {first, third}) say(one, formed_report{epoch{2}});
  for (const peer_id one : {first, second}) say(one, held_notice{epoch{1}, epoch{2}});
  const auto asked = at.told<hold_order_directive>(service);
  REQUIRE(asked.size() == 1);
  CHECK(asked.front().of == epoch{1});
  CHECK(asked.front().next == epoch{2});
  CHECK(at.told<quiesce_directive>(first).empty());
  const auto held = [&](epoch next, bool is_held) {
    at.hear(service, host, order_held_report{epoch{1}, next, is_held});
  };
  SECTION("a service that cannot hold it lets the world go on") {
    held(epoch{2}, false);
    CHECK(at.told<drop_directive>(first).size() == 1);
    CHECK(at.server.state().event().phase == control_phase::serving);
  }
  SECTION("a service that has held it for an attempt that was given up has dropped requests, and fails the epoch") {
    held(epoch{3}, true);
    CHECK(at.told<failure_directive>(first).size() == 1);
    CHECK(at.told<quiesce_directive>(first).empty());
  }
  SECTION("it is held") {
    at.hear(service, host, order_held_report{epoch{7}, epoch{2}, true}); // of another epoch
    CHECK(at.told<quiesce_directive>(first).empty());
    held(epoch{2}, true);
    REQUIRE(at.told<quiesce_directive>(first).size() == 1);
    CHECK(at.told<quiesce_directive>(first).front().is_planned);
    CHECK(at.told<quiesce_directive>(first).front().decided == 1); // what comes behind all that the service decided
    CHECK(at.closed == std::vector{epoch{1}});
    say(first, drained_report{.of = epoch{1}, .succeeded = 4});
    say(second, drained_report{.of = epoch{1}, .succeeded = 5});
    const serve_directive next = at.told<serve_directive>(service).back();
    CHECK(next.of == epoch{2});
    CHECK(next.previous == epoch{1});
    CHECK(next.continued.before == std::vector<std::optional<rank>>{rank{0}, std::nullopt});
    CHECK(next.continued.successes == std::vector<std::uint64_t>{4, 5});
    enum class next_order { goes_on, refused, lost };
    const auto how = GENERATE(next_order::goes_on, next_order::refused, next_order::lost);
    const bool goes_on = how == next_order::goes_on;
    if (how == next_order::lost)
      at.server.lose(service, session_end::closed);
    else
      at.hear(service, host, serving_report{.of = epoch{2}, .ranks = goes_on ? both : std::vector<rank>{}});
    for (const peer_id one : {first, third}) say(one, formed_report{epoch{2}});
    CHECK((at.server.state().event().phase == control_phase::serving) == goes_on);
    CHECK(at.told<failure_directive>(first).size() == (goes_on ? 0 : 1));
    CHECK(at.told<change_reply>(second).size() == 1); // it has left
  }
}

TEST_CASE("a controller that was asleep drops nobody that it could not hear, and who is silent then is dropped",
          "[control][drivers]") {
  timed_scene at;
  const auto speaks_to = [&](peer_id one) {
    at.sent.clear();
    at.pass(2s, one);
    return !at.told<heartbeat>(one).empty();
  };
  for (int i = 0; i < 3; ++i) {
    at.advance(1h);
    at.server.tick();
    at.server.tick();
    at.pass(1s);
  }
  for (const peer_id one : {first, second, service, driver}) {
    CAPTURE(static_cast<int>(one));
    CHECK(speaks_to(one));
  }
  for (const peer_id one : {driver, service}) {
    CAPTURE(static_cast<int>(one));
    at.pass(at.server.state().terms().suspicion + 1s, one);
    CHECK_FALSE(speaks_to(one));
    CHECK(at.server.state().event().phase == control_phase::serving);
  }
}

TEST_CASE("an epoch waits once for the order service whose gate its processes have found", "[control]") {
  manual_time clock;
  server_scene at;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  const auto pass = [&](nanoseconds span) {
    for (nanoseconds passed{}; passed < span; passed += control_server::tick_interval) {
      clock.advance(control_server::tick_interval);
      at.hear(first, one, heartbeat{});
      at.hear(second, other, heartbeat{});
      at.server.tick();
    }
  };
  const auto begin = [&](epoch of) {
    at.hear(first, one, id_offer{of, {}});
    return at.told<formation_directive>(first).size() == of.value();
  };
  REQUIRE_FALSE(begin(epoch{1}));
  pass(1500ms);
  CHECK(at.told<formation_directive>(first).empty());
  SECTION("it joins, and serves them") {
    at.hear(service, 0, service_on("h9"));
    const session_id host = at.last_session;
    CHECK(at.told<claim_directive>(service).size() == 2);
    REQUIRE(at.told<serve_directive>(service).size() == 1);
    CHECK(at.told<serve_directive>(service)[0].candidates.size() == 2);
    CHECK(at.told<formation_directive>(first).empty());
    at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
    REQUIRE(at.told<formation_directive>(first).size() == 1);
    CHECK(at.told<formation_directive>(first)[0].has_rings);
  }
  SECTION("it does not join") {
    pass(600ms);
    CHECK(at.told<formation_directive>(first).size() == 1);
    at.hear(first, one, failed_report{epoch{1}, {.code = errc::communicator_failed}});
    for (const auto& [peer, session] : {std::pair{first, one}, std::pair{second, other}})
      at.hear(peer, session, drained_report{.of = epoch{1}});
    pass(1s); // until it is tried again
    REQUIRE(at.told<id_wanted>(first).size() == 2);
    CHECK(begin(epoch{2}));
  }
  SECTION("the world stops meanwhile") {
    at.server.stop();
    CHECK(at.told<stop_directive>(first).size() == 1);
    CHECK(at.told<stop_directive>(second).size() == 1);
  }
}

TEST_CASE("a world that stops while order services open decides nothing in the new epoch", "[control][ORD-1]") {
  server_scene at;
  at.hear(service, 0, attach_request{.who = {.name = "s", .host = "h0", .pid = 9}, .is_order_service = true});
  const session_id host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  REQUIRE(at.told<serve_directive>(service).size() == 1);
  at.server.stop();
  CHECK(at.closed == std::vector{epoch{1}});
  CHECK(at.told<stop_directive>(first).empty());          // it waits, too
  at.hear(service, host, serving_report{.of = epoch{1}}); // it serves nobody
  CHECK(at.told<stop_directive>(first).size() == 1);
  CHECK(at.told<stop_directive>(second).size() == 1);
  at.sent.clear();
  at.hear(second, other, asks_barrier(epoch{1}));
  CHECK(decisions(at, second) == decided{decision_record::form::refusal}); // it does not wait for rank 0
}

TEST_CASE("bytes that are no message, and messages of no session, change nothing (SEC-2)", "[control]") {
  server_scene at;
  at.server.hear(first, "no frame");
  CHECK(at.refused.size() == 1);
  at.hear(first, 7, leave_notice{});
  at.hear(first, 7, serving_report{.of = epoch{1}});
  at.server.lose(first, session_end::closed);
  CHECK(at.sent.empty());
  CHECK(at.server.state().event().phase == control_phase::gathering);
}

TEST_CASE("batches of requests are added to the order of their epoch, and one that cannot be read ends it",
          "[control]") {
  server_scene at;
  const session_id one = at.join(first, 0);
  const session_id other = at.join(second, 1);
  at.hear(first, one, id_offer{epoch{1}, {}});
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  const auto batch = [](epoch of) { return order_batch{of, request_writer{}.take({.epoch = of, .number = 1})}; };
  at.hear(second, other, batch(epoch{1}));
  CHECK(at.added == std::vector{rank{1}});
  at.hear(first, one, batch(epoch{2})); // no such epoch
  at.hear(first, 7, batch(epoch{1}));   // no such process
  CHECK(at.added.size() == 1);
  CHECK(at.closed.empty());

  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  at.hear(first, one, order_batch{epoch{1}, "no batch"});
  CHECK(at.added.size() == 1);
  CHECK(at.closed == std::vector{epoch{1}});
  CHECK(at.told<failure_directive>(second).size() == 1);
}

TEST_CASE("directives to form wait until the order services of other hosts have answered", "[control]") {
  server_scene at;
  at.hear(service, 0, attach_request{.who = {.name = "s", .host = "h0", .pid = 9}, .is_order_service = true});
  const session_id host = at.last_session;
  REQUIRE(at.told<join_welcome>(service).size() == 1);
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  CHECK(at.told<claim_directive>(service).size() == 2);
  at.hear(first, one, id_offer{epoch{1}, {}});
  REQUIRE(at.told<serve_directive>(service).size() == 1);
  CHECK(at.told<serve_directive>(service)[0].candidates.size() == 2);
  CHECK(at.told<formation_directive>(first).empty());

  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  CHECK(at.told<formation_directive>(second)[0].has_rings);
  CHECK(at.told<formation_directive>(second)[0].is_on_one_node);
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  CHECK(at.server.state().event().phase == control_phase::serving);

  at.server.lose(service, session_end::closed);
  REQUIRE(at.told<failure_directive>(second).size() == 1);
  CHECK(at.told<failure_directive>(second)[0].why.text.find("the order service of process s") != std::string::npos);
}

TEST_CASE("a controller tells its owner who has come, who is lost, and how the world ends", "[control]") {
  timed_scene at;
  CHECK(at.hosts == std::vector<std::string>{"s"});
  CHECK(at.joined == std::vector<std::string>{"0", "1"});
  at.server.lose(second, session_end::closed);
  CHECK(at.killed == std::vector<std::string>{"1"});
  CHECK(at.closed == std::vector{epoch{1}});
  CHECK(at.told<failure_directive>(first).size() == 1);
  at.pass(2s, second);
  CHECK(at.wanted == std::vector{1});
  at.ranks[1] = at.server_scene::join(second, 1);
  at.hear(first, at.ranks[0], id_offer{epoch{2}, {}});
  at.hear(first, at.ranks[0], formed_report{epoch{2}});
  at.hear(second, at.ranks[1], formed_report{epoch{2}});
  CHECK(at.heard.back().phase == control_phase::serving);
  at.server.process_ended("0", 99, "exit status 1"); // another process
  CHECK(at.heard.back().phase == control_phase::serving);
  at.server.process_ended("0", 1, "exit status 1");
  CHECK(at.heard.back().phase == control_phase::rebuilding);
  CHECK_THAT(at.heard.back().reason.text, ContainsSubstring("exit status 1"));
  CHECK(at.killed.size() == 1); // it has ended
  at.server.stop();
  CHECK(at.ended.empty());
  at.hear(second, at.ranks[1], leave_notice{});
  CHECK(at.ended == std::vector{errc::none});
  CHECK(at.told<stop_directive>(service).size() == 1);
  const auto reports = at.told<world_report>(driver);
  REQUIRE_FALSE(reports.empty());
  CHECK(reports.back().is_over);
  CHECK(reports.back().reason.code == errc::stopping);
}

TEST_CASE("a controller that itself fails says so to its owner", "[control]") {
  timed_scene at;
  at.server.fail({.code = errc::internal, .text = "the port is gone"});
  CHECK(at.heard.back().phase == control_phase::failed);
  CHECK(at.heard.back().reason.text == "the port is gone");
  CHECK(at.ended == std::vector{errc::internal});
}

TEST_CASE("a controller whose owner listens to nothing decides as ever", "[control]") {
  manual_time time;
  session_id last = 100;
  control_server server{{.world_size = 2},
                        {},
                        nullptr,
                        {},
                        {.draw_session = [&] { return ++last; }, .wall_clock = [] { return std::int64_t{0}; }}};
  const auto hear = [&](peer_id from, session_id session, process_message what) {
    server.hear(from, encode(process_frame{session, std::move(what)}));
    return last;
  };
  const auto join = [&](peer_id from, int place) {
    const std::string name = std::to_string(place);
    return hear(from, 0,
                join_request{.who = {.name = name, .host = "h" + name, .pid = place + 1},
                             .place = place,
                             .nonce = ring_session{{static_cast<std::uint64_t>(place), 7}}});
  };
  server.hear(first, "no frame");
  hear(first, 0, join_request{.wall_clock_ns = nanoseconds{1h}.count()});
  const session_id host = hear(service, 0, service_on("h9"));
  hear(driver, 0, attach_request{.who = {.name = "d", .host = "h8", .pid = 8}});
  const session_id one = join(first, 0);
  session_id other = join(second, 1);
  hear(first, one, commits_report{.of = epoch{1}});
  hear(second, other, commits_report{.of = epoch{1}});
  hear(first, one, id_offer{epoch{1}, {}});
  hear(service, host, serving_report{.of = epoch{1}});
  hear(first, one, formed_report{epoch{1}});
  hear(second, other, formed_report{epoch{1}});
  CHECK(server.state().event().phase == control_phase::serving);
  hear(second, other, asks_barrier(epoch{1}, 1s));
  for (int i = 0; i < 100; ++i) { // it becomes late
    time.advance(20ms);
    server.tick();
  }
  server.lose(second, session_end::closed);
  CHECK(server.state().event().phase == control_phase::rebuilding);
  time.advance(20ms);
  server.tick();
  other = join(second, 1);
  CHECK(server.state().event().phase == control_phase::forming);
  server.stop();
  hear(peer_id{9}, 0, attach_request{});
  server.fail({.code = errc::internal});
  CHECK(server.state().event().phase == control_phase::stopping);
}

TEST_CASE("a request whose peer does not come is late first, and refused after its deadline", "[control][TIM-1]") {
  timed_scene at;
  at.hear(second, at.ranks[1], asks_barrier(epoch{1}, 10s));
  at.pass(4s);
  CHECK(at.stragglers == 0);
  at.pass(5s);
  CHECK(at.stragglers == 1);
  CHECK(decisions(at, second).empty());
  at.pass(2s);
  CHECK(decisions(at, second) == decided{decision_record::form::refusal});
  CHECK(at.server.state().event().phase == control_phase::serving);
}

TEST_CASE("a process that sends requests and no heartbeats lives", "[control]") {
  timed_scene at;
  const nanoseconds suspicion = at.server.state().terms().suspicion;
  std::uint64_t number = 0;
  for (nanoseconds passed{}; passed < 2 * suspicion; passed += 1s) {
    at.hear(second, at.ranks[1], asks_barrier(epoch{1}, 1h, ++number));
    at.pass(1s, second);
  }
  CHECK(at.server.state().event().phase == control_phase::serving);
  CHECK(at.added.size() == number);
  at.pass(suspicion + 1s, second);
  CHECK(at.server.state().event().phase == control_phase::rebuilding);
}

TEST_CASE("an order service that does not answer in time does not serve that epoch, and forming goes on", "[control]") {
  manual_time time;
  server_scene at;
  at.hear(service, 0, service_on("h0"));
  const session_id host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  const auto pass = [&](nanoseconds span) {
    for (nanoseconds passed{}; passed < span; passed += 20ms) {
      time.advance(20ms);
      at.server.tick();
    }
  };
  pass(1900ms);
  CHECK(at.told<formation_directive>(second).empty());
  pass(200ms);
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  CHECK_FALSE(at.told<formation_directive>(second)[0].has_rings);
  CHECK_FALSE(at.told<formation_directive>(second)[0].is_on_one_node);
  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}}); // too late
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  CHECK(at.server.state().event().phase == control_phase::serving);
  at.server.lose(service, session_end::closed); // which served nobody
  CHECK(at.server.state().event().phase == control_phase::serving);
}

TEST_CASE("an order service fails the epoch that it serves with what cannot be read, and is asked again for the next",
          "[control]") {
  manual_time time;
  server_scene at;
  at.hear(service, 0, service_on("h0"));
  const session_id host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  const auto form = [&](epoch of) {
    at.hear(first, one, id_offer{of, {}});
    const serve_directive asked = at.told<serve_directive>(service).back();
    CHECK(asked.of == of);
    at.hear(service, host, serving_report{.of = of.next(), .ranks = {rank{0}, rank{1}}}); // there is no such epoch
    CHECK(at.told<formation_directive>(first).size() + 1 == of.value());
    at.hear(service, host, serving_report{.of = of, .ranks = {rank{0}, rank{1}}});
    at.hear(first, one, formed_report{of});
    at.hear(second, other, formed_report{of});
    REQUIRE(at.server.state().event().phase == control_phase::serving);
    return asked;
  };
  CHECK(form(epoch{1}).previous == epoch{});
  at.hear(service, host, order_batch{epoch{2}, "of no epoch"});
  CHECK(at.server.state().event().phase == control_phase::serving);
  at.hear(service, host, order_batch{epoch{1}, "no message"});
  CHECK(at.server.state().event().phase == control_phase::rebuilding);
  REQUIRE(at.told<failure_directive>(first).size() == 1);
  CHECK_THAT(at.told<failure_directive>(first)[0].why.text, ContainsSubstring("the order service of process s"));
  for (int i = 0; i < 100; ++i) {
    time.advance(20ms);
    at.server.tick();
  }
  CHECK(form(epoch{2}).previous == epoch{1});
}

TEST_CASE("an order service that connects again takes its own place, and another host's is beside it", "[control]") {
  server_scene at;
  constexpr peer_id again{5};
  constexpr peer_id elsewhere{6};
  at.hear(service, 0, service_on("h0"));
  at.hear(again, 0, service_on("h0")); // the controller has not noticed the end of the first connection
  const session_id host = at.last_session;
  at.hear(elsewhere, 0, service_on("h1"));
  const session_id other_host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  at.join(second, 1, ring_session{{2, 0}});
  CHECK(at.told<claim_directive>(service).empty());
  CHECK(at.told<claim_directive>(again).size() == 2);
  CHECK(at.told<claim_directive>(elsewhere).size() == 2);
  at.hear(first, one, id_offer{epoch{1}, {}});
  CHECK(at.told<serve_directive>(service).empty());
  // Both claim both ranks: the first has them. Ranks that it was not asked for are nobody's.
  at.hear(elsewhere, other_host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  CHECK(at.told<formation_directive>(second).empty()); // the other has not answered
  bool is_one_lost = false;
  SECTION("both answer") {
    at.hear(again, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}, rank{7}}});
  }
  SECTION("the other is lost") {
    is_one_lost = true;
    at.server.lose(again, session_end::closed);
  }
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  CHECK(at.told<formation_directive>(second)[0].has_rings);
  // What comes from a service that serves nobody is not read.
  at.hear(elsewhere, other_host, order_batch{epoch{1}, "no message"});
  CHECK((at.server.state().event().phase == control_phase::forming) != is_one_lost);
  CHECK(at.told<failure_directive>(first).size() == (is_one_lost ? 1 : 0));
}

TEST_CASE("drivers are told why the world does not serve them", "[control][drivers]") {
  server_scene at;
  at.hear(driver, 0, attach_request{.who = {.name = "d", .host = "h8", .pid = 8}});
  const auto last = [&] { return at.told<world_report>(driver).back(); };
  CHECK_FALSE(last().is_ready);
  CHECK(last().reason.code == errc::rebuilding);
  CHECK_THAT(last().reason.text, ContainsSubstring("the world is not ready: world gathering"));
  const bool by_caller = GENERATE(false, true);
  std::vector<session_id> ranks;
  for (const auto& [peer, place] : {std::pair{first, 0}, std::pair{second, 1}}) {
    const std::string name = std::to_string(place);
    at.hear(peer, 0,
            join_request{.who = {.name = name, .host = "h" + name, .pid = place + 1},
                         .facts = {{"ordering", by_caller ? "caller" : "agreed"}},
                         .place = place});
    ranks.push_back(at.last_session);
  }
  at.hear(first, ranks[0], id_offer{epoch{1}, {}});
  at.hear(first, ranks[0], formed_report{epoch{1}});
  at.hear(second, ranks[1], formed_report{epoch{1}});
  CHECK(last().of == epoch{1});
  CHECK(last().world_size == 2);
  CHECK(last().is_ready != by_caller);
  CHECK((last().address < 0) != by_caller);
  CHECK(last().reason.code == (by_caller ? errc::unsupported : errc::none));
  if (by_caller) CHECK_THAT(last().reason.text, ContainsSubstring("the world's ordering is caller"));
  at.server.lose(second, session_end::closed);
  CHECK_FALSE(last().is_ready);
  CHECK(last().address == 0);
}

TEST_CASE("a driver of a world of a single rank is told that nobody can ask it", "[control][drivers]") {
  session_id session = 100;
  std::vector<world_report> told;
  control_server server{{.world_size = 1},
                        {},
                        nullptr,
                        {.send =
                             [&](peer_id to, const std::string& bytes) {
                               error why;
                               const auto frame = decode_controller_frame(bytes, why);
                               REQUIRE(frame);
                               if (const auto* const report = std::get_if<world_report>(&frame->what))
                                 if (to == driver) told.push_back(*report);
                             }},
                        {.draw_session = [&] { return ++session; }, .wall_clock = [] { return std::int64_t{0}; }}};
  const auto hear = [&](peer_id from, session_id by, process_message what) {
    server.hear(from, encode(process_frame{by, std::move(what)}));
  };
  hear(driver, 0, attach_request{.who = {.name = "d", .host = "h8", .pid = 8}});
  hear(first, 0, join_request{.who = {.name = "0", .host = "h0", .pid = 1}, .place = 0});
  hear(first, session, commits_report{.of = epoch{1}});
  hear(first, session, formed_report{epoch{1}});
  CHECK(server.state().event().phase == control_phase::serving);
  CHECK_FALSE(told.back().is_ready);
  CHECK(told.back().reason.code == errc::unsupported);
}

TEST_CASE("only so many drivers are attached, and who is refused is told why", "[control][drivers]") {
  server_scene at;
  const auto attach = [&](std::size_t number) {
    const peer_id from{100 + number};
    at.hear(from, 0, attach_request{.who = {.name = "d", .host = "h", .pid = static_cast<std::int64_t>(number)}});
    return from;
  };
  for (std::size_t i = 0; i < attached_drivers::most; ++i) CHECK(at.told<join_welcome>(attach(i)).size() == 1);
  const peer_id refused = attach(attached_drivers::most);
  CHECK(at.told<join_welcome>(refused).empty());
  REQUIRE(at.told<join_refusal>(refused).size() == 1);
  CHECK(at.told<join_refusal>(refused)[0].why.code == errc::busy);
  CHECK(at.refused.size() == 1);
  at.hear(service, 0, service_on("h0")); // which is no driver
  CHECK(at.told<join_welcome>(service).size() == 1);
  at.server.lose(peer_id{100}, session_end::closed);
  CHECK(at.told<join_welcome>(attach(attached_drivers::most + 1)).size() == 1);
}

TEST_CASE("SEC-2: a connection through which a process has joined is no driver's", "[control][drivers]") {
  server_scene at;
  at.join(first, 0);
  at.sent.clear();
  at.hear(first, 0, attach_request{.who = {.name = "d", .host = "h", .pid = 8}});
  CHECK(at.sent.empty());
}

TEST_CASE("a process that joins again through the same connection has its new session only", "[control]") {
  server_scene at;
  const session_id before = at.join(first, 0);
  const session_id one = at.join(first, 0);
  const session_id other = at.join(second, 1);
  at.hear(first, before, id_offer{epoch{1}, {}});
  CHECK(at.told<formation_directive>(second).empty());
  at.hear(first, one, id_offer{epoch{1}, {}});
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  at.sent.clear();
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  CHECK(at.server.state().event().phase == control_phase::serving);
  at.server.lose(first, session_end::closed);
  CHECK(at.server.state().event().phase == control_phase::rebuilding);
}

TEST_CASE("an order service that was started again serves from the next epoch on", "[control]") {
  server_scene at;
  const auto attach = [&](peer_id by, std::int64_t pid) {
    at.hear(by, 0, attach_request{.who = {.name = "s", .host = "h0", .pid = pid}, .is_order_service = true});
    return at.last_session;
  };
  session_id host = attach(service, 9);
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  at.server.lose(service, session_end::closed);
  REQUIRE(at.told<failure_directive>(second).size() == 1);

  constexpr peer_id successor{4};
  at.hear(first, one, gate_notice{ring_session{{3, 0}}}); // before the successor is known to the controller
  host = attach(successor, 10);
  CHECK(at.told<claim_directive>(successor).size() == 2); // else its gate closes what nobody claims
  at.hear(second, other, gate_notice{ring_session{{4, 0}}});
  REQUIRE(at.told<claim_directive>(successor).size() == 3);
  CHECK(at.told<claim_directive>(successor)[2].nonce == ring_session{{4, 0}});
  at.hear(second, 7, gate_notice{ring_session{{5, 0}}}); // SEC-2: no such session
  CHECK(at.told<claim_directive>(successor).size() == 3);
  for (const auto until = steady_now() + std::chrono::seconds{20};
       at.server.state().event().phase != control_phase::forming && steady_now() < until;)
    at.server.tick();
  at.hear(first, one, id_offer{epoch{2}, {}});
  REQUIRE(at.told<serve_directive>(successor).size() == 1);
  REQUIRE(at.told<serve_directive>(successor)[0].candidates.size() == 2);
  CHECK(at.told<serve_directive>(successor)[0].candidates[0].nonce == ring_session{{3, 0}});
  CHECK(at.told<serve_directive>(successor)[0].candidates[1].nonce == ring_session{{4, 0}});
}

TEST_CASE(
    "an order service that connects again goes on with the last epoch if no other service has decided since (CUT-1)",
    "[control][CUT-1]") {
  manual_time time;
  server_scene at;
  constexpr peer_id again{5};
  const auto attach = [&](peer_id by, const std::string& host) {
    at.hear(by, 0, service_on(host));
    return at.last_session;
  };
  const session_id host = attach(service, "h0");
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  const auto form = [&](epoch of, peer_id by, session_id serves) {
    for (int i = 0; i < 100; ++i) { // longer than any pause before an epoch
      time.advance(20ms);
      at.server.tick();
    }
    at.hear(first, one, id_offer{of, {}});
    if (serves != 0) at.hear(by, serves, serving_report{.of = of, .ranks = {rank{0}, rank{1}}});
    at.hear(first, one, formed_report{of});
    at.hear(second, other, formed_report{of});
    REQUIRE(at.server.state().event().phase == control_phase::serving);
    REQUIRE(at.server.state().current_epoch() == of);
  };
  form(epoch{1}, service, host);
  SECTION("its connection has ended") {
    at.server.lose(service, session_end::broken);
    form(epoch{2}, again, attach(again, "h0"));
    CHECK(at.told<serve_directive>(again).back().previous == epoch{1});
  }
  SECTION("the end of its connection has not been noticed") {
    form(epoch{2}, again, attach(again, "h0"));
    CHECK(at.told<serve_directive>(again).back().previous == epoch{1});
  }
  SECTION("it is the service of another host") {
    at.server.lose(service, session_end::broken);
    form(epoch{2}, again, attach(again, "h1"));
    CHECK(at.told<serve_directive>(again).back().previous == epoch{});
  }
  SECTION("the controller has decided in an epoch in between") {
    at.server.lose(service, session_end::broken);
    form(epoch{2}, {}, 0);
    const session_id back = attach(again, "h0");
    at.hear(first, one, failed_report{epoch{2}, {.code = errc::device_failed, .text = "it burns", .rank = rank{0}}});
    form(epoch{3}, again, back);
    CHECK(at.told<serve_directive>(again).back().previous == epoch{});
  }
}

TEST_CASE("requests are released when both have asked, and refused when the world stops or forms again", "[control]") {
  timed_scene at;
  CHECK(at.told<serve_directive>(service).empty()); // the processes have come to no gate
  at.hear(second, at.ranks[1], asks_barrier(epoch{1}));
  CHECK(decisions(at, second).empty());
  SECTION("both") {
    at.hear(first, at.ranks[0], asks_barrier(epoch{1}));
    CHECK(decisions(at, first) == decided{decision_record::form::release});
    CHECK(decisions(at, second) == decided{decision_record::form::release});
  }
  SECTION("a stop") {
    at.server.stop();
    CHECK(decisions(at, second) == decided{decision_record::form::ending, decision_record::form::refusal});
    CHECK(at.told<stop_directive>(second).at(0).decided == at.told<order_batch>(second).size());
    CHECK(at.heard.back().phase == control_phase::stopping);
  }
  SECTION("a fault") {
    at.hear(first, at.ranks[0],
            failed_report{epoch{1}, {.code = errc::device_failed, .text = "it burns", .rank = rank{0}}});
    CHECK(decisions(at, second) == decided{decision_record::form::ending, decision_record::form::refusal});
    CHECK(at.told<failure_directive>(second).at(0).why.text == "it burns");
  }
  SECTION("a peer that has left") {
    at.hear(first, at.ranks[0], leave_notice{});
    CHECK(at.told<stop_directive>(first).size() == 1);
    CHECK(at.server.state().event().phase == control_phase::finishing);
  }
}

TEST_CASE("an order service that could serve a single rank at most is not waited for", "[control]") {
  server_scene at;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  at.join(second, 1);
  at.hear(first, one, id_offer{epoch{1}, {}});
  CHECK(at.told<formation_directive>(second).size() == 1);
}

TEST_CASE("an order service passes on what the ranks of its host ask, and hears what is decided", "[control]") {
  server_scene at;
  at.hear(service, 0, service_on("h0"));
  const session_id host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}}});
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  REQUIRE(at.server.state().event().phase == control_phase::serving);
  const std::string asked = encode(host_frame{.batches = {{.of = rank{0}, .bytes = asks_barrier(epoch{1}).bytes}}});
  at.hear(service, host, order_batch{epoch{1}, asked});
  CHECK(at.server.state().event().phase == control_phase::serving);
  at.hear(second, other, asks_barrier(epoch{1}));
  CHECK(decisions(at, second) == decided{decision_record::form::release});
  const auto told = at.told<order_batch>(service);
  REQUIRE_FALSE(told.empty());
  error why;
  const host_frame last = decode_host_frame(told.back().bytes, 2, why);
  CHECK_FALSE(why);
  REQUIRE(last.batches.size() == 1);
  CHECK(last.batches[0].of == rank{0});
  // It loses a rank of its host.
  at.hear(service, host,
          order_batch{epoch{1}, encode(host_frame{.losses = {{.of = rank{0},
                                                              .why = {.code = errc::rank_lost, .text = "it died"}}}})});
  CHECK(at.killed == std::vector<std::string>{"0"});
  CHECK_THAT(at.told<failure_directive>(second).at(0).why.text, ContainsSubstring("it died"));
}

TEST_CASE("a world without an epoch has no order to close, and the order of an epoch is closed once", "[control]") {
  server_scene gathering;
  gathering.server.stop();
  CHECK(gathering.closed.empty());
  timed_scene at;
  at.server.lose(second, session_end::closed);
  CHECK(at.closed == std::vector{epoch{1}});
  at.server.stop();
  CHECK(at.closed == std::vector{epoch{1}});
}

TEST_CASE("where the lanes stand is known from the service that serves all ranks, and only for its epoch",
          "[control][resume][CUT-1]") {
  server_scene at;
  const bool serves_all = GENERATE(true, false);
  at.hear(service, 0, service_on("h0"));
  const session_id host = at.last_session;
  at.hear(driver, 0, attach_request{.who = {.name = "d", .host = "h8", .pid = 8}});
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  const resume_points known{.lanes = {{.complete = 120, .commit = 7}}};
  const auto points_told = [&] { return at.told<formation_directive>(second).back().resume; };
  at.hear(first, one, id_offer{epoch{1}, {}});
  at.hear(service, host,
          serving_report{.of = epoch{1},
                         .ranks = serves_all ? std::vector{rank{0}, rank{1}} : std::vector{rank{0}},
                         .resume = std::make_shared<const resume_points>(known)});
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  if (!serves_all) {
    CHECK((!points_told() || points_told()->lanes.empty()));
    return;
  }
  const auto complete_of = [](const std::shared_ptr<const resume_points>& all) {
    const resume_point* const found = all ? find_point(*all, std::nullopt) : nullptr;
    return found ? std::optional{found->complete} : std::nullopt;
  };
  CHECK(complete_of(points_told()) == 120);
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  CHECK(complete_of(at.told<world_report>(driver).back().resume) == 120);

  at.server.lose(service, session_end::closed); // with all that it knew
  for (const auto until = steady_now() + 20s;
       at.server.state().event().phase != control_phase::forming && steady_now() < until;)
    at.server.tick();
  at.hear(first, one, id_offer{epoch{2}, {}});
  REQUIRE(at.told<formation_directive>(second).size() == 2);
  CHECK(complete_of(points_told()) != 120); // nobody has counted since
  const resume_point* const point = find_point(*points_told(), std::nullopt);
  REQUIRE(point != nullptr);
  CHECK(point->commit == 7); // but the commit is known
  at.hear(first, one, formed_report{epoch{2}});
  at.hear(second, other, formed_report{epoch{2}});
  CHECK(complete_of(at.told<world_report>(driver).back().resume) != 120);
}

namespace {

/// A gate whose port no other test uses at the same time.
struct gate_of_test {
  gate_of_test() {
    for (port = static_cast<std::uint16_t>(20'000 + ::getpid() % 40'000); !gate; ++port) {
      try {
        gate = std::make_shared<order_gate>(port);
      } catch (const exception&) { // another process has it
      }
    }
    --port;
  }

  std::uint16_t port = 0;
  std::shared_ptr<order_gate> gate;
};

} // namespace

TEST_CASE("processes of the controller's host have rings, and one that has left the gate has none and is named",
          "[control][order]") {
  const gate_of_test here;
  server_scene at{here.gate};
  auto one = knock_at_gate(here.port);
  auto other = knock_at_gate(here.port);
  auto drives = knock_at_gate(here.port);
  REQUIRE(one);
  REQUIRE(other);
  REQUIRE(drives);
  at.hear(service, 0, service_on("h9"));
  at.hear(driver, 0, attach_request{.who = {.name = "d", .host = "h0", .pid = 8}, .nonce = drives->nonce});
  const session_id of_one = at.join(first, 0, one->nonce);
  const session_id of_other = at.join(second, 1, other->nonce);
  CHECK(at.told<claim_directive>(service).empty()); // the gate of this host has them
  const auto form = [&](epoch of) {
    at.hear(first, of_one, id_offer{of, {}});
    at.hear(first, of_one, formed_report{of});
    at.hear(second, of_other, formed_report{of});
    REQUIRE(at.heard.back().phase == control_phase::serving);
    const bool has_all = at.told<formation_directive>(second).back().has_rings; // rank 0 has them always
    for (const peer_id each : {first, second})
      CHECK(at.told<formation_directive>(each).back().is_on_one_node == has_all);
    return std::pair{at.told<formation_directive>(first).back().has_rings,
                     at.told<formation_directive>(second).back().has_rings};
  };
  const auto fail = [&](epoch of) {
    at.hear(first, of_one, failed_report{of, {.code = errc::communicator_failed, .text = "it hangs"}, {}});
    for (const auto until = steady_now() + 20s;
         at.server.state().event().phase != control_phase::forming && steady_now() < until;)
      at.server.tick();
  };
  CHECK(form(epoch{1}) == std::pair{true, true});
  CHECK(at.heard.back().ring_ranks == 2);
  CHECK(at.told<world_report>(driver).back().has_rings);
  CHECK(at.without_rings.empty());
  // It could not accept them, and sends its requests through its connection.
  const std::size_t announced = at.heard.size();
  at.hear(second, of_other, asks_barrier(epoch{1}));
  REQUIRE(at.heard.size() == announced + 1);
  CHECK(at.heard.back().ring_ranks == 1);
  at.hear(second, of_other, asks_barrier(epoch{1}, 1h, 2));
  CHECK(at.heard.size() == announced + 1); // once

  other->socket = {};
  drives->socket = {};
  fail(epoch{1});
  CHECK(at.heard.back().phase == control_phase::forming);
  CHECK(at.heard.back().ring_ranks == 0); // those of the epoch before do not count
  CHECK(form(epoch{2}) == std::pair{true, false});
  CHECK(at.heard.back().ring_ranks == 1);
  CHECK_FALSE(at.told<world_report>(driver).back().has_rings);
  CHECK(at.told<world_report>(driver).back().is_ready);
  REQUIRE(at.without_rings.size() == 1);
  CHECK_THAT(at.without_rings[0], ContainsSubstring("the requests of rank 1 go through its control connection"));
  fail(epoch{2});
  CHECK(form(epoch{3}) == std::pair{true, false});
  CHECK(at.without_rings.size() == 1); // it has no connection to the gate any more
  auto again = knock_at_gate(here.port);
  REQUIRE(again);
  at.hear(second, of_other, gate_notice{again->nonce});
  fail(epoch{3});
  CHECK(form(epoch{4}) == std::pair{true, true});
}

TEST_CASE("nothing is sent to a process whose connection has ended", "[control]") {
  timed_scene at;
  at.sent.clear();
  at.server.lose(second, session_end::closed);
  CHECK(at.told<failure_directive>(first).size() == 1);
  CHECK(at.told<fence_notice>(second).empty());
  at.pass(1s, second);
  CHECK(at.told<heartbeat>(second).empty());
}

TEST_CASE("a controller that has ended its order has dropped all connections", "[control]") {
  timed_scene at;
  at.server.end_order();
  at.sent.clear();
  for (const peer_id one : {first, second, service}) at.server.lose(one, session_end::closed);
  CHECK(at.server.state().event().phase == control_phase::serving);
  CHECK(at.sent.empty());
  CHECK(at.killed.empty());
}

TEST_CASE("a batch that an order service cannot read fails the epoch, and kills nobody", "[control]") {
  server_scene at;
  at.hear(service, 0, service_on("h0"));
  const session_id host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  at.hear(service, host,
          order_batch{epoch{1}, encode(host_frame{
                                    .losses = {{.of = rank{1},
                                                .why = {.code = errc::invalid_argument, .text = "it is nonsense"}}}})});
  CHECK(at.killed.empty());
  REQUIRE(at.told<failure_directive>(second).size() == 1);
  CHECK_THAT(at.told<failure_directive>(second)[0].why.text, ContainsSubstring("it is nonsense"));
}

TEST_CASE("a connection to the gate that no process claims is closed in time", "[control][SEC-2]") {
  const gate_of_test here;
  manual_time time;
  server_scene at{here.gate};
  const auto stranger = knock_at_gate(here.port);
  REQUIRE(stranger);
  at.server.tick();
  time.advance(4s);
  at.server.tick();
  CHECK_FALSE(has_left(*stranger));
  time.advance(2s);
  at.server.tick();
  CHECK(has_left(*stranger));
}

TEST_CASE("the thread of the order runs where there is a gate, until the order is ended", "[control][order]") {
  server_scene without;
  const std::size_t before = threads_named("").size(); // of any name
  without.server.run_order();
  CHECK(threads_named("").size() <= before);
  const gate_of_test here;
  server_scene at{here.gate};
  at.server.run_order();
  CHECK(threads_come_to("troupe/order", 1));
  at.server.end_order();
  CHECK(threads_come_to("troupe/order", 0));
}

TEST_CASE("requests that come before the order of their epoch is open are not added to it", "[control][ORD-1]") {
  server_scene at;
  const session_id one = at.join(first, 0);
  const session_id other = at.join(second, 1);
  REQUIRE(at.server.state().event().phase == control_phase::forming);
  at.hear(second, other, asks_barrier(epoch{1}));
  CHECK(at.added.empty());
  CHECK(at.told<failure_directive>(first).empty());
  at.hear(first, one, id_offer{epoch{1}, {}});
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  CHECK(at.server.state().event().phase == control_phase::serving);
  at.hear(second, other, asks_barrier(epoch{1}));
  CHECK(at.added == std::vector{rank{1}});
}

TEST_CASE("an order service answers once whom it serves in an epoch", "[control]") {
  server_scene at;
  constexpr peer_id elsewhere{6};
  at.hear(service, 0, service_on("h0"));
  const session_id host = at.last_session;
  at.hear(elsewhere, 0, service_on("h1"));
  const session_id other_host = at.last_session;
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  at.join(second, 1, ring_session{{2, 0}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  at.hear(service, host, serving_report{.of = epoch{1}});
  CHECK(at.told<formation_directive>(second).empty());
  at.hear(elsewhere, other_host, serving_report{.of = epoch{1}});
  REQUIRE(at.told<formation_directive>(second).size() == 1);
  CHECK(at.told<formation_directive>(second)[0].has_rings);
}

TEST_CASE("bytes that are no message are refused with the reason, and so is a process that does not fit", "[control]") {
  server_scene at;
  at.server.hear(first, "");
  at.server.hear(first, "no frame");
  REQUIRE(at.refused.size() == 2);
  for (const error& why : at.refused) CHECK(why);
  at.hear(first, 0, join_request{.who = {.name = "0", .host = "h0", .pid = 1}, .local_device = 1, .device_count = 1});
  REQUIRE(at.refused.size() == 3);
  CHECK_THAT(at.refused.back().text, ContainsSubstring("process 0 (pid 1 on h0) wants to use device 1"));
  CHECK(at.told<join_refusal>(first).size() == 1);
  CHECK(at.joined.empty());
}

} // namespace troupe::tests::control_server_test
