// Several requests as one launch, each with its own reply: GRP-1, ONE-1, ORD-1.
#include "support/gate.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/reply/overlap.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <latch>

namespace troupe::tests::rank_pipeline_fusion_test {

using Catch::Matchers::ContainsSubstring;

namespace {

/// A rank that notes its launches and does what the test says.
class noting_peers final : public communicator {
public:
  using communicator::communicator;
  void init() override {}
  bool do_launch(const operation& what, stream_ref, completion_word) override {
    notes.push_back(describe(what));
    return false;
  }
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word) override {
    std::string note = std::to_string(all.size()) + " together";
    for (const operation* one : all) note += ": " + describe(*one);
    notes.push_back(note);
    ++batches;
    if (script) script(stream);
    return false;
  }
  void check() override {}
  void abort() override {}
  void destroy() override {}

  std::function<void(stream_ref)> script;
  std::atomic<int> batches{0};
  std::vector<std::string> notes; ///< The launcher's until it is settled.
};

/// Does something once, when somebody looks at it.
class interrupted_clock final : public clock {
public:
  [[nodiscard]] time_point now() const noexcept override {
    if (const auto work = std::exchange(interrupt, nullptr)) work();
    return {};
  }
  mutable std::function<void()> interrupt;
};

struct noting_rig {
  std::shared_ptr<noting_peers> peers;
  pipeline_rig rig;

  explicit noting_rig(const pipeline_options& options = {})
    : rig{1, options,
          [this](rank self, const auto& gpu) { return peers = std::make_shared<noting_peers>(self, 1, gpu); }} {}
};

submission asked(operation what, const outcome_log& log, nanoseconds deadline = 1h, std::uint64_t name = 1) {
  return {.name = ticket{name}, .what = std::move(what), .deadline = deadline, .reply = log.make_reply_promise()};
}

/// One request for each of \p logs, each on a number of its own.
std::vector<submission> small_sums(const pipeline_rig& rig, std::size_t self, const std::vector<outcome_log>& logs,
                                   nanoseconds deadline = 1h) {
  std::vector<submission> all;
  for (const outcome_log& log : logs) {
    const buffer memory = rig.numbers(self, 4, 1);
    all.push_back(asked(sum_of(memory, memory, 4), log, deadline));
  }
  return all;
}

void require_all(const std::vector<outcome_log>& logs, effect wanted) {
  for (const auto& log : logs) {
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code != errc::none);
    CHECK(log.failure().effect == wanted);
  }
}

void await_answers(const std::vector<outcome_log>& logs) {
  for (const auto& log : logs) REQUIRE(comes_true([&] { return log.count() > 0; }));
}

} // namespace

