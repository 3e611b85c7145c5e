/// The two ends of a driver's connection, attached_drivers at the controller and driver_session in the driver, without
/// a network and in virtual time.
#include "support/outcomes.hpp"

#include <troupe/processes/control/attached_drivers.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/control/driver_session.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::drivers_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

constexpr nanoseconds suspicion = 10s;

/// A controller with an order for two ranks, which receive batches and do nothing, and drivers.
struct scene {
  scene() : drivers{service, send} {}

  /// Begins an epoch in which \p world_size ranks serve.
  void begin(epoch of, const error& why = {}, int world_size = 2) {
    std::vector<order_route> ranks;
    for (int r = 0; r < world_size; ++r) ranks.push_back({.send = [this, r](const std::string&) { ++batches_for[r]; }});
    service.open(of, std::move(ranks));
    drivers.tell({.of = of, .world_size = world_size, .is_ready = true, .reason = why}, of);
    pass();
  }
  void end(epoch of, const error& why) {
    drivers.tell({.of = of, .world_size = 2, .reason = why}, {});
    pass();
  }
  struct driver {
    peer_id peer{};
    std::deque<std::string> sent{};
    std::vector<world_event> heard{};
    std::function<void(const world_event&)> on_change{}; ///< Called after `heard` has been extended.
    int warnings = 0;
    std::string last_warning{};
    int beats = 0;        ///< Heartbeats that the controller has heard.
    bool is_deaf = false; ///< What is sent to it waits.
    std::deque<std::string> held{};
    std::shared_ptr<driver_session> link; ///< Ends before what it writes to.
  };
  driver& join(std::size_t most_pending = 1024) {
    auto made = std::make_unique<driver>();
    driver* const at = made.get();
    at->peer = peer_id{++peers};
    at->link = std::make_shared<driver_session>(
        session_services{.time = time, .send = [at](std::string bytes) { at->sent.push_back(std::move(bytes)); }},
        process_identity{.name = "driver", .host = "here", .pid = 1}, "token",
        driver_services{.changed =
                            [at](const world_event& now) {
                              at->heard.push_back(now);
                              if (at->on_change) at->on_change(now);
                            },
                        .warned =
                            [at](const error& why) {
                              ++at->warnings;
                              at->last_warning = why.text;
                            },
                        .default_deadline = 1min,
                        .most_pending = most_pending,
                        .holder = 7});
    all[at->peer] = std::move(made);
    at->sent.push_back(at->link->introduction());
    pass();
    return *at;
  }
  [[nodiscard]] running_time running_now() { return running.read(time->now()); }
  /// Delivers everything that is under way.
  void pass() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [peer, one] : all) {
        while (!one->is_deaf && !one->held.empty()) {
          any = true;
          const std::string bytes = std::move(one->held.front());
          one->held.pop_front();
          one->link->receive(bytes);
        }
        while (!one->sent.empty()) {
          any = true;
          const std::string bytes = std::move(one->sent.front());
          one->sent.pop_front();
          hear(peer, bytes);
        }
      }
      any = service.poll(time->now()) || any;
    }
  }
  void hear(peer_id from, const std::string& bytes) {
    error why;
    const auto frame = decode_process_frame(bytes, why);
    REQUIRE(frame);
    if (const auto* asked = std::get_if<attach_request>(&frame->what)) {
      CHECK(asked->token == "token");
      drivers.admit(from, std::nullopt, {.session = ++sessions, .heartbeat = 1s, .suspicion = suspicion},
                    running_now());
    } else {
      if (const auto one = all.find(from); one != all.end() && std::holds_alternative<heartbeat>(frame->what))
        ++one->second->beats;
      drivers.hear(frame->session, frame->what, time->now(), running_now());
    }
  }
  void let(nanoseconds by) {
    time->advance(by);
    for (auto& [peer, one] : all)
      if (!one->is_deaf && one->link->tick()) reconnect(*one);
    pass();
    if (has_heartbeats) drivers.beat();
    drivers.watch(running_now(), suspicion);
    pass();
  }

  /// The driver connects again under the same number; its old connection carries nothing any more.
  void reconnect(driver& one) {
    one.held.clear();
    one.sent.clear();
    drivers.lose(one.peer);
    one.sent.push_back(one.link->introduction());
    ++reconnected;
  }

  bool has_heartbeats = true;
  int reconnected = 0;
  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  running_clock running{time->now(), nanoseconds::max()}; ///< The controller's.
  order_service service;
  std::map<peer_id, std::unique_ptr<driver>> all;
  std::map<int, int> batches_for;
  std::uint64_t peers = 0;
  session_id sessions = 0;
  std::function<void(peer_id, std::string)> send = [this](peer_id to, std::string bytes) {
    if (const auto found = all.find(to); found != all.end()) found->second->held.push_back(std::move(bytes));
  };
  attached_drivers drivers;
};

