// The order of a world over processes, from the bytes of its ranks: what is refused, what is passed on between the
// controller and the service of a host, and what each epoch begins with.
#include <troupe/processes/order/order_server.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::order_server_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using asks = request_record::form;
using decides = decision_record::form;

namespace {

constexpr epoch of{3};

all_reduce sum(std::size_t count) {
  return {.send = {}, .recv = {}, .count = count, .type = dtype::i32};
}

/// What one rank, or a process without a rank, writes and reads.
struct writer {
  explicit writer(int world_size = 2, epoch begun = of) : in{world_size}, epoch_{begun} {}

  void add(request_record one) { out.add(one); }
  error ask(const operation& what, const request_facts& facts = {}, lane where = {}) {
    return out.ask(what, where, 0, std::nullopt, 1h, facts);
  }
  std::string batch(std::uint64_t succeeded = 0) {
    return out.take({.epoch = epoch_, .number = ++sent, .succeeded = succeeded});
  }
  /// Reads all batches of \p from.
  template <class Address>
  std::vector<decision_record> read(order_server& from, Address self) {
    std::vector<decision_record> all;
    for (std::string bytes; !(bytes = from.take_outgoing(self)).empty();) {
      wire_reader reader{bytes};
      last = batch_header::read(reader);
      for (decision_record one; in.next(reader, one);) all.push_back(one);
      REQUIRE(reader.ok());
    }
    return all;
  }

  request_writer out{};
  decision_reader in;
  epoch epoch_;
  std::uint64_t sent = 0;
  batch_header last{};
};

/// An order of some ranks.
struct server_scene {
  explicit server_scene(int size = 2, const sequencer_limits& limits = {}) : server{limits} { begin(of, size); }
  void begin(epoch next, int size) {
    server.open(next, size);
    ranks.assign(static_cast<std::size_t>(size), writer{size, next});
  }
  writer& at(int one) { return ranks[static_cast<std::size_t>(one)]; }
  error send(int from, std::uint64_t succeeded = 0) {
    return server.receive(rank{from}, at(from).batch(succeeded), now);
  }
  error send(int from, request_record one) {
    at(from).add(std::move(one));
    return send(from);
  }
  error ask(int from, const operation& what, const request_facts& facts = {}, lane where = {}) {
    REQUIRE_FALSE(at(from).ask(what, facts, where));
    return send(from);
  }
  std::vector<decision_record> read(int self) { return at(self).read(server, rank{self}); }
  void read_all() {
    for (std::size_t r = 0; r < ranks.size(); ++r) static_cast<void>(read(static_cast<int>(r)));
  }
  /// All ranks split into \p groups. Returns what each rank is told.
  std::vector<std::vector<opened_world>> split(const std::vector<rank_group>& groups) {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      REQUIRE_FALSE(
          send(static_cast<int>(r), {.kind = asks::turn, .turn = {.name = "split", .deadline = 1h, .split = groups}}));
    std::vector<std::vector<opened_world>> all;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      std::vector<opened_world>& opened = all.emplace_back();
      for (const decision_record& one : read(static_cast<int>(r)))
        if (one.kind == decides::turn) opened = one.opened;
    }
    return all;
  }

  order_server server;
  std::vector<writer> ranks;
  time_point now{1h};
};

const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};

std::vector<decides> kinds(const std::vector<decision_record>& all) {
  std::vector<decides> found;
  for (const decision_record& one : all) found.push_back(one.kind);
  return found;
}

/// The service of a host with ranks 0 and 1 of three, and what it sends to the controller.
struct host_scene {
  explicit host_scene(const sequencer_limits& limits = {}, const std::vector<rank>& present = {rank{0}, rank{1}},
                      int size = 3)
    : ranks(present.size(), writer{size}) {
    host.open_host(of, size, present, {}, limits);
  }
  writer& at(int one) { return ranks[static_cast<std::size_t>(one)]; }
  error send(int from, std::uint64_t succeeded = 0) { return host.receive(rank{from}, at(from).batch(succeeded), now); }
  error send(int from, request_record one) {
    at(from).add(std::move(one));
    return send(from);
  }
  /// Returns what the controller reads of each rank.
  std::map<int, std::vector<request_record>> told(bool all = true) {
    host_frame frame;
    host.take_for_controller(frame, all);
    std::map<int, std::vector<request_record>> found;
    for (const auto& [self, bytes] : frame.batches) {
      wire_reader in{bytes};
      headers[self.value()] = batch_header::read(in);
      auto& records = found[self.value()];
      for (request_record one; readers[self.value()].next(in, one);) records.push_back(one);
      REQUIRE(in.ok());
    }
    return found;
  }
  /// The controller's decisions for a rank arrive.
  error decide(int to, decision_writer& out) {
    host_frame frame;
    frame.batches.push_back({rank{to}, out.take()});
    return host.receive_from_controller(frame);
  }

  order_server host;
  std::vector<writer> ranks;
  std::map<int, request_reader> readers;
  std::map<int, batch_header> headers;
  time_point now{1h};
};

} // namespace

TEST_CASE("before its first epoch an order does nothing", "[collectives][distributed][order_server]") {
  order_server one;
  one.close({.code = errc::stopping});
  one.expire(time_point{1h});
  one.attach(process_address{-1});
  one.detach(process_address{-1});
  CHECK(one.next_due() == time_point::max());
  CHECK(one.waiting() == 0);
  CHECK(one.batches_for(rank{0}) == 0);
  CHECK(one.take_outgoing(rank{0}).empty());
  CHECK(one.take_outgoing(process_address{-1}).empty());
  CHECK(one.waiting_bytes(process_address{-1}) == 0);
  CHECK(one.open_operations().empty());
  CHECK(one.retiring().empty());
  CHECK(one.receive(rank{0}, "x", {}).code == errc::internal);
}

TEST_CASE("the order service of a host needs ranks that exist", "[collectives][distributed][order_server]") {
  order_server one;
  const auto open = [&](const std::vector<rank>& present) { one.open_host(of, 2, present, {}, {}); };
  CHECK_THROWS_AS(open({}), exception);
  CHECK_THROWS_AS(open({rank{2}}), exception);
  CHECK_THROWS_AS(open({rank{0}, rank{-1}}), exception);
  open({rank{0}});
  open({rank{1}});
  CHECK(one.receive(rank{0}, "x", {}).text ==
        "a batch of rank 0 has arrived at a world of 2 ranks, not all of which are on this host");
  server_scene other;
  for (const int stranger : {-1, 2}) {
    const error why = other.server.receive(rank{stranger}, "x", {});
    CHECK(why.text == "a batch of rank " + std::to_string(stranger) + " has arrived at a world of 2 ranks");
    CHECK(why.rank == rank{stranger});
    CHECK(other.server.take_outgoing(rank{stranger}).empty());
    CHECK(other.server.batches_for(rank{stranger}) == 0);
  }
}

