// What a fault's report says of real pipelines, and that it waits for none of them.
#include "support/gate.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/pipeline/fault_report.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <future>

using namespace troupe;
using namespace troupe::tests;

namespace {

std::shared_ptr<const fault_report> report_of(const pipeline_rig& rig, error why = {.code = errc::deadline_exceeded}) {
  return take_fault_report(
      {.fault = std::move(why), .world = 3, .epoch = rig_epoch, .world_size = static_cast<int>(rig.ranks.size())},
      rig.ranks, rig.services.time->now());
}

/// Makes rank 1 go wrong where it launches.
class launch_fault final : public fault_injector {
public:
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const>) override {
    if (who.rank != rank{1}) return true;
    if (!block) return false;
    inside.set_value();
    let_go.get_future().wait();
    return true;
  }
  bool block = false;
  std::promise<void> inside;
  std::promise<void> let_go;
};

pipeline_rig::peers_maker faulty_peers(int size, const std::shared_ptr<launch_fault>& fault) {
  const auto kind = make_faulty_backend(make_mock_backend(), fault);
  return [kind, size, id = kind->make_unique_id()](rank self, const std::shared_ptr<device>& where) {
    return kind->create(id, self, size, where);
  };
}

} // namespace

TEST_CASE("a rank that is never asked is named by a report of the pipelines", "[collectives][mock][report]") {
  pipeline_rig rig{3};
  const outcome_log log;
  for (const std::size_t r : {0U, 1U, 2U}) {
    const buffer memory = rig.numbers(r, 4, 1);
    rig.submit(r, sum_of(memory, memory, 4), log);
  }
  rig.await_idle();
  for (const std::size_t r : {0U, 2U}) {
    const buffer memory = rig.numbers(r, 8, 1);
    rig.submit(r, sum_of(memory, memory, 8), log);
  }
  REQUIRE(comes_true([&] { return rig.ranks[0]->progress().running_since && rig.ranks[2]->progress().running_since; }));
  const auto report = report_of(rig);
  REQUIRE(report->ranks.size() == 3);
  const auto& lonely = report->ranks[0];
  CHECK(lonely.progress.started->what == "all_reduce of 8 i32, sum");
  CHECK(lonely.progress.finished->what == "all_reduce of 4 i32, sum");
  CHECK(lonely.in_flight == 1);
  CHECK(lonely.fault.code == errc::none);
  CHECK(report->ranks[1].progress.started->what == "all_reduce of 4 i32, sum");
  CHECK(report->ranks[1].in_flight == 0);
  CHECK(report->epoch == rig_epoch);
  REQUIRE(report->suspects.size() == 1);
  CHECK(report->suspects.front().rank == rank{1});
  CHECK(report->suspects.front().why == suspicion::not_asked);
}

TEST_CASE("a rank whose launcher never returns from a launch is named, and the report does not wait for it (BLK-1)",
          "[collectives][mock][report]") {
  const auto fault = std::make_shared<launch_fault>();
  fault->block = true;
  pipeline_rig rig{2, {}, faulty_peers(2, fault)};
  const outcome_log log;
  for (const std::size_t r : {0U, 1U}) {
    const buffer memory = rig.numbers(r, 4, 1);
    rig.submit(r, sum_of(memory, memory, 4), log);
  }
  fault->inside.get_future().wait();
  REQUIRE(comes_true([&] { return rig.ranks[0]->progress().running_since.has_value(); }));
  const auto report = report_of(rig);
  CHECK(report->ranks[1].progress.launching_since);
  CHECK_FALSE(report->ranks[0].progress.launching_since);
  REQUIRE(report->suspects.size() == 1);
  CHECK(report->suspects.front().rank == rank{1});
  CHECK(report->suspects.front().why == suspicion::stuck_launch);
  fault->let_go.set_value();
  rig.await_idle();
  CHECK_FALSE(rig.ranks[1]->progress().launching_since);
  CHECK_FALSE(rig.ranks[1]->progress().running_since);
}

TEST_CASE("a rank that only says that it launches is named", "[collectives][mock][report]") {
  pipeline_rig rig{3, {}, faulty_peers(3, std::make_shared<launch_fault>())};
  const outcome_log log;
  for (const std::size_t r : {0U, 1U, 2U}) {
    const buffer memory = rig.numbers(r, 4, 1);
    rig.submit(r, sum_of(memory, memory, 4), log);
  }
  while (!rig.ranks[0]->progress().running_since || !rig.ranks[2]->progress().running_since ||
         !rig.ranks[1]->progress().finished)
    std::this_thread::yield();
  const auto report = report_of(rig);
  REQUIRE(report->suspects.size() == 1);
  CHECK(report->suspects.front().rank == rank{1});
  CHECK(report->suspects.front().why == suspicion::alone_done);
}

