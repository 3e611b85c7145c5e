// From request to answer, when all is well: every rank's stream, launcher and the one poller together.
#include "support/at_its_end.hpp"
#include "support/gate.hpp"
#include "support/parked_poller.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

using namespace troupe;
using namespace troupe::tests;

namespace {

/// A rank that writes down what it launches.
class noting_peers final : public communicator {
public:
  using communicator::communicator;
  void init() override {}
  bool do_launch(const operation& what, stream_ref, completion_word) override {
    notes.push_back(describe(what));
    return false;
  }
  void check() override {}
  void abort() override {}
  void destroy() override {}

  std::vector<std::string> notes; ///< The launcher's until it is settled.
};

/// Notes the outcome, and holds the launcher after the launch until its operation has ended.
class slow_launch final : public outcome_sink,
                          public launch_listener,
                          public std::enable_shared_from_this<slow_launch> {
public:
  void deliver(outcome result) noexcept override { seen.set_value(std::move(result)); }
  void release() noexcept override {} // the test holds it
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept override {
    return std::const_pointer_cast<slow_launch>(shared_from_this());
  }
  void enqueued(const launch_mark& mark) noexcept override {
    has_ended = comes_true([&] { return mark.behind->reached(); });
    std::this_thread::sleep_for(20ms); // in which the poller looks, finds nothing launched, and sleeps again
  }

  bool has_ended = false;
  std::promise<outcome> seen;
};

} // namespace

TEST_CASE("an operation that ends before the poller can see its launch wakes the poller", "[collectives][mock]") {
  pipeline_rig rig{1, {.strategy = completion_strategy::host_fn, .wait = {.spin = 0s, .nap = 1h, .sleep = 1h}}};
  const auto one = std::make_shared<slow_launch>();
  constexpr std::size_t count = 1U << 20U; // not short: its mark is in the stream before its launch is visible
  const buffer memory = rig.numbers(0, count, 1);
  auto seen = one->seen.get_future();
  rig.ranks[0]->submit(
      {.name = ticket{1}, .what = sum_of(memory, memory, count), .deadline = 1h, .reply = reply_promise{*one}});
  REQUIRE(seen.wait_for(60s) == std::future_status::ready);
  CHECK(failure_of(seen.get()) == nullptr);
  CHECK(one->has_ended);
  CHECK(rig.close());
}

TEST_CASE("where its end rings, a request wakes the poller only if the poller must look at it before it would anyway",
          "[collectives][mock][TIM-1]") {
  struct row {
    completion_strategy strategy;
    nanoseconds idle; ///< The time of the poller since its last work.
    nanoseconds deadline;
    nanoseconds quiet;
    bool wakes;
  };
  const auto [strategy, idle, deadline, quiet, wakes] = GENERATE(
      row{completion_strategy::host_fn, 5ms, 1h, 20ms, false}, row{completion_strategy::host_fn, 5ms, 19ms, 20ms, true},
      row{completion_strategy::host_fn, 5ms, 1h, 19ms, true}, row{completion_strategy::host_fn, 1h, 1h, 20ms, true},
      row{completion_strategy::flag, 5ms, 1h, 20ms, true});
  CAPTURE(strategy, idle, deadline, quiet);
  parked_poller one{idle};
  pipeline_rig rig{1, {.strategy = strategy, .limits = {.quiet = quiet}, .time = one.time, .poller = one.watch}};
  std::promise<void> go;
  rig.launchers[0]->post([until = go.get_future().share()] { until.wait(); }); // nothing ends meanwhile
  const outcome_log log;
  const buffer memory = rig.numbers(0, 4, 1);
  CHECK(one.is_woken_by([&, until = deadline] {
    rig.ranks[0]->submit(
        {.name = ticket{1}, .what = sum_of(memory, memory, 4), .deadline = until, .reply = log.make_reply_promise()});
  }) == wakes);
  go.set_value();
  await("the answer", [&] { return one.watch->step(), log.count() == 1; });
}