TEST_CASE("a batch is refused wherever it is cut, with its rank, and out of turn",
          "[collectives][distributed][order_server][SEC-2]") {
  writer one;
  REQUIRE_FALSE(one.ask(sum(8)));
  const std::string whole = one.batch();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    server_scene at;
    const error why = at.server.receive(rank{1}, whole.substr(0, size), at.now);
    if (!why) continue; // where a record ends
    CHECK(why.code == errc::internal);
    CHECK(why.rank == rank{1});
    CHECK_THAT(why.text, StartsWith("a batch of rank 1 cannot be read"));
    CHECK(at.server.batches_for(rank{1}) <= 1);
  }
  server_scene at;
  CHECK(at.server.receive(rank{0}, whole.substr(0, 2), at.now));
  CHECK(at.server.batches_for(rank{0}) == 0);
  CHECK_THAT(at.server.receive(rank{0}, request_writer{}.take({.epoch = epoch{4}, .number = 1}), at.now).text,
             ContainsSubstring("it is of an epoch that has not begun"));
  CHECK_THAT(at.server.receive(rank{0}, request_writer{}.take({.epoch = of, .number = 2}), at.now).text,
             ContainsSubstring("batches before it are missing, or it is a duplicate"));
  CHECK_FALSE(at.server.receive(rank{0}, request_writer{}.take({.epoch = epoch{2}, .number = 9}), at.now));
  CHECK_THAT(at.server.receive(rank{0}, request_writer{}.take({.epoch = of, .number = 1, .succeeded = 1}), at.now).text,
             ContainsSubstring("it counts successes of requests that were not released"));
  CHECK(at.server.batches_for(rank{0}) == 0);
  REQUIRE_FALSE(at.ask(0, sum(8)));
  REQUIRE_FALSE(at.ask(1, sum(8)));
  REQUIRE_FALSE(at.send(0, 1));
  CHECK_THAT(at.send(0, 0).text, ContainsSubstring("it counts successes")); // less than before
}

TEST_CASE("a long batch and the second short one are acknowledged at once, and a short one with the next decisions",
          "[collectives][distributed][order_server]") {
  server_scene one;
  const auto seen = [&one] { // 0: nothing was sent
    one.at(0).last = {};
    static_cast<void>(one.at(0).read(one.server, rank{0}));
    return one.at(0).last.seen;
  };
  CHECK_FALSE(one.ask(0, sum(1)));
  CHECK(seen() == 0);
  CHECK_FALSE(one.ask(0, sum(2)));
  CHECK(seen() == 2);
  CHECK_FALSE(one.ask(0, sum(3)));
  CHECK_FALSE(one.ask(1, sum(1)));
  CHECK(seen() == 3); // with the release
  const std::string text(longest_unseen_batch_bytes, 'x');
  CHECK_FALSE(one.send(0, {.kind = asks::message, .to = process_address{1}, .message = text}));
  CHECK(seen() == 4);
}

TEST_CASE("an order that is held has acknowledged what it has read",
          "[collectives][distributed][order_server][planned]") {
  server_scene one;
  REQUIRE_FALSE(one.ask(0, sum(1)));
  REQUIRE(one.server.hold());
  CHECK(one.at(0).read(one.server, rank{0}).empty());
  CHECK(one.at(0).last.seen == 1);
  CHECK(one.server.take_outgoing(rank{1}).empty());
}

TEST_CASE("a host's own decisions do not count as decisions of the controller",
          "[collectives][distributed][order_server][hosts]") {
  host_scene at{{}, {rank{0}, rank{1}}, 2};
  const auto contained = [&at] {
    static_cast<void>(at.at(0).read(at.host, rank{0}));
    return at.at(0).last.controller_batch;
  };
  for (int i = 0; i < 3; ++i)
    for (const int r : {0, 1}) {
      REQUIRE_FALSE(at.at(r).ask(sum(1)));
      REQUIRE_FALSE(at.send(r));
    }
  CHECK(contained() == 0);
  CHECK(at.at(0).last.number > 0);
  decision_writer out{of};
  out.add({.kind = decides::message, .from = process_address{1}, .message = "x"});
  REQUIRE_FALSE(at.decide(0, out));
  CHECK(contained() == 1);
  at.host.begin_with_controller(); // the next one, which counts anew
  CHECK(contained() == 0);
}

TEST_CASE("a record of a world that is not the rank's own is refused",
          "[collectives][distributed][order_server][SEC-2]") {
  server_scene at{3};
  const auto told = at.split({{"pair", {rank{0}, rank{1}}}});
  REQUIRE(told[0].size() == 1);
  CHECK(told[2].empty());
  for (const auto& [from, number] : {std::pair{2, told[0][0].number}, std::pair{1, std::uint64_t{7}}}) {
    at.at(from).out.select(number);
    const error why = at.ask(from, barrier{});
    CHECK(why.code == errc::internal);
    CHECK(why.rank == rank{from});
    CHECK(why.text == "rank " + std::to_string(from) + " has sent a request for world " + std::to_string(number) +
                          ", which does not exist or is not its own");
  }
}

TEST_CASE("facts of a request are refused before the limits, and if it overlaps with a later one",
          "[collectives][distributed][order_server][fusion]") {
  const request_record limits{.kind = asks::limits, .count = 64, .bytes = 1U << 20U};
  const auto refused = [&](bool has_limits, const request_facts& facts) {
    server_scene at;
    if (has_limits) REQUIRE_FALSE(at.send(0, limits));
    REQUIRE_FALSE(at.ask(0, sum(1)));
    const error why = at.ask(0, sum(2), facts);
    if (why) CHECK(why.text == "rank 0 has sent impossible facts of a request");
    return static_cast<bool>(why);
  };
  CHECK(refused(false, {1, 0, 0}));
  CHECK_FALSE(refused(true, {1, 0, 0}));
  CHECK_FALSE(refused(true, {1, 1, 0}));
  CHECK(refused(true, {1, 2, 0}));
  CHECK_FALSE(refused(false, {0, 2, 0})); // it is launched alone
}

TEST_CASE("messages between the releases of a launch do not divide it, and a refusal does",
          "[collectives][distributed][order_server][fusion]") {
  const request_record limits{.kind = asks::limits, .count = 64, .bytes = 1U << 20U};
  server_scene at;
  for (const int r : {0, 1}) REQUIRE_FALSE(at.send(r, limits));
  const std::vector<lane> lanes{lane::named("server a"), lane::named("server b"), lane::named("server c")};
  const auto ask = [&](int r, std::size_t which) {
    REQUIRE_FALSE(at.ask(r, sum(which + 1), {41, 0, 0}, lanes[which]));
  };
  for (const std::size_t which : {0U, 1U, 2U}) ask(0, which);
  ask(1, 0);
  REQUIRE_FALSE(at.send(1, {.kind = asks::message, .to = process_address{0}, .message = "between"}));
  ask(1, 1);
  SECTION("they are launched together") {
    ask(1, 2);
    const auto all = at.read(0);
    CHECK(kinds(all) == std::vector{decides::release, decides::message, decides::release, decides::release});
    CHECK_FALSE(all[0].joins);
    CHECK(all[2].joins);
    CHECK(all[3].joins);
  }
  SECTION("a refusal is between them") {
    REQUIRE_FALSE(at.send(1, {.kind = asks::cancel, .where = lane::named("server d"), .position = 0}));
    REQUIRE_FALSE(at.ask(0, sum(9), {}, lane::named("server e")));
    REQUIRE_FALSE(at.ask(1, sum(8), {}, lane::named("server e")));
    ask(1, 2);
    for (const decision_record& one : at.read(0))
      if (one.kind == decides::release && one.number == 3) CHECK_FALSE(one.joins);
  }
}

