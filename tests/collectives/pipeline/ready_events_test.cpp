// BUF-1: an operation touches none of its operands before all their ready events have been reached.
#include "support/gate.hpp"

#include "support/noting_peers.hpp"
#include "support/pipeline_rig.hpp"
#include <troupe/completion/poller/clock.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <deque>

using namespace troupe;
using namespace troupe::tests;

namespace {

constexpr std::size_t sent_count = 64;

/// A client's work on the device, under way until the test ends it.
struct client_work {
  explicit client_work(const std::shared_ptr<device>& where) : line{where}, closed{where} {
    closed.hold(line);
    ready = record_event(where, line);
  }
  void end() const {
    closed.open();
    while (!ready->reached()) std::this_thread::yield();
  }

  stream line;
  gate closed;
  shared_event ready;
};

/// Lets the engine, which runs one task of each stream in turn, come to every stream several times.
void let_the_device_work(const std::shared_ptr<device>& where) {
  const stream other{where};
  for (int i = 0; i < 10; ++i) {
    const shared_event passed = record_event(where, other);
    while (!passed->reached()) std::this_thread::yield();
  }
}

} // namespace

TEST_CASE("an operation waits for the ready events of all its operands", "[collectives][mock][BUF-1]") {
  const std::size_t last = GENERATE(0U, 1U);
  pipeline_rig rig{1};
  std::deque<client_work> work;
  for (int i = 0; i < 2; ++i) work.emplace_back(rig.devices[0]);
  const buffer input = rig.numbers(0, sent_count, 1);
  const buffer output = rig.numbers(0, sent_count, -1);
  const outcome_log log;
  rig.submit(
      0,
      all_reduce{
          .send = {input, work[0].ready}, .recv = {output, work[1].ready}, .count = sent_count, .type = dtype::i32},
      log);
  rig.settle();
  work[1 - last].end();
  let_the_device_work(rig.devices[0]);
  CHECK(holds(output, sent_count, -1));
  CHECK(log.count() == 0);
  work[last].end();
  rig.await_idle();
  CHECK_FALSE(log.failure());
  CHECK(holds(output, sent_count, 1));
  CHECK(rig.close());
}

TEST_CASE("a batch waits for every ready event of every member", "[collectives][mock][fusion][BUF-1]") {
  const std::size_t last = GENERATE(0U, 1U, 2U);
  pipeline_rig rig{1};
  std::deque<client_work> work;
  for (int i = 0; i < 3; ++i) work.emplace_back(rig.devices[0]);
  std::vector<buffer> inputs;
  std::vector<buffer> outputs;
  std::vector<submission> batch;
  const std::vector<outcome_log> logs(3);
  for (std::size_t i = 0; i < 3; ++i) {
    inputs.push_back(rig.numbers(0, sent_count, 1));
    outputs.push_back(rig.numbers(0, sent_count, -1));
    all_reduce one{.send = inputs[i], .recv = outputs[i], .count = sent_count, .type = dtype::i32};
    if (i == 0) one.send.ready = work[0].ready;
    if (i == 2) one.send.ready = work[1].ready;
    if (i == 2) one.recv.ready = work[2].ready;
    batch.push_back({.name = ticket{i + 1}, .what = one, .deadline = 1h, .reply = logs[i].make_reply_promise()});
  }
  rig.ranks[0]->submit_together(std::move(batch));
  rig.settle();
  for (std::size_t i = 0; i < 3; ++i)
    if (i != last) work[i].end();
  let_the_device_work(rig.devices[0]);
  for (const buffer& one : outputs) CHECK(holds(one, sent_count, -1));
  work[last].end();
  rig.await_idle();
  for (const buffer& one : outputs) CHECK(holds(one, sent_count, 1));
  for (const outcome_log& log : logs) CHECK_FALSE(log.failure());
  CHECK(rig.close());
}

TEST_CASE("a request whose operands are not all ready does not hang", "[collectives][mock][TIM-1]") {
  const auto time = std::make_shared<manual_clock>();
  pipeline_rig rig{2, {.limits = {.launch = 1s, .hang = 1s, .check_interval = 1ms}, .time = time}};
  std::deque<client_work> work;
  for (int i = 0; i < 2; ++i) work.emplace_back(rig.devices[0]);
  const buffer memory = rig.numbers(0, sent_count, 1);
  const outcome_log log;
  rig.submit(0,
             all_reduce{.send = {memory, work[0].ready},
                        .recv = {rig.numbers(0, sent_count, -1), work[1].ready},
                        .count = sent_count,
                        .type = dtype::i32},
             log);
  rig.settle();
  const auto pass_20_s = [&] {
    for (int i = 0; i < 200; ++i) {
      time->advance(100ms);
      rig.services.poller->step();
    }
  };
  work[0].end();
  pass_20_s();
  CHECK(rig.faults->all().empty());
  work[1].end();
  pass_20_s(); // and no peer comes
  CHECK(rig.faults->all().size() == 1);
}