TEST_CASE("64 small reductions launched together are right, and each is answered by itself",
          "[collectives][mock][fusion][ONE-1][GRP-1]") {
  const auto reports = leak_count();
  const int size = GENERATE(2, 3);
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  CAPTURE(size, to_string(strategy));
  {
    constexpr std::size_t count = 64;
    pipeline_rig rig{size, {.strategy = strategy}};
    std::vector<std::vector<outcome_log>> logs(rig.ranks.size());
    std::vector<std::vector<buffer>> outputs(rig.ranks.size());
    for (std::size_t r = 0; r < rig.ranks.size(); ++r) {
      logs[r].resize(count);
      std::vector<submission> all;
      for (std::size_t k = 0; k < count; ++k) { // of nothing, in place and out of it
        const buffer send = rig.numbers(r, k, static_cast<std::int32_t>(k + r));
        outputs[r].push_back(k % 2 == 0 ? send : rig.numbers(r, k, -1));
        all.push_back(asked(sum_of(send, outputs[r][k], k), logs[r][k], 1h, 100 + k));
      }
      rig.ranks[r]->submit_together(std::move(all));
    }
    rig.await_idle();
    const auto others = static_cast<std::int32_t>(size * (size - 1) / 2);
    for (std::size_t r = 0; r < rig.ranks.size(); ++r)
      for (std::size_t k = 0; k < count; ++k) {
        CAPTURE(r, k);
        REQUIRE(logs[r][k].count() == 1);
        REQUIRE(logs[r][k].failure().text.empty());
        const completion seen = logs[r][k].success();
        CHECK(seen.ticket == ticket{100 + k});
        CHECK(seen.times.queued <= seen.times.launched);
        CHECK(seen.times.launched <= seen.times.done);
        CHECK(holds(outputs[r][k], k, size * static_cast<std::int32_t>(k) + others));
      }
    CHECK(rig.close());
    CHECK(rig.faults->all().empty());
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("one launch call for all of a batch, the plain one for a batch of one, none for none",
          "[collectives][fusion][GRP-1][ORD-1]") {
  noting_rig one;
  const buffer memory = one.rig.numbers(0, 8, 1);
  const auto part = [&](std::size_t count) { return sum_of(memory.slice(0, 32), memory.slice(0, 32), count); };
  const outcome_log log;
  one.rig.ranks[0]->submit_together(std::vector<submission>{});
  one.rig.submit(0, part(1), log);
  std::vector<submission> pair;
  pair.push_back(asked(part(2), log));
  pair.push_back(asked(part(3), log));
  one.rig.ranks[0]->submit_together(std::move(pair));
  std::vector<submission> lone;
  lone.push_back(asked(barrier{}, log)); // alone it may be anything
  one.rig.ranks[0]->submit_together(std::move(lone));
  one.rig.await_idle();
  one.rig.settle();
  CHECK(log.count() == 4);
  CHECK(one.peers->notes == std::vector<std::string>{describe(part(1)),
                                                     "2 together: " + describe(part(2)) + ": " + describe(part(3)),
                                                     describe(barrier{})});
  CHECK(one.rig.close());
}

TEST_CASE("batches of two worlds on the same GPUs interleave, and each meets its own kind",
          "[collectives][mock][fusion][ORD-1]") {
  constexpr std::size_t rounds = 20, members = 5;
  pipeline_rig rig{3};
  const auto kind = make_mock_backend();
  const unique_id id = kind->make_unique_id();
  std::vector<std::shared_ptr<rank_pipeline>> other;
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<std::size_t>(i);
    other.push_back(rank_pipeline::create(rig.services, kind->create(id, rank{i}, 3, rig.devices[at]),
                                          rig.launchers[at], rig_epoch, [](const error&) {}));
  }
  {
    std::vector<std::jthread> helpers;
    for (const auto& one : other) helpers.emplace_back([&one] { one->init(); });
  }
  std::vector<outcome_log> logs(3);
  std::vector<buffer> ours[3];
  std::vector<buffer> theirs[3];
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t k = 0; k < rounds; ++k) {
      std::vector<submission> batch;
      std::vector<submission> second;
      for (std::size_t m = 0; m < members; ++m) {
        ours[r].push_back(rig.numbers(r, 3, static_cast<std::int32_t>(k + m)));
        theirs[r].push_back(rig.numbers(r, 3, static_cast<std::int32_t>(100 + k + m)));
        batch.push_back(asked(sum_of(ours[r].back(), ours[r].back(), 3), logs[r]));
        second.push_back(asked(sum_of(theirs[r].back(), theirs[r].back(), 3), logs[r]));
      }
      rig.ranks[r]->submit_together(std::move(batch));
      if (k % 2 == 0)
        other[r]->submit_together(std::move(second));
      else
        for (submission& one : second) other[r]->submit(std::move(one));
    }
  rig.await_idle();
  for (const auto& one : other) REQUIRE(comes_true([&] { return one->load() == 0; }));
  for (std::size_t r = 0; r < 3; ++r) {
    REQUIRE(logs[r].count() == 2 * rounds * members);
    for (const outcome& one : logs[r].all()) CHECK(failure_of(one) == nullptr);
    for (std::size_t i = 0; i < rounds * members; ++i) {
      const auto value = static_cast<std::int32_t>(i / members + i % members);
      CHECK(holds(ours[r][i], 3, 3 * value));
      CHECK(holds(theirs[r][i], 3, 3 * (100 + value)));
    }
  }
  {
    std::vector<std::jthread> helpers;
    for (const auto& one : other) helpers.emplace_back([&one] { one->close(); });
  }
  CHECK(rig.close());
}

