// One order for the processes of a host, through rings: what is asked is decided, and a rank that is killed, stopped or
// hostile ends the epoch for the others in time.
#include "processes/transport/forked_process.hpp"
#include "processes/transport/ring_rig.hpp"
#include "support/comes_true.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

namespace troupe::tests::order_service_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr epoch of{1};
const order_service_settings spins{.wait = {.spin = 1h}};
const order_service_settings parks{.wait = {.spin = 0s}, .park = 5ms, .check_interval = 5ms};

all_reduce sum(std::size_t count) {
  return {.send = {}, .recv = {}, .count = count};
}

/// An order service, and its ranks in the same process.
struct served_ranks {
  explicit served_ranks(int count, const order_service_settings& settings = parks, const ring_settings& rings = {})
    : service{settings} {
    std::vector<order_route> ends;
    for (int r = 0; r < count; ++r) {
      auto pair = connect_rank(rank{r}, service.bell(), rings);
      ends.push_back({.rings = std::move(pair.service)});
      ranks.emplace_back(std::move(pair.rank), of, count);
    }
    service.open(of, std::move(ends));
  }
  void poll(time_point now = steady_now()) {
    for (int i = 0; i < 20; ++i) service.poll(now);
    for (ring_client& one : ranks) one.read();
  }

  order_service service;
  std::vector<ring_client> ranks;
};

/// Runs a service in a thread until the end of the scope.
class running {
public:
  explicit running(order_service& service) : service_{service}, thread_{[&service] { service.run(); }} {}
  running(const running&) = delete;
  running& operator=(const running&) = delete;
  ~running() { stop(); }
  void stop() {
    service_.stop();
    if (thread_.joinable()) thread_.join();
  }

private:
  order_service& service_;
  std::thread thread_;
};

} // namespace

TEST_CASE("a request is released when all ranks have asked, in one order", "[collectives][order][ORD-1][ORD-3]") {
  served_ranks at{3};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  REQUIRE_FALSE(at.ranks[2].ask(sum(8)));
  at.poll();
  for (const auto& one : at.ranks) CHECK(one.released.empty());
  REQUIRE_FALSE(at.ranks[1].ask(sum(8)));
  at.poll();
  for (const auto& one : at.ranks) {
    CHECK(one.released == std::vector<std::uint64_t>{1});
    CHECK(one.refused.empty());
    CHECK_FALSE(one.is_wrong());
  }
}

TEST_CASE("ranks that disagree are refused by the service", "[collectives][order][ORD-2]") {
  served_ranks at{2};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  REQUIRE_FALSE(at.ranks[1].ask(sum(9)));
  at.poll();
  for (const auto& one : at.ranks) {
    REQUIRE(one.refused.size() == 1);
    CHECK(one.refused[0].second.code == errc::mismatch);
  }
}

TEST_CASE("a request whose peers do not ask is refused at its deadline", "[collectives][order][TIM-1]") {
  served_ranks at{2};
  const time_point now = steady_now();
  REQUIRE_FALSE(at.ranks[0].ask(sum(8), 10ms));
  at.poll(now);
  CHECK(at.ranks[0].refused.empty());
  at.poll(now + 1s);
  REQUIRE(at.ranks[0].refused.size() == 1);
  CHECK(at.ranks[0].refused[0].second.code == errc::deadline_exceeded);
  CHECK(at.service.take_losses().empty());
}

TEST_CASE("a rank that writes what cannot be read is closed, and the others are refused",
          "[collectives][order][SEC-2]") {
  served_ranks at{3};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  REQUIRE_FALSE(at.ranks[1].link().send("what is this?", steady_now()));
  at.poll();
  const auto losses = at.service.take_losses();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].rank == rank{1});
  CHECK(losses[0].why.code == errc::internal);
  CHECK_THAT(losses[0].why.text, ContainsSubstring("a batch of rank 1 cannot be read"));
  REQUIRE(at.ranks[0].refused.size() == 1);
  CHECK(at.ranks[0].refused[0].second.code == errc::communicator_failed);
  CHECK_THAT(at.ranks[0].refused[0].second.text, ContainsSubstring("rank 1 is lost"));
  REQUIRE_FALSE(at.ranks[2].ask(sum(8)));
  at.poll();
  CHECK(at.ranks[2].refused.size() == 1);
  CHECK(at.service.connected() == 2);
}

TEST_CASE("a rank that never reads its decisions is fenced with bounded memory, and the others go on",
          "[collectives][order][TIM-1]") {
  served_ranks at{2, parks, {.capacity_bytes = 256, .behind = 1s}};
  time_point now = steady_now();
  const auto poll_for = [&](nanoseconds span) {
    for (const time_point until = now + span; now < until;) at.service.poll(now += 10ms);
  };
  REQUIRE_FALSE(at.ranks[0].ask(sum(8), 1h));
  // Each of its messages is answered by one, which it does not read. The service stops reading when its ring is full.
  std::size_t sent = 0;
  for (; !at.ranks[1].link().is_waiting() && sent < 1000; ++sent) {
    REQUIRE_FALSE(at.ranks[1].send());
    for (int i = 0; i < 3; ++i) at.service.poll(now);
  }
  CHECK(sent < 200);
  CHECK(at.service.take_losses().empty());
  poll_for(1s);
  CHECK(at.service.take_losses().empty());
  poll_for(1s);
  const auto losses = at.service.take_losses();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].rank == rank{1});
  CHECK_THAT(losses[0].why.text, ContainsSubstring("rank 1 is fenced"));
  for (int i = 0; i < 3; ++i) { // the reason and the refusal exceed the ring's capacity
    at.ranks[0].read();
    at.service.poll(now);
  }
  REQUIRE(at.ranks[0].refused.size() == 1);
  CHECK(at.ranks[0].refused[0].second.code == errc::communicator_failed);
}

