// Requests of one process to the ranks of all (ONE-1, ORD-2, BUF-2): remote buffers, objections, the end of a rank.
#include "processes/order/distributed_rig.hpp"

#include <troupe/processes/order/attached_order.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Ranks in processes of their own, each of which serves the others.
struct peers_rig : distributed_rig {
  explicit peers_rig(int size, const std::vector<host_ranks>& of_hosts = {}, bool serves = true)
    : distributed_rig{size, {}, {.mode = fusion::off}, of_hosts} {
    for (int r = 0; r < size && serves; ++r) serve(r);
  }
  void serve(int self) {
    const auto index = static_cast<std::size_t>(self);
    rank_services services;
    services.ask = [this, self, index](rank_request asked, error objection, reply_promise reply, std::uint64_t client) {
      if (!objection) objection = validate(asked.what, rig.ranks[index]->context());
      if (objection && !objection.rank) objection.rank = rank{self};
      orders[index]->ask(rank{self}, {.what = std::move(asked.what),
                                      .name = ticket{++name},
                                      .deadline = asked.deadline,
                                      .reply = std::move(reply),
                                      .where = asked.lane,
                                      .client = client,
                                      .objection = objection ? std::make_unique<error>(objection) : nullptr});
    };
    names[index] = std::make_shared<plan_directory>();
    services.here = {.memory = exports[index], .plans = names[index]};
    services.lend = [this, index](lent_kind what, std::size_t size_bytes, const rank_services::lent& done) {
      if (what != lent_kind::memory) return done({}, {.code = errc::missing, .text = "no such report here"});
      done(memory(static_cast<int>(index), size_bytes / sizeof(std::int32_t)), {});
    };
    services.capture = [this, index](std::vector<operation> steps, plan_options options, error objection,
                                     const rank_services::captured& done) {
      captured[index] = std::move(steps);
      if (objection) return done(nullptr, objection);
      auto plan = std::make_shared<captured_plan>([](rank_capture&) {}, std::move(options));
      plans[index] = plan;
      names[index]->add(plan);
      done(std::move(plan), {});
    };
    orders[index]->peers()->serve(std::move(services));
  }
  remote_buffer exported(int self, const buffer& memory) {
    return exports[static_cast<std::size_t>(self)]->add(rank{self}, memory);
  }
  outcome_log ask_whole(int by, std::vector<operation> parts, nanoseconds deadline = 1h) {
    outcome_log log;
    orders[static_cast<std::size_t>(by)]->peers()->ask(
        {.name = ticket{++name}, .parts = std::move(parts), .deadline = deadline, .reply = log.make_reply_promise()});
    return log;
  }
  /// A sum in place over memory of value 1 at each rank; the asker names its own by itself.
  std::vector<operation> sum_of_all(int by, std::size_t count) {
    std::vector<operation> parts;
    for (int r = 0; r < size(); ++r) {
      const buffer mine = memory(r, count);
      memories.push_back(mine);
      const buffer named = r == by ? mine : exported(r, mine).as_buffer();
      parts.push_back(sum_of(named, named, count));
    }
    return parts;
  }
  void run() {
    for (int i = 0; i < 4; ++i) {
      deliver_all();
      finish();
    }
  }

  std::vector<buffer> memories;
  // Of the latest capture at each rank.
  std::map<std::size_t, std::vector<operation>> captured;
  std::map<std::size_t, std::weak_ptr<captured_plan>> plans;
  std::map<std::size_t, std::shared_ptr<plan_directory>> names;
};

/// A process without a rank.
struct outsider {
  explicit outsider(peers_rig& rig, process_address address = process_address{-1}) : one{rig}, self{address} {
    one.keeper.attach(self);
  }
  void run() {
    one.run();
    for (std::string batch; !(batch = one.keeper.take_outgoing(self)).empty();) CHECK(link.receive(batch).text.empty());
  }
  outcome_log capture(const std::string& name, plan_steps steps) {
    outcome_log log;
    link.peers()->capture({.name = ticket{9},
                           .plan = name,
                           .steps = std::move(steps),
                           .deadline = 1h,
                           .holder = 7,
                           .lease = 10s,
                           .reply = log.make_reply_promise()});
    run();
    return log;
  }

  peers_rig& one;
  process_address self;
  attached_order link{self, one.size(), rig_epoch, [this](const std::string& batch) {
                        CHECK(one.keeper.receive(self, batch).text.empty());
                        one.collect();
                      }};
};

std::size_t bytes_in(const std::deque<std::string>& batches) {
  std::size_t all = 0;
  for (const std::string& one : batches) all += one.size();
  return all;
}

} // namespace