TEST_CASE("a request that will not be launched, so that nothing will ring, wakes the poller",
          "[collectives][mock][ONE-1]") {
  parked_poller one{5ms};
  pipeline_rig rig{1, {.strategy = completion_strategy::host_fn, .time = one.time, .poller = one.watch}};
  const outcome_log log;
  const buffer memory = rig.numbers(0, 4, 1);
  SECTION("after a fault") {
    rig.ranks[0]->fail({.code = errc::communicator_failed, .text = "the test's fault"});
  }
  SECTION("without a launcher") {
    rig.settle();
    const std::weak_ptr<launcher> ended{std::exchange(rig.launchers[0], nullptr)};
    rig.launchers.clear();
    await("the launcher's end", [&] { return ended.expired(); });
  }
  CHECK(one.is_woken_by([&] {
    rig.ranks[0]->submit(
        {.name = ticket{1}, .what = sum_of(memory, memory, 4), .deadline = 1h, .reply = log.make_reply_promise()});
  }));
  await("the answer", [&] { return one.watch->step(), log.count() == 1; });
  CHECK(log.failure());
}

TEST_CASE("ranks of one process reduce together, and each is answered with its times in order",
          "[collectives][mock][ONE-1]") {
  const auto reports = leak_count();
  const int size = GENERATE(2, 3, 4);
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  CAPTURE(size, to_string(strategy));
  {
    pipeline_rig rig{size, {.strategy = strategy}};
    for (const std::size_t count : {0U, 1U, 1001U})
      for (const bool in_place : {true, false}) {
        CAPTURE(count, in_place);
        std::vector<outcome_log> logs(rig.ranks.size());
        std::vector<buffer> outputs;
        for (std::size_t i = 0; i < logs.size(); ++i) {
          const buffer send = rig.numbers(i, count, static_cast<std::int32_t>(i) + 1);
          outputs.push_back(in_place ? send : rig.numbers(i, count, -1));
          rig.submit(i, sum_of(send, outputs.back(), count), logs[i]);
        }
        rig.await_idle();
        for (std::size_t i = 0; i < logs.size(); ++i) {
          REQUIRE(logs[i].count() == 1);
          REQUIRE(logs[i].failure().text.empty());
          const completion seen = logs[i].success();
          CHECK(seen.epoch == rig_epoch);
          CHECK(seen.times.queued <= seen.times.launched);
          CHECK(seen.times.launched <= seen.times.done);
          CHECK(holds(outputs[i], count, size * (size + 1) / 2));
        }
      }
    CHECK(rig.close());
    CHECK(rig.faults->all().empty());
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("a barrier is answered only when every rank has come to it", "[collectives][mock]") {
  pipeline_rig rig{3};
  std::vector<outcome_log> logs(3);
  rig.submit(0, barrier{}, logs[0]);
  rig.submit(1, barrier{}, logs[1]);
  rig.settle();
  CHECK(logs[0].count() + logs[1].count() == 0);
  rig.submit(2, barrier{}, logs[2]);
  rig.await_idle();
  for (const auto& log : logs) CHECK_FALSE(log.failure());
  CHECK(rig.close());
}

TEST_CASE("a copy goes from host to device and back on its rank alone, in stream order", "[collectives][mock]") {
  constexpr std::size_t count = 257;
  pipeline_rig rig{2};
  const buffer from = allocate_pinned(rig.devices[1], count * 4);
  const buffer to = allocate_pinned(rig.devices[1], count * 4);
  const buffer memory = rig.numbers(1, count, 0);
  for (auto& one : from.host_span<std::int32_t>()) one = 42;
  outcome_log logs[2];
  rig.submit(1, copy{from, memory}, logs[0]);
  rig.submit(1, copy{memory, to}, logs[1]);
  rig.await_idle();
  CHECK_FALSE(logs[0].failure());
  CHECK_FALSE(logs[1].failure());
  CHECK(holds(to, count, 42));
  CHECK(rig.close());
}

TEST_CASE("a ready event holds an operation back until the client's work is done, and is held until then",
          "[collectives][mock][BUF-1]") {
  constexpr std::size_t count = 64;
  pipeline_rig rig{2};
  const buffer input = rig.numbers(0, count, 1);
  const buffer other = rig.numbers(1, count, 10);
  const stream client{rig.devices[0]};
  gate closed{rig.devices[0]};
  closed.hold(client);
  client.ref().fill(input.data(), 0, input.size_bytes()); // what the reduction must see
  shared_event recorded = record_event(rig.devices[0], client);
  const std::weak_ptr<const event> seen = recorded;
  std::vector<outcome_log> logs(2);
  rig.submit(0, all_reduce{.send = {input, std::move(recorded)}, .recv = input, .count = count, .type = dtype::i32},
             logs[0]);
  rig.submit(1, sum_of(other, other, count), logs[1]);
  rig.settle();
  CHECK(logs[0].count() == 0);
  CHECK(logs[1].count() == 0);
  CHECK_FALSE(seen.expired());
  CHECK(holds(other, count, 10));
  closed.open();
  rig.await_idle();
  CHECK(seen.expired());
  CHECK_FALSE(logs[0].failure());
  CHECK(holds(input, count, 10));
  CHECK(holds(other, count, 10));
  CHECK(rig.close());
}

TEST_CASE("operations are launched in the order in which they were submitted", "[collectives][ORD-1]") {
  constexpr std::size_t count = 300;
  std::shared_ptr<noting_peers> peers;
  pipeline_rig rig{
      1, {}, [&](rank self, const auto& gpu) { return peers = std::make_shared<noting_peers>(self, 1, gpu); }};
  const buffer memory = rig.numbers(0, count, 0);
  const outcome_log log;
  for (std::size_t i = 0; i < count; ++i) {
    rig.submit(0, sum_of(memory, memory, i), log);
    if (i % 3 == 0) rig.submit(0, copy{memory.slice(0, 4), memory.slice(4, 4)}, log); // takes its place, meets nobody
  }
  rig.await_idle();
  rig.settle();
  REQUIRE(peers->notes.size() == count);
  for (std::size_t i = 0; i < count; ++i) CHECK(peers->notes[i] == describe(sum_of(memory, memory, i)));
  std::uint64_t last = 0;
  for (const outcome& one : log.all()) {
    CHECK(std::get<completion>(one).ticket.value() == last + 1); // answered in the same order
    last = std::get<completion>(one).ticket.value();
  }
  CHECK(rig.close());
}

TEST_CASE("many operations of ranks that run ahead of each other all meet their own kind",
          "[collectives][mock][ORD-1]") {
  constexpr std::size_t count = 100;
  pipeline_rig rig{4};
  std::vector<outcome_log> logs(4);
  std::vector<std::vector<buffer>> outputs(4);
  {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < 4; ++i)
      clients.emplace_back([&, i] {
        for (std::size_t k = 0; k < count; ++k) {
          outputs[i].push_back(rig.numbers(i, k, static_cast<std::int32_t>(k)));
          rig.ranks[i]->submit(ticket{k}, sum_of(outputs[i][k], outputs[i][k], k), 1h, logs[i].make_reply_promise());
        }
      });
  }
  rig.await_idle();
  for (std::size_t i = 0; i < 4; ++i) {
    REQUIRE(logs[i].count() == count);
    for (const outcome& one : logs[i].all()) CHECK(failure_of(one) == nullptr);
    for (std::size_t k = 0; k < count; ++k) CHECK(holds(outputs[i][k], k, 4 * static_cast<std::int32_t>(k)));
  }
  CHECK(rig.close());
}

TEST_CASE("buffers go when the answer comes, and not before", "[collectives][mock][BUF-1]") {
  pipeline_rig rig{2};
  std::weak_ptr<void> owner;
  outcome_log logs[2];
  {
    const buffer memory = watched(rig.devices[0], rig.numbers(0, 8, 1), owner);
    rig.submit(0, sum_of(memory, memory, 8), logs[0]);
  }
  rig.settle();
  CHECK_FALSE(owner.expired());
  const buffer other = rig.numbers(1, 8, 2);
  rig.submit(1, sum_of(other, other, 8), logs[1]);
  REQUIRE(comes_true([&] { return owner.expired(); }));
  CHECK_FALSE(logs[0].failure());
  CHECK(holds(other, 8, 3));
  CHECK(rig.close());
}

TEST_CASE("a closed rank rejects what comes later, and a deadline for ever is none",
          "[collectives][mock][ONE-1][TIM-1]") {
  const auto reports = leak_count();
  {
    pipeline_rig rig{1, {}, [](rank, const auto& gpu) { return std::make_shared<solo_communicator>(gpu); }};
    const buffer memory = rig.numbers(0, 4, 1);
    const outcome_log patient;
    rig.submit(0, sum_of(memory, memory, 4), patient, nanoseconds::max());
    rig.await_idle();
    CHECK_FALSE(patient.failure());
    CHECK(rig.close());
    CHECK_FALSE(rig.ranks[0]->loaded());
    const outcome_log late;
    rig.submit(0, sum_of(memory, memory, 4), late);
    rig.await_idle();
    REQUIRE(late.count() == 1);
    CHECK(late.failure().code == errc::stopping);
    CHECK(late.failure().effect == effect::rejected);
    CHECK(rig.faults->all().empty());
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("worlds that come and go leave no completion slot behind, closed or aborted", "[collectives][mock]") {
  const auto reports = leak_count();
  pipeline_rig rig{1, {}, [](rank, const auto& gpu) { return std::make_shared<solo_communicator>(gpu); }};
  rig.services.slots = std::make_shared<slot_table>(rig.devices[0], 1);
  const auto make = [&] {
    return rank_pipeline::create(rig.services, std::make_shared<solo_communicator>(rig.devices[0]), rig.launchers[0],
                                 rig_epoch, [](const error&) {});
  };
  // A look that is under way holds the last life's slot a moment longer; one that leaked would be waited for in vain.
  const auto make_when_free = [&] {
    std::shared_ptr<rank_pipeline> made;
    await("a free slot", [&] {
      try {
        made = make();
      } catch (const exception&) { // not yet
      }
      return made != nullptr;
    });
    return made;
  };
  for (int life = 0; life < 12; ++life) {
    CAPTURE(life);
    const auto one = make_when_free();
    CHECK(error_of([&] { static_cast<void>(make()); }).code == errc::out_of_memory); // and nothing breaks
    if (life % 3 == 0) continue;                                                     // never formed
    one->init();
    const buffer memory = rig.numbers(0, 4, 1);
    const outcome_log log;
    one->submit(ticket{1}, sum_of(memory, memory, 4), 1h, log.make_reply_promise());
    REQUIRE(one->drain(60s));
    life % 3 == 1 ? one->close() : one->abort();
    rig.settle();
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("objects of work that waits for a resume may use the pipeline when they end", "[collectives]") {
  pipeline_rig rig{1};
  rank_pipeline& one = *rig.ranks[0];
  bool has_ended = false;
  one.hold();
  one.sequence([owned = at_its_end([&] {
                  one.resume();
                  has_ended = true;
                })](rank_pipeline&) {});
  SECTION("it is dropped when the pipeline is closed") {
    CHECK(rig.close());
    CHECK(has_ended);
  }
  SECTION("it is resumed when the launcher has ended") {
    std::weak_ptr<launcher> ended = rig.launchers[0];
    rig.launchers[0] = std::make_shared<launcher>(rig.devices[0], wait_profile{.spin = 0s}, 1ms); // of nobody
    await("the launcher's end", [&] { return ended.expired(); });
    one.resume();
    CHECK(has_ended);
  }
}