std::vector<operation> barriers(int count) {
  return std::vector<operation>(static_cast<std::size_t>(count), barrier{});
}

outcome_log ask(scene::driver& by, epoch of = {}, nanoseconds deadline = 1s) {
  outcome_log log;
  by.link->ask({.parts = barriers(2), .epoch = of, .deadline = deadline}, log.make_reply_promise());
  return log;
}

struct found {
  std::shared_ptr<std::vector<std::variant<remote_buffer, error>>> all =
      std::make_shared<std::vector<std::variant<remote_buffer, error>>>();

  [[nodiscard]] peer_requests::handle_promise promise() const {
    return std::make_shared<value_promise<remote_buffer>>(
        [to = all](auto result) { to->push_back(std::move(result)); });
  }
  [[nodiscard]] error why() const { return all->empty() ? error{} : std::get<error>(all->front()); }
};

} // namespace

TEST_CASE("a driver follows the world from epoch to epoch, and a request ends with its epoch",
          "[control][drivers][EPO-1][ONE-1]") {
  scene at;
  auto& one = at.join();
  CHECK(at.drivers.size() == 1);
  const outcome_log early = ask(one);
  CHECK(early.failure().code == errc::rebuilding);
  CHECK(early.failure().effect == effect::rejected);
  CHECK(early.failure().text == "the world is not ready");
  at.begin(epoch{1});
  REQUIRE_FALSE(one.heard.empty());
  CHECK(one.heard.back().phase == world_phase::ready);
  CHECK(one.heard.back().epoch == epoch{1});
  CHECK(one.link->state().world_size == 2);

  const outcome_log log = ask(one);
  const found question;
  one.link->find(rank{1}, "values", 1s, question.promise());
  at.pass();
  CHECK(log.count() == 0);
  CHECK(at.batches_for[0] > 0); // it has reached the ranks
  CHECK(at.batches_for[1] > 0);
  CHECK(ask(one, epoch{3}).failure().code == errc::stale_epoch);
  CHECK(ask(one, {}, -1s).failure().code == errc::invalid_argument);

  at.end(epoch{1}, {.code = errc::rank_lost, .text = "rank 1 is lost"});
  REQUIRE(log.count() == 1);
  CHECK(log.failure().effect == effect::unknown_outcome);
  CHECK_THAT(log.failure().text, ContainsSubstring("rank 1 is lost"));
  CHECK_THAT(question.why().text, ContainsSubstring("rank 1 is lost"));
  CHECK(one.link->state().phase != world_phase::ready);
  CHECK(ask(one).failure().code == errc::rebuilding);

  at.begin(epoch{2}, {.code = errc::rank_lost, .text = "rank 1 was lost"});
  CHECK(one.link->state().phase == world_phase::ready);
  CHECK(one.link->state().epoch == epoch{2});
  const outcome_log next = ask(one);
  at.begin(epoch{3}); // the report of the end was not heard
  CHECK(next.failure().effect == effect::unknown_outcome);
  CHECK_THAT(next.failure().text, ContainsSubstring("another epoch"));
  at.drivers.tell(
      {.of = epoch{3}, .world_size = 2, .is_over = true, .reason = {.code = errc::stopping, .text = "it is over"}}, {});
  at.pass();
  CHECK(one.link->state().phase == world_phase::stopped);
  CHECK(ask(one).failure().code == errc::stopping);
}