TEST_CASE("a new epoch has new rings, and the old ones are no longer read", "[collectives][order][EPO-1]") {
  served_ranks at{2};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  std::vector<order_route> ends;
  std::vector<ring_client> ranks;
  for (int r = 0; r < 2; ++r) {
    auto pair = connect_rank(rank{r}, at.service.bell());
    ends.push_back({.rings = std::move(pair.service)});
    ranks.emplace_back(std::move(pair.rank), epoch{2}, 2);
  }
  at.service.open(epoch{2}, std::move(ends));
  REQUIRE_FALSE(at.ranks[1].ask(sum(8)));
  at.poll();
  CHECK(at.ranks[0].released.empty());
  for (auto& one : ranks) REQUIRE_FALSE(one.ask(sum(8)));
  for (int i = 0; i < 3; ++i) at.service.poll(steady_now());
  for (auto& one : ranks) {
    one.read();
    CHECK(one.released.size() == 1);
  }
}

TEST_CASE("a service in a thread of its own answers ranks in threads, spinning and parked",
          "[collectives][order][ORD-1]") {
  const bool is_parking = GENERATE(false, true);
  const wait_profile profile{.spin = is_parking ? nanoseconds{0} : nanoseconds{100us}};
  served_ranks at{2, is_parking ? parks : order_service_settings{.wait = {.spin = 100us}}};
  running service{at.service};
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (auto& one : at.ranks)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < 300; ++i) {
        if (one.ask(sum(i))) return;
        if (!one.await(i + 1, profile, steady_now() + 30s)) return;
      }
      if (one.refused.empty() && !one.is_wrong()) ++right;
    });
  for (auto& one : threads) one.join();
  service.stop();
  CHECK(right == 2);
  CHECK(at.service.take_losses().empty());
}

