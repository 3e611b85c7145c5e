// Plans on pipelines, without actors: their graphs' lives, and captures for another epoch.
#include "support/at_its_end.hpp"
#include "support/gate.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/capture_match.hpp>
#include <troupe/collectives/pipeline/plans/capture_session.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/serving_lease.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <stdexcept>

namespace troupe::tests::captured_plan_test {

using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t count = 8;
constexpr world_stamp rig_stamp{0, rig_epoch};

using pipelines = std::vector<std::shared_ptr<rank_pipeline>>;

/// Captures \p plan on \p ranks as a world does. errc::none, or why not.
error capture(const std::shared_ptr<captured_plan>& plan, const pipelines& ranks, world_stamp stamp = rig_stamp) {
  const auto session =
      std::make_shared<capture_session>(plan, ranks, stamp, std::chrono::steady_clock::now() + 60s,
                                        std::make_shared<capture_match>(static_cast<int>(ranks.size())));
  for (const auto& one : ranks) one->sequence([session](rank_pipeline& self) { session->take_part(self); });
  return error_of([&] { session->wait(); });
}

/// Two ranks that hold 1 and 2, and a plan that sums them in place.
struct plan_rig {
  pipeline_rig rig{2};
  std::vector<buffer> values{rig.numbers(0, count, 1), rig.numbers(1, count, 2)};
  std::atomic<int> calls{0};
  std::shared_ptr<captured_plan> plan = std::make_shared<captured_plan>(
      [this](rank_capture& one) {
        ++calls;
        const buffer& mine = values[static_cast<std::size_t>(one.self().value())];
        one.launch(sum_of(mine, mine, count));
      },
      plan_options{});

  [[nodiscard]] std::size_t graphs() const { return rig.api->graph_count(); }
  /// All answers are in \p log when the ranks are idle.
  void replay_on_all(const outcome_log& log, const std::shared_ptr<captured_plan>& which) {
    for (std::size_t r = 0; r < 2; ++r) rig.submit(r, replay{which}, log);
  }
  [[nodiscard]] bool all_hold(std::int32_t value) const {
    return holds(values[0], count, value) && holds(values[1], count, value);
  }
};

/// The next epoch's pipelines on the devices of \p rig.
struct next_epoch {
  static constexpr epoch number{rig_epoch.value() + 1};
  pipelines ranks;

  explicit next_epoch(pipeline_rig& rig) {
    const auto kind = make_mock_backend();
    const unique_id id = kind->make_unique_id();
    for (std::size_t r = 0; r < rig.devices.size(); ++r)
      ranks.push_back(rank_pipeline::create(
          rig.services,
          kind->create(id, rank{static_cast<int>(r)}, static_cast<int>(rig.devices.size()), rig.devices[r]),
          rig.launchers[r], number, {}));
    on_all([](rank_pipeline& one) { one.init(); });
  }
  ~next_epoch() {
    on_all([](rank_pipeline& one) { one.close(); });
  }
  void on_all(const std::function<void(rank_pipeline&)>& work) {
    std::vector<std::jthread> helpers;
    for (const auto& one : ranks) helpers.emplace_back([&work, &one] { work(*one); });
  }
};

} // namespace

TEST_CASE("a plan is replayed on its ranks as often as it is asked for", "[collectives][plans]") {
  plan_rig with;
  REQUIRE(capture(with.plan, with.rig.ranks).code == errc::none);
  CHECK(with.calls == 2);
  CHECK(with.graphs() == 2);
  CHECK(with.all_hold(1) == false); // nothing has run
  outcome_log log;
  for (int i = 0; i < 3; ++i) with.replay_on_all(log, with.plan);
  REQUIRE(with.rig.close());
  CHECK(log.count() == 6);
  CHECK(log.failure().code == errc::none);
  CHECK(with.all_hold(12)); // 3, 6, 12
  CHECK(with.calls == 2);
  CHECK(with.graphs() == 0);
}