TEST_CASE("requests to all ranks are held from hold() on, and those before it end", "[order][remote][planned][ONE-1]") {
  peers_rig one{2};
  peer_requests& peers = *one.orders[0]->peers();
  const outcome_log before = one.ask_whole(0, one.sum_of_all(0, 8));
  int quiet = 0;
  peers.hold([&] { ++quiet; });
  const outcome_log held = one.ask_whole(0, one.sum_of_all(0, 8));
  CHECK(quiet == 0);
  one.run();
  REQUIRE(before.count() == 1);
  CHECK_FALSE(before.failure());
  CHECK(quiet == 1);
  CHECK(held.count() == 0);
  SECTION("until resume()") {
    peers.resume();
    one.run();
    REQUIRE(held.count() == 1);
    CHECK_FALSE(held.failure());
    const outcome_log after = one.ask_whole(0, one.sum_of_all(0, 8));
    one.run();
    CHECK_FALSE(after.failure());
    peers.hold([&] { ++quiet; });
    CHECK(quiet == 2); // nothing is pending
    peers.resume();
  }
  SECTION("and are passed on to the next epoch's") {
    auto next = one.orders[1]->peers(); // stands for them
    peers.hand_over(next);
    const outcome_log late = one.ask_whole(0, one.sum_of_all(1, 8));
    one.run();
    CHECK(held.count() == 1);
    CHECK(late.count() == 1);
    CHECK_FALSE(late.failure());
  }
  SECTION("or refused with the epoch") {
    peers.close({.code = errc::rebuilding, .text = "a rank is lost"});
    REQUIRE(held.count() == 1);
    CHECK(held.failure().code == errc::rebuilding);
    CHECK(held.failure().effect == effect::rejected);
  }
}

TEST_CASE("a process asks all ranks by remote buffers, and is answered once when all are done",
          "[collectives][distributed][peers][ONE-1]") {
  peers_rig one{3};
  for (int by = 0; by < 3; ++by) {
    auto parts = one.sum_of_all(by, 4);
    const auto log = one.ask_whole(by, std::move(parts));
    CHECK(one.orders[static_cast<std::size_t>(by)]->peers()->pending() == 1);
    one.run();
    REQUIRE(log.count() == 1);
    INFO(log.failure().text);
    CHECK(log.failure().code == errc::none);
    CHECK(one.orders[static_cast<std::size_t>(by)]->peers()->pending() == 0);
  }
  CHECK(one.notes[0]->size() == 3);
  CHECK(*one.notes[0] == *one.notes[2]);
}

TEST_CASE("one rank sends the value of an agree to the process that asked",
          "[collectives][distributed][peers][agree]") {
  constexpr int size = 16; // which gather as much as an agree may
  constexpr std::size_t count = 8;
  peers_rig one{size};
  outsider out{one};
  std::vector<outcome_log> logs;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<operation> parts(size,
                                 agree{agreement_rule::gather_all, std::vector<std::byte>(most_contributed_bytes)});
    logs.emplace_back();
    out.link.peers()->ask(
        {.name = ticket{i + 1}, .parts = std::move(parts), .deadline = 1h, .reply = logs.back().make_reply_promise()});
  }
  one.run();
  std::size_t bytes = 0;
  for (std::string batch; !(batch = one.keeper.take_outgoing(out.self)).empty(); bytes += batch.size())
    REQUIRE_FALSE(out.link.receive(batch));
  CHECK(bytes < (count + 1) * most_agreed_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(logs[i].count() == 1);
    REQUIRE(logs[i].success().agreed);
    CHECK(logs[i].success().agreed->bytes.size() == most_agreed_bytes);
    CHECK(logs[i].success().agreed->position == i);
  }
}

TEST_CASE("a process without a rank hears no value that rank 0 has not delivered (CUT-1)",
          "[collectives][distributed][peers][agree][CUT-1]") {
  peers_rig one{2};
  outsider out{one};
  int heard = 0;
  out.link.peers()->hear_agreed([&](const std::string&, const agreed_value&) { ++heard; });
  out.run();
  const auto record = std::make_shared<commit_record>(rig_epoch, nullptr);
  one.rig.ranks[0]->record_commits(record);
  const auto agree_on = [&](std::int64_t value) {
    std::vector<outcome_log> logs;
    for (int r = 0; r < 2; ++r)
      logs.push_back(one.ask(r, lane{}, agree{agreement_rule::max, contribution{value}.bytes}));
    out.run();
    return logs;
  };
  CHECK(agree_on(1)[0].failure().code == errc::none);
  CHECK(heard == 1);
  static_cast<void>(record->seal());
  const auto late = agree_on(2);
  CHECK(late[0].failure().effect == effect::unknown_outcome);
  CHECK(late[1].failure().code == errc::none);
  CHECK(heard == 1);
}

TEST_CASE("the asker may name its own memory by a handle, too", "[collectives][distributed][peers]") {
  peers_rig one{2};
  auto parts = one.sum_of_all(-1, 4);
  const auto log = one.ask_whole(1, std::move(parts));
  one.run();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::none);
  auto gone = one.sum_of_all(-1, 4);
  one.exports[1]->remove(remote_of(std::get<all_reduce>(gone[1]).send.memory));
  const auto refused = one.ask_whole(1, std::move(gone));
  one.run();
  REQUIRE(refused.count() == 1);
  CHECK(refused.failure().code == errc::stale_buffer);
}

TEST_CASE("requests of several processes to all ranks have one order", "[collectives][distributed][peers][ORD-1]") {
  peers_rig one{3};
  std::vector<outcome_log> logs;
  for (std::size_t i = 1; i <= 6; ++i) {
    const int by = static_cast<int>(i) % 3;
    auto parts = one.sum_of_all(by, i);
    logs.push_back(one.ask_whole(by, std::move(parts)));
  }
  // beside the clients of the ranks
  for (int r = 0; r < 3; ++r) logs.push_back(one.ask(r, lane{}, one.add(r, 9)));
  one.run();
  CHECK(code_of_all(logs) == errc::none);
  CHECK(one.notes[0]->size() == 7);
  CHECK(*one.notes[0] == *one.notes[1]);
  CHECK(*one.notes[0] == *one.notes[2]);
}