TEST_CASE("a rank that is parked is woken by its decisions", "[collectives][order]") {
  order_service service{spins};
  const ring_session session = ring_session::make();
  const ring_sockets made, passed_on;
  std::vector<order_route> ends;
  ends.push_back({.rings = ring_connection::offer(made.service, session, rank{0}, {}, service.bell())});
  auto passed = receive_descriptors(made.rank, 40, 4, handover_limit());
  std::vector<int> all;
  for (const auto& one : passed.descriptors) all.push_back(one.native());
  send_descriptors(passed_on.service, passed.bytes, all);
  ring_client one{ring_connection::accept(passed_on.rank, session, rank{0}, {}, handover_limit()), of, 1};
  const auto bell =
      shared_doorbell::open(std::move(passed.descriptors[3]), {ring_purpose::rank_bell, session, rank{0}}, "the bell");
  std::uint64_t* const words = bell.memory().words();
  service.open(of, std::move(ends));
  REQUIRE_FALSE(one.ask(sum(1)));
  service.poll(steady_now());
  CHECK(words[doorbell_layout::rings] == 0); // it is awake
  words[doorbell_layout::parked] = 1;
  REQUIRE_FALSE(one.ask(sum(1)));
  service.poll(steady_now());
  CHECK(words[doorbell_layout::rings] == 1);
  one.read();
  CHECK(one.released == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("a process that is killed at any time ends the epoch for the others in time",
          "[collectives][order][TIM-1][FLT-1]") {
  for (int round = 0; round < 12; ++round) {
    order_service service{parks};
    const ring_session session = ring_session::make();
    std::vector<ring_sockets> sockets(2);
    const pid_t parent = ::getpid();
    forked_process asks{[&] {
      // Asks as fast as it can until it is killed.
      ring_client one{
          ring_connection::accept(sockets[1].rank, session, rank{1}, peer_process{parent}, handover_limit()), of, 2};
      for (std::size_t i = 0;; ++i)
        if (one.ask(sum(i)) || !one.await(i + 1, {.spin = 0s}, steady_now() + 30s)) return 1;
    }};
    std::vector<order_route> ends;
    ends.push_back({.rings = ring_connection::offer(sockets[0].service, session, rank{0}, {}, service.bell())});
    ends.push_back({.rings = ring_connection::offer(sockets[1].service, session, rank{1}, peer_process{asks.pid()},
                                                    service.bell())});
    service.open(of, std::move(ends));
    ring_client survivor{ring_connection::accept(sockets[0].rank, session, rank{0}, {}, handover_limit()), of, 2};
    running served{service};
    std::size_t i = 0;
    for (; survivor.refused.empty(); ++i) {
      if (i == static_cast<std::size_t>(round * 3)) asks.kill(SIGKILL);
      REQUIRE_FALSE(survivor.ask(sum(i)));
      REQUIRE(survivor.await(i + 1, {.spin = 0s}, steady_now() + 20s));
    }
    served.stop();
    CHECK(survivor.refused[0].second.code == errc::communicator_failed);
    const auto losses = service.take_losses();
    REQUIRE(losses.size() == 1);
    CHECK(losses[0].why.code == errc::rank_lost);
    CHECK_THAT(losses[0].why.text, ContainsSubstring("rank 1 (process " + std::to_string(asks.pid()) + ") has ended"));
    CHECK_FALSE(survivor.is_wrong());
  }
}

TEST_CASE("a service in a process of its own that is killed is noticed by its ranks",
          "[collectives][order][TIM-1][FLT-1]") {
  const ring_session session = ring_session::make();
  std::vector<ring_sockets> sockets(2);
  forked_process serves{[&] {
    order_service service{parks};
    std::vector<order_route> ends;
    for (int r = 0; r < 2; ++r)
      ends.push_back({.rings = ring_connection::offer(sockets[static_cast<std::size_t>(r)].service, session, rank{r},
                                                      {}, service.bell())});
    service.open(of, std::move(ends));
    service.run();
    return 0;
  }};
  std::vector<ring_client> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.emplace_back(ring_connection::accept(sockets[static_cast<std::size_t>(r)].rank, session, rank{r},
                                               peer_process{serves.pid()}, handover_limit()),
                       of, 2);
  for (std::size_t i = 0; i < 20; ++i) {
    for (auto& one : ranks) REQUIRE_FALSE(one.ask(sum(i)));
    for (auto& one : ranks) REQUIRE(one.await(i + 1, {.spin = 0s}, steady_now() + 20s));
  }
  serves.kill(SIGKILL);
  for (auto& one : ranks) {
    static_cast<void>(one.ask(sum(1)));
    CHECK_FALSE(one.await(21, {.spin = 0s}, steady_now() + 20s));
    CHECK(one.link().failure().code == errc::rank_lost);
    CHECK(one.released.size() == 20);
  }
}

namespace {

/// A world whose last rank has no rings: the test hands its batches in and takes its decisions.
struct mixed_ranks {
  explicit mixed_ranks(int with_rings) {
    std::vector<order_route> routes;
    for (int r = 0; r < with_rings; ++r) {
      auto pair = connect_rank(rank{r}, service.bell());
      routes.push_back({.rings = std::move(pair.service), .send = [this](std::string batch) { take(batch); }});
      ranks.emplace_back(std::move(pair.rank), of, with_rings + 1);
    }
    routes.push_back({.send = [this](std::string batch) { take(batch); }});
    in = std::make_unique<decision_reader>(with_rings + 1);
    service.open(of, std::move(routes));
  }
  void take(const std::string& batch) {
    ++batches;
    wire_reader from{batch};
    static_cast<void>(batch_header::read(from));
    for (decision_record one; in->next(from, one);) kinds.push_back(one.kind);
    REQUIRE(from.ok());
  }
  std::string batch_of(const operation& what) {
    REQUIRE_FALSE(out.ask(what, lane{}, 1, {}, 30s));
    return out.take({.epoch = of, .number = ++sent});
  }
  void poll() {
    for (int i = 0; i < 5; ++i) service.poll(steady_now());
    for (ring_client& one : ranks) one.read();
  }

  order_service service{parks};
  std::vector<ring_client> ranks;
  request_writer out{};
  std::unique_ptr<decision_reader> in;
  std::uint64_t sent = 0;
  std::size_t batches = 0;
  std::vector<decision_record::form> kinds;
};

constexpr auto released = decision_record::form::release;
constexpr auto refused = decision_record::form::refusal;

} // namespace

TEST_CASE("ranks with rings and ranks without are in one order", "[collectives][order][ORD-3]") {
  mixed_ranks at{2};
  CHECK(at.service.connected() == 2);
  CHECK(at.service.has_rings(rank{1}));
  CHECK_FALSE(at.service.has_rings(rank{2}));
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  REQUIRE_FALSE(at.service.receive(rank{2}, at.batch_of(sum(8)), steady_now()));
  at.poll();
  CHECK(at.kinds.empty());
  REQUIRE_FALSE(at.ranks[1].ask(sum(8)));
  at.poll();
  CHECK(at.kinds == std::vector{released});
  for (const auto& one : at.ranks) CHECK(one.released.size() == 1);
  // Now the one without rings is the last.
  for (auto& one : at.ranks) REQUIRE_FALSE(one.ask(sum(9)));
  at.poll();
  REQUIRE_FALSE(at.service.receive(rank{2}, at.batch_of(sum(9)), steady_now()));
  for (auto& one : at.ranks) {
    one.read(); // written before receive() returned
    CHECK(one.released.size() == 2);
  }
  CHECK(at.kinds == std::vector{released, released});
}

TEST_CASE("a rank whose process could not accept its rings goes on without", "[collectives][order][ORD-3]") {
  mixed_ranks at{1};
  request_writer without{};
  REQUIRE_FALSE(without.ask(sum(8), lane{}, 1, {}, 30s));
  REQUIRE_FALSE(at.service.receive(rank{0}, without.take({.epoch = of, .number = 1}), steady_now()));
  CHECK(at.service.connected() == 0);
  REQUIRE_FALSE(without.ask(sum(8), lane::named("second"), 1, {}, 30s));
  REQUIRE_FALSE(at.service.receive(rank{0}, without.take({.epoch = of, .number = 2}), steady_now()));
  CHECK(at.batches == 1); // the acknowledgement came through the sender
  REQUIRE_FALSE(at.service.receive(rank{1}, at.batch_of(sum(8)), steady_now()));
  CHECK(std::ranges::count(at.kinds, released) == 2);
  CHECK(at.service.take_losses().empty());
}

TEST_CASE("a rank that uses its rings and then its connection is refused", "[collectives][order][SEC-2]") {
  mixed_ranks at{1};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  request_writer beside{};
  REQUIRE_FALSE(beside.ask(sum(8), lane{}, 1, {}, 30s));
  CHECK(at.service.receive(rank{0}, beside.take({.epoch = of, .number = 2}), steady_now()).code == errc::internal);
  CHECK(at.service.connected() == 1);
}

TEST_CASE("when an order is closed its decisions are written, and counted", "[collectives][order][ORD-1]") {
  mixed_ranks at{2};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  REQUIRE_FALSE(at.service.receive(rank{2}, at.batch_of(sum(8)), steady_now()));
  at.poll();
  CHECK(at.service.batches_for(rank{1}, of) == 0);
  at.service.close({.code = errc::rebuilding}, steady_now());
  at.ranks[0].read();
  CHECK(at.ranks[0].refused.size() == 1);
  CHECK(at.kinds == std::vector{decision_record::form::ending, refused});
  CHECK(at.service.batches_for(rank{0}, of) == 1); // the end and the refusal
  CHECK(at.service.batches_for(rank{2}, of) == at.batches);
  CHECK(at.service.batches_for(rank{0}, epoch{2}) == 0);
}

TEST_CASE("requests that come before and after the loss of a rank are refused with that rank", "[collectives][order]") {
  mixed_ranks at{2};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  at.service.close({.code = errc::communicator_failed, .text = "lost", .rank = rank{1}}, steady_now());
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  REQUIRE(at.ranks[0].refused.size() == 2);
  for (const auto& [number, why] : at.ranks[0].refused) CHECK(why.rank == rank{1});
}

TEST_CASE("a process that leaves is no loss", "[collectives][order]") {
  mixed_ranks at{2};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  at.service.release(rank{1});
  REQUIRE_FALSE(at.ranks[1].link().send("nobody reads this", steady_now()));
  at.poll();
  CHECK(at.service.connected() == 1);
  CHECK(at.service.take_losses().empty());
  CHECK(at.ranks[0].refused.empty());
}

namespace {

/// A world of three ranks: 0 and 1 on a host with a service of its own, and 2 without rings.
struct two_services {
  explicit two_services(const ring_settings& rings = {}) {
    std::vector<std::pair<rank, ring_connection>> ends;
    for (int r = 0; r < 2; ++r) {
      auto pair = connect_rank(rank{r}, host.bell(), rings);
      ends.emplace_back(rank{r}, std::move(pair.service));
      ranks.emplace_back(std::move(pair.rank), of, 3);
    }
    std::vector<order_route> routes(3);
    routes[2].send = [this](std::string batch) { to_third.push_back(std::move(batch)); };
    controller.open(of, std::move(routes), {{.ranks = {rank{0}, rank{1}}, .send = [this](std::string message) {
                                               to_host.push_back(std::move(message));
                                             }}});
    host.open_host(of, 3, std::move(ends), {}, {},
                   [this](std::string message) { to_controller.push_back(std::move(message)); });
  }
  void ask_all() {
    for (auto& one : ranks) REQUIRE_FALSE(one.ask(sum(8)));
    poll();
    request_writer third;
    REQUIRE_FALSE(third.ask(sum(8), lane{}, 0, std::nullopt, 1h));
    REQUIRE_FALSE(controller.receive(rank{2}, third.take({.epoch = of, .number = ++sent_by_third}), steady_now()));
  }
  void poll() {
    for (int i = 0; i < 20; ++i) host.poll(steady_now());
    for (const std::string& message : std::exchange(to_controller, {}))
      REQUIRE_FALSE(controller.receive_from_host(0, message, steady_now()));
    for (ring_client& one : ranks) one.read();
  }

  order_service controller{parks}, host{parks};
  std::vector<std::string> to_host{}, to_controller{}, to_third{};
  std::uint64_t sent_by_third = 0;
  std::vector<ring_client> ranks{};
};

} // namespace

TEST_CASE("ranks of a host with a service of its own, and others, are in one order", "[collectives][order][ORD-3]") {
  two_services at;
  at.ask_all();
  CHECK(at.to_third.size() == 1);
  CHECK(at.controller.has_rings(rank{0}));
  CHECK_FALSE(at.controller.has_rings(rank{2}));
  REQUIRE(at.to_host.size() == 1);
  REQUIRE_FALSE(at.host.receive_from_controller(at.to_host.front(), steady_now()));
  at.poll();
  for (const auto& one : at.ranks) {
    CHECK(one.released == std::vector<std::uint64_t>{1});
    CHECK_FALSE(one.is_wrong());
  }
}

TEST_CASE("a host's service follows a message of the controller when it is complete", "[collectives][order][ORD-3]") {
  two_services at;
  at.ask_all();
  REQUIRE(at.to_host.size() == 1);
  error why;
  host_frame whole = decode_host_frame(at.to_host.front(), 3, why);
  REQUIRE(whole.batches.size() == 2);
  host_frame first;
  first.is_complete = false;
  first.batches.push_back(std::move(whole.batches.front()));
  whole.batches.erase(whole.batches.begin());
  REQUIRE_FALSE(at.host.receive_from_controller(encode(first), steady_now()));
  at.poll();
  for (const auto& one : at.ranks) CHECK(one.released.empty());
  REQUIRE_FALSE(at.host.receive_from_controller(encode(whole), steady_now()));
  at.poll();
  for (const auto& one : at.ranks) CHECK(one.released == std::vector<std::uint64_t>{1});
}

TEST_CASE("a host's service leaves it to the controller what the loss of a rank leads to", "[collectives][order]") {
  two_services at;
  REQUIRE_FALSE(at.ranks[0].link().send("what nobody can read", steady_now()));
  at.poll();
  const auto lost = at.controller.take_losses();
  REQUIRE(lost.size() == 1);
  CHECK(lost.front().rank == rank{0});
  CHECK(at.host.take_losses().empty());
  REQUIRE_FALSE(at.ranks[1].ask(sum(8)));
  at.poll();
  CHECK(at.ranks[1].refused.empty()); // the epoch has not ended
  at.controller.close({.code = errc::rebuilding, .text = "a rank is lost"}, steady_now());
  for (const std::string& message : std::exchange(at.to_host, {}))
    REQUIRE_FALSE(at.host.receive_from_controller(message, steady_now()));
  at.poll();
  CHECK(at.ranks[1].refused.size() == 1);
}

TEST_CASE("invalid messages of a host's service are refused", "[collectives][order][SEC-2]") {
  two_services at;
  const auto refusal = [&](const std::string& message) {
    return at.controller.receive_from_host(0, message, steady_now());
  };
  CHECK_THAT(refusal("?").text, ContainsSubstring("a message between the controller and the order service of a host"));
  CHECK_THAT(refusal(encode(host_frame{.batches = {{rank{2}, "x"}}})).text, ContainsSubstring("not on that host"));
  CHECK_THAT(refusal(encode(host_frame{.losses = {{rank{2}, {.code = errc::rank_lost, .text = "x"}}}})).text,
             ContainsSubstring("not on that host"));
  CHECK(refusal(encode(host_frame{.batches = {{rank{0}, "x"}}})).code == errc::internal);
  CHECK(at.host.receive_from_controller(encode(host_frame{.batches = {{rank{2}, "x"}}}), steady_now()).code ==
        errc::internal);
  CHECK(at.controller.receive(rank{0}, "x", steady_now()).code == errc::communicator_failed);
}

TEST_CASE("the thread of a service without rings sleeps until there are some, and ends when it is told to",
          "[collectives][order][TIM-1]") {
  served_ranks at{1, spins};
  running served{at.service};
  REQUIRE_FALSE(at.ranks[0].link().send("nothing that can be read", steady_now()));
  const time_point until = steady_now() + 20s;
  while (at.service.connected() > 0 && steady_now() < until) std::this_thread::yield();
  REQUIRE(at.service.connected() == 0);
  std::vector<order_route> ends;
  auto pair = connect_rank(rank{0}, at.service.bell());
  ends.push_back({.rings = std::move(pair.service)});
  at.service.open(epoch{2}, std::move(ends));
  ring_client again{std::move(pair.rank), epoch{2}, 1};
  REQUIRE_FALSE(again.ask(sum(8)));
  CHECK(again.await(1, {.spin = 0s}, steady_now() + 20s));
  served.stop();
}

TEST_CASE("a process without a rank that does not read its answers is detached, and costs nobody else",
          "[collectives][order]") {
  order_service_settings settings = parks;
  settings.most_waiting_bytes = std::size_t{1} << 20U;
  served_ranks at{1, settings};
  const process_address outside{-1};
  auto pair = connect_rank(rank{0}, at.service.bell());
  at.service.attach(outside, {.rings = std::move(pair.service)});
  const time_point now = steady_now(); // so it is not fenced for the time that it needs
  std::vector<std::pair<process_address, error>> detached;
  for (int i = 0; i < 20 && detached.empty(); ++i) {
    at.ranks[0].writer().add(
        {.kind = request_record::form::message, .to = outside, .message = std::string(std::size_t{1} << 18U, 'x')});
    REQUIRE_FALSE(at.ranks[0].send());
    at.poll(now);
    detached = at.service.take_detached();
  }
  REQUIRE(detached.size() == 1);
  CHECK(detached[0].first == outside);
  CHECK_THAT(detached[0].second.text, ContainsSubstring("more slowly than it asks for them"));
  CHECK(at.service.take_losses().empty());
  CHECK_FALSE(at.ranks[0].link().failure());
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  CHECK(at.service.take_losses().empty());
}

TEST_CASE("the thread of a service reads the rings of a process without a rank where no rank has any",
          "[collectives][order][TIM-1]") {
  order_service service{parks};
  std::vector<std::string> told; // by the service's thread
  std::vector<order_route> routes;
  routes.push_back({.send = [&told](std::string batch) { told.push_back(std::move(batch)); }});
  service.open(of, std::move(routes));
  const process_address outside{-1};
  auto pair = connect_rank(rank{0}, service.bell());
  ring_client driver{std::move(pair.rank), of, 1};
  running served{service};
  service.attach(outside, {.rings = std::move(pair.service)});
  driver.writer().add({.kind = request_record::form::message, .to = process_address{0}, .message = "are you there?"});
  REQUIRE_FALSE(driver.send());
  driver.writer().add({.kind = request_record::form::message, .to = process_address{0}, .message = "hello?"});
  REQUIRE_FALSE(driver.send());
  CHECK(driver.link().wait({.spin = 0s}, steady_now() + 20s)); // the service acknowledges both batches
  CHECK_FALSE(driver.link().failure());
  served.stop();
  CHECK(service.connected() == 0);
  REQUIRE_FALSE(told.empty()); // both messages, or the first
  wire_reader from{told.front()};
  static_cast<void>(batch_header::read(from));
  decision_reader in{1};
  decision_record one;
  REQUIRE(in.next(from, one));
  CHECK(one.kind == decision_record::form::message);
  CHECK(one.from == outside);
  CHECK(one.message == "are you there?");
}

TEST_CASE("decisions for a host that exceed the size of a message are sent in parts", "[collectives][order][ORD-3]") {
  two_services at;
  constexpr std::size_t count = 8, overhead = 6; // of a message in a batch, and of the batch
  request_writer third;
  for (std::size_t i = 0; i < count; ++i)
    third.add({.kind = request_record::form::message,
               .to = process_address{static_cast<int>(i) % 2},
               .message = std::string((longest_batch_bytes - overhead) / count - overhead, 'x')});
  const std::string batch = third.take({.epoch = of, .number = 1});
  REQUIRE(batch.size() <= longest_batch_bytes);
  REQUIRE_FALSE(at.controller.receive(rank{2}, batch, steady_now()));
  REQUIRE(at.to_host.size() == 2);
  std::size_t batches = 0;
  for (const std::string& message : at.to_host) {
    error why;
    const host_frame part = decode_host_frame(message, 3, why);
    REQUIRE_FALSE(why);
    CHECK(part.is_complete == (&message == &at.to_host.back()));
    std::size_t size_bytes = 0;
    for (const auto& one : part.batches) size_bytes += one.bytes.size();
    CHECK(size_bytes <= longest_batch_bytes);
    CHECK(size_bytes > 0);
    batches += part.batches.size();
  }
  CHECK(batches == count / 2);
}

TEST_CASE("requests for the controller that exceed the size of a message are sent in several", "[collectives][order]") {
  two_services at{{.capacity_bytes = std::size_t{8} << 20U}};
  constexpr std::size_t size_bytes = 2'000'000;
  for (auto& one : at.ranks) {
    for (int i = 0; i < 3; ++i)
      one.writer().add(
          {.kind = request_record::form::message, .to = process_address{2}, .message = std::string(size_bytes, 'x')});
    REQUIRE_FALSE(one.send());
    REQUIRE_FALSE(one.link().is_waiting());
  }
  at.host.poll(steady_now());
  REQUIRE(at.to_controller.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    error why;
    const host_frame told = decode_host_frame(at.to_controller[i], 3, why);
    REQUIRE_FALSE(why);
    REQUIRE(told.batches.size() == 1);
    CHECK(told.batches[0].of == rank{static_cast<int>(i)});
    CHECK(told.batches[0].bytes.size() > 3 * size_bytes);
  }
  // Short ones of several ranks are in one message.
  at.to_controller.clear();
  for (auto& one : at.ranks) REQUIRE_FALSE(one.ask(sum(8)));
  at.host.poll(steady_now());
  CHECK(at.to_controller.size() == 1);
}

TEST_CASE("the controller is told which ranks of a host are late", "[collectives][order][TIM-1]") {
  two_services at;
  const auto late = std::make_shared<absence_report>();
  late->what = "barrier";
  late->ranks = {{.rank = rank{0}}, {.rank = rank{1}}};
  REQUIRE_FALSE(at.controller.receive_from_host(0, encode(host_frame{.reports = {late, late}}), steady_now()));
  const auto told = at.controller.take_straggling();
  REQUIRE(told.size() == 2);
  CHECK(told[1]->what == "barrier");
  CHECK(at.controller.take_straggling().empty());
}

TEST_CASE("a host's service tells the controller of progress with its checks", "[collectives][order]") {
  two_services at;
  const time_point now = steady_now();
  at.host.poll(now); // the first check
  at.ranks[0].writer().add({.kind = request_record::form::progress, .launched = operation_mark{"barrier", lane{}, 1}});
  REQUIRE_FALSE(at.ranks[0].send());
  CHECK(at.host.poll(now + 1ms));
  CHECK(at.to_controller.empty());
  CHECK_FALSE(at.host.poll(now + 4ms));
  at.host.poll(now + 5ms);
  CHECK(at.to_controller.size() == 1);
  at.host.poll(now + 20ms);
  CHECK(at.to_controller.size() == 1);
}

TEST_CASE("a service that served a host and then serves a world decides about its losses itself",
          "[collectives][order][EPO-1]") {
  two_services at;
  REQUIRE_FALSE(at.ranks[0].link().send("what nobody can read", steady_now()));
  at.poll();
  at.to_controller.clear();
  std::vector<order_route> ends;
  auto pair = connect_rank(rank{0}, at.host.bell());
  ends.push_back({.rings = std::move(pair.service)});
  at.host.open(epoch{2}, std::move(ends));
  ring_client next{std::move(pair.rank), epoch{2}, 1};
  REQUIRE_FALSE(next.link().send("what nobody can read", steady_now()));
  for (int i = 0; i < 5; ++i) at.host.poll(steady_now());
  const auto losses = at.host.take_losses();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].of == epoch{2});
  CHECK(at.to_controller.empty());
}