TEST_CASE("a plan's graphs end on the launchers' threads when its last holder drops it",
          "[collectives][plans][BUF-1]") {
  plan_rig with;
  REQUIRE(capture(with.plan, with.rig.ranks).code == errc::none);
  gate closed{with.rig.devices[0]};
  const stream held{with.rig.devices[0]};
  closed.hold(held);
  outcome_log log;
  const shared_event ready = record_event(with.rig.devices[0], held);
  for (std::size_t r = 0; r < 2; ++r) // a request that waits, and behind it the replay
    with.rig.submit(r,
                    all_reduce{.send = {with.values[r], r == 0 ? ready : nullptr},
                               .recv = with.values[r],
                               .count = count,
                               .type = dtype::i32},
                    log);
  with.replay_on_all(log, with.plan);
  with.plan = nullptr;
  with.rig.settle();
  CHECK(with.graphs() == 2); // the replays hold it
  closed.open();
  with.rig.await_idle();
  CHECK(log.failure().code == errc::none);
  CHECK(with.all_hold(6));
  REQUIRE(comes_true([&] { return with.graphs() == 0; })); // the poller drops the last, and the launchers do it
}

TEST_CASE("graphs end before their communicator is aborted, and a replay is refused", "[collectives][plans][BUF-1]") {
  plan_rig with;
  REQUIRE(capture(with.plan, with.rig.ranks).code == errc::none);
  with.rig.abort({.code = errc::device_failed, .text = "the test says so"});
  CHECK(with.graphs() == 0);
  outcome_log log;
  with.replay_on_all(log, with.plan);
  with.rig.settle();
  REQUIRE(comes_true([&] { return log.count() >= 2; }));
  CHECK(log.failure().effect == effect::rejected);
}

TEST_CASE("a plan is captured again for a new epoch by its function, and then belongs to that",
          "[collectives][plans][EPO-1]") {
  plan_rig with;
  REQUIRE(capture(with.plan, with.rig.ranks).code == errc::none);
  CHECK_FALSE(with.plan->objection_to_replay(rig_stamp));
  next_epoch next{with.rig};
  const world_stamp renewed{0, next_epoch::number};
  CHECK(with.plan->objection_to_replay(renewed).code == errc::stale_epoch);

  // What replays of the old epoch hold stays until they let it go.
  const auto old = with.plan->hold();
  std::weak_ptr<void> owner;
  with.values = {watched(with.rig.devices[0], with.rig.numbers(0, count, 5), owner), with.rig.numbers(1, count, 6)};
  REQUIRE(capture(with.plan, next.ranks, renewed).code == errc::none);
  CHECK(with.calls == 4);
  CHECK(with.plan->hold() != old);
  CHECK(with.plan->objection_to_replay(rig_stamp).code == errc::stale_epoch);
  CHECK_FALSE(with.plan->objection_to_replay(renewed));

  outcome_log log;
  for (const auto& one : next.ranks) one->submit(ticket{1}, replay{with.plan}, 1h, log.make_reply_promise());
  for (const auto& one : next.ranks) REQUIRE(one->drain(60s));
  CHECK(log.count() == 2);
  CHECK(log.failure().code == errc::none);
  CHECK(with.all_hold(11));
  // The plan holds its requests' memory as long as it lives.
  with.values.clear();
  CHECK_FALSE(owner.expired());
  with.plan = nullptr;
  with.rig.settle();
  CHECK(owner.expired());
}