TEST_CASE("memory that its exporter has let go of is refused at all ranks, which go on",
          "[collectives][distributed][peers][BUF-2][ORD-2]") {
  peers_rig one{3};
  auto parts = one.sum_of_all(0, 4);
  const buffer gone = one.memory(2, 4);
  const remote_buffer handle = one.exported(2, gone);
  one.exports[2]->remove(handle);
  parts[2] = sum_of(handle.as_buffer(), handle.as_buffer(), 4);
  auto later_parts = one.sum_of_all(0, 5);
  const auto log = one.ask_whole(0, std::move(parts));
  const auto later = one.ask_whole(0, std::move(later_parts));
  one.run();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::stale_buffer);
  CHECK(log.failure().effect == effect::rejected);
  CHECK(log.failure().rank == rank{2});
  CHECK_THAT(log.failure().text, ContainsSubstring("rank 2 has released the memory"));
  REQUIRE(later.count() == 1);
  CHECK(later.failure().code == errc::none);
  CHECK(*one.notes[0] == launch_notes{"a all_reduce of 5 i32, sum"});
}

TEST_CASE("memory that a replaced process had exported is refused, and says whose it was",
          "[collectives][distributed][peers][BUF-2]") {
  peers_rig one{2};
  auto parts = one.sum_of_all(0, 4);
  remote_buffer earlier = remote_of(std::get<all_reduce>(parts[1]).send.memory);
  earlier.session += 100; // its successor has memory of this number, too
  parts[1] = sum_of(earlier.as_buffer(), earlier.as_buffer(), 4);
  const auto log = one.ask_whole(0, std::move(parts));
  one.run();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::stale_buffer);
  CHECK(log.failure().rank == rank{1});
}

TEST_CASE("a part that its rank's process refuses is refused at all ranks",
          "[collectives][distributed][peers][ORD-2]") {
  peers_rig one{2};
  SECTION("the memory is too short") {
    auto parts = one.sum_of_all(0, 4);
    const remote_buffer handle = one.exported(1, one.memory(1, 2));
    parts[1] = sum_of(handle.as_buffer(), handle.as_buffer(), 4);
    const auto log = one.ask_whole(0, std::move(parts));
    one.run();
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code == errc::invalid_argument);
    CHECK(log.failure().rank == rank{1});
  }
  SECTION("the handle is of another process") {
    auto parts = one.sum_of_all(0, 4);
    remote_buffer handle = one.exported(1, one.memory(1, 4));
    handle.session = 77;
    parts[1] = sum_of(handle.as_buffer(), handle.as_buffer(), 4);
    const auto log = one.ask_whole(0, std::move(parts));
    one.run();
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code == errc::stale_buffer);
    CHECK_THAT(log.failure().text, ContainsSubstring("exported by another process"));
  }
  SECTION("the handle names more than was exported") {
    auto parts = one.sum_of_all(0, 4);
    remote_buffer handle = one.exported(1, one.memory(1, 4));
    handle.offset_bytes = 8;
    parts[1] = sum_of(handle.as_buffer(), handle.as_buffer(), 4);
    const auto log = one.ask_whole(0, std::move(parts));
    one.run();
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code == errc::invalid_argument);
  }
  CHECK(one.notes[0]->empty());
  CHECK(one.notes[1]->empty());
}

TEST_CASE("memory of the asker's process for another rank is refused before anything is sent",
          "[collectives][distributed][peers]") {
  peers_rig one{2};
  auto parts = one.sum_of_all(0, 4);
  parts[1] = sum_of(one.memory(1, 4), one.memory(1, 4), 4);
  const auto log = one.ask_whole(0, std::move(parts));
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::invalid_argument);
  CHECK_THAT(log.failure().text, ContainsSubstring("remote_buffer"));
  CHECK(one.links[0]->sent() == 0);
}

TEST_CASE("transfers, copies, groups and barriers are asked of all ranks", "[collectives][distributed][peers]") {
  peers_rig one{3};
  const remote_buffer from = one.exported(1, one.memory(1, 4)), to = one.exported(2, one.memory(2, 4));
  const remote_buffer more = one.exported(1, one.memory(1, 4));
  const auto log =
      one.ask_whole(0, transfer_parts(3, rank{1}, from.as_buffer(), rank{2}, to.as_buffer(), 4, dtype::i32, 0));
  const auto bar = one.ask_whole(1, {barrier{}, barrier{}, barrier{}});
  const auto local = one.ask_whole(2, {group{}, group{{troupe::copy{from.as_buffer(), more.as_buffer()}}}, group{}});
  one.run();
  for (const auto* each : {&log, &bar, &local}) {
    REQUIRE(each->count() == 1);
    INFO(each->failure().text);
    CHECK(each->failure().code == errc::none);
  }
}