TEST_CASE("a driver that hears of a change may ask at once, and hears the changes in their order",
          "[control][drivers]") {
  scene at;
  auto& one = at.join();
  one.heard.clear();
  std::vector<std::future<bool>> seen; // what another thread reads, which would wait for a lock that is held here
  std::vector<outcome_log> logs;
  one.on_change = [&](const world_event& now) {
    seen.push_back(
        std::async(std::launch::async, [link = one.link] { return link->state().phase == world_phase::ready; }));
    const bool is_free = seen.back().wait_for(20s) == std::future_status::ready;
    CHECK(is_free);
    if (!is_free) return;
    CHECK(seen.back().get() == (now.phase == world_phase::ready));
    CHECK(one.link->state().epoch == now.epoch);
    logs.push_back(ask(one));
  };
  at.begin(epoch{1});
  REQUIRE(logs.size() == 1);
  CHECK(logs[0].count() == 0);
  CHECK(at.batches_for[0] > 0); // it has reached the ranks
  CHECK(at.batches_for[1] > 0);
  at.end(epoch{1}, {.code = errc::rank_lost, .text = "rank 1 is lost"});
  at.begin(epoch{2});
  one.on_change = nullptr;
  REQUIRE(logs.size() == 3);
  CHECK(logs[0].failure().effect == effect::unknown_outcome);
  CHECK(logs[1].failure().code == errc::rebuilding);
  CHECK(logs[1].failure().effect == effect::rejected);
  CHECK(logs[2].count() == 0);
  std::vector<std::pair<epoch, bool>> states;
  for (const world_event& now : one.heard) states.emplace_back(now.epoch, (now.phase == world_phase::ready));
  CHECK(states == std::vector<std::pair<epoch, bool>>{{epoch{1}, true}, {epoch{1}, false}, {epoch{2}, true}});
}

TEST_CASE("a driver that is closed while it reports a change reports its end after it, once and last",
          "[control][drivers]") {
  scene at;
  auto& one = at.join();
  one.heard.clear();
  one.on_change = [&](const world_event& now) {
    if (now.phase != world_phase::ready) return;
    one.link->close({.code = errc::missing, .text = "given up"});
    CHECK(one.heard.size() == 1); // one listener is called at a time
    CHECK(one.link->state().phase == world_phase::stopped);
  };
  at.begin(epoch{1});
  one.link->disconnected({.code = errc::missing, .text = "cut off"});
  one.link->receive(encode(controller_frame{0, join_refusal{{.code = errc::busy, .text = "too many drivers"}}}));
  one.link->close({.code = errc::stopping, .text = "again"});
  REQUIRE(one.heard.size() == 2);
  CHECK(one.heard[0].phase == world_phase::ready);
  CHECK(one.heard[0].phase != world_phase::stopped);
  CHECK(one.heard[1].phase != world_phase::ready);
  CHECK(one.heard[1].phase == world_phase::stopped);
  CHECK(one.heard[1].reason.text == "given up");
  CHECK(one.link->state().reason.text == "given up");
}

TEST_CASE("a driver may leave only so much pending", "[control][drivers]") {
  scene at;
  auto& one = at.join(2);
  at.begin(epoch{1});
  const outcome_log first = ask(one), second = ask(one), third = ask(one);
  CHECK(first.count() + second.count() == 0);
  CHECK(third.failure().code == errc::busy);
  CHECK(third.failure().effect == effect::rejected);
  at.begin(epoch{2}); // which answers them
  CHECK(first.count() + second.count() == 2);
  CHECK(ask(one).count() == 0);
}

