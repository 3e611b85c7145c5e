// When a peer, a launch or a device fails: every request is answered once, nothing of it is called a success, and
// buffers outlive whatever may still touch them.
#include "support/gate.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <latch>

using namespace troupe;
using namespace troupe::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A rank whose launches do what the test says.
class scripted_peers final : public communicator {
public:
  using communicator::communicator;
  void init() override { ++inits; }
  void warm_up(stream_ref) override { ++warm_ups; }
  void prepare_kernels(stream_ref) override { ++preparations; }
  void drained() noexcept override { was_drained = true; }
  bool do_launch(const operation& what, stream_ref stream, completion_word) override {
    ++launches;
    if (script) script(what, stream);
    return false;
  }
  void check() override {}
  void abort() override {
    aborted = true;
    if (abort_fails) throw exception{errc::device_failed, "the test says so"};
  }
  void destroy() override {}

  std::function<void(const operation&, stream_ref)> script;
  std::atomic<int> inits{0};
  std::atomic<int> warm_ups{0};
  std::atomic<int> preparations{0};
  std::atomic<bool> was_drained{false};
  std::atomic<int> launches{0};
  std::atomic<bool> aborted{false};
  bool abort_fails = false;
};

struct scripted_rig {
  std::shared_ptr<scripted_peers> peers;
  pipeline_rig rig;

  explicit scripted_rig(const pipeline_options& options = {})
    : rig{1, options,
          [this](rank self, const auto& gpu) { return peers = std::make_shared<scripted_peers>(self, 1, gpu); }} {}
};

/// Whether each has exactly one outcome, an error of \p wanted effect.
void require_failed(const std::vector<outcome_log>& logs, effect wanted) {
  for (const auto& log : logs) {
    REQUIRE(log.count() == 1);
    CHECK(log.failure().code != errc::none);
    CHECK(log.failure().effect == wanted);
  }
}

} // namespace