TEST_CASE("a request that a rank's client keeps from matching is answered at its deadline, with the missing rank",
          "[collectives][distributed][peers][TIM-1]") {
  peers_rig one{2, {}, false};
  one.serve(0); // the process of rank 1 is not ready yet
  auto parts = one.sum_of_all(0, 4);
  const auto log = one.ask_whole(0, std::move(parts), 1s);
  one.run();
  CHECK(log.count() == 0);
  SECTION("and goes on when it is") {
    one.serve(1);
    one.run();
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code == errc::none);
  }
  SECTION("it never is") {
    one.expire_above(2s);
    one.run();
    CHECK(log.count() == 0); // rank 1 has not answered
    one.links[0]->expire(steady_now() + 10s);
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code == errc::deadline_exceeded);
    CHECK(log.failure().effect == effect::unknown_outcome);
    CHECK(log.failure().rank == rank{0}); // whose client was told that rank 1 is missing
    CHECK_THAT(log.failure().text, ContainsSubstring("rank 1"));
  }
}

TEST_CASE("the end of the epoch answers what is pending", "[collectives][distributed][peers][ONE-1]") {
  peers_rig one{2};
  auto parts = one.sum_of_all(0, 4);
  const auto log = one.ask_whole(0, std::move(parts));
  one.links[0]->close({.code = errc::communicator_failed, .text = "a rank is lost"});
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::communicator_failed);
  CHECK(log.failure().effect == effect::unknown_outcome);
  auto again = one.sum_of_all(0, 4);
  const auto late = one.ask_whole(0, std::move(again));
  REQUIRE(late.count() == 1);
  CHECK(late.failure().effect == effect::rejected);
}

TEST_CASE("a rank that leaves answers no more, and the asker learns it at once",
          "[collectives][distributed][peers][ONE-1]") {
  peers_rig one{2};
  static_cast<void>(one.orders[1]->leave({.code = errc::stopping, .text = "the world has stopped"}));
  one.run();
  auto parts = one.sum_of_all(0, 4);
  const auto log = one.ask_whole(0, std::move(parts));
  one.run();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::stopping);
}

TEST_CASE("requests to all ranks pass the order services of two hosts", "[collectives][distributed][peers][hosts]") {
  peers_rig one{4, {{rank{0}, rank{1}}, {rank{2}, rank{3}}}};
  std::vector<outcome_log> logs;
  for (int by = 0; by < 4; ++by) {
    auto parts = one.sum_of_all(by, static_cast<std::size_t>(by) + 1);
    logs.push_back(one.ask_whole(by, std::move(parts)));
  }
  one.run();
  CHECK(code_of_all(logs) == errc::none);
  for (std::size_t r = 1; r < 4; ++r) CHECK(*one.notes[0] == *one.notes[r]);
}

TEST_CASE("the messages of a request to many ranks are divided into batches, of which few are on their way",
          "[collectives][distributed][peers]") {
  constexpr int size = 6;
  peers_rig one{size};
  const std::vector<std::size_t> places(most_outline_parts, std::size_t{1} << 62U); // 9 bytes each
  all_to_all_v exchange;
  exchange.send_parts.displacements = exchange.recv_parts.displacements = places;
  scatter_v other;
  other.send_parts.displacements = places;
  const operation part = group{{exchange, other}};
  wire_writer alone;
  REQUIRE_FALSE(write_part(alone, part, rank{1}));
  REQUIRE(alone.size_bytes() * (size - 1) > longest_batch_bytes);
  const auto log = one.ask_whole(0, std::vector<operation>(size, part));
  std::size_t sent = 0;
  while (!one.up[0].empty()) {
    CHECK(bytes_in(one.up[0]) <= batch_window::most_unseen_bytes);
    sent += one.up[0].front().size();
    REQUIRE(one.deliver_up(0));
    CHECK_FALSE(one.refused_above);
    while (one.deliver_down(0)) continue; // the controller acknowledges it
  }
  CHECK(sent > alone.size_bytes() * (size - 1));
  one.run();
  // Every rank has received its part, and refuses it: it does not have as many places as there are ranks.
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::invalid_argument);
  CHECK(one.orders[0]->peers()->pending() == 0);
}

TEST_CASE("a process without a rank asks all ranks", "[collectives][distributed][peers][attached]") {
  peers_rig one{2};
  const process_address outside{-1};
  one.keeper.attach(outside);
  attached_order link{outside, 2, rig_epoch, [&](const std::string& batch) {
                        CHECK(one.keeper.receive(outside, batch).text.empty());
                        one.collect();
                      }};
  const auto receive = [&] {
    for (std::string batch; !(batch = one.keeper.take_outgoing(outside)).empty();)
      CHECK(link.receive(batch).text.empty());
  };
  outcome_log log;
  link.peers()->ask(
      {.name = ticket{1}, .parts = one.sum_of_all(-1, 4), .deadline = 1h, .reply = log.make_reply_promise()});
  one.run();
  receive();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::none);
  CHECK(*one.notes[0] == launch_notes{"a all_reduce of 4 i32, sum"});

  // A rank that leaves is known at once.
  static_cast<void>(one.orders[1]->leave({.code = errc::stopping, .text = "the world has stopped"}));
  outcome_log late;
  link.peers()->ask(
      {.name = ticket{2}, .parts = one.sum_of_all(-1, 4), .deadline = 1h, .reply = late.make_reply_promise()});
  one.run();
  receive();
  REQUIRE(late.count() == 1);
  CHECK(late.failure().code == errc::stopping);

  // It may send nothing else, and only to ranks that exist.
  request_writer forged;
  forged.add({.kind = request_record::form::message, .to = process_address{2}, .message = "x"});
  CHECK(one.keeper.receive(outside, forged.take({.epoch = rig_epoch, .number = 3})).code == errc::internal);
  one.keeper.detach(outside);
  CHECK(one.keeper.take_outgoing(outside).empty());
}