TEST_CASE("messages reach ranks that exist, and a rank that has left answers by an empty one",
          "[collectives][distributed][order_server]") {
  server_scene at{3};
  const auto told = at.split({{"pair", {rank{2}, rank{0}}}});
  const std::uint64_t number = told[0].at(0).number;
  const auto message = [](int to, std::string text = "x") {
    return request_record{.kind = asks::message, .to = process_address{to}, .message = std::move(text)};
  };
  SECTION("in the whole world") {
    REQUIRE_FALSE(at.send(0, message(2, "to the last")));
    const auto got = at.read(2);
    REQUIRE(got.size() == 1);
    CHECK(got[0].from == process_address{0});
    CHECK(got[0].message == "to the last");
    CHECK(got[0].world == 0);
    REQUIRE_FALSE(at.send(0, message(0, "to itself")));
    CHECK(at.read(0).size() == 1);
    CHECK(at.send(0, message(3)).text == "rank 0 has sent a message to process 3, which is not in its world");
  }
  SECTION("in a sub-world by its numbers there") {
    at.at(0).out.select(number);
    REQUIRE_FALSE(at.send(0, message(0, "to rank 2")));
    const auto got = at.read(2);
    REQUIRE(got.size() == 1);
    CHECK(got[0].from == process_address{1});
    CHECK(got[0].world == number);
    CHECK(at.read(0).empty());
    SECTION("it has two") {
      CHECK(at.send(0, message(2)).code == errc::internal);
    }
    SECTION("and nobody else") {
      CHECK(at.send(0, message(-1)).code == errc::internal);
    }
  }
  SECTION("to nobody that is attached") {
    REQUIRE_FALSE(at.send(0, message(-1)));
    for (const int r : {0, 1, 2}) CHECK(at.read(r).empty());
  }
  SECTION("to a rank that has left") {
    REQUIRE_FALSE(at.send(2, {.kind = asks::close, .why = {.code = errc::stopping, .text = "done"}}));
    const auto notices = at.read(0);
    REQUIRE(notices.size() == 1);
    CHECK(notices[0].message.empty());
    CHECK(notices[0].from == process_address{2});
    CHECK(kinds(at.read(2)) == std::vector{decides::closed});
    REQUIRE_FALSE(at.send(0, message(2)));
    const auto got = at.read(0);
    REQUIRE(got.size() == 1);
    CHECK(got[0].message.empty());
    CHECK(got[0].from == process_address{2});
    CHECK(at.read(2).empty());
  }
}

TEST_CASE("a request that needs a rank that has left is told which rank left which world",
          "[collectives][distributed][order_server][ONE-1]") {
  server_scene at;
  const std::uint64_t number = at.split(both)[0].at(0).number;
  const error why{.code = errc::stopping, .text = "its work is done"};
  const auto refusal = [&] {
    for (const decision_record& one : at.read(0))
      if (one.kind == decides::refusal) return one.why;
    return error{};
  };
  at.at(0).out.select(number);
  REQUIRE_FALSE(at.ask(0, barrier{}));
  REQUIRE_FALSE(at.send(0, {.kind = asks::turn, .turn = {.name = "mark"}}));
  at.at(1).out.select(number);
  REQUIRE_FALSE(at.send(1, {.kind = asks::close, .why = why}));
  const auto told = at.read(0);
  CHECK(kinds(told) == std::vector{decides::refusal, decides::turn, decides::message});
  for (const std::size_t i : {0U, 1U}) {
    CHECK(told[i].why.text == "rank 1 has left the sub-world 'both': its work is done");
    CHECK(told[i].why.code == errc::stopping);
  }
  CHECK(told[1].why.rank == rank{1});
  REQUIRE_FALSE(at.send(1, {.kind = asks::close, .why = why})); // twice
  CHECK(at.read(0).empty());
  at.at(0).out.select(0);
  at.at(1).out.select(0);
  REQUIRE_FALSE(at.ask(0, barrier{}));
  REQUIRE_FALSE(at.send(1, {.kind = asks::close, .why = why}));
  CHECK(refusal().text == "rank 1 has left the world: its work is done");
}

TEST_CASE("a process without a rank exchanges messages with ranks, and nothing else",
          "[collectives][distributed][order_server][attached][SEC-2]") {
  server_scene at;
  const process_address outside{-1};
  at.server.attach(process_address{0});
  CHECK_FALSE(at.server.receive(process_address{0}, "nothing that can be read"));
  at.server.attach(outside);
  writer one;
  const auto message = [](int to, std::string text) {
    return request_record{.kind = asks::message, .to = process_address{to}, .message = std::move(text)};
  };
  const auto send = [&] { return at.server.receive(outside, one.batch()); };
  one.add(message(0, "first"));
  one.add(message(1, "second"));
  REQUIRE_FALSE(send());
  CHECK(at.read(0).at(0).from == outside);
  CHECK(at.read(1).at(0).message == "second");
  one.add(message(1, "third"));
  REQUIRE_FALSE(send());
  CHECK(at.read(1).at(0).message == "third");
  CHECK(one.read(at.server, outside).empty());
  CHECK(one.last.seen == 2); // of two short batches
  CHECK(one.last.epoch == of);
  REQUIRE_FALSE(at.send(1, message(-1, "answer")));
  CHECK(at.server.waiting_bytes(outside) > 6);
  const auto got = one.read(at.server, outside);
  REQUIRE(got.size() == 1);
  CHECK(got[0].from == process_address{1});
  CHECK(at.server.waiting_bytes(outside) == 0);
  SECTION("to the last rank, and not beyond") {
    one.add(message(2, "x"));
    CHECK_THAT(send().text, ContainsSubstring("a rank that does not exist"));
  }
  SECTION("not to another process without a rank") {
    one.add(message(-1, "x"));
    CHECK_THAT(send().text, StartsWith("a batch of process -1 cannot be read"));
  }
  SECTION("not an empty one") {
    one.add(message(0, ""));
    CHECK_THAT(send().text, ContainsSubstring("it has an empty message"));
    CHECK(at.read(0).empty());
  }
  SECTION("not in a sub-world") {
    static_cast<void>(at.split(both));
    one.out.select(1);
    one.add(message(0, "x"));
    CHECK(send().code == errc::internal);
  }
  SECTION("the next batch of this epoch") {
    CHECK_FALSE(at.server.receive(outside, request_writer{}.take({.epoch = epoch{2}, .number = 7})));
    CHECK_THAT(at.server.receive(outside, request_writer{}.take({.epoch = epoch{4}, .number = 3})).text,
               ContainsSubstring("it is not the next batch of this epoch"));
    CHECK(at.server.receive(outside, request_writer{}.take({.epoch = of, .number = 4})));
    CHECK(at.server.receive(outside, ""));
    CHECK(at.server.take_outgoing(outside).empty());
    CHECK_FALSE(at.server.receive(outside, request_writer{}.take({.epoch = of, .number = 3})));
  }
  SECTION("a rank that leaves is told, and answers by an empty message") {
    REQUIRE_FALSE(at.send(0, {.kind = asks::close, .why = {.code = errc::stopping, .text = "done"}}));
    const auto notice = one.read(at.server, outside);
    REQUIRE(notice.size() == 1);
    CHECK(notice[0].message.empty());
    CHECK(notice[0].from == process_address{0});
    one.add(message(0, "x"));
    one.add(message(1, "y"));
    REQUIRE_FALSE(send());
    CHECK(one.read(at.server, outside).size() == 1);
    CHECK(at.read(1).back().message == "y");
  }
  SECTION("nothing reaches a rank after the end of the order") {
    at.server.close({.code = errc::rebuilding});
    at.read_all();
    const std::uint64_t before = at.server.batches_for(rank{0});
    one.add(message(0, "x"));
    REQUIRE_FALSE(send());
    at.server.detach(outside);
    CHECK(at.server.batches_for(rank{0}) == before);
    CHECK(at.read(0).empty());
    CHECK(at.server.retiring().empty());
  }
}