TEST_CASE("a service answers for ranks and epochs that it does not have", "[collectives][order]") {
  mixed_ranks at{1};
  auto pair = connect_rank(rank{0}, at.service.bell());
  at.service.attach(process_address{-1}, {.rings = std::move(pair.service)});
  for (const int stranger : {-1, 2, 9}) {
    CHECK(at.service.receive(rank{stranger}, at.batch_of(sum(8)), steady_now()).code == errc::internal);
    CHECK_FALSE(at.service.has_rings(rank{stranger}));
    at.service.release(rank{stranger});
    CHECK(at.service.batches_for(rank{stranger}, of) == 0);
  }
  CHECK(at.service.has_rings(rank{0}));
  CHECK_FALSE(at.service.has_rings(rank{1}));
  at.service.release(rank{1}); // it has no rings
  CHECK(at.service.connected() == 1);
  at.service.release(rank{0});
  at.service.release(rank{0});
  CHECK(at.service.connected() == 0);
  CHECK_FALSE(at.service.receive_from_host(0, "x", steady_now())); // there is no such host
  CHECK(at.service.open_operations(of).empty());
  CHECK_FALSE(at.service.points());
}

TEST_CASE("a service knows what is open in its epoch, and what was complete before it", "[collectives][order][CUT-1]") {
  order_service service{parks};
  service.learn({.of = epoch{3}, .lanes = {{.where = lane{}, .number = 9}}});
  std::vector<order_route> routes(2);
  service.open(epoch{4}, std::move(routes));
  REQUIRE(service.points());
  CHECK(service.points()->counted_from == epoch{4});
  CHECK(service.commits().lanes.size() == 1);
  for (const int r : {0, 1}) {
    request_writer out;
    REQUIRE_FALSE(out.ask(sum(8), lane{}, 1, {}, 30s));
    REQUIRE_FALSE(service.receive(rank{r}, out.take({.epoch = epoch{4}, .number = 1}), steady_now()));
  }
  CHECK(service.open_operations(epoch{4}).size() == 1);
  CHECK(service.open_operations(epoch{3}).empty());
}