TEST_CASE("a process without a rank captures a plan, which the ranks hold while it renews its lease",
          "[collectives][distributed][peers][attached][plans]") {
  peers_rig one{2};
  outsider by{one};
  const auto log = by.capture("steps", {one.sum_of_all(-1, 4), one.sum_of_all(-1, 5)});
  REQUIRE(log.count() == 1);
  INFO(log.failure().text);
  CHECK(log.failure().code == errc::none);
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(one.captured[r].size() == 2);
    // the memory has been looked up
    CHECK(std::get<all_reduce>(one.captured[r][1]).send.memory.data() == one.memories[2 + r].data());
    REQUIRE(one.plans[r].lock());
    CHECK(one.plans[r].lock()->options().name == "steps");
  }
  const time_point now = steady_now();
  const auto pass = [&](std::size_t at, time_point from, time_point until) {
    for (time_point then = from; then < until; then += lease_check_interval) one.orders[at]->peers()->expire(then);
    one.orders[at]->peers()->expire(until);
  };
  SECTION("its lease ends") {
    pass(0, now, now + 5s);
    CHECK_FALSE(one.plans[0].expired());
    pass(0, now + 5s, now + 11s);
    CHECK(one.plans[0].expired());
    CHECK_FALSE(one.plans[1].expired());
  }
  SECTION("its lease ends later if the rank's process was paused") {
    pass(0, now, now + 5s);
    pass(0, now + 1h, now + 1h + 4s);
    CHECK_FALSE(one.plans[0].expired());
    pass(0, now + 1h + 4s, now + 1h + 6s);
    CHECK(one.plans[0].expired());
  }
  SECTION("it is renewed by its holder only") {
    by.link.peers()->renew(8);
    by.run();
    pass(1, now, now + 11s);
    CHECK(one.plans[1].expired());
  }
  SECTION("it is dropped, or replaced by another of its name") {
    by.link.peers()->drop_plan("other");
    by.run();
    CHECK_FALSE(one.plans[0].expired());
    const auto first = one.plans[0];
    CHECK(by.capture("steps", {one.sum_of_all(-1, 4)}).failure().code == errc::none);
    CHECK(first.expired());
    by.link.peers()->drop_plan("steps");
    by.run();
    CHECK(one.plans[0].expired());
    CHECK(one.plans[1].expired());
  }
  SECTION("the epoch ends") {
    one.orders[0]->peers()->close({.code = errc::stopping, .text = "over"});
    CHECK(one.plans[0].expired());
  }
  SECTION("its name ends with it, although a replay in flight holds it") {
    const auto held = one.plans[0].lock();
    REQUIRE(one.names[0]->find("steps") == held);
    SECTION("it is dropped") {
      by.link.peers()->drop_plan("steps");
      by.run();
    }
    SECTION("its lease ends") {
      pass(0, now, now + 11s);
    }
    SECTION("the epoch ends") {
      one.orders[0]->peers()->close({.code = errc::stopping, .text = "over"});
    }
    CHECK(one.names[0]->find("steps") == nullptr);
  }
}

TEST_CASE("a capture whose memory is gone at one rank is asked for with the reason, and others are refused at once",
          "[collectives][distributed][peers][attached][plans]") {
  peers_rig one{2};
  outsider by{one};
  auto parts = one.sum_of_all(-1, 4);
  one.exports[1]->remove(remote_of(std::get<all_reduce>(parts[1]).send.memory));
  const auto gone = by.capture("steps", {parts});
  REQUIRE(gone.count() == 1);
  CHECK(gone.failure().code == errc::stale_buffer);
  CHECK(gone.failure().rank == rank{1});
  CHECK_THAT(gone.failure().text, ContainsSubstring("step 0 of the plan"));
  const auto few = by.capture("steps", {{parts[0]}});
  CHECK(few.failure().code == errc::invalid_argument);
  CHECK_THAT(few.failure().text, ContainsSubstring("1 parts, the world has 2 ranks"));
  outcome_log member;
  one.orders[0]->peers()->capture({.name = ticket{1}, .reply = member.make_reply_promise()});
  CHECK(member.failure().code == errc::invalid_argument);
}

TEST_CASE("a process without a rank borrows memory, and gives it back", "[collectives][distributed][peers][attached]") {
  peers_rig one{2};
  outsider by{one};
  std::variant<remote_buffer, error> got;
  const auto promise = [&] {
    return std::make_shared<value_promise<remote_buffer>>([&](std::variant<remote_buffer, error> all) { got = all; });
  };
  by.link.peers()->lend(rank{1}, lent_kind::memory, 64, 7, 10s, 1s, promise());
  by.run();
  REQUIRE(std::holds_alternative<remote_buffer>(got));
  const remote_buffer lent = std::get<remote_buffer>(got);
  CHECK(lent.size_bytes == 64);
  CHECK(one.exports[1]->size() == 1);
  remote_buffer moved = lent;
  moved.exporter = rank{0}; // its process had another rank then
  by.link.peers()->give_back(moved);
  by.run();
  CHECK(one.exports[1]->size() == 0);
  by.link.peers()->lend(rank{0}, lent_kind::metrics, 0, 7, 10s, 1s, promise());
  by.run();
  REQUIRE(std::holds_alternative<error>(got));
  CHECK(std::get<error>(got).code == errc::missing);
  CHECK(std::get<error>(got).rank == rank{0});
}