TEST_CASE("a detached process is retiring until each rank has answered by an empty message",
          "[collectives][distributed][order_server][attached]") {
  server_scene at;
  const process_address outside{-1}, other{-2};
  at.server.attach(outside);
  at.server.attach(other);
  at.server.detach(process_address{-3});
  CHECK(at.server.retiring().empty());
  at.server.detach(outside);
  for (const int r : {0, 1}) {
    const auto told = at.read(r);
    REQUIRE(told.size() == 1);
    CHECK(told[0].from == outside);
    CHECK(told[0].message.empty());
  }
  const auto answer = [&](int from, process_address to, std::string text = {}) {
    REQUIRE_FALSE(at.send(from, {.kind = asks::message, .to = to, .message = std::move(text)}));
  };
  answer(0, outside);
  answer(1, outside, "an answer that was on its way");
  answer(1, other);
  answer(0, outside);
  CHECK(at.server.retiring() == std::vector{outside});
  SECTION("each has") {
    answer(1, outside);
    CHECK(at.server.retiring().empty());
  }
  SECTION("the other one leaves") {
    REQUIRE_FALSE(at.send(1, {.kind = asks::close, .why = {.code = errc::stopping, .text = "done"}}));
    CHECK(at.server.retiring().empty());
    static_cast<void>(at.read(1));
    at.server.detach(other);
    CHECK(at.read(1).empty()); // it has left
    CHECK(at.server.retiring() == std::vector{other});
    answer(0, other);
    CHECK(at.server.retiring().empty());
  }
  SECTION("the epoch ends") {
    at.begin(of.next(), 2);
    CHECK(at.server.retiring().empty());
  }
}

TEST_CASE("a successor expects the farewells to the processes that another controller had admitted",
          "[collectives][distributed][order_server][attached][takeover]") {
  server_scene at;
  const process_address former{-7}, other{-1025};
  at.server.expect_farewells(std::vector{former, other, process_address{1}});
  CHECK(at.server.retiring() == std::vector{other, former});
  const auto answer = [&](int from, process_address to) {
    REQUIRE_FALSE(at.send(from, {.kind = asks::message, .to = to}));
  };
  answer(0, former);
  answer(0, other);
  answer(1, other);
  CHECK(at.server.retiring() == std::vector{former});
  answer(1, former);
  CHECK(at.server.retiring().empty());
}

TEST_CASE("the resume points of a sub-world are kept while the world has its size and the controller decides for it",
          "[collectives][distributed][order_server][resume]") {
  server_scene at{3};
  const std::vector<rank_group> groups{{"low", {rank{0}, rank{1}}}, {"high", {rank{1}, rank{2}}}};
  const auto has_points = [](const std::vector<std::vector<opened_world>>& told) {
    std::vector<bool> all;
    for (const opened_world& one : told.at(1)) all.push_back(one.resume != nullptr);
    return all;
  };
  CHECK(has_points(at.split(groups)) == std::vector{false, false});
  at.begin(epoch{4}, 3);
  CHECK(has_points(at.split(groups)) == std::vector{true, true});
  SECTION("the size changes") {
    at.begin(epoch{5}, 4);
    CHECK(has_points(at.split(groups)) == std::vector{false, false});
    at.begin(epoch{6}, 4);
    CHECK(has_points(at.split(groups)) == std::vector{true, true});
  }
  SECTION("the service of a host decides for one of them") {
    at.begin(epoch{5}, 3);
    at.server.delegate(std::vector{rank{0}, rank{1}});
    at.begin(epoch{6}, 3);
    CHECK(has_points(at.split(groups)) == std::vector{false, true});
  }
  SECTION("the service of the only host decides for all") {
    at.begin(epoch{5}, 3);
    at.server.delegate(std::vector{rank{0}, rank{1}, rank{2}});
    CHECK(at.server.open_operations().empty());
    at.begin(epoch{6}, 3);
    CHECK(has_points(at.split(groups)) == std::vector{false, false});
  }
}

TEST_CASE("values of all sub-worlds of a rank fit into one record when their split is repeated (CUT-1)",
          "[collectives][distributed][order_server][resume][agree]") {
  constexpr std::size_t count = 9; // each could have a mebibyte of values, and a batch has at most eight
  server_scene at;
  std::vector<rank_group> groups;
  for (std::size_t i = 0; i < count; ++i) groups.push_back({"group " + std::to_string(i), {rank{0}, rank{1}}});
  const lane steps = lane::named("server values");
  const auto known = [&](std::size_t group, std::size_t values) {
    told_commits made{.of = of, .lanes = {{.where = steps}}};
    for (std::size_t i = 0; i < values; ++i) {
      auto value = std::make_shared<agreed_value>();
      value->epoch = of;
      value->position = 100 * group + i;
      value->bytes.resize(most_agreed_bytes);
      made.lanes[0].agreed.push_back(std::move(value));
    }
    return made;
  };
  at.begin(epoch{4}, 2);       // of a service that has not recorded the epoch before
  for (const int r : {0, 1}) { // each process knows the values of some groups
    request_record turn{.kind = asks::turn, .turn = {.name = "split", .deadline = 1h, .split = groups}};
    for (std::size_t i = 0; i < count; ++i)
      turn.turn.told.push_back(known(i, (i % 2 == 0) == (r == 0) ? most_kept_value_bytes / most_agreed_bytes : 0));
    REQUIRE_FALSE(at.send(r, std::move(turn)));
  }
  std::optional<std::vector<opened_world>> first;
  for (const int r : {0, 1}) {
    const std::string batch = at.server.take_outgoing(rank{r});
    CHECK(batch.size() <= longest_batch_bytes);
    CHECK(at.server.take_outgoing(rank{r}).empty());
    decision_reader in{2};
    wire_reader wire{batch};
    static_cast<void>(batch_header::read(wire));
    decision_record one;
    REQUIRE(in.next(wire, one));
    REQUIRE(one.opened.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(one.opened[i].resume);
      const resume_point* const point = find_point(*one.opened[i].resume, steps);
      REQUIRE(point);
      CHECK(point->agreed.size() == 1); // of 16, in a ninth of a mebibyte
      CHECK(point->agreed_unlisted == 15);
      if (first)
        CHECK(point->agreed.front()->position == find_point(*(*first)[i].resume, steps)->agreed.front()->position);
    }
    first = std::move(one.opened);
  }
}