TEST_CASE("the slot of a driver that has ended is given to another one when all ranks have answered",
          "[control][drivers]") {
  scene at;
  at.begin(epoch{1});
  const auto come_and_go = [&] {
    at.join().link->close({.code = errc::stopping, .text = "the driver has ended"});
    at.pass();
    CHECK(at.drivers.size() == 0);
  };
  come_and_go();
  CHECK(at.service.retiring() == std::vector{attached_address(0, 0)});
  come_and_go();
  CHECK(at.service.retiring() == std::vector{attached_address(1, 0), attached_address(0, 0)});
  for (int r = 0; r < 2; ++r) {
    CHECK(at.service.retiring().size() == 2);
    request_writer out;
    for (int slot = 0; slot < 2; ++slot)
      out.add({.kind = request_record::form::message, .to = attached_address(slot, 0), .message = {}});
    CHECK_FALSE(at.service.receive(rank{r}, out.take({.epoch = epoch{1}, .number = 1}), at.time->now()));
  }
  CHECK(at.service.retiring().empty());
  come_and_go();
  CHECK(at.service.retiring() == std::vector{attached_address(0, 1)});
  at.begin(epoch{2}); // in which no rank has heard of it
  CHECK(at.service.retiring().empty());
}

TEST_CASE("no more drivers come and go than there are lanes while the ranks have not finished their requests",
          "[control][drivers]") {
  scene at;
  at.begin(epoch{1});
  std::uint64_t peer = 1000;
  const auto admit = [&] {
    at.drivers.admit(peer_id{++peer}, std::nullopt, {.session = ++at.sessions, .suspicion = suspicion},
                     at.running_now());
    return at.drivers.contains(at.sessions);
  };
  for (int i = 0; i < most_attached_lanes; ++i) {
    REQUIRE_FALSE(at.drivers.objection());
    REQUIRE(admit());
    at.drivers.lose(peer_id{peer});
  }
  CHECK(at.drivers.objection().code == errc::busy);
  CHECK_THAT(at.drivers.objection().text,
             ContainsSubstring("have not finished the requests of 1024 earlier drivers, which is the limit"));
  CHECK_FALSE(admit());
  at.begin(epoch{2}); // in which no rank has heard of them
  CHECK_FALSE(at.drivers.objection());
  CHECK(admit());
}

TEST_CASE("a driver that is silent is detached, and attaches again when it goes on", "[control][drivers]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  const outcome_log log = ask(one);
  for (int i = 0; i < 20; ++i) at.let(1s); // its heartbeats keep it
  CHECK(at.drivers.size() == 1);
  one.is_deaf = true;
  at.let(suspicion + 1s);
  CHECK(at.drivers.size() == 1); // what has arrived meanwhile is read before the next tick
  at.let(1s);
  CHECK(at.drivers.size() == 0);
  CHECK(one.link->state().phase == world_phase::ready); // it does not know yet
  one.is_deaf = false;
  at.pass();
  CHECK(at.drivers.size() == 1);
  CHECK(one.warnings == 1);
  CHECK_THAT(one.last_warning, ContainsSubstring("the driver is detached: it has been silent for 12000 ms"));
  REQUIRE(log.count() == 1);
  CHECK(log.failure().effect == effect::unknown_outcome);
  CHECK(one.link->state().phase == world_phase::ready);
  CHECK(one.link->state().phase != world_phase::stopped);
  CHECK(ask(one).count() == 0);
  at.pass();
  CHECK(at.drivers.size() == 1); // its address is new, and its batches are counted anew
}

TEST_CASE("an idle driver says once in each interval that it lives, and keeps its place", "[control][drivers]") {
  scene at;
  at.time->advance(1h); // since the controller began
  auto& one = at.join();
  at.begin(epoch{1});
  for (int i = 0; i < 300; ++i) at.let(100ms);
  CHECK(one.beats == 30);
  CHECK(at.drivers.size() == 1);
  CHECK(at.reconnected == 0);
  CHECK(one.warnings == 0);
}

TEST_CASE("a driver is heard from when it is admitted", "[control][drivers]") {
  scene at;
  at.time->advance(1h);
  auto& one = at.join();
  for (int i = 0; i < 5; ++i) at.drivers.watch(at.running_now(), suspicion);
  CHECK(at.drivers.size() == 1);
  // One that attaches again through the same connection has one place.
  one.sent.push_back(one.link->introduction());
  at.pass();
  CHECK(at.drivers.size() == 1);
  CHECK_FALSE(at.drivers.contains(1));
}