TEST_CASE("a peer that never comes: failing answers with unknown outcome, aborting lets the buffers go",
          "[collectives][mock][ONE-1][ONE-2][BUF-1]") {
  const auto reports = leak_count();
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  CAPTURE(to_string(strategy));
  {
    pipeline_rig rig{2, {.strategy = strategy}};
    std::vector<outcome_log> logs(3);
    std::weak_ptr<void> owner;
    for (const auto& log : logs) {
      const buffer memory = watched(rig.devices[0], rig.numbers(0, 8, 1), owner);
      rig.submit(0, sum_of(memory, memory, 8), log);
    }
    rig.settle();
    CHECK(logs[0].count() == 0);
    CHECK_FALSE(rig.ranks[0]->drain(0s));
    CHECK(rig.ranks[0]->fail({.code = errc::deadline_exceeded, .text = "hung"}));
    CHECK_FALSE(rig.ranks[0]->fail({.code = errc::internal, .text = "later"}));
    CHECK(rig.ranks[0]->failed());
    REQUIRE(comes_true([&] { return logs.back().count() > 0; }));
    require_failed(logs, effect::unknown_outcome);
    CHECK(logs[0].failure().text == "hung");
    CHECK(logs[0].failure().epoch == rig_epoch);
    CHECK_FALSE(owner.expired()); // still the device's
    rig.abort({.code = errc::communicator_failed});
    rig.await_idle();
    CHECK(owner.expired());
    const outcome_log late;
    const buffer memory = rig.numbers(0, 8, 1);
    rig.submit(0, sum_of(memory, memory, 8), late);
    rig.await_idle();
    CHECK(late.count() == 1);
    CHECK(late.failure().effect == effect::rejected);
    for (const auto& log : logs) CHECK(log.count() == 1);
    CHECK(rig.faults->all().empty()); // it was the owner who failed it
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("ranks that ask for different things hear of it instead of hanging", "[collectives][mock][ORD-2]") {
  pipeline_rig rig{2};
  std::vector<outcome_log> logs(2);
  for (std::size_t i = 0; i < 2; ++i) {
    const buffer memory = rig.numbers(i, 8, 1);
    rig.submit(i, sum_of(memory, memory, 4 + i), logs[i]);
  }
  const error why = rig.faults->await().second;
  CHECK(why.code == errc::mismatch);
  CHECK_THAT(why.text, ContainsSubstring("4 i32") && ContainsSubstring("5 i32"));
  rig.abort(why);
  rig.await_idle();
  require_failed(logs, effect::unknown_outcome);
}

TEST_CASE("a library's failure is reported as the device's error if the device is lost for good",
          "[collectives][mock][ONE-2]") {
  const errc code = GENERATE(errc::device_failed, errc::process_poisoned);
  CAPTURE(to_string(code));
  scripted_rig at;
  at.peers->script = [&at, code](const operation& what, stream_ref stream) {
    at.rig.api->fail_next(device_id{0}, {.code = code, .text = "an illegal address, injected"});
    const auto& one = std::get<all_reduce>(what);
    stream.fill(one.recv.memory.data(), 0, one.recv.memory.size_bytes()); // what fails
    CHECK(error_of([&] { stream.synchronize(); }).code == code);
    throw exception{{.code = errc::device_failed, .text = "a CUDA call inside the library failed"}};
  };
  outcome_log log;
  const buffer memory = at.rig.numbers(0, 8, 1);
  at.rig.submit(0, sum_of(memory, memory, 8), log);
  const auto [who, why] = at.rig.faults->await();
  CHECK(why.code == code);
  CHECK_THAT(why.text, ContainsSubstring(code == errc::process_poisoned ? "an illegal address, injected"
                                                                        : "a CUDA call inside the library failed"));
  CHECK(why.rank == rank{0});
}

TEST_CASE("a device that fails late is reported once, and no answer is lost or wrongly a success",
          "[collectives][mock][ONE-1][ONE-2]") {
  constexpr std::size_t count = 30;
  const auto reports = leak_count();
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  const errc code = GENERATE(errc::device_failed, errc::process_poisoned);
  const std::size_t healthy = GENERATE(0U, 5U);
  CAPTURE(to_string(strategy), to_string(code), healthy);
  {
    pipeline_rig rig{2, {.strategy = strategy}};
    std::vector<outcome_log> logs[2] = {std::vector<outcome_log>(count), std::vector<outcome_log>(count)};
    std::vector<buffer> memory[2];
    for (std::size_t k = 0; k < count; ++k) // before the device fails, which an allocation would be told first
      for (std::size_t i = 0; i < 2; ++i) memory[i].push_back(rig.numbers(i, 8, static_cast<std::int32_t>(k)));
    for (std::size_t k = 0; k < count; ++k) {
      if (k == healthy) rig.api->fail_next(device_id{1}, {.code = code, .text = "injected"});
      for (std::size_t i = 0; i < 2; ++i) rig.submit(i, sum_of(memory[i][k], memory[i][k], 8), logs[i][k]);
    }
    const auto [who, why] = rig.faults->await();
    CHECK(why.code == code);
    CHECK(why.rank == who);
    rig.abort(why);
    rig.await_idle();
    for (std::size_t i = 0; i < 2; ++i) {
      bool failed = false;
      for (std::size_t k = 0; k < count; ++k) {
        CAPTURE(i, k);
        REQUIRE(logs[i][k].count() == 1);
        const bool ok = !logs[i][k].failure();
        CHECK_FALSE((ok && failed)); // nothing behind a failed one succeeds
        failed = failed || !ok;
        if (ok) CHECK(holds(memory[i][k], 8, 2 * static_cast<std::int32_t>(k)));
      }
      CHECK(failed);
    }
    // Poison is every rank's; any other fault is the one rank's. None is told twice.
    const auto told = rig.faults->all();
    if (code == errc::device_failed) CHECK((told.size() == 1 && who == rank{1}));
    CHECK((told.size() == 1 || (told.size() == 2 && told[0].first != told[1].first)));
  }
  CHECK(leak_count() == reports);
}

TEST_CASE("after a launch that failed nothing more is launched, since peers would meet the wrong operation",
          "[collectives][ORD-1][ONE-2]") {
  scripted_rig one;
  one.peers->script = [&](const operation&, stream_ref) {
    if (one.peers->launches == 3) throw exception{errc::communicator_failed, "its own"};
  };
  std::latch all_posted{1};
  one.rig.launchers[0]->post([&] { all_posted.wait(); }); // so that all are queued when the third fails
  std::vector<outcome_log> logs(8);
  for (const auto& log : logs) {
    const buffer memory = one.rig.numbers(0, 4, 1);
    one.rig.submit(0, sum_of(memory, memory, 4), log);
  }
  all_posted.count_down();
  one.rig.settle();
  CHECK(one.peers->launches == 3);
  const auto [who, why] = one.rig.faults->await();
  CHECK(why.text == "its own");
  CHECK(why.rank == rank{0});
  REQUIRE(comes_true([&] { return logs.back().count() > 0; }));
  CHECK(logs[2].failure().text == "its own");
  CHECK(logs[2].failure().effect == effect::unknown_outcome);
  for (std::size_t i = 3; i < logs.size(); ++i) CHECK(logs[i].failure().effect == effect::rejected);
  for (const auto& log : logs) CHECK(log.count() == 1);
  CHECK(one.rig.faults->all().size() == 1);
}

TEST_CASE("an abort waits for a launch that is under way, whose work may still touch the buffers",
          "[collectives][BUF-1]") {
  scripted_rig one;
  std::latch entered{1};
  std::atomic<bool> left{false};
  one.peers->script = [&](const operation& what, stream_ref stream) {
    entered.count_down();
    REQUIRE(comes_true([&] { return one.peers->aborted.load(); }));
    for (int i = 0; i < 2000; ++i) std::this_thread::yield(); // gives an abort that does not wait every chance
    stream.fill(std::get<all_reduce>(what).recv.memory.data(), 7, 4096);
    left = true;
  };
  std::weak_ptr<void> owner;
  const outcome_log log;
  {
    const buffer memory = watched(one.rig.devices[0], one.rig.numbers(0, 1024, 1), owner);
    one.rig.submit(0, sum_of(memory, memory, 1024), log);
  }
  entered.wait();
  one.rig.abort({.code = errc::communicator_failed});
  CHECK(left);
  one.rig.await_idle();
  REQUIRE(comes_true([&] { return owner.expired(); })); // an address sanitizer sees a fill that comes too late
  CHECK(log.failure().effect == effect::unknown_outcome);
}

TEST_CASE("a launch that fails behind its own work keeps the buffers until the abort", "[collectives][BUF-1]") {
  scripted_rig one;
  gate closed{one.rig.devices[0]};
  one.peers->script = [&](const operation& what, stream_ref stream) {
    closed.hold(stream);
    stream.fill(std::get<all_reduce>(what).recv.memory.data(), 7, 4096);
    throw exception{errc::communicator_failed, "behind the work"};
  };
  std::weak_ptr<void> owner;
  const outcome_log log;
  {
    const buffer memory = watched(one.rig.devices[0], one.rig.numbers(0, 1024, 1), owner);
    one.rig.submit(0, sum_of(memory, memory, 1024), log);
  }
  one.rig.settle();
  REQUIRE(comes_true([&] { return log.count() > 0; }));
  CHECK(log.failure().text == "behind the work");
  CHECK_FALSE(owner.expired());
  closed.open();
  one.rig.abort({.code = errc::communicator_failed});
  REQUIRE(comes_true([&] { return owner.expired(); }));
}

TEST_CASE("a hang is reported after its time on the device, and waiting for a client's work is none",
          "[collectives][mock][TIM-1]") {
  const auto time = std::make_shared<manual_clock>();
  pipeline_rig rig{2, {.limits = {.launch = 1s, .hang = 1s, .check_interval = 1ms}, .time = time}};
  const auto pass = [&](nanoseconds span) {
    for (nanoseconds gone{0}; gone < span; gone += 100ms) {
      time->advance(100ms);
      rig.services.poller->step();
    }
  };
  const stream client{rig.devices[0]};
  gate closed{rig.devices[0]};
  closed.hold(client);
  const buffer memory = rig.numbers(0, 8, 1);
  const outcome_log log;
  const shared_event ready = record_event(rig.devices[0], client);
  rig.submit(0, all_reduce{.send = {memory, ready}, .recv = memory, .count = 8, .type = dtype::i32}, log);
  rig.settle();
  pass(20s);
  CHECK(rig.faults->all().empty());
  closed.open();
  REQUIRE(comes_true([&] { return ready->reached(); }));
  pass(3s); // and no peer comes
  REQUIRE(rig.faults->all().size() == 1);
  CHECK(rig.faults->all()[0].second.code == errc::deadline_exceeded);
  CHECK(rig.faults->all()[0].first == rank{0});
  CHECK(rig.ranks[0]->failed()); // at once, not only when the owner has heard of it
  pass(100ms);
  CHECK(log.count() == 1);
  CHECK(log.failure().effect == effect::unknown_outcome);
}

TEST_CASE("a rank that was aborted before it had a stream makes none later, and does not form",
          "[collectives][TIM-1]") {
  const bool is_formed = GENERATE(false, true);
  pipeline_rig rig{1};
  const auto peers = std::make_shared<scripted_peers>(rank{0}, 1, rig.devices[0]);
  const auto late = rank_pipeline::create(rig.services, peers, rig.launchers[0], rig_epoch, [](const error&) {});
  late->fail({.code = errc::deadline_exceeded, .text = "the forming took too long"});
  late->abort();
  const std::size_t streams = rig.api->stream_count(device_id{0});
  const error why = error_of([&] { is_formed ? late->init_formed() : late->init(); });
  CHECK(why.text == "the forming took too long");
  CHECK(peers->inits == 0);
  CHECK(rig.api->stream_count(device_id{0}) == streams);
}

TEST_CASE("a communicator prepares its kernels however its world forms, and is told when its rank's stream is drained",
          "[collectives]") {
  const bool is_formed = GENERATE(false, true);
  const bool is_aborted = GENERATE(false, true);
  pipeline_rig rig{1};
  const auto peers = std::make_shared<scripted_peers>(rank{0}, 1, rig.devices[0]);
  const auto one = rank_pipeline::create(rig.services, peers, rig.launchers[0], rig_epoch, [](const error&) {});
  is_formed ? one->init_formed() : one->init();
  CHECK(peers->warm_ups == (is_formed ? 0 : 1));
  CHECK(peers->preparations == (is_formed ? 1 : 0));
  CHECK_FALSE(peers->was_drained);
  is_aborted ? one->abort() : one->close();
  CHECK(peers->was_drained);
}

TEST_CASE("a communicator is told that its rank's work has ended if its device has failed", "[collectives]") {
  scripted_rig one;
  pipeline_rig& rig = one.rig;
  outcome_log log;
  const buffer memory = rig.numbers(0, 8, 1);
  one.peers->script = [&rig](const operation& what, stream_ref stream) {
    rig.api->fail_next(device_id{0}, {.code = errc::process_poisoned, .text = "injected"});
    const auto& sum = std::get<all_reduce>(what);
    stream.fill(sum.recv.memory.data(), 0, sum.recv.memory.size_bytes());
  };
  rig.submit(0, sum_of(memory, memory, 8), log);
  static_cast<void>(rig.faults->await());
  rig.abort({.code = errc::communicator_failed, .text = "the test says so"});
  CHECK(one.peers->aborted);
  CHECK(one.peers->was_drained); // a failed device accesses nothing any more
}

TEST_CASE("a rank that is aborted and gone before the poller looks has its requests answered with the fault",
          "[collectives][mock][ONE-1][ONE-2][BUF-1]") {
  std::weak_ptr<void> owner;
  pipeline_rig rig{2, {.time = std::make_shared<manual_clock>()}};
  const outcome_log log;
  {
    const buffer memory = watched(rig.devices[0], rig.numbers(0, 8, 1), owner);
    rig.submit(0, all_reduce{memory, memory, 8, dtype::i32}, log);
  }
  rig.settle(); // launched, and its peer never comes
  rig.abort({.code = errc::communicator_failed, .text = "the test says so"});
  rig.settle();
  rig.release_ranks();
  CHECK(log.count() == 0);
  rig.services.poller->step();
  REQUIRE(log.count() == 1);
  CHECK(log.failure().code == errc::communicator_failed);
  CHECK(log.failure().effect == effect::unknown_outcome);
  rig.services.poller->step();
  CHECK(owner.expired());
}

TEST_CASE("a rank whose abort fails is let go of with its buffers, once its requests have been answered",
          "[collectives][mock][ONE-1][BUF-1]") {
  std::weak_ptr<void> owner;
  scripted_rig one{{.time = std::make_shared<manual_clock>()}};
  pipeline_rig& rig = one.rig;
  const outcome_log log;
  {
    const buffer memory = watched(rig.devices[0], rig.numbers(0, 8, 1), owner);
    rig.submit(0, all_reduce{memory, memory, 8, dtype::i32}, log);
  }
  rig.settle();
  one.peers->abort_fails = true;
  rig.ranks[0]->fail({.code = errc::communicator_failed, .text = "the test says so"});
  CHECK_THROWS_AS(rig.ranks[0]->abort(), exception);
  CHECK_FALSE(one.peers->was_drained); // its stream has not been waited for
  rig.ended = true;
  rig.services.poller->step();
  CHECK(log.failure().code == errc::communicator_failed);
  CHECK_FALSE(owner.expired()); // the device may still touch them
  rig.settle();
  rig.release_ranks();
  rig.services.poller->step();
  CHECK(owner.expired());
}