TEST_CASE(
    "a rank that is alone in a sub-world and replaces another one is told the last commit, and that it is lost (CUT-1)",
    "[collectives][distributed][order_server][resume]") {
  server_scene at;
  const lane steps = lane::named("server alone");
  const auto split = [&](const std::vector<told_commits>& known) {
    const request_record turn{.kind = asks::turn,
                              .turn = {.name = "split", .split = {{"one", {rank{1}}}}, .told = known}};
    for (const int r : {0, 1}) REQUIRE_FALSE(at.send(r, turn));
    static_cast<void>(at.read(0));
    return at.read(1).at(0).opened.at(0);
  };
  CHECK_FALSE(split({}).resume);
  at.begin(epoch{4}, 2);
  // It has committed by itself, and was directed to form this epoch last.
  const auto known = split({{.of = of, .lanes = {{.where = steps, .seen = 3, .number = 3}}}}).resume;
  REQUIRE(known);
  CHECK(known->has_survivors);
  REQUIRE(find_point(*known, steps));
  CHECK(find_point(*known, steps)->commit == 3);
  at.begin(epoch{5}, 2); // which fails before the process has begun it
  static_cast<void>(split({{.of = epoch{4}, .lanes = {{.where = steps, .number = 3}}}}));
  at.begin(epoch{6}, 2);
  CHECK(split({{.of = epoch{4}, .lanes = {{.where = steps, .number = 3}}}}).resume->has_survivors);
  at.begin(epoch{7}, 2);
  const auto lost = split({});
  REQUIRE(lost.resume);
  CHECK_FALSE(lost.resume->has_survivors);
  REQUIRE(find_point(*lost.resume, steps));
  CHECK(find_point(*lost.resume, steps)->commit == 3);
  at.at(1).out.select(lost.number);
  REQUIRE_FALSE(at.send(1, {.kind = asks::close, .why = {.code = errc::stopping}}));
  at.read_all();
  at.at(1).out.select(0);
  CHECK_FALSE(split({}).resume); // another one
}

TEST_CASE("a group of other ranks has no resume points of one that had its name",
          "[collectives][distributed][order_server][resume]") {
  server_scene at{3};
  static_cast<void>(at.split({{"g", {rank{0}, rank{1}}}}));
  at.begin(epoch{4}, 3);
  CHECK_FALSE(at.split({{"g", {rank{1}, rank{2}}}})[1].at(0).resume);
  at.begin(epoch{5}, 3);
  CHECK_FALSE(at.split({{"g", {rank{1}, rank{0}}}})[1].at(0).resume);
  at.begin(epoch{6}, 3);
  CHECK(at.split({{"g", {rank{0}, rank{1}}}})[1].at(0).resume);
}

TEST_CASE("the controller learns the commits of an epoch in which the service of a host decided",
          "[collectives][distributed][order_server][resume]") {
  server_scene at;
  const auto commit = [&](std::uint64_t number) {
    for (const int r : {0, 1}) REQUIRE_FALSE(at.ask(r, barrier{.commit = number}));
    for (const int r : {0, 1}) REQUIRE_FALSE(at.send(r, 1));
  };
  const auto known = [&] {
    const auto points = at.server.points();
    REQUIRE(points);
    REQUIRE_FALSE(points->lanes.empty());
    return points->lanes.front().commit;
  };
  commit(5);
  at.begin(epoch{4}, 2);
  CHECK(known() == 5);
  SECTION("it decides itself, and knows more") {
    commit(6);
    at.server.learn({.of = epoch{4}, .lanes = {{.where = lane{}, .number = 9}}});
    at.begin(epoch{5}, 2);
    CHECK(known() == 6);
  }
  SECTION("a host decides") {
    at.server.delegate(std::vector{rank{0}, rank{1}});
    at.server.learn({.of = epoch{4}, .lanes = {{.where = lane{}, .number = 9}}});
    at.begin(epoch{5}, 2);
    CHECK(known() == 9);
  }
  SECTION("a rank that is alone decides") {
    at.begin(epoch{5}, 1);
    at.server.learn({.of = epoch{5}, .lanes = {{.where = lane{}, .number = 9}}});
    at.begin(epoch{6}, 2);
    CHECK(known() == 9);
  }
}

TEST_CASE("sub-worlds of equal groups have names of their own, and one that is closed gives its name back",
          "[collectives][distributed][order_server][resume]") {
  server_scene at;
  const auto first = at.split(both), second = at.split(both);
  CHECK(first[0][0].number != second[0][0].number);
  CHECK(first[0][0].number == first[1][0].number);
  const lane where = lane::named("server names");
  for (const int r : {0, 1}) {
    at.at(r).out.select(second[0][0].number);
    REQUIRE_FALSE(at.ask(r, barrier{.commit = 5}, {}, where));
  }
  for (const int r : {0, 1}) REQUIRE_FALSE(at.send(r, {.kind = asks::succeeded, .count = 1}));
  at.begin(epoch{4}, 2);
  const auto lanes = [&] {
    const auto points = at.split(both)[0].at(0).resume;
    return points ? points->lanes.size() : std::size_t{9};
  };
  CHECK(lanes() == 0); // the first
  CHECK(lanes() == 1); // the second
}

TEST_CASE("a report of late ranks names the sub-world, and what each rank has said that it did last",
          "[collectives][distributed][order_server][TIM-1]") {
  server_scene at{2, {.straggling = 1s}};
  const std::uint64_t number = at.split(both)[0].at(0).number;
  const operation_mark launched{"barrier", lane{}, 4}, finished{"barrier", lane{}, 3};
  at.at(1).out.select(number);
  REQUIRE_FALSE(at.send(1, {.kind = asks::progress, .launched = launched, .finished = finished}));
  at.at(0).out.select(number);
  REQUIRE_FALSE(at.ask(0, barrier{}));
  at.server.expire(at.now + 999ms);
  CHECK(at.server.take_straggling().empty());
  at.server.expire(at.now + 1s);
  const auto late = at.server.take_straggling();
  REQUIRE(late.size() == 1);
  CHECK(late[0]->sub_world == "both");
  CHECK(late[0]->what == "barrier");
  REQUIRE(late[0]->ranks.size() == 2);
  CHECK(late[0]->ranks[1].last_launched == launched);
  CHECK(late[0]->ranks[1].last_finished == finished);
  CHECK_FALSE(late[0]->ranks[0].last_launched);
  CHECK(at.server.take_straggling().empty());
  at.server.expire(at.now + 2h);
  const auto told = at.read(0);
  REQUIRE(told.size() == 1);
  CHECK(told[0].why.code == errc::deadline_exceeded);
  REQUIRE(told[0].absence);
  CHECK(told[0].absence->ranks.size() == 2);
  CHECK(told[0].absence->ranks[1].last_launched == launched);
}