TEST_CASE("the time in which the controller did not run does not count as a driver's silence", "[control][drivers]") {
  scene at;
  static_cast<void>(at.join());
  at.begin(epoch{1});
  at.running.count(1s);
  for (int i = 0; i < 3; ++i) {
    at.time->advance(1h);
    at.drivers.watch(at.running_now(), suspicion);
  }
  CHECK(at.drivers.size() == 1);
}

TEST_CASE("a driver's question to a rank that leaves is answered", "[control][drivers][ONE-1]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  const found question;
  one.link->find(rank{1}, "values", 1h, question.promise());
  at.pass();
  CHECK(question.all->empty());
  request_writer leaves;
  leaves.add({.kind = request_record::form::close, .why = {.code = errc::stopping, .text = "its work is done"}});
  CHECK_FALSE(at.service.receive(rank{1}, leaves.take({.epoch = epoch{1}, .number = 1}), at.time->now()));
  at.pass();
  REQUIRE(question.all->size() == 1);
  CHECK_THAT(question.why().text, ContainsSubstring("rank 1"));
}

TEST_CASE("a driver notices a controller of which it hears nothing, and connects again", "[control][drivers]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  for (int i = 0; i < 15; ++i) at.let(1s);
  CHECK(at.reconnected == 0);
  const outcome_log log = ask(one);
  at.has_heartbeats = false; // as when the network drops everything
  for (int i = 0; i < 15; ++i) at.let(1s);
  CHECK(at.reconnected == 1);
  REQUIRE(log.count() == 1);
  CHECK(log.failure().effect == effect::unknown_outcome);
  CHECK_THAT(log.failure().text, ContainsSubstring("silent"));
  CHECK(at.drivers.size() == 1);
  CHECK(one.link->state().phase == world_phase::ready); // in the same epoch
  CHECK(ask(one).count() == 0);
}

TEST_CASE("a driver that was paused does not take its own pause for the controller's silence", "[control][drivers]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  const outcome_log log = ask(one, {}, 2h);
  const auto tick_after = [&](nanoseconds span) {
    at.time->advance(span);
    return one.link->tick();
  };
  CHECK_FALSE(tick_after(1h));
  for (int i = 0; i < 5; ++i) CHECK_FALSE(tick_after(1s)); // nothing has been read yet
  CHECK(log.count() == 0);
  one.link->receive(encode(controller_frame{1, heartbeat{}}));
  for (int i = 0; i < 11; ++i) CHECK_FALSE(tick_after(1s)); // the last is the first over the limit
  CHECK(tick_after(1s));
  CHECK(log.count() == 1);
}

TEST_CASE("a driver that sends what cannot be read is detached, and others go on", "[control][drivers]") {
  scene at;
  auto& bad = at.join();
  auto& good = at.join();
  at.begin(epoch{1});
  bad.link->close({.code = errc::abandoned, .text = "over"});
  bad.sent.clear(); // without its notice
  at.drivers.hear(1, order_batch{epoch{1}, "nonsense"}, at.time->now(), at.running_now());
  CHECK(at.drivers.size() == 1);
  CHECK_FALSE(at.drivers.contains(1));
  at.drivers.hear(1, order_batch{epoch{1}, "more"}, at.time->now(), at.running_now()); // nobody
  const int before = at.batches_for[0];
  static_cast<void>(ask(good));
  at.pass();
  CHECK(at.batches_for[0] > before);
  // Batches of an epoch that is over are dropped.
  at.begin(epoch{2});
  at.drivers.hear(2, order_batch{epoch{1}, "late"}, at.time->now(), at.running_now());
  CHECK(at.drivers.contains(2));
}