TEST_CASE("a process without a rank has one route, while the order is open", "[collectives][order][attached]") {
  mixed_ranks at{0};
  const process_address outside{-1};
  std::size_t first = 0, second = 0, third = 0;
  const auto counts = [](std::size_t& which) { return order_route{.send = [&which](const std::string&) { ++which; }}; };
  const auto tell = [&](int number) {
    at.out.add({.kind = request_record::form::message, .to = outside, .message = std::to_string(number)});
    REQUIRE_FALSE(at.service.receive(rank{0}, at.out.take({.epoch = of, .number = ++at.sent}), steady_now()));
  };
  order_service{parks}.attach(outside, counts(third)); // there is no epoch
  at.service.attach(outside, counts(first));
  tell(1);
  CHECK(first == 1);
  at.service.attach(outside, counts(second));
  tell(2);
  CHECK(first == 1);
  CHECK(second == 1);
  const std::size_t before = at.batches;
  at.service.detach(process_address{0}); // a rank's
  tell(3);
  tell(4);
  CHECK(at.batches > before); // they are acknowledged
  CHECK(second == 3);
  at.service.detach(outside);
  CHECK(at.service.retiring() == std::vector{outside});
  tell(5);
  CHECK(second == 3);
  request_writer late;
  late.add({.kind = request_record::form::message, .to = process_address{0}, .message = "x"});
  CHECK_FALSE(at.service.receive(outside, late.take({.epoch = of, .number = 1}), steady_now()));
  at.service.close({.code = errc::rebuilding}, steady_now());
  at.service.attach(outside, counts(third));
  tell(6);
  CHECK(third == 0);
}