TEST_CASE("an operation is open until its rank has finished it, and launched if anything has been since",
          "[collectives][distributed][order_server][hang]") {
  server_scene at;
  for (const int r : {0, 1}) REQUIRE_FALSE(at.ask(r, barrier{}));
  const auto open = at.server.open_operations();
  REQUIRE(open.size() == 1);
  CHECK(open[0].sub_world.empty());
  CHECK(open[0].what.what == "barrier");
  REQUIRE(open[0].ranks.size() == 2);
  for (const auto& one : open[0].ranks) {
    CHECK_FALSE(one.has_launched); // nobody has said so
    CHECK_FALSE(one.has_finished);
  }
  const operation_mark mark{"barrier", lane{}, 0};
  REQUIRE_FALSE(at.send(0, {.kind = asks::progress, .launched = mark}));
  CHECK(at.server.open_operations().at(0).ranks.at(0).has_launched);
  CHECK_FALSE(at.server.open_operations().at(0).ranks.at(1).has_launched);
  REQUIRE_FALSE(at.send(0, {.kind = asks::progress, .launched = mark, .finished = mark}));
  CHECK_FALSE(at.server.open_operations().at(0).ranks.at(0).has_launched); // since the last that has finished
  REQUIRE_FALSE(at.send(1, 1));
  CHECK(at.server.open_operations().at(0).ranks.at(1).has_finished);
  CHECK(at.server.open_operations().at(0).ranks.at(1).has_launched);
  REQUIRE_FALSE(at.send(0, 1));
  CHECK(at.server.open_operations().empty());
}

TEST_CASE("a request of a client that has gone is withdrawn, and a cancelled one is refused",
          "[collectives][distributed][order_server]") {
  server_scene at;
  const lane where = lane::named("server cancel");
  REQUIRE_FALSE(at.at(0).out.ask(barrier{}, where, 7, std::nullopt, 1h));
  REQUIRE_FALSE(at.send(0));
  CHECK(at.server.waiting() == 1);
  REQUIRE_FALSE(at.send(0, {.kind = asks::withdraw, .client = 7, .why = {.code = errc::abandoned, .text = "gone"}}));
  CHECK(at.server.waiting() == 0);
  CHECK(at.read(0).at(0).why.code == errc::abandoned);
}

TEST_CASE("turns that wait when the order ends, and later ones, are refused",
          "[collectives][distributed][order_server]") {
  server_scene at;
  const request_record turn{.kind = asks::turn, .turn = {.name = "the end of maintenance", .deadline = 1h}};
  REQUIRE_FALSE(at.send(0, turn));
  at.server.close({.code = errc::stopping, .text = "the world stops"});
  const auto refusals = [&](int self) {
    std::vector<errc> codes;
    for (const decision_record& one : at.read(self))
      if (one.kind == decides::turn) codes.push_back(one.why.code);
    return codes;
  };
  CHECK(refusals(0) == std::vector{errc::stopping});
  CHECK(refusals(1).empty());
  REQUIRE_FALSE(at.send(1, turn));
  CHECK(refusals(1) == std::vector{errc::stopping});
}

TEST_CASE("the service of a host refuses by the limits of the controller", "[collectives][distributed][order_server]") {
  host_scene at{{.lead = 1}, {rank{0}, rank{1}}, 2};
  const request_record turn{.kind = asks::turn, .turn = {.name = "work", .deadline = 1h}};
  REQUIRE_FALSE(at.send(0, turn));
  REQUIRE_FALSE(at.send(0, turn));
  const auto told = at.at(0).read(at.host, rank{0});
  REQUIRE(told.size() == 1);
  CHECK(told[0].why.code == errc::busy);
  CHECK(told[0].number == 2);
}

TEST_CASE("the service of a host tells the controller at once what can lead to a decision, and the rest in time",
          "[collectives][distributed][order_server][hosts]") {
  host_scene at;
  const auto is_urgent = [&](request_record one) {
    REQUIRE_FALSE(at.send(0, one));
    const auto now = at.told(false);
    if (!now.empty()) {
      REQUIRE(now.at(0).size() == 1);
      CHECK(now.at(0)[0].kind == one.kind);
      CHECK(now.at(0)[0].places == one.places);
      CHECK(at.told(true).empty());
      return true;
    }
    const auto later = at.told(true);
    REQUIRE(later.size() == 1);
    CHECK(later.at(0).at(0).kind == one.kind);
    return false;
  };
  CHECK(at.told(true).empty());
  CHECK_FALSE(is_urgent({.kind = asks::progress, .launched = operation_mark{"barrier", lane{}, 4}}));
  CHECK(is_urgent({.kind = asks::turn, .turn = {.name = "work"}}));
  CHECK(is_urgent({.kind = asks::cancel, .where = lane{}, .position = 2}));
  CHECK(is_urgent({.kind = asks::withdraw, .client = 7, .why = {.code = errc::abandoned}}));
  CHECK(is_urgent({.kind = asks::capture_end, .place = 1}));
  CHECK(is_urgent({.kind = asks::message, .to = process_address{2}, .message = "to another host"}));
  CHECK(is_urgent({.kind = asks::message, .to = process_address{-1}, .message = "to nobody here"}));
  CHECK_FALSE(is_urgent({.kind = asks::limits, .count = 4, .bytes = 8}));
  const operation what = sum(4);
  const operation* const parts[] = {&what};
  CHECK(is_urgent({.kind = asks::capture_launch,
                   .place = 1,
                   .outline = outline_of_launch(parts, true, std::array<std::uint64_t, 1>{9}),
                   .places = {9}}));
  REQUIRE_FALSE(at.at(0).ask(sum(8)));
  REQUIRE_FALSE(at.send(0));
  CHECK(at.told(false).at(0).at(0).kind == asks::ask);
  CHECK(at.headers[0].epoch == of);
  const std::uint64_t number = at.headers[0].number;
  // Successes in the whole world are told in time.
  REQUIRE_FALSE(at.send(0, 1));
  CHECK(at.told(false).empty());
  CHECK(at.told(true).size() == 1);
  CHECK(at.headers[0].succeeded == 1);
  CHECK(at.headers[0].number == number + 1);
  CHECK(at.told(true).empty());
  at.at(0).add({.kind = asks::close, .why = {.code = errc::stopping, .text = "done"}});
  REQUIRE_FALSE(at.send(0, 1));
  CHECK(at.told(false).at(0).at(0).kind == asks::close);
  // Messages within the host do not reach the controller.
  REQUIRE_FALSE(at.send(1, {.kind = asks::message, .to = process_address{0}, .message = "near"}));
  CHECK(at.told(true).empty());
}