TEST_CASE("memory is read at its exporter, whatever number that has now",
          "[collectives][distributed][peers][attached]") {
  peers_rig one{3};
  outsider by{one};
  const buffer host = allocate_pinned(one.rig.devices[2], 4);
  std::ranges::copy(std::string_view{"here"}, host.host_span<char>().begin());
  remote_buffer handle = one.exported(2, host);
  handle.exporter = rank{GENERATE(0, 2, 7)}; // its number at the export
  std::optional<std::variant<std::string, error>> got;
  const auto read = [&](const remote_buffer& from) {
    got.reset();
    by.link.peers()->read(from, 1s,
                          std::make_shared<value_promise<std::string>>([&](std::variant<std::string, error> all) {
                            CHECK_FALSE(got);
                            got = std::move(all);
                          }));
  };
  const auto failure = [&] {
    REQUIRE(got);
    REQUIRE(std::holds_alternative<error>(*got));
    CHECK(std::get<error>(*got).effect == effect::rejected);
    CHECK(by.link.peers()->pending() == 0);
    return std::get<error>(*got);
  };
  read(handle);
  by.run();
  REQUIRE(got);
  REQUIRE(std::holds_alternative<std::string>(*got));
  CHECK(std::get<std::string>(*got) == "here");
  CHECK(by.link.peers()->pending() == 0);

  SECTION("its exporter names what is wrong") {
    remote_buffer beyond = handle;
    beyond.offset_bytes = 1;
    read(beyond);
    by.run();
    CHECK(failure().code == errc::invalid_argument);
    CHECK(failure().rank == rank{2});
    one.exports[2]->remove(handle);
    read(handle);
    by.run();
    CHECK(failure().code == errc::stale_buffer);
    CHECK(failure().rank == rank{2});
  }
  SECTION("the exporter has left with an earlier epoch") {
    remote_buffer gone = handle;
    gone.session = 99;
    read(gone);
    by.run();
    CHECK(failure().code == errc::stale_buffer);
    CHECK_THAT(failure().text, ContainsSubstring("as rank " + to_string(handle.exporter) + " has left the world"));
  }
  SECTION("another rank leaves") {
    static_cast<void>(one.orders[0]->leave({.code = errc::stopping, .text = "the world has stopped"}));
    read(handle);
    by.run();
    REQUIRE(got);
    CHECK(std::holds_alternative<std::string>(*got));
  }
  SECTION("the exporter leaves") {
    static_cast<void>(one.orders[2]->leave({.code = errc::stopping, .text = "the world has stopped"}));
    read(handle);
    by.run();
    CHECK(failure().code == errc::stopping);
    CHECK(failure().rank == rank{2});
  }
  SECTION("the exporter does not answer") {
    read(handle);
    one.deliver_up(0);
    CHECK_FALSE(got);
    by.link.peers()->expire(steady_now() + 1h);
    CHECK(failure().code == errc::deadline_exceeded);
    by.run(); // later answers change nothing
  }
}

TEST_CASE("many reads at one time are answered in turn, with few bytes on their way",
          "[collectives][distributed][peers][attached]") {
  peers_rig one{2};
  outsider by{one};
  const buffer host = allocate_pinned(one.rig.devices[0], peer_requests::most_read_bytes);
  const remote_buffer handle = one.exported(0, host);
  constexpr std::size_t count = 64;
  std::size_t answered = 0, most = 0;
  for (std::size_t i = 0; i < count; ++i)
    by.link.peers()->read(handle, 1h,
                          std::make_shared<value_promise<std::string>>([&](std::variant<std::string, error> all) {
                            const auto* const bytes = std::get_if<std::string>(&all);
                            CHECK((bytes != nullptr && bytes->size() == peer_requests::most_read_bytes));
                            ++answered;
                          }));
  CHECK(by.link.peers()->pending() == count);
  for (bool moves = true; moves;) {
    moves = false;
    for (int r = 0; r < 2; ++r) {
      most = std::max(most, bytes_in(one.up[0]) + one.keeper.waiting_bytes(by.self));
      moves = one.deliver_down(r) || moves;
      most = std::max(most, bytes_in(one.up[0]) + one.keeper.waiting_bytes(by.self));
      moves = one.deliver_up(r) || moves;
    }
    for (std::string batch; !(batch = one.keeper.take_outgoing(by.self)).empty(); moves = true)
      CHECK(by.link.receive(batch).text.empty());
  }
  CHECK(answered == count);
  CHECK(by.link.peers()->pending() == 0);
  CHECK(most < 2 * peer_requests::most_awaited_bytes);
}

TEST_CASE("a read that waits for others ends at its deadline, and with its epoch",
          "[collectives][distributed][peers][attached][TIM-1]") {
  peers_rig one{2};
  outsider by{one};
  const buffer host = allocate_pinned(one.rig.devices[0], peer_requests::most_read_bytes);
  const remote_buffer handle = one.exported(0, host);
  std::vector<error> failures;
  const auto read = [&](nanoseconds deadline) {
    by.link.peers()->read(handle, deadline,
                          std::make_shared<value_promise<std::string>>([&](std::variant<std::string, error> all) {
                            const error* const why = std::get_if<error>(&all);
                            failures.push_back(why != nullptr ? *why : error{});
                          }));
  };
  read(1h);
  read(1s);
  read(1h);
  by.link.peers()->expire(steady_now() + 10s);
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].code == errc::deadline_exceeded);
  CHECK(by.link.peers()->pending() == 2);
  by.link.close({.code = errc::rebuilding, .text = "the epoch has ended"});
  REQUIRE(failures.size() == 3);
  CHECK(failures[1].code == errc::rebuilding);
  CHECK(failures[2].code == errc::rebuilding);
  CHECK(failures[2].effect == effect::rejected);
}