TEST_CASE("the thread of a service tells its owner of what it has found", "[collectives][order][TIM-1]") {
  std::atomic<int> news{0};
  order_service_settings settings = parks;
  settings.limits.straggling = 1ms;
  settings.on_news = [&] { ++news; };
  served_ranks at{2, settings};
  const process_address outside{-1};
  auto pair = connect_rank(rank{0}, at.service.bell());
  at.service.attach(outside, {.rings = std::move(pair.service)});
  ring_client driver{std::move(pair.rank), of, 2};
  running served{at.service};
  SECTION("a request whose peers are late") {
    REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
    await("news of a late rank", [&] { return news > 0; });
    const auto late = at.service.take_straggling();
    REQUIRE(late.size() == 1);
    CHECK(late[0]->missing() == std::vector{rank{1}});
    CHECK(at.service.take_straggling().empty());
  }
  SECTION("a rank that is lost") {
    REQUIRE_FALSE(at.ranks[1].link().send("what nobody can read", steady_now()));
    await("news of a loss", [&] { return news > 0; });
    const auto losses = at.service.take_losses();
    REQUIRE(losses.size() == 1);
    CHECK(losses[0].rank == rank{1});
    CHECK(losses[0].of == of);
    CHECK(losses[0].why.rank == rank{1});
    CHECK(at.service.take_losses().empty());
  }
  SECTION("a process without a rank that is detached") {
    REQUIRE_FALSE(driver.link().send("what nobody can read", steady_now()));
    await("news of a detached process", [&] { return news > 0; });
    const auto detached = at.service.take_detached();
    REQUIRE(detached.size() == 1);
    CHECK(detached[0].first == outside);
    CHECK(at.service.connected() == 2); // both ranks
    CHECK(at.service.take_detached().empty());
    CHECK(at.service.take_losses().empty());
  }
  served.stop();
}

