// Which requests of processes are launched together: what each rank tells, and what the controller decides.
#include "processes/order/distributed_rig.hpp"

#include <troupe/processes/order/fusion_facts.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <random>
#include <set>

namespace troupe::tests::fusion_facts_test {

using Catch::Matchers::ContainsSubstring;

namespace {

const fusion_limits freely{.mode = fusion::free};

/// A rank's memory, of which operations use parts.
struct memory_scene {
  explicit memory_scene() : rig{2}, memory{rig.rig.numbers(0, 4096, 1)} {}

  /// An all_reduce of \p count numbers, from and to the given places.
  [[nodiscard]] operation sum(std::size_t from, std::size_t to, std::size_t count) const {
    constexpr std::size_t width = sizeof(std::int32_t);
    return all_reduce{.send = memory.slice(from * width, count * width),
                      .recv = memory.slice(to * width, count * width),
                      .count = count,
                      .type = dtype::i32};
  }

  ordering_rig rig;
  buffer memory;
};

/// Ranks that ask with facts, in lanes of their own so that nothing waits for another request.
struct fusing_rig : distributed_rig {
  explicit fusing_rig(int size, const fusion_limits& fused = freely) : distributed_rig{size, {}, fused} {}

  /// As deliver_all(), with what waits for the launchers.
  void deliver_everything() {
    const auto is_on_its_way = [this] {
      const std::lock_guard lock{sending};
      return std::ranges::any_of(up, [](const auto& line) { return !line.empty(); });
    };
    do {
      deliver_all();
      settle();
    } while (is_on_its_way());
  }
  /// Each rank asks for \p count sums, of 1, 2, ... numbers.
  std::vector<outcome_log> ask_many(std::size_t count) {
    std::vector<outcome_log> logs;
    for (std::size_t i = 0; i < count; ++i)
      for (int r = 0; r < size(); ++r)
        logs.push_back(ask(r, lane::named("fusing " + std::to_string(i)), add(r, 1 + i)));
    return logs;
  }
};

} // namespace

TEST_CASE("a request overlaps with the last earlier one that shares memory which one of them writes",
          "[collectives][distributed][fusion]") {
  const memory_scene scene;
  fusion_examiner one{rank{0}, 2, freely};
  CHECK(one.examine(scene.sum(0, 100, 10), 5, 4) == request_facts{41, 0, 0});
  CHECK(one.examine(scene.sum(0, 200, 10), 6, 4).overlaps == 0);   // both only read
  CHECK(one.examine(scene.sum(300, 0, 10), 7, 4).overlaps == 6);   // writes what 5 and 6 read
  CHECK(one.examine(scene.sum(100, 400, 10), 8, 4).overlaps == 5); // reads what 5 writes
  CHECK(one.examine(scene.sum(100, 110, 10), 9, 4).overlaps == 5);
  CHECK(one.examine(scene.sum(100, 500, 10), 10, 5).overlaps == 0); // 5 has been decided
}

TEST_CASE("a request that cannot share a launch has no facts, and later ones are not compared with it",
          "[collectives][distributed][fusion]") {
  const memory_scene scene;
  fusion_limits small = freely;
  small.max_operation_bytes = 100;
  fusion_examiner one{rank{0}, 2, small};
  CHECK(one.examine(barrier{}, 1, 0) == request_facts{});
  CHECK(one.examine(scene.sum(0, 100, 26), 2, 0) == request_facts{});
  CHECK(one.examine(scene.sum(0, 0, 25), 3, 0) == request_facts{101, 0, 0});
  one.forget(3); // it was refused, and the next request has its number
  CHECK(one.examine(scene.sum(0, 0, 25), 3, 0) == request_facts{101, 0, 0});
  CHECK(one.examine(scene.sum(0, 0, 25), 4, 0).overlaps == 3);
}

TEST_CASE("requests behind more than can be compared count as overlapping with the older ones",
          "[collectives][distributed][fusion]") {
  const memory_scene scene;
  fusion_examiner one{rank{0}, 2, freely};
  constexpr std::uint64_t window = 128;
  for (std::uint64_t i = 1; i <= window; ++i) CHECK(one.examine(scene.sum(i, i, 1), i, 0).overlaps == 0);
  CHECK(one.examine(scene.sum(0, 0, 1), window + 1, 0).overlaps == 0);
  CHECK(one.examine(scene.sum(1, 1, 1), window + 2, 0).overlaps == 1); // the first is not known any more
  CHECK(one.examine(scene.sum(3, 3, 1), window + 3, 0).overlaps == 3);
}

TEST_CASE("ready events are named, not queried", "[collectives][distributed][fusion]") {
  const memory_scene scene;
  fusion_examiner one{rank{0}, 2, freely};
  const auto waiting = [&](const shared_event& ready, std::size_t at) {
    auto what = std::get<all_reduce>(scene.sum(at, at, 1));
    what.send.ready = ready;
    return operation{what};
  };
  const stream client{scene.rig.rig.devices[0]};
  const shared_event first = record_event(scene.rig.rig.devices[0], client.ref()),
                     second = record_event(scene.rig.rig.devices[0], client.ref());
  const auto a = one.examine(waiting(first, 0), 1, 0).events;
  CHECK(a != 0);
  CHECK(one.examine(waiting(first, 1), 2, 0).events == a);
  CHECK(one.examine(waiting(second, 2), 3, 0).events != a);
  CHECK(one.examine(scene.sum(4, 4, 1), 4, 0).events == 0);
}

TEST_CASE("requests that are released together are launched together, the same at all ranks (ORD-1)",
          "[collectives][sequencing][distributed][fusion][ORD-1]") {
  fusing_rig one{3};
  const auto logs = one.ask_many(9);
  one.deliver_everything();
  one.finish();
  for (const outcome_log& each : logs) CHECK_FALSE(each.failure());
  CHECK(*one.notes[0] == *one.notes[1]);
  CHECK(*one.notes[0] == *one.notes[2]);
  CHECK(one.notes[0]->size() < 9);
  CHECK(one.notes[0]->front() == "a all_reduce of 1 i32, sum"); // nothing else was undecided when it was asked for
}

TEST_CASE("a lone request is told as without fusion", "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2}, other{2, {.mode = fusion::off}};
  for (fusing_rig* const each : {&one, &other}) {
    each->ask(0, each->add(0, 4));
    each->ask(1, each->add(1, 4));
    each->deliver_everything();
    each->finish();
    each->ask(0, each->add(0, 4)); // the one before has been decided
  }
  REQUIRE(one.up[0].size() == 1);
  REQUIRE(other.up[0].size() == 1);
  CHECK(one.up[0].front().size() == other.up[0].front().size());
}

TEST_CASE("without fusion nothing is told, and each request is launched by itself",
          "[collectives][sequencing][distributed][fusion]") {
  for (const fusion mode : {fusion::off, fusion::plans}) {
    fusing_rig one{2, {.mode = mode}};
    const auto logs = one.ask_many(9);
    one.deliver_everything();
    one.finish();
    CHECK(one.notes[0]->size() == 9);
  }
}

TEST_CASE("requests that share memory are launched one behind the other",
          "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2};
  std::vector<buffer> memory{one.memory(0, 64), one.memory(1, 64)};
  std::vector<outcome_log> logs;
  for (std::size_t i = 0; i < 6; ++i)
    for (int r = 0; r < 2; ++r) {
      const buffer& mine = memory[static_cast<std::size_t>(r)];
      logs.push_back(one.ask(r, lane::named("sharing " + std::to_string(i)),
                             all_reduce{.send = mine, .recv = mine, .count = 1 + i, .type = dtype::i32}));
    }
  one.deliver_everything();
  one.finish();
  CHECK(one.notes[0]->size() == 6);
  CHECK(*one.notes[0] == *one.notes[1]);
}

TEST_CASE("however ranks ask, launches are composed alike, and never of requests that overlap (ORD-1)",
          "[collectives][sequencing][distributed][fusion][ORD-1]") {
  std::mt19937 random{23};
  const auto draw = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  std::size_t fused = 0;
  for (int round = 0; round < 30; ++round) {
    fusing_rig one{3};
    constexpr std::size_t lanes = 6, each = 8, places = 12;
    // The k-th request of a lane uses one of few places of memory, another one at each rank.
    std::vector<buffer> memory;
    for (int r = 0; r < 3; ++r) memory.push_back(one.memory(r, places * 64));
    std::vector<std::vector<std::size_t>> place(3, std::vector<std::size_t>(lanes * each));
    for (auto& all : place)
      for (std::size_t& at : all) at = draw(places);
    std::vector<std::vector<std::size_t>> next(3, std::vector<std::size_t>(lanes));
    std::vector<outcome_log> logs;
    for (std::size_t left = 3 * lanes * each; left > 0;) {
      const std::size_t r = draw(3), l = draw(lanes);
      std::size_t& k = next[r][l];
      if (k == each) continue;
      const std::size_t name = l * each + k++; // also the number of elements, less one
      constexpr std::size_t size_of_place = 64 * sizeof(std::int32_t);
      const buffer mine = memory[r].slice(place[r][name] * size_of_place, size_of_place);
      logs.push_back(one.ask(static_cast<int>(r), lane::named("composed " + std::to_string(l)),
                             all_reduce{.send = mine, .recv = mine, .count = 1 + name, .type = dtype::i32}));
      --left;
      while (draw(4) == 0) one.deliver_up(static_cast<int>(draw(3)));
      while (draw(4) == 0) one.deliver_down(static_cast<int>(draw(3)));
    }
    one.deliver_everything();
    one.finish();
    for (const outcome_log& log : logs) CHECK_FALSE(log.failure());
    CHECK(*one.notes[0] == *one.notes[1]);
    CHECK(*one.notes[0] == *one.notes[2]);
    for (const std::string& launch : *one.notes[0]) {
      std::vector<std::size_t> names;
      for (std::size_t at = 0; (at = launch.find("all_reduce of ", at)) != std::string::npos; ++at)
        names.push_back(std::stoul(launch.substr(at + 14)) - 1);
      fused += names.size() - 1;
      for (const auto& of_rank : place) {
        std::set<std::size_t> used;
        for (const std::size_t name : names) CHECK(used.insert(of_rank[name]).second);
      }
    }
  }
  CHECK(fused > 100);
}

TEST_CASE("requests that may be launched together wait while the launcher is busy, and others do not",
          "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2};
  auto stopped = one.stop(0);
  auto logs = one.ask_many(3);
  one.deliver_all(); // launches wait for rank 0's launcher
  REQUIRE(one.rig.ranks[0]->unlaunched() >= 2);
  const auto undecided = one.ask(0, lane::named("fusing undecided"), one.add(0, 100)); // nothing else is undecided
  CHECK(one.up[0].size() == 1);
  one.up[0].clear();
  const operation sum = one.add(0, 101);
  const auto waits = one.ask(0, lane::named("fusing waits"), sum);
  CHECK(one.up[0].empty());
  SECTION("until one of them overlaps with another, so that they cannot be launched together") {
    const auto apart = one.ask(0, lane::named("fusing apart"), one.add(0, 102));
    CHECK(one.up[0].empty());
    const auto overlaps = one.ask(0, lane::named("fusing overlaps"), sum);
    CHECK(one.up[0].size() == 1);
  }
  SECTION("until something else is sent") {
    one.turn(0, [] {});
    CHECK(one.up[0].size() == 1);
  }
  SECTION("until a message is sent") {
    one.orders[0]->peers()->renew(1);
    CHECK(one.up[0].size() == 1);
  }
  SECTION("until the controller is told of progress") {
    one.links[0]->tell_progress();
    CHECK(one.up[0].size() == 1);
  }
  SECTION("until the launcher has fewer launches") {
    const std::uint64_t before = one.links[0]->sent();
    stopped.go();
    for (const auto until = steady_now() + 20s; one.links[0]->sent() == before && steady_now() < until;)
      std::this_thread::yield();
    one.settle();
    CHECK(one.up[0].size() == 1);
  }
  stopped.go();
  one.settle();
  for (const auto& link : one.links) link->close({.code = errc::stopping, .text = "the test is over"});
  CHECK(undecided.failure().code == errc::stopping);
  CHECK(waits.failure().code == errc::stopping);
}

TEST_CASE("after requests have waited in vain, some do not wait", "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2};
  auto stopped = one.stop(0);
  const auto logs = one.ask_many(3);
  one.deliver_all(); // launches wait for rank 0's launcher
  REQUIRE(one.rig.ranks[0]->unlaunched() >= 2);
  const auto is_sent = [&] { // and acknowledged
    const bool found = one.deliver_up(0);
    if (found) static_cast<void>(one.deliver_down(0)); // every second one
    CHECK(one.up[0].empty());
    return found;
  };
  int names = 0;
  const auto ask = [&](const operation& what) {
    static_cast<void>(one.ask(0, lane::named("forecast " + std::to_string(++names)), what));
    return is_sent();
  };
  const operation sum = one.add(0, 101);
  CHECK(ask(one.add(0, 100))); // nothing else is undecided
  for (const int alone : {1, 3, 7}) {
    CHECK_FALSE(ask(sum));
    CHECK(ask(sum)); // it overlaps, so the one before has waited in vain
    for (int i = 0; i < alone; ++i) CHECK(ask(one.add(0, 5)));
  }
  CHECK_FALSE(ask(sum));
  CHECK_FALSE(ask(one.add(0, 5))); // it joins
  one.turn(0, [] {});
  CHECK(is_sent());
  CHECK_FALSE(ask(sum));
}

TEST_CASE("a launcher that is free after the end of an order sends nothing for it",
          "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2};
  auto stopped = one.stop(0);
  auto logs = one.ask_many(3);
  one.deliver_all();
  logs.push_back(one.ask(0, lane::named("fusing undecided"), one.add(0, 100)));
  logs.push_back(one.ask(0, lane::named("fusing waits"), one.add(0, 101)));
  one.orders.clear();
  one.links.clear();
  CHECK(logs.back().failure().code == errc::abandoned);
  one.up[0].clear();
  stopped.go();
  one.finish();
  CHECK(one.up[0].empty());
}

TEST_CASE("transfers of one rank that one group of a peer meets are launched one after the other, in any memory",
          "[collectives][sequencing][distributed][fusion][ORD-1][ONE-1]") {
  fusing_rig one{2};
  const auto& gpu = one.rig.devices[1];
  const buffer to = GENERATE(false, true) ? allocate_pinned(gpu, 16) : one.memory(1, 4);
  std::vector<outcome_log> logs;
  logs.push_back(one.ask(0, group{{one.pass(0, 1, 4, 0), one.pass(0, 1, 4, 1)}}));
  for (const int tag : {0, 1})
    logs.push_back(one.ask(1, recv{to, 4, dtype::i32, rank{0}, tag})); // the second overwrites what the first received
  one.deliver_everything();
  one.finish();
  for (const outcome_log& log : logs) CHECK_FALSE(log.failure());
  CHECK(one.notes[0]->size() == 1);
  CHECK(one.notes[1]->size() == 2);
}

TEST_CASE("nothing joins a launch across a turn", "[collectives][sequencing][distributed][fusion][ORD-1]") {
  fusing_rig one{2};
  std::vector<outcome_log> logs;
  for (int r = 0; r < 2; ++r) {
    one.ask(r, lane::named("fusing first"), one.add(r, 1));
    for (std::size_t i = 0; i < 3; ++i) one.ask(r, lane::named("fusing " + std::to_string(i)), one.add(r, 10 + i));
    one.turn(r, [&one, r] {
      one.rig.ranks[static_cast<std::size_t>(r)]->sequence(
          [&one, r](rank_pipeline&) { one.notes[static_cast<std::size_t>(r)]->push_back("turn"); });
    });
    for (std::size_t i = 0; i < 3; ++i)
      logs.push_back(one.ask(r, lane::named("fusing " + std::to_string(i)), one.add(r, 20 + i)));
  }
  one.deliver_everything();
  one.finish();
  CHECK(*one.notes[0] == *one.notes[1]);
  const launch_notes& all = *one.notes[0];
  const auto turn = std::ranges::find(all, "turn");
  REQUIRE(turn != all.end());
  CHECK(code_of_all(logs) == errc::none);
  for (auto at = all.begin(); at != turn; ++at) CHECK_THAT(*at, !ContainsSubstring("all_reduce of 2"));
  for (auto at = turn; at != all.end(); ++at) CHECK_THAT(*at, !ContainsSubstring("all_reduce of 1"));
}

TEST_CASE("facts that cannot be are refused by either end", "[collectives][distributed][fusion][wire]") {
  fusing_rig one{2};
  request_writer forged;
  CHECK_FALSE(forged.ask(one.add(0, 1), {}, 0, {}, 1s, {5, 0, 0})); // without limits
  CHECK_THAT(one.keeper.receive(rank{0}, forged.take({.epoch = rig_epoch, .number = 1}), one.time->now()).text,
             ContainsSubstring("impossible facts of a request"));
  request_writer later;
  later.add({.kind = request_record::form::limits, .count = 64, .bytes = 1U << 20U});
  CHECK_FALSE(later.ask(one.add(1, 1), {}, 0, {}, 1s, {5, 1, 0})); // overlaps with itself
  CHECK_THAT(one.keeper.receive(rank{1}, later.take({.epoch = rig_epoch, .number = 1}), one.time->now()).text,
             ContainsSubstring("impossible facts of a request"));
  const auto log = one.ask(0, one.add(0, 4));
  decision_writer out{rig_epoch};
  out.release(1, 0, true);
  CHECK_THAT(one.links[0]->receive(out.take()).text, ContainsSubstring("together with one that is not before it"));
}

TEST_CASE("releases that are launched together are in one batch", "[collectives][wire][fusion]") {
  decision_writer out{rig_epoch};
  const error why{.code = errc::busy, .text = std::string(4000, 'x')};
  std::uint64_t number = 0;
  for (int i = 0; i < 700; ++i) {
    out.refuse(++number, why, nullptr);
    out.release(++number, 0);
    out.release(++number, 0, true);
  }
  std::size_t batches = 0, joining = 0;
  for (std::string batch; !(batch = out.take()).empty(); ++batches) {
    wire_reader in{batch};
    static_cast<void>(batch_header::read(in));
    decision_reader reader{2};
    decision_record one;
    bool follows_release = false;
    while (reader.next(in, one)) {
      const bool is_release = one.kind == decision_record::form::release;
      if (is_release && one.joins) {
        CHECK(follows_release);
        ++joining;
      }
      follows_release = is_release;
    }
    CHECK_FALSE(in.failure("a batch"));
  }
  CHECK(batches > 1);
  CHECK(joining == 700);
}

TEST_CASE("requests are not compared with one that was too long to be sent",
          "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2, {.mode = fusion::free, .max_operation_bytes = std::size_t{1} << 20U}};
  const auto first = one.ask(0, lane::named("fusing first"), one.add(0, 4)); // the next ones have facts
  const operation sum = one.add(0, 1);
  const auto refused = one.ask(0, lane::named("fusing next"), group{std::vector(most_outline_parts + 1, sum)});
  CHECK(refused.failure().code == errc::invalid_argument);
  const auto next = one.ask(0, lane::named("fusing next"), sum); // in the same memory
  while (one.deliver_up(0)) {
    CHECK_FALSE(one.refused_above);
    one.deliver_down(0);
  }
  CHECK(one.keeper.waiting() == 2);
}

TEST_CASE("the limits of a launch are told once, before the first facts",
          "[collectives][sequencing][distributed][fusion]") {
  fusing_rig one{2};
  for (std::size_t i = 0; i < 4; ++i) one.ask(0, lane::named("fusing " + std::to_string(i)), one.add(0, 1 + i));
  std::vector<request_record::form> kinds;
  request_reader reader;
  for (bool has_more = true; has_more; has_more = one.deliver_up(0)) {
    static_cast<void>(one.deliver_down(0)); // acknowledgements, with which held batches are sent
    if (one.up[0].empty()) continue;
    wire_reader in{one.up[0].front()};
    static_cast<void>(batch_header::read(in));
    for (request_record record; reader.next(in, record);) kinds.push_back(record.kind);
  }
  using form = request_record::form;
  CHECK(kinds == std::vector{form::ask, form::limits, form::ask, form::ask, form::ask});
}

TEST_CASE("decisions join only a release of their batch with none of another kind between them",
          "[collectives][sequencing][distributed][fusion][SEC-2]") {
  const auto refusal = [](const auto& between) {
    distributed_rig one{2};
    const std::vector logs{one.ask(0, one.add(0, 4)), one.ask(0, lane::named("joining"), one.add(0, 5))};
    decision_writer out{rig_epoch};
    out.release(1, 0);
    between(one, out);
    out.release(2, 0, true);
    const error why = one.links[0]->receive(out.take());
    one.links[0]->close({.code = errc::stopping});
    one.finish();
    for (const outcome_log& log : logs) CHECK(log.count() == 1);
    CHECK(one.notes[0]->size() == 1);
    CHECK((logs[1].failure().code == errc::stopping) == static_cast<bool>(why));
    return why.text;
  };
  CHECK(refusal([](auto&, auto&) {}).empty());
  CHECK(refusal([](auto&, decision_writer& out) {
          out.add({.kind = decision_record::form::message, .from = process_address{1}, .message = "?"});
        }).empty());
  CHECK_THAT(refusal([](auto&, decision_writer& out) {
               out.add({.kind = decision_record::form::ending, .why = {.code = errc::rebuilding, .text = "over"}});
             }),
             ContainsSubstring("together with one that is not before it"));
  CHECK_THAT(
      refusal([](distributed_rig& one, decision_writer& out) { REQUIRE_FALSE(one.links[0]->receive(out.take())); }),
      ContainsSubstring("together with one that is not before it"));
}

TEST_CASE("ready events have one name in whatever order a request has them", "[collectives][distributed][fusion]") {
  const memory_scene scene;
  fusion_examiner one{rank{0}, 2, freely};
  const stream client{scene.rig.rig.devices[0]};
  const shared_event first = record_event(scene.rig.rig.devices[0], client.ref()),
                     second = record_event(scene.rig.rig.devices[0], client.ref());
  const auto waiting = [&](const shared_event& send, const shared_event& recv, std::size_t at) {
    auto what = std::get<all_reduce>(scene.sum(at, at + 10, 1));
    what.send.ready = send;
    what.recv.ready = recv;
    return operation{what};
  };
  const auto name = one.examine(waiting(first, second, 0), 1, 0).events;
  CHECK(name != 0);
  CHECK(one.examine(waiting(second, first, 1), 2, 0).events == name);
}

} // namespace troupe::tests::fusion_facts_test