TEST_CASE("ranks that group differently hear of it instead of hanging", "[collectives][mock][fusion][ORD-1]") {
  pipeline_rig rig{2};
  std::vector<outcome_log> logs(2);
  rig.ranks[0]->submit_together(small_sums(rig, 0, logs));
  for (submission& one : small_sums(rig, 1, logs)) rig.ranks[1]->submit(std::move(one));
  const error why = rig.faults->await().second;
  CHECK(why.code == errc::mismatch);
  CHECK_THAT(why.text, ContainsSubstring("rank 0 asked for 2 together: all_reduce of 4 i32, sum"));
  rig.abort(why);
  rig.await_idle();
  for (const auto& log : logs) CHECK(log.count() == 2);
}

TEST_CASE("each member of a batch has its own deadline, and the late ones keep their place",
          "[collectives][mock][fusion][TIM-1][ORD-1]") {
  const auto time = std::make_shared<manual_clock>();
  pipeline_rig rig{2, {.time = time}};
  std::vector<outcome_log> logs(3);
  std::vector<submission> batch = small_sums(rig, 0, logs);
  batch[1].deadline = 1s;
  rig.ranks[0]->submit_together(std::move(batch));
  rig.settle();
  time->advance(2s);
  rig.services.poller->step();
  CHECK(logs[0].count() == 0);
  CHECK(logs[2].count() == 0);
  REQUIRE(logs[1].count() == 1);
  CHECK(logs[1].failure().code == errc::deadline_exceeded);
  CHECK(logs[1].failure().effect == effect::unknown_outcome);
  std::vector<outcome_log> peers(3);
  rig.ranks[1]->submit_together(small_sums(rig, 1, peers));
  while (rig.ranks[0]->load() + rig.ranks[1]->load() > 0) rig.services.poller->step();
  for (const auto& log : {logs[0], logs[2], peers[0], peers[1], peers[2]}) CHECK_FALSE(log.failure());
  CHECK(logs[1].count() == 1);
}

TEST_CASE("a batch whose launch fails is refused whole, each member once, and nothing follows it",
          "[collectives][fusion][ONE-1][ONE-2][ORD-1]") {
  noting_rig one;
  one.peers->script = [](stream_ref) { throw exception{errc::communicator_failed, "its own"}; };
  std::latch all_posted{1};
  one.rig.launchers[0]->post([&] { all_posted.wait(); }); // so that the second is queued when the first fails
  std::vector<outcome_log> first(5);
  std::vector<outcome_log> second(5);
  one.rig.ranks[0]->submit_together(small_sums(one.rig, 0, first));
  one.rig.ranks[0]->submit_together(small_sums(one.rig, 0, second));
  all_posted.count_down();
  one.rig.settle();
  await_answers(second);
  CHECK(one.peers->batches == 1);
  require_all(first, effect::unknown_outcome);
  require_all(second, effect::rejected);
  for (const auto& log : first) CHECK(log.failure().text == "its own");
  CHECK(one.rig.faults->all().size() == 1);
}

TEST_CASE("a device that fails under batches leaves every member with one answer, and no wrong success",
          "[collectives][mock][fusion][ONE-1][ONE-2]") {
  constexpr std::size_t rounds = 6;
  pipeline_rig rig{2};
  std::vector<outcome_log> logs[2] = {std::vector<outcome_log>(rounds * 4), std::vector<outcome_log>(rounds * 4)};
  std::vector<std::vector<submission>> batches[2];
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t k = 0; k < rounds; ++k)
      batches[r].push_back(small_sums(rig, r,
                                      {logs[r].begin() + static_cast<std::ptrdiff_t>(4 * k),
                                       logs[r].begin() + static_cast<std::ptrdiff_t>(4 * k + 4)}));
  for (std::size_t k = 0; k < rounds; ++k) {
    if (k == 3) rig.api->fail_next(device_id{1}, {.code = errc::device_failed, .text = "injected"});
    for (std::size_t r = 0; r < 2; ++r) rig.ranks[r]->submit_together(std::move(batches[r][k]));
  }
  const error why = rig.faults->await().second;
  CHECK(why.code == errc::device_failed);
  rig.abort(why);
  rig.await_idle();
  for (const auto& mine : logs) {
    bool failed = false;
    for (const auto& log : mine) {
      REQUIRE(log.count() == 1);
      CHECK_FALSE((failed && !log.failure()));
      failed = failed || log.failure();
    }
    CHECK(failed);
  }
}