TEST_CASE("when several ranks are lost the first loss is the reason of the end", "[collectives][order][FLT-1]") {
  served_ranks at{3};
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  REQUIRE_FALSE(at.ranks[2].link().send("what nobody can read", steady_now()));
  at.poll();
  REQUIRE_FALSE(at.ranks[1].link().send("what nobody can read", steady_now()));
  at.poll();
  const auto losses = at.service.take_losses();
  REQUIRE(losses.size() == 2);
  CHECK(losses[0].rank == rank{2});
  CHECK(losses[1].rank == rank{1});
  REQUIRE_FALSE(at.ranks[0].ask(sum(8)));
  at.poll();
  REQUIRE(at.ranks[0].refused.size() == 2);
  for (const auto& [number, why] : at.ranks[0].refused) CHECK(why.rank == rank{2});
  CHECK(at.service.connected() == 1);
  std::size_t told = 0;
  at.service.attach(process_address{-1}, {.send = [&](const std::string&) { ++told; }}); // the order has ended
  at.ranks[0].writer().add(
      {.kind = request_record::form::message, .to = process_address{-1}, .message = "are you there?"});
  REQUIRE_FALSE(at.ranks[0].send());
  at.poll();
  CHECK(told == 0);
}

TEST_CASE("a service whose last work is later than its clock sleeps, too", "[collectives][order]") {
  order_service_settings settings;
  settings.wait.spin = 0ns;
  settings.park = 4ms;
  served_ranks at{2, settings, {.capacity_bytes = 256}};
  const time_point now = steady_now() + 1s;
  REQUIRE_FALSE(at.ranks[0].ask(sum(8), 1h));
  at.poll(now);
  CHECK(at.service.rest(now - 1us) == 4ms);
}

TEST_CASE("a service with nothing to do sleeps until it must look by itself, and longer when it is idle",
          "[collectives][order][TIM-1]") {
  order_service_settings settings;
  settings.wait.spin = 2ms;
  settings.park = 4ms;
  settings.check_interval = 10ms;
  settings.idle_park = 50ms;
  settings.idle_after = 100ms;
  served_ranks at{2, settings, {.capacity_bytes = 256}};
  const time_point now = steady_now() + 1s;
  REQUIRE_FALSE(at.ranks[0].ask(sum(8), 1h));
  at.poll(now); // the next check is in 10 ms
  CHECK(at.service.rest(now + 1ms) == 0ns);
  CHECK(at.service.rest(now + 2ms) == 4ms);
  CHECK(at.service.rest(now + 8ms) == 2ms);
  CHECK(at.service.rest(now + 12ms) == 1ns);
  CHECK(at.service.rest(now + 99ms) == 1ns);
  CHECK(at.service.rest(now + 100ms) == 50ms); // this puts the check off
  CHECK(at.service.rest(now + 99ms) == 4ms);
  SECTION("until a deadline") {
    REQUIRE_FALSE(at.ranks[0].ask(sum(8), 30ms));
    at.poll(now + 20ms);
    CHECK(at.service.rest(now + 21ms) == 0ns);
    CHECK(at.service.rest(now + 30ms) == 4ms);
    CHECK(at.service.rest(now + 49ms) == 1ms);
    CHECK(at.service.rest(now + 51ms) == 1ns);
    CHECK(at.service.rest(now + 130ms) == 1ns);
  }
  SECTION("but looks often for room in the rings of a rank that does not read") {
    while (!at.ranks[1].link().is_waiting()) {
      REQUIRE_FALSE(at.ranks[1].send());
      for (int i = 0; i < 3; ++i) at.service.poll(now);
    }
    CHECK(at.service.rest(now + 99ms) == ring_sender::room_interval);
    CHECK(at.service.rest(now + 100ms) == ring_sender::room_interval);
  }
}