TEST_CASE("groups that cannot be are refused by the controller and by the service of a host",
          "[collectives][distributed][order_server][hosts][SEC-2]") {
  const request_record bad{.kind = asks::turn,
                           .turn = {.name = "split", .deadline = 1h, .split = {{"far", {rank{0}, rank{9}}}}}};
  host_scene host;
  server_scene controller{3};
  for (const error& why : {host.send(0, bad), controller.send(0, bad)}) {
    CHECK(why.code == errc::internal);
    CHECK(why.rank == rank{0});
  }
  CHECK(controller.server.next_due() == time_point::max()); // nothing waits
}

TEST_CASE("the service of a host translates the numbers of requests, and passes none on that it decides",
          "[collectives][distributed][order_server][hosts][fusion]") {
  host_scene at;
  const auto send_ask = [&](int from, const request_facts& facts = {}) {
    REQUIRE_FALSE(at.at(from).ask(sum(8), facts));
    REQUIRE_FALSE(at.send(from));
  };
  REQUIRE_FALSE(at.send(0, {.kind = asks::limits, .count = 64, .bytes = 1U << 20U}));
  static_cast<void>(at.told());
  // The ranks of the host split off a world that the host decides, by a turn that the controller grants.
  const request_record split{.kind = asks::turn, .turn = {.name = "split", .deadline = 1h, .split = both}};
  decision_writer down[2] = {decision_writer{of}, decision_writer{of}};
  for (const int r : {0, 1}) {
    REQUIRE_FALSE(at.send(r, split));
    CHECK(at.told().at(r).at(0).turn.split.size() == 1);
    down[r].add({.kind = decides::turn, .number = 1, .opened = {{.number = 5, .group = 0}}});
    REQUIRE_FALSE(at.decide(r, down[r]));
    const auto opened = at.at(r).read(at.host, rank{r});
    REQUIRE(opened.size() == 1);
    CHECK(opened[0].opened.at(0).number == 5);
    CHECK(at.at(r).last.controller_batch == 1);
    at.at(r).out.select(5);
    send_ask(r); // number 1, decided here
    CHECK(at.told().empty());
  }
  CHECK(kinds(at.at(0).read(at.host, rank{0})) == std::vector{decides::release});
  at.at(0).out.select(0);
  send_ask(0, {41, 0, 0}); // number 2, the controller's 1
  CHECK(at.told().at(0).at(0).facts == request_facts{41, 0, 0});
  send_ask(0, {41, 2, 0}); // overlaps with the one before
  CHECK(at.told().at(0).at(0).facts.overlaps == 1);
  down[0].release(2, std::nullopt);
  down[0].refuse(1, {.code = errc::busy}, nullptr);
  REQUIRE_FALSE(at.decide(0, down[0]));
  const auto told = at.at(0).read(at.host, rank{0});
  REQUIRE(told.size() == 2);
  CHECK(told[0].number == 3);
  CHECK(told[1].number == 2);
  CHECK(at.at(0).last.controller_batch == 2);
  down[0].release(2, std::nullopt); // it has been decided
  REQUIRE_FALSE(at.decide(0, down[0]));
  CHECK(at.at(0).read(at.host, rank{0}).at(0).number == 0);
}

TEST_CASE("the service of a host refuses what the controller cannot have decided, and drops what is older",
          "[collectives][distributed][order_server][hosts][SEC-2]") {
  host_scene at;
  const auto send = [&](int to, const std::string& bytes) {
    host_frame frame;
    frame.batches.push_back({rank{to}, bytes});
    return at.host.receive_from_controller(frame);
  };
  const auto batch = [](epoch begun, std::uint64_t number) {
    wire_writer out;
    batch_header{.epoch = begun, .number = number}.write(out);
    return out.take();
  };
  for (const int stranger : {-1, 2, 3}) {
    const error why = send(stranger, batch(of, 1));
    CHECK(why.text == "a batch of decisions for rank " + std::to_string(stranger) +
                          " has arrived at a host that does not have this rank");
    CHECK(why.rank == rank{stranger});
  }
  CHECK_THAT(send(0, batch(epoch{4}, 1)).text, ContainsSubstring("an epoch that has not begun"));
  CHECK_THAT(send(0, batch(of, 2)).text, ContainsSubstring("batches before it are missing"));
  CHECK(send(0, batch(of, 2)).rank == rank{0});
  CHECK(send(0, batch(of, 1).substr(0, 2)).code == errc::internal);
  CHECK_FALSE(send(0, batch(epoch{2}, 9)));
  CHECK_FALSE(send(0, batch(of, 1)));
  CHECK(send(0, batch(of, 1)));
  CHECK_FALSE(send(0, batch(of, 2)));
  // Worlds that the rank is not in: it reports them itself.
  decision_writer out{of};
  static_cast<void>((out.release(1, 0), out.take()));
  static_cast<void>((out.release(1, 0), out.take()));
  out.add({.kind = decides::closed, .world = 9});
  out.add({.kind = decides::turn, .number = 1, .opened = {{.number = 5, .group = 0}}});
  out.add({.kind = decides::turn, .world = 8, .number = 1, .opened = {{.number = 5, .group = 0}}});
  out.add({.kind = decides::capture, .number = 1, .agreed = 2});
  out.add({.kind = decides::message, .from = process_address{2}, .message = "far"});
  out.add({.kind = decides::ending, .why = {.code = errc::rebuilding, .text = "over"}});
  REQUIRE_FALSE(at.decide(0, out));
  const auto told = at.at(0).read(at.host, rank{0});
  CHECK(kinds(told) == std::vector{decides::closed, decides::turn, decides::turn, decides::capture, decides::message,
                                   decides::ending});
  CHECK(at.at(0).last.controller_batch == 3);
}

TEST_CASE("the service of a host knows of detached processes only in a world that it decides",
          "[collectives][distributed][order_server][hosts][attached]") {
  const request_record farewell{.kind = asks::message, .to = process_address{-1}};
  host_scene part, whole{{}, {rank{0}, rank{1}}, 2};
  REQUIRE_FALSE(part.send(0, farewell));
  CHECK(part.host.retiring().empty());
  CHECK(part.told().at(0).size() == 1);
  REQUIRE_FALSE(whole.send(0, farewell));
  CHECK(whole.host.retiring().size() == 1);
  CHECK(whole.told().at(0).size() == 1);
  REQUIRE_FALSE(whole.send(1, farewell));
  CHECK(whole.host.retiring().empty());
}