TEST_CASE("a process that does not take its answers is refused further reads until it does",
          "[collectives][distributed][peers][attached]") {
  peers_rig one{2};
  outsider by{one};
  const buffer host = allocate_pinned(one.rig.devices[0], peer_requests::most_read_bytes);
  const remote_buffer handle = one.exported(0, host);
  std::optional<std::variant<std::string, error>> got;
  const auto read = [&] {
    got.reset();
    by.link.peers()->read(handle, 1s,
                          std::make_shared<value_promise<std::string>>(
                              [&](std::variant<std::string, error> all) { got = std::move(all); }));
  };
  for (int i = 0; i < 10; ++i) {
    read();
    one.run(); // the ranks answer
    by.link.peers()->expire(steady_now() + 1h);
    REQUIRE(got);
    CHECK(std::get<error>(*got).code == errc::deadline_exceeded);
  }
  CHECK(one.keeper.waiting_bytes(by.self) >= peer_requests::most_unreceived_bytes);
  CHECK(one.keeper.waiting_bytes(by.self) < peer_requests::most_unreceived_bytes + peer_requests::most_read_bytes);
  read();
  by.run(); // it takes all answers, the last of which is the refusal
  REQUIRE(got);
  REQUIRE(std::holds_alternative<error>(*got));
  CHECK(std::get<error>(*got).code == errc::busy);
  read();
  by.run();
  REQUIRE(got);
  CHECK(std::holds_alternative<std::string>(*got));
}

TEST_CASE("a window sends batches while few enough bytes are unacknowledged", "[collectives][distributed]") {
  std::vector<std::string> sent;
  batch_window window{[&](std::string batch) { sent.push_back(std::move(batch)); }};
  const std::size_t half = batch_window::most_unseen_bytes / 2;
  CHECK_FALSE(window.send(std::string(3 * half, 'a'))); // alone, a batch of any size is sent
  CHECK(window.send("b"));
  CHECK(window.send(std::string(half, 'c')));
  CHECK(sent.size() == 1);
  CHECK_FALSE(window.acknowledge(1));
  CHECK(sent.size() == 3);
  CHECK(window.send(std::string(half, 'd')));
  CHECK(window.acknowledge(1)); // nothing new
  CHECK(sent.size() == 3);
  CHECK_FALSE(window.acknowledge(3));
  REQUIRE(sent.size() == 4);
  CHECK(sent[1] == "b");
  CHECK(sent[3].front() == 'd');
}

TEST_CASE("a window sends a batch of any size behind a short one that is not acknowledged",
          "[collectives][distributed]") {
  std::vector<std::string> sent;
  batch_window window{[&](std::string batch) { sent.push_back(std::move(batch)); }};
  const std::string longest(batch_window::most_unseen_bytes, 'l');
  CHECK_FALSE(window.send(std::string(batch_window::most_unseen_bytes / 2, 'h')));
  CHECK_FALSE(window.send(std::string(longest_unseen_batch_bytes, 's')));
  CHECK_FALSE(window.acknowledge(1));
  CHECK_FALSE(window.send(longest));
  CHECK(sent.size() == 3);
  CHECK(window.send(longest));
  CHECK(window.acknowledge(2)); // the third is long
  CHECK_FALSE(window.acknowledge(3));
  CHECK(sent.size() == 4);
}

TEST_CASE("processes without a rank that come and go use few lanes, each of which begins anew",
          "[collectives][distributed][peers][attached][hosts]") {
  // The order of the world is decided by the controller, or by the service of the only host.
  peers_rig one{2, GENERATE(std::vector<host_ranks>{}, std::vector<host_ranks>{{rank{0}, rank{1}}},
                            std::vector<host_ranks>{{rank{0}}, {rank{1}}})};
  const auto lanes = [] { // the number of lanes that this process has named
    static int count = 0;
    return lane::named("a lane of this test, " + std::to_string(++count)).index();
  };
  const std::uint32_t before = lanes();
  for (int i = 0; i < 100; ++i) {
    outsider by{one, attached_address(0, i)};
    outcome_log log;
    by.link.peers()->ask(
        {.name = ticket{1}, .parts = one.sum_of_all(-1, 4), .deadline = 1h, .reply = log.make_reply_promise()});
    if (i % 10 == 9) { // it asks one rank alone, as it must not
      wire_writer forged;
      forged.u8(0);
      forged.varint(7);
      forged.ordinal(nanoseconds{1h});
      REQUIRE_FALSE(write_part(forged, barrier{}, rank{0}));
      request_writer out;
      out.add({.kind = request_record::form::message, .to = process_address{0}, .message = forged.take()});
      CHECK_FALSE(one.keeper.receive(by.self, out.take({.epoch = rig_epoch, .number = 2})));
      one.collect();
    }
    by.run();
    REQUIRE(log.count() == 1);
    INFO(log.failure().text);
    CHECK(log.failure().code == errc::none);
    one.keeper.detach(by.self);
    CHECK(one.keeper.retiring() == std::vector{by.self});
    one.collect();
    one.run();
    CHECK(one.keeper.retiring().empty());
  }
  CHECK(one.keeper.waiting() == 0);
  CHECK(lanes() - before <= 2);
}