TEST_CASE("failing with batches in flight: what was launched is unknown, what was not is rejected whole",
          "[collectives][mock][fusion][ONE-1][ONE-2][BUF-1]") {
  const auto reports = leak_count();
  {
    pipeline_rig rig{2};
    std::vector<outcome_log> launched(4);
    std::vector<outcome_log> held(4);
    std::weak_ptr<void> owner;
    std::vector<submission> batch = small_sums(rig, 0, launched);
    {
      const buffer memory = watched(rig.devices[0], rig.numbers(0, 4, 1), owner);
      batch[2].what = sum_of(memory, memory, 4);
    }
    rig.ranks[0]->submit_together(std::move(batch)); // and no peer comes
    rig.settle();
    rig.ranks[0]->hold();
    rig.ranks[0]->submit_together(small_sums(rig, 0, held));
    CHECK(rig.ranks[0]->fail({.code = errc::deadline_exceeded, .text = "hung"}));
    await_answers(launched);
    await_answers(held);
    require_all(launched, effect::unknown_outcome);
    require_all(held, effect::rejected);
    CHECK_FALSE(owner.expired()); // still the device's
    rig.abort({.code = errc::communicator_failed});
    rig.await_idle();
    CHECK(owner.expired());
    rig.ranks[0]->resume();
    rig.settle();
    for (const auto& log : held) CHECK(log.count() == 1);
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("a batch that is withdrawn in the moment before its launch is not launched",
          "[collectives][fusion][ORD-1][ONE-2]") {
  noting_rig one{{.time = std::make_shared<manual_clock>()}}; // its poller looks when the test says so
  const auto time = std::make_shared<interrupted_clock>();
  pipeline_services services = one.rig.services;
  services.time = time;
  const auto peers = std::make_shared<noting_peers>(rank{0}, 1, one.rig.devices[0]);
  const auto line = rank_pipeline::create(services, peers, one.rig.launchers[0], rig_epoch, [](const error&) {});
  line->init();
  std::latch all_posted{1};
  one.rig.launchers[0]->post([&] { all_posted.wait(); });
  std::vector<outcome_log> logs(4);
  line->submit_together(small_sums(one.rig, 0, logs));
  time->interrupt = [&] { // the launcher has seen no failure yet, and looks at the clock
    line->fail({.code = errc::deadline_exceeded, .text = "hung"});
    one.rig.services.poller->step();
  };
  all_posted.count_down();
  one.rig.settle();
  CHECK_FALSE(time->interrupt);
  require_all(logs, effect::rejected);
  CHECK(peers->batches == 0);
  line->abort();
}

TEST_CASE("held operations are launched as they were submitted, batches as batches", "[collectives][fusion][ORD-1]") {
  noting_rig one;
  std::vector<outcome_log> logs(3);
  one.rig.ranks[0]->hold();
  one.rig.ranks[0]->submit_together(small_sums(one.rig, 0, {logs[0], logs[1]}));
  one.rig.submit(0, barrier{}, logs[2]);
  one.rig.ranks[0]->submit_together(small_sums(one.rig, 0, {logs[0], logs[1]}));
  one.rig.settle();
  CHECK(one.peers->notes.empty());
  CHECK(one.rig.ranks[0]->load() == 5);
  one.rig.ranks[0]->resume();
  one.rig.await_idle();
  one.rig.settle();
  REQUIRE(one.peers->notes.size() == 3);
  CHECK_THAT(one.peers->notes[0], ContainsSubstring("2 together"));
  CHECK(one.peers->notes[1] == "barrier");
  CHECK_THAT(one.peers->notes[2], ContainsSubstring("2 together"));
  for (const auto& log : logs) CHECK_FALSE(log.failure());
  CHECK(one.rig.close());
}

TEST_CASE("an operation that cannot be launched together is refused with all that came with it",
          "[collectives][fusion][ONE-1]") {
  noting_rig one;
  const buffer host = allocate_pinned(one.rig.devices[0], 16);
  const buffer memory = one.rig.numbers(0, 4, 1);
  operation odd = barrier{};
  SECTION("a barrier") {}
  SECTION("a copy") {
    odd = copy{memory.slice(0, 8), memory.slice(8, 8)};
  }
  SECTION("host memory") {
    odd = sum_of(host, host, 4);
  }
  std::vector<outcome_log> logs(3);
  std::vector<submission> batch = small_sums(one.rig, 0, logs);
  batch[1].what = odd;
  CHECK(error_of([&] { one.rig.ranks[0]->submit_together(std::move(batch)); }).code == errc::none);
  require_all(logs, effect::rejected);
  CHECK(one.rig.ranks[0]->load() == 0);
  CHECK(one.rig.ranks[0]->fault().code == errc::internal); // peers launch theirs
  CHECK_THAT(one.rig.ranks[0]->fault().text, ContainsSubstring(describe(odd)));
}

TEST_CASE("a batch waits for the ready events of all its members, and that is no hang",
          "[collectives][mock][fusion][TIM-1]") {
  const auto time = std::make_shared<manual_clock>();
  pipeline_rig rig{1,
                   {.limits = {.launch = 1s, .hang = 1s, .check_interval = 1ms}, .time = time},
                   [](rank self, const auto& gpu) { return std::make_shared<noting_peers>(self, 1, gpu); }};
  const stream client{rig.devices[0]};
  gate closed{rig.devices[0]};
  closed.hold(client);
  std::vector<outcome_log> logs(3);
  std::vector<submission> batch = small_sums(rig, 0, logs);
  std::get<all_reduce>(batch[2].what).send.ready = record_event(rig.devices[0], client);
  rig.ranks[0]->submit_together(std::move(batch));
  rig.settle();
  for (int i = 0; i < 50; ++i) {
    time->advance(100ms);
    rig.services.poller->step();
  }
  CHECK(rig.faults->all().empty());
  for (const auto& log : logs) CHECK(log.count() == 0);
  closed.open();
  while (rig.ranks[0]->load() > 0) rig.services.poller->step();
  for (const auto& log : logs) CHECK_FALSE(log.failure());
}

TEST_CASE("a rank says how far it has come: what it was last given, launched and finished", "[collectives][mock]") {
  pipeline_rig rig{2};
  const auto nothing = rig.ranks[0]->progress();
  CHECK_FALSE((nothing.submitted || nothing.launched || nothing.finished));
  outcome_log log;
  const auto both = [&](const std::function<void(std::size_t)>& ask) {
    ask(0);
    ask(1);
    rig.await_idle();
  };
  both([&](std::size_t r) {
    const buffer memory = rig.numbers(r, 4, 1);
    submission one = asked(sum_of(memory, memory, 4), log);
    one.from = request_origin{.position = 41};
    rig.ranks[r]->submit(std::move(one));
  });
  both([&](std::size_t r) {
    const buffer memory = rig.numbers(r, 4, 1);
    rig.submit(r,
               r == 0 ? operation{send{.memory = memory, .count = 4, .type = dtype::i32, .peer = rank{1}, .tag = 7}}
                      : operation{recv{.memory = memory, .count = 4, .type = dtype::i32, .peer = rank{0}, .tag = 7}},
               log);
  });
  CHECK(rig.ranks[0]->progress().finished->what == "send of 4 i32 to rank 1, tag 7");
  CHECK(rig.ranks[1]->progress().finished->what == "recv of 4 i32 from rank 0, tag 7");
  std::vector<outcome_log> logs(2);
  std::vector<submission> batch = small_sums(rig, 0, logs);
  batch[0].from = request_origin{.position = 42};
  batch[1].from = request_origin{.position = 43};
  rig.ranks[0]->submit_together(std::move(batch)); // and no peer comes
  rig.settle();
  rig.ranks[0]->hold();
  const buffer parts = rig.numbers(0, 8, 1);
  rig.submit(0, all_gather_v{.send = parts, .recv = parts, .recv_parts = partition::packed({3, 4})}, log);
  const pipeline_progress seen = rig.ranks[0]->progress();
  CHECK(seen.submitted->what == "all_gather_v of 7 f32");
  CHECK(seen.submitted->position == 1); // the second without an origin
  CHECK(seen.launched->what == "all_reduce of 4 i32, sum");
  CHECK(seen.launched->position == 43);
  CHECK(seen.finished->what == "send of 4 i32 to rank 1, tag 7");
  CHECK(seen.finished->lane == lane{});
}

TEST_CASE("progress is read whole while it is written", "[collectives]") {
  latest_sketch latest;
  std::atomic<bool> over{false};
  std::jthread writer{[&] {
    for (std::uint64_t i = 0; i < 20'000; ++i) latest.set({group{std::vector<operation>(2 + i % 3)}, {.position = i}});
    over = true;
  }};
  std::uint64_t last = 0;
  while (!over) {
    const auto seen = latest.get();
    if (!seen) continue;
    REQUIRE(seen->what == "group of " + std::to_string(2 + seen->position % 3));
    REQUIRE(seen->position >= last);
    last = seen->position;
  }
}

TEST_CASE("requests of a batch that want an event get one behind the batch, and the others none",
          "[collectives][mock][fusion][overlap]") {
  pipeline_rig rig{2};
  std::vector<std::vector<enqueued>> told(2, std::vector<enqueued>(3));
  std::vector<outcome_log> logs(6);
  for (std::size_t r = 0; r < 2; ++r) {
    std::vector<submission> all;
    for (std::size_t k = 0; k < 3; ++k) {
      const buffer memory = rig.numbers(r, 4, 1);
      all.push_back(asked(sum_of(memory, memory, 4), logs[r * 3 + k], 1h, k + 1));
      if (k == 1) continue;
      auto first = std::make_shared<value_promise<enqueued>>(
          [&told, r, k](std::variant<enqueued, error> result) { told[r][k] = std::get<enqueued>(std::move(result)); });
      all.back().reply = make_overlapped_promise(std::move(first), 1, std::move(all.back().reply));
    }
    rig.ranks[r]->submit_together(std::move(all));
  }
  rig.settle();
  rig.await_idle();
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(told[r][0].ranks.size() == 1);
    CHECK(told[r][1].ranks.empty());
    CHECK(told[r][0].ranks[0].behind == told[r][2].ranks[0].behind);
    CHECK(told[r][0].ranks[0].rank == rank{static_cast<int>(r)});
    CHECK(told[r][0].ticket == ticket{1});
    CHECK(told[r][2].ticket == ticket{3});
    CHECK(told[r][2].ranks[0].launch == logs[r * 3 + 1].success().launch);
    CHECK(told[r][0].ranks[0].behind->reached());
  }
  CHECK(rig.close());
}

TEST_CASE("a batch that cannot be launched fails in both answers of who wanted an event",
          "[collectives][mock][fusion][overlap][ONE-1]") {
  noting_rig one{};
  one.peers->script = [](stream_ref) { throw exception{errc::communicator_failed, "the launch failed"}; };
  error why;
  std::vector<outcome_log> logs(2);
  auto all = small_sums(one.rig, 0, logs);
  all[0].reply =
      make_overlapped_promise(std::make_shared<value_promise<enqueued>>([&why](std::variant<enqueued, error> result) {
                                why = std::get<error>(std::move(result));
                              }),
                              1, std::move(all[0].reply));
  one.rig.ranks[0]->submit_together(std::move(all));
  await_answers(logs);
  require_all(logs, effect::unknown_outcome);
  CHECK(why.code == errc::communicator_failed);
  CHECK(why.effect == effect::unknown_outcome);
}

} // namespace troupe::tests::rank_pipeline_fusion_test