TEST_CASE("ranks forget the processes that another controller had admitted, and the next one hears of it",
          "[collectives][distributed][order_server][hosts][attached][takeover]") {
  host_scene at{{}, {rank{0}, rank{1}}, 2};
  const process_address detached{-1}, present{-2}, silent{-3};
  std::vector<decision_writer> down(2, decision_writer{of});
  const auto pass = [&](int to, process_address from, std::string text = {}) {
    down[static_cast<std::size_t>(to)].add({.kind = decides::message, .from = from, .message = std::move(text)});
    REQUIRE_FALSE(at.decide(to, down[static_cast<std::size_t>(to)]));
  };
  const auto say_farewell = [&](int from, process_address to) {
    REQUIRE_FALSE(at.send(from, {.kind = asks::message, .to = to}));
  };
  pass(0, detached, "a request");
  pass(1, present, "a request");
  CHECK(at.host.retiring() == std::vector{present, detached});
  pass(0, silent); // it has asked for nothing
  for (const int r : {0, 1}) pass(r, detached);
  CHECK(at.host.retiring() == std::vector{detached, present});
  say_farewell(0, detached);
  for (const int r : {0, 1}) static_cast<void>(at.at(r).read(at.host, rank{r}));
  static_cast<void>(at.told()); // the former controller hears it

  at.host.begin_with_controller();
  at.readers.clear();
  CHECK(at.host.retiring() == std::vector{present, detached});
  for (const int r : {0, 1}) {
    const auto told = at.at(r).read(at.host, rank{r});
    REQUIRE(told.size() == 1);
    CHECK(told[0].from == present);
    CHECK(told[0].message.empty());
  }
  const auto heard = at.told();
  REQUIRE(heard.size() == 1);
  REQUIRE(heard.at(0).size() == 1);
  CHECK(heard.at(0)[0].to == detached);
  CHECK(heard.at(0)[0].message.empty());
  say_farewell(1, detached);
  CHECK(at.host.retiring() == std::vector{present});
  for (const int r : {0, 1}) say_farewell(r, present);
  CHECK(at.host.retiring().empty());
}

TEST_CASE("the controller decides nothing for worlds within a host, and tells its ranks which of its groups they are",
          "[collectives][distributed][order_server][hosts]") {
  server_scene at{3};
  at.begin(of, 3);
  at.server.delegate(std::vector{rank{0}, rank{1}});
  const auto told = at.split({{"near", {rank{1}, rank{0}}}, {"far", {rank{1}, rank{2}}}});
  REQUIRE(told[1].size() == 2);
  CHECK(told[1][0].group == 0);
  CHECK(told[1][1].group == 1);
  CHECK(told[2].at(0).group == 1);
  CHECK(told[2].at(0).number == told[1][1].number);
  at.at(0).out.select(told[0].at(0).number);
  const error why = at.ask(0, barrier{});
  CHECK(why.code == errc::internal);
  CHECK(why.text == "rank 0 has sent the controller a request for world " + std::to_string(told[0][0].number) +
                        ", for which the order service of its host decides");
  at.at(1).out.select(told[1][1].number);
  CHECK_FALSE(at.ask(1, barrier{}));
  for (const int r : {0, 1}) at.at(r).out.select(0);
  at.server.delegate(std::vector{rank{2}, rank{7}, rank{-1}}); // another host
  const auto next = at.split({{"far", {rank{1}, rank{2}}}});
  CHECK(next[2].size() == 1);
}

TEST_CASE("after the end of an order everything is refused with its reason, and each batch is counted",
          "[collectives][distributed][order_server]") {
  server_scene at{3};
  at.server.delegate(std::vector{rank{2}});
  REQUIRE_FALSE(at.ask(0, barrier{}));
  at.read_all();
  at.server.close({.code = errc::rebuilding, .text = "first"});
  at.server.close({.code = errc::stopping, .text = "second"});
  const auto told = at.read(0);
  CHECK(kinds(told) == std::vector{decides::ending, decides::refusal});
  for (const decision_record& one : told) CHECK(one.why.text == "first");
  CHECK(kinds(at.read(2)) == std::vector{decides::ending});
  CHECK(at.server.batches_for(rank{2}) == 1); // by which its service can tell when it has all decisions
  REQUIRE_FALSE(at.ask(1, barrier{}));
  CHECK(kinds(at.read(1)) == std::vector{decides::ending, decides::refusal});
  REQUIRE_FALSE(at.send(1, {.kind = asks::turn, .turn = {.name = "work"}}));
  const auto turn = at.read(1);
  REQUIRE(kinds(turn) == std::vector{decides::turn});
  CHECK(turn[0].why.text == "first");
  at.begin(of.next(), 3);
  REQUIRE_FALSE(at.send(1, {.kind = asks::turn, .turn = {.name = "work", .deadline = 1h}}));
  CHECK(at.server.next_due() == at.now + 1h);
  at.server.expire(at.now + 1h);
  CHECK(kinds(at.read(1)) == std::vector{decides::turn});
}

TEST_CASE("nothing behind a refused record in its batch is read", "[collectives][distributed][order_server][SEC-2]") {
  server_scene at;
  at.at(0).out.select(7);
  REQUIRE_FALSE(at.at(0).ask(barrier{}));
  at.at(0).out.select(0);
  CHECK(at.ask(0, barrier{}).code == errc::internal);
  CHECK(at.server.waiting() == 0);
}

TEST_CASE("nothing joins a launch across the end of a rank's part in another world",
          "[collectives][distributed][order_server][fusion][ORD-1]") {
  server_scene at;
  const std::uint64_t number = at.split(both)[0].at(0).number;
  for (const int r : {0, 1}) REQUIRE_FALSE(at.send(r, {.kind = asks::limits, .count = 64, .bytes = 1U << 20U}));
  const auto ask = [&](int r, std::size_t which) {
    REQUIRE_FALSE(at.ask(r, sum(which), {41, 0, 0}, lane::named("server left " + std::to_string(which))));
  };
  for (const std::size_t which : {1U, 2U, 3U}) ask(0, which);
  ask(1, 1);
  ask(1, 2);
  at.at(1).out.select(number);
  REQUIRE_FALSE(at.send(1, {.kind = asks::close, .why = {.code = errc::stopping, .text = "done"}}));
  at.at(1).out.select(0);
  ask(1, 3);
  for (const int r : {0, 1}) {
    std::vector<bool> joins;
    for (const decision_record& one : at.read(r))
      if (one.kind == decides::release) joins.push_back(one.joins);
    CHECK(joins == std::vector{false, true, false});
  }
}

TEST_CASE("successes of a sub-world never decrease", "[collectives][distributed][order_server][SEC-2]") {
  server_scene at;
  const std::uint64_t number = at.split(both)[0].at(0).number;
  for (const int r : {0, 1}) {
    at.at(r).out.select(number);
    REQUIRE_FALSE(at.ask(r, barrier{}));
  }
  REQUIRE_FALSE(at.send(0, {.kind = asks::succeeded, .count = 1}));
  CHECK(at.send(0, {.kind = asks::succeeded, .count = 0}).code == errc::internal);
}

} // namespace troupe::tests::order_server_test