TEST_CASE("a rank whose input never comes is named", "[collectives][mock][report]") {
  pipeline_rig rig{2};
  stream client{rig.devices[1]};
  const outcome_log log;
  gate closed{rig.devices[1]};
  closed.hold(client.ref());
  for (const std::size_t r : {0U, 1U}) {
    const buffer memory = rig.numbers(r, 4, 1);
    operation what = sum_of(memory, memory, 4);
    if (r == 1) std::get<all_reduce>(what).send.ready = record_event(rig.devices[1], client.ref());
    rig.submit(r, std::move(what), log);
  }
  REQUIRE(comes_true([&] { return rig.ranks[0]->progress().running_since.has_value(); }));
  rig.settle();
  const auto report = report_of(rig);
  REQUIRE(report->suspects.size() == 1);
  CHECK(report->suspects.front().rank == rank{1});
  CHECK(report->suspects.front().why == suspicion::not_started);
  closed.open();
  rig.await_idle();
}

TEST_CASE("an operation that runs at a fault stays in the report, and a rank's fault is its own alone",
          "[collectives][mock][report]") {
  pipeline_rig rig{2};
  const outcome_log log;
  const buffer memory = rig.numbers(0, 4, 1);
  rig.submit(0, sum_of(memory, memory, 4), log);
  REQUIRE(comes_true([&] { return rig.ranks[0]->progress().running_since.has_value(); }));
  const error why{.code = errc::device_failed, .text = "lost", .rank = rank{0}};
  for (const auto& one : rig.ranks) one->fail(why);
  REQUIRE(comes_true([&] { return log.count() > 0; }));
  const auto report = report_of(rig, why);
  CHECK(report->ranks[0].progress.running_since);
  CHECK(report->ranks[0].fault.text == "lost");
  CHECK(report->ranks[1].fault.code == errc::none);
  REQUIRE(report->suspects.size() == 1);
  CHECK(report->suspects.front().rank == rank{0});
}

TEST_CASE("collectives are counted in batches too, and transfers and copies are not", "[collectives][mock][report]") {
  pipeline_rig rig{2};
  const outcome_log log;
  for (const std::size_t r : {0U, 1U}) {
    std::vector<submission> batch;
    for (int k = 0; k < 3; ++k) {
      const buffer memory = rig.numbers(r, 4, 1);
      batch.push_back(
          {.name = ticket{1}, .what = sum_of(memory, memory, 4), .deadline = 1h, .reply = log.make_reply_promise()});
    }
    const buffer memory = rig.numbers(r, 4, 1);
    if (r == 0)
      batch.push_back({.name = ticket{1},
                       .what = troupe::send{.memory = memory, .count = 4, .type = dtype::i32, .peer = rank{1}},
                       .deadline = 1h,
                       .reply = log.make_reply_promise()});
    else
      batch.push_back({.name = ticket{1},
                       .what = troupe::recv{.memory = memory, .count = 4, .type = dtype::i32, .peer = rank{0}},
                       .deadline = 1h,
                       .reply = log.make_reply_promise()});
    rig.ranks[r]->submit_together(std::move(batch));
    rig.submit(r, copy{.from = rig.numbers(r, 4, 1), .to = memory}, log);
    rig.submit(r, barrier{}, log);
  }
  rig.await_idle();
  for (const auto& one : rig.ranks) {
    const auto counts = one->progress().collectives;
    CHECK(counts.submitted == 4);
    CHECK(counts.launched == 4);
    CHECK(counts.finished == 4);
  }
}

TEST_CASE("a request that is late in flight is told of once, until something finishes", "[collectives][mock][report]") {
  pipeline_rig rig{2};
  std::atomic<int> told{0};
  rig.ranks[0]->on_late([&](const error& why) {
    if (why.code == errc::deadline_exceeded && why.rank == rank{0}) ++told;
  });
  std::vector<outcome_log> logs(3);
  const auto ask = [&](std::size_t r, const outcome_log& log, nanoseconds deadline) {
    const buffer memory = rig.numbers(r, 4, 1);
    rig.submit(r, sum_of(memory, memory, 4), log, deadline);
  };
  ask(0, logs[0], 1ms);
  ask(0, logs[1], 1ms);
  REQUIRE(comes_true([&] { return logs[0].count() > 0 && logs[1].count() > 0; }));
  CHECK(told == 1);
  ask(1, logs[2], 1h);
  ask(1, logs[2], 1h);
  rig.await_idle();
  const outcome_log again;
  ask(0, again, 1ms);
  REQUIRE(comes_true([&] { return told >= 2; })); // after the answer
  CHECK(again.count() == 1);
}