TEST_CASE("a lane is in use until every rank has finished what it was asked in it",
          "[collectives][distributed][peers][attached]") {
  peers_rig one{2, {}, false};
  one.serve(0); // the process of rank 1 is not ready yet
  outsider by{one};
  outcome_log log;
  by.link.peers()->ask(
      {.name = ticket{1}, .parts = one.sum_of_all(-1, 4), .deadline = 1h, .reply = log.make_reply_promise()});
  by.run();
  one.keeper.detach(by.self);
  one.collect();
  one.run();
  CHECK(one.keeper.retiring().size() == 1);
  SECTION("it does so when it is ready") {
    one.serve(1);
    one.run();
    CHECK(one.keeper.retiring().empty());
    CHECK(one.notes[0]->size() == 1); // the request of the process that has ended
  }
  SECTION("it leaves") {
    static_cast<void>(one.orders[1]->leave({.code = errc::stopping, .text = "the world has stopped"}));
    one.run();
    CHECK(one.keeper.retiring().empty());
  }
}

TEST_CASE("a process without a rank cannot name lanes in the controller's process",
          "[collectives][distributed][peers][attached]") {
  peers_rig one{2};
  outsider by{one};
  request_writer forged;
  const std::uint32_t before = lane::named("the first lane of a forger").index();
  const lane known = lane::named("the second lane of a forger");
  REQUIRE_FALSE(forged.ask(barrier{}, known, 1, std::nullopt, 1h));
  std::string batch = forged.take({.epoch = rig_epoch, .number = 1});
  batch.replace(batch.find("second"), 6, "fourth");
  CHECK(one.keeper.receive(by.self, batch).code == errc::internal);
  CHECK(lane::named("the third lane of a forger").index() == before + 2);
}

TEST_CASE("memory is lent to others for few at one time, and not for longer than the longest lease",
          "[collectives][distributed][peers][attached]") {
  peers_rig one{2};
  std::vector<rank_services::lent> allocating;
  rank_services services;
  services.ask = [](rank_request, const error&, const reply_promise&, std::uint64_t) {};
  services.lend = [&](lent_kind, std::size_t, const rank_services::lent& done) { allocating.push_back(done); };
  one.orders[0]->peers()->serve(std::move(services));
  outsider by{one};
  constexpr std::size_t most = peer_requests::most_lends + peer_requests::most_waiting_lends;
  std::vector<std::variant<remote_buffer, error>> got;
  for (std::size_t i = 0; i <= most; ++i)
    by.link.peers()->lend(rank{0}, lent_kind::memory, 64, 7, nanoseconds::max(), 1h,
                          std::make_shared<value_promise<remote_buffer>>(
                              [&](std::variant<remote_buffer, error> all) { got.push_back(std::move(all)); }));
  by.run();
  CHECK(allocating.size() == peer_requests::most_lends);
  REQUIRE(got.size() == 1);
  CHECK(std::get<error>(got[0]).code == errc::busy);
  while (!allocating.empty()) {
    CHECK(allocating.size() <= peer_requests::most_lends);
    const auto done = allocating.front();
    allocating.erase(allocating.begin());
    done(one.memory(0, 16), {});
  }
  by.run();
  CHECK(got.size() == most + 1);
  CHECK(one.exports[0]->size() == most);
  const time_point now = steady_now();
  for (time_point then = now; then < now + longest_lease + 1s; then += lease_check_interval)
    one.exports[0]->expire(then);
  CHECK(one.exports[0]->size() == 0);
}

TEST_CASE("requests that are launched together may have messages between their releases",
          "[collectives][distributed][peers][fusion]") {
  // A rank is told the releases of a launch in one batch, also where messages between them fill batches.
  const bool is_long = GENERATE(false, true);
  decision_writer out{rig_epoch};
  out.release(1, std::nullopt);
  decision_record message{.kind = decision_record::form::message,
                          .from = process_address{1},
                          .message = std::string(is_long ? full_batch_bytes : 8, 'x')};
  const bool begins = out.add(message);
  CHECK_FALSE(begins); // the batch is full only behind it
  message.message = "y";
  CHECK(out.add(message) == is_long);
}

TEST_CASE("a remote buffer is text and back", "[collectives][peers]") {
  const remote_buffer one{
      .exporter = rank{2}, .session = 1234567890123ULL, .id = 7, .offset_bytes = 16, .size_bytes = 4096};
  CHECK(parse_remote_buffer(to_string(one)) == one);
  remote_buffer host = one;
  host.on_host = true;
  CHECK(parse_remote_buffer(to_string(host)) == host);
  CHECK(one.slice(8, 100).offset_bytes == 24);
  CHECK(remote_of(one.as_buffer().slice(8, 100)) == one.slice(8, 100));
  CHECK_THROWS_AS(one.slice(4000, 100), exception);
  for (const char* bad : {"", "2", "2:1:7:16", "2:1:7:16:x", "2:1:7:16:4096:", "-1:1:7:16:4096", "2:1:7:16:4096:host:"})
    CHECK_THROWS_AS(parse_remote_buffer(bad), exception);
}