TEST_CASE("a driver that leaves or is cut off frees its place, and its requests are answered", "[control][drivers]") {
  scene at;
  auto& one = at.join();
  auto& other = at.join();
  at.begin(epoch{1});
  const outcome_log log = ask(one);
  SECTION("it leaves") {
    one.link->close({.code = errc::abandoned, .text = "it has ended"});
    at.pass();
  }
  SECTION("its connection ends") {
    CHECK(at.drivers.lose(one.peer));
    CHECK_FALSE(at.drivers.lose(one.peer));
    one.link->disconnected({.code = errc::missing, .text = "the network is down"});
    CHECK(one.link->state().phase != world_phase::stopped); // it connects again
    CHECK(one.heard.back().phase != world_phase::ready);
    CHECK(one.heard.back().reason.text == "the controller is lost: the network is down");
    one.sent.clear();
    at.time->advance(1h);
    static_cast<void>(one.link->tick());
    CHECK(one.sent.empty()); // nobody hears it
    CHECK_THAT(log.failure().text, ContainsSubstring("the network is down"));
  }
  CHECK(at.drivers.size() == 1);
  CHECK_FALSE(at.service.receive(process_address{-1}, "nonsense", at.time->now())); // nobody has this address
  CHECK(at.service.receive(process_address{-2}, "nonsense", at.time->now()));
  CHECK(log.failure().effect == effect::unknown_outcome);
  static_cast<void>(ask(other));
  at.pass();
  CHECK(at.drivers.size() == 1);
}

TEST_CASE("a driver renews what it has been lent, as often as its lease asks for", "[control][drivers]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  const auto sent_by_ticks = [&](int ticks) {
    at.pass();
    const int before = at.batches_for[1];
    for (int i = 0; i < ticks; ++i) {
      at.time->advance(1s);
      CHECK_FALSE(one.link->tick());
      at.pass();
      at.drivers.beat();
      at.pass();
    }
    return at.batches_for[1] - before;
  };
  CHECK(sent_by_ticks(8) == 0);
  const found asked;
  outcome_log captured;
  SECTION("memory") {
    one.link->lend(rank{0}, lent_kind::memory, 64, 1h, asked.promise());
  }
  SECTION("a plan") {
    one.link->capture("steps", {barriers(2)}, 1h, captured.make_reply_promise());
  }
  at.pass();
  CHECK(sent_by_ticks(1) == 1); // the first
  const auto until_renewed = [&] {
    const int before = at.batches_for[1];
    nanoseconds passed{};
    while (at.batches_for[1] == before && passed < 10s) {
      passed += 100ms;
      at.time->advance(100ms);
      CHECK_FALSE(one.link->tick());
      at.pass();
      at.drivers.beat();
      at.pass();
    }
    return passed;
  };
  for (int i = 0; i < 3; ++i) CHECK(until_renewed() == 2500ms); // a quarter of the lease
}

TEST_CASE("memory that a driver gives back while the world forms again is released in the next epoch",
          "[control][drivers]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  at.end(epoch{1}, {.code = errc::rank_lost, .text = "rank 1 has ended"});
  const int before = at.batches_for[1];
  one.link->give_back({rank{1}, 5, 1, 0, 64});
  CHECK_FALSE(one.link->tick());
  at.pass();
  CHECK(at.batches_for[1] == before);
  at.begin(epoch{2});
  CHECK_FALSE(one.link->tick());
  at.pass();
  CHECK(at.batches_for[1] == before + 1);
  CHECK_FALSE(one.link->tick());
  at.pass();
  CHECK(at.batches_for[1] == before + 1);
  one.link->give_back({rank{1}, 6, 1, 0, 64});
  at.pass();
  CHECK(at.batches_for[1] == before + 2); // at once
  one.link->close({.code = errc::stopping, .text = "the driver ends"});
  one.link->give_back({rank{1}, 5, 1, 0, 64});
}