TEST_CASE("a plan that cannot be captured again says why, and a replay on its way is rejected, not a fault",
          "[collectives][plans][ONE-2]") {
  plan_rig with;
  std::atomic<bool> broken{false};
  auto plan = std::make_shared<captured_plan>(
      [&](rank_capture& one) {
        if (broken && one.self() == rank{1}) throw std::runtime_error{"no kernel image"};
        const buffer& mine = with.values[static_cast<std::size_t>(one.self().value())];
        one.launch(sum_of(mine, mine, count));
      },
      plan_options{});
  REQUIRE(capture(plan, with.rig.ranks).code == errc::none);
  broken = true;
  next_epoch next{with.rig};
  const world_stamp renewed{0, next_epoch::number};
  CHECK(capture(plan, next.ranks, renewed).code == errc::cancelled);
  const error why = plan->objection_to_replay(renewed);
  CHECK(why.code == errc::cancelled);
  CHECK_THAT(why.text, ContainsSubstring("could not be captured again for epoch 8"));
  CHECK_THAT(why.text, ContainsSubstring("no kernel image"));
  CHECK(why.effect == effect::rejected);
  plan->fail({.code = errc::communicator_failed, .effect = effect::unknown_outcome, .text = "rank 1 is lost"});
  CHECK(plan->objection_to_replay(renewed).effect == effect::rejected); // the replay, whatever became of the capture

  outcome_log log;
  for (const auto& one : next.ranks) one->submit(ticket{1}, replay{plan}, 1h, log.make_reply_promise());
  for (const auto& one : next.ranks) REQUIRE(one->drain(60s)); // nothing of it stays
  CHECK(log.count() == 2);
  CHECK(log.failure().effect == effect::rejected);
  CHECK_THAT(log.failure().text, ContainsSubstring("capture a new plan"));
  for (const auto& one : next.ranks) CHECK_FALSE(one->failed());
}

TEST_CASE("a capture waits with the requests of a world that is held, and keeps its place",
          "[collectives][plans][ORD-1]") {
  plan_rig with;
  for (const auto& one : with.rig.ranks) one->hold();
  outcome_log log;
  for (std::size_t r = 0; r < 2; ++r) with.rig.submit(r, sum_of(with.values[r], with.values[r], count), log);
  const auto session = std::make_shared<capture_session>(
      with.plan, with.rig.ranks, rig_stamp, std::chrono::steady_clock::now() + 60s, std::make_shared<capture_match>(2));
  for (const auto& one : with.rig.ranks) one->sequence([session](rank_pipeline& self) { session->take_part(self); });
  with.rig.settle();
  CHECK(with.calls == 0);
  for (const auto& one : with.rig.ranks) one->resume();
  CHECK_NOTHROW(session->wait());
  with.replay_on_all(log, with.plan);
  REQUIRE(with.rig.close());
  CHECK(with.all_hold(6));
}

TEST_CASE("a capture that succeeds is reported only under the lease of the process (MEM-1)",
          "[collectives][plans][lease][MEM-1]") {
  const auto lease = std::make_shared<serving_lease>();
  lease->begin(rig_epoch, 1h);
  pipeline_rig rig{1, {.lease = lease}};
  const auto plan = std::make_shared<captured_plan>([](rank_capture&) {}, plan_options{});
  const auto session = std::make_shared<capture_session>(
      plan, rig.ranks, rig_stamp, std::chrono::steady_clock::now() + 60s, std::make_shared<capture_match>(1));
  rig.ranks[0]->sequence([session](rank_pipeline& self) { session->take_part(self); });
  rig.settle();
  const bool is_renewed = GENERATE(true, false);
  is_renewed ? lease->extend(rig_epoch, boot_clock::now() + 1h) : lease->revoke();
  session->wait();
  CHECK(static_cast<bool>(session->lapse()) != is_renewed);
  if (is_renewed) return;
  CHECK(session->lapse().effect == effect::unknown_outcome);
  REQUIRE(session->lapse().undefined);
  CHECK(session->lapse().undefined->empty()); // a capture writes no memory
}

TEST_CASE("a launch that fails in a capture is a fault, as any launch that fails", "[collectives][plans]") {
  class refusing_peers final : public communicator {
  public:
    using communicator::communicator;
    void init() override {}
    bool do_launch(const operation&, stream_ref, completion_word) override {
      throw exception{errc::device_failed, "no such kernel"};
    }
    void check() override {}
    void abort() override {}
    void destroy() override {}
  };
  pipeline_rig rig{1, {}, [](rank self, const auto& gpu) { return std::make_shared<refusing_peers>(self, 1, gpu); }};
  const auto plan = std::make_shared<captured_plan>([](rank_capture& one) { one.launch(barrier{}); }, plan_options{});
  CHECK(capture(plan, rig.ranks).code == errc::device_failed);
  CHECK(rig.faults->await().second.code == errc::device_failed);
  CHECK(rig.api->graph_count() == 0);
}