TEST_CASE("a new epoch has none of the losses, ends and checks of the one before", "[collectives][order][EPO-1]") {
  served_ranks at{2};
  auto pair = connect_rank(rank{0}, at.service.bell());
  at.service.attach(process_address{-1}, {.rings = std::move(pair.service)});
  ring_client driver{std::move(pair.rank), of, 2};
  for (ring_client* const one : {&driver, &at.ranks[1]})
    REQUIRE_FALSE(one->link().send("what nobody can read", steady_now()));
  const time_point now = steady_now();
  at.poll(now + 1h); // the next check is after that
  CHECK(at.service.connected() == 1);
  std::size_t told = 0, heard = 0;
  std::vector<order_route> routes(2);
  routes[0].send = [&](const std::string&) { ++told; };
  at.service.open(epoch{2}, std::move(routes));
  CHECK(at.service.take_losses().empty());
  CHECK(at.service.take_detached().empty());
  at.service.attach(process_address{-1}, {.send = [&](const std::string&) { ++heard; }}); // the order has not ended
  request_writer out;
  out.add({.kind = request_record::form::message, .to = process_address{-1}, .message = "are you there?"});
  REQUIRE_FALSE(out.ask(sum(8), lane{}, 1, {}, 10ms));
  REQUIRE_FALSE(at.service.receive(rank{0}, out.take({.epoch = epoch{2}, .number = 1}), now));
  CHECK(heard == 1);
  CHECK(told == 0);
  CHECK(at.service.poll(now + 1s));
  CHECK(told == 1); // the request is refused
}

TEST_CASE("an end of which a host's service has heard in part does not end its next epoch",
          "[collectives][order][EPO-1]") {
  two_services at;
  host_frame part;
  part.is_complete = false;
  part.closed = {.code = errc::rebuilding, .text = "the epoch is over"};
  REQUIRE_FALSE(at.host.receive_from_controller(encode(part), steady_now()));
  std::vector<std::pair<rank, ring_connection>> ends;
  auto pair = connect_rank(rank{0}, at.host.bell());
  ends.emplace_back(rank{0}, std::move(pair.service));
  ring_client next{std::move(pair.rank), epoch{2}, 1};
  at.host.open_host(epoch{2}, 1, std::move(ends), of, {}, [](const std::string&) {});
  REQUIRE_FALSE(at.host.receive_from_controller(encode(host_frame{}), steady_now()));
  REQUIRE_FALSE(next.ask(sum(8)));
  for (int i = 0; i < 5; ++i) at.host.poll(steady_now());
  next.read();
  CHECK(next.released.size() == 1);
  CHECK(next.refused.empty());
}

TEST_CASE("requests of ranks without rings are refused at their deadlines", "[collectives][order][TIM-1]") {
  mixed_ranks at{1};
  const time_point now = steady_now();
  REQUIRE_FALSE(at.out.ask(sum(8), lane{}, 1, {}, 10ms));
  REQUIRE_FALSE(at.service.receive(rank{1}, at.out.take({.epoch = of, .number = ++at.sent}), now));
  at.service.expire(now + 9ms);
  CHECK(at.kinds.empty());
  at.service.expire(now + 10ms);
  CHECK(at.kinds == std::vector{refused});
}

TEST_CASE("nothing is sent to a rank that is lost, and a host is told once that the order has ended",
          "[collectives][order][FLT-1]") {
  SECTION("a rank") {
    mixed_ranks at{1};
    REQUIRE_FALSE(at.ranks[0].link().send("what nobody can read", steady_now()));
    at.poll();
    CHECK(at.kinds == std::vector{decision_record::form::ending}); // the other rank's
  }
  SECTION("a host") {
    two_services at;
    at.controller.close({.code = errc::rebuilding, .text = "the epoch is over"}, steady_now());
    CHECK(at.to_host.size() == 1);
    request_writer third;
    REQUIRE_FALSE(third.ask(sum(8), lane{}, 0, std::nullopt, 1h));
    REQUIRE_FALSE(at.controller.receive(rank{2}, third.take({.epoch = of, .number = 1}), steady_now()));
    CHECK(at.to_third.size() == 2);
    CHECK(at.to_host.size() == 1);
  }
}

TEST_CASE("the first batch of a host that cannot be read is the reason, whatever follows",
          "[collectives][order][SEC-2]") {
  two_services at;
  request_writer second;
  REQUIRE_FALSE(second.ask(sum(8), lane{}, 0, std::nullopt, 1h));
  const error why = at.controller.receive_from_host(
      0, encode(host_frame{.batches = {{rank{0}, "x"}, {rank{1}, second.take({.epoch = of, .number = 1})}}}),
      steady_now());
  CHECK(why.code == errc::internal);
  CHECK(why.rank == rank{0});
}

} // namespace troupe::tests::order_service_test