TEST_CASE("a change that a driver asks for is answered once: by the controller, or because that is lost",
          "[control][drivers][planned][ONE-1]") {
  scene at;
  at.begin(epoch{1});
  scene::driver& one = at.join();
  const auto ask = [&] {
    auto [reply, future] = make_value_promise<world_processes>();
    one.link->change({.kind = rank_change_kind::drain, .host = "there"}, std::move(reply));
    return std::move(future);
  };
  const auto code_of = [](auto answer, effect how) {
    REQUIRE(answer.wait_for(0s) == std::future_status::ready);
    try {
      static_cast<void>(answer.get());
      return errc::none;
    } catch (const exception& failure) {
      CHECK(failure.why().effect == how);
      return failure.why().code;
    }
  };
  auto done = ask(), refused = ask(), lost = ask(), left = ask();
  at.pass();
  at.drivers.answer(1, {.number = 2, .why = {.code = errc::invalid_argument, .text = "no"}});
  at.drivers.answer(1, {.number = 1, .processes = {{.name = "a"}, {.name = "b"}}});
  at.drivers.answer(1, {.number = 1}); // again
  at.drivers.answer(1, {.number = 9}); // of nothing
  at.pass();
  REQUIRE(done.wait_for(0s) == std::future_status::ready);
  CHECK(done.get().size() == 2);
  CHECK(code_of(std::move(refused), effect::rejected) == errc::invalid_argument);
  REQUIRE(lost.wait_for(0s) == std::future_status::timeout);
  SECTION("when the connection ends") {
    one.link->disconnected({.code = errc::communicator_failed, .text = "it broke"});
    CHECK(code_of(std::move(lost), effect::unknown_outcome) == errc::communicator_failed);
    CHECK(code_of(std::move(left), effect::unknown_outcome) == errc::communicator_failed);
    CHECK(code_of(ask(), effect::rejected) == errc::rebuilding);
  }
  SECTION("when the controller detaches the driver, which attaches again") {
    one.is_deaf = true;
    at.let(suspicion + 1s);
    at.let(1s);
    REQUIRE(at.drivers.size() == 0);
    one.is_deaf = false;
    at.pass();
    REQUIRE(at.drivers.size() == 1);
    CHECK(code_of(std::move(lost), effect::unknown_outcome) == errc::communicator_failed);
    CHECK(code_of(std::move(left), effect::unknown_outcome) == errc::communicator_failed);
  }
  SECTION("when the driver leaves") {
    one.link->close({.code = errc::abandoned, .text = "it has ended"});
    CHECK(code_of(std::move(lost), effect::unknown_outcome) == errc::stopping);
    CHECK(code_of(std::move(left), effect::unknown_outcome) == errc::stopping);
  }
  SECTION("at once if too many wait") {
    std::vector<std::future<world_processes>> more;
    for (int i = 0; i < 14; ++i) more.push_back(ask());
    CHECK(code_of(ask(), effect::rejected) == errc::busy);
    one.link->close({.code = errc::abandoned, .text = "it has ended"});
  }
}

TEST_CASE("a driver that is refused is over, and says why once", "[control][drivers]") {
  scene at;
  auto& one = at.join();
  at.begin(epoch{1});
  one.heard.clear();
  one.link->receive("no frame");
  CHECK(one.warnings == 1);
  static_cast<void>(one.link->introduction());
  for (const char* const why : {"too many drivers", "again"})
    one.link->receive(encode(controller_frame{0, join_refusal{{.code = errc::busy, .text = why}}}));
  REQUIRE(one.heard.size() == 1);
  CHECK(one.heard[0].phase == world_phase::stopped);
  CHECK(one.heard[0].phase != world_phase::ready);
  CHECK(one.heard[0].reason.text == "too many drivers");
  CHECK(ask(one).failure().text == "too many drivers");
}

TEST_CASE("a driver's plan goes to all ranks in one batch each, and nothing is sent for one that cannot be sent",
          "[control][drivers][plans]") {
  scene at;
  auto& one = at.join();
  outcome_log early;
  one.link->capture("steps", {barriers(2)}, 1s, early.make_reply_promise());
  CHECK(early.failure().code == errc::rebuilding);
  at.begin(epoch{1});
  outcome_log log;
  one.link->capture("steps", {barriers(2), barriers(2)}, 1s, log.make_reply_promise());
  at.pass();
  CHECK(log.count() == 0);
  CHECK(at.batches_for[0] == 1);
  CHECK(at.batches_for[1] == 1);
  outcome_log wrong;
  one.link->capture("steps", {barriers(2), barriers(3)}, 1s, wrong.make_reply_promise());
  at.pass();
  CHECK(wrong.failure().code == errc::invalid_argument);
  CHECK_THAT(wrong.failure().text, ContainsSubstring("step 1 of the plan"));
  CHECK(at.batches_for[0] == 1);
  one.link->drop_plan("steps");
  at.pass();
  CHECK(at.batches_for[0] == 2);
}

} // namespace troupe::tests::drivers_test