TEST_CASE("consecutive operations of a list that may be fused are one launch on all ranks",
          "[collectives][plans][ORD-1]") {
  class noting_peers final : public communicator {
  public:
    using communicator::communicator;
    void init() override {}
    bool do_launch(const operation& what, stream_ref, completion_word) override {
      notes.push_back(std::string{name_of(what)});
      return false;
    }
    bool do_launch_together(std::span<const operation* const> all, stream_ref, completion_word) override {
      notes.push_back(std::to_string(all.size()) + " together");
      return false;
    }
    void check() override {}
    void abort() override {}
    void destroy() override {}
    std::vector<std::string> notes; ///< The launcher's until the capture is over.
  };
  std::shared_ptr<noting_peers> peers;
  pipeline_rig rig{
      1, {}, [&](rank self, const auto& gpu) { return peers = std::make_shared<noting_peers>(self, 1, gpu); }};
  const buffer one = rig.numbers(0, count, 1);
  const buffer other = rig.numbers(0, count, 2);
  const auto steps = [&] {
    return plan_steps{
        {sum_of(one, one, count)}, {sum_of(other, other, count)}, {sum_of(one, one, count)}, {barrier{}}, {group{}},
        {copy{one, other}},        {sum_of(other, other, count)}};
  };
  const auto notes_of = [&](fusion mode) {
    peers->notes.clear();
    const auto plan = std::make_shared<captured_plan>(capture_of(steps(), 1, {.mode = mode}), plan_options{});
    REQUIRE(capture(plan, rig.ranks).code == errc::none);
    return peers->notes;
  };
  using notes = std::vector<std::string>;
  CHECK(notes_of(fusion::free) == notes{"2 together", "all_reduce", "barrier", "all_reduce"});
  CHECK(notes_of(fusion::plans) == notes{"2 together", "all_reduce", "barrier", "all_reduce"});
  CHECK(notes_of(fusion::off) == notes{"all_reduce", "all_reduce", "all_reduce", "barrier", "all_reduce"});
}

TEST_CASE("objects that only a plan's last capture owned may use the plan when they end", "[collectives][plans]") {
  captured_plan plan{[](rank_capture&) {}, {}};
  bool is_ended = false;
  plan.begin({}, [owned = at_its_end([&] { is_ended = plan.stamp() == rig_stamp; })](std::uint64_t) {});
  plan.begin(rig_stamp, [](std::uint64_t) {});
  CHECK(is_ended);
}

TEST_CASE("memory that only the last capture of a plan held is released without the lock of the next one",
          "[collectives][plans][BUF-1]") {
  plan_rig with;
  std::shared_ptr<capture_session> next_capture;
  bool is_released = false;
  const buffer memory = with.values[0];
  with.values[0] =
      adopt(with.rig.devices[0], memory.data(), memory.size_bytes(),
            at_its_end([&] { is_released = next_capture != nullptr && next_capture->took() >= nanoseconds{0}; }));
  REQUIRE(capture(with.plan, with.rig.ranks).code == errc::none);
  with.values[0] = memory;
  next_epoch next{with.rig};
  next_capture =
      std::make_shared<capture_session>(with.plan, next.ranks, world_stamp{0, next_epoch::number},
                                        std::chrono::steady_clock::now() + 60s, std::make_shared<capture_match>(2));
  for (const auto& one : next.ranks)
    one->sequence([session = next_capture](rank_pipeline& self) { session->take_part(self); });
  CHECK_FALSE(error_of([&] { next_capture->wait(); }));
  CHECK(is_released);
}

} // namespace troupe::tests::captured_plan_test
