// One completion mark for several launches (docs/design/0024): only where nothing can hold it up.
#include "support/gate.hpp"
#include "support/parked_poller.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/pipeline/pipeline_call.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <atomic>
#include <functional>
#include <future>
#include <latch>
#include <set>

namespace troupe::tests {

namespace {

/// Keeps a launcher busy, so that what is submitted meanwhile is launched in one go.
class busy_launcher {
public:
  explicit busy_launcher(launcher& launch_thread) {
    launch_thread.post([go = go_] { go->wait(); });
  }
  void end() { go_->count_down(); }

private:
  std::shared_ptr<std::latch> go_ = std::make_shared<std::latch>(1);
};

/// What a rank's only peer, itself, is made to do at a launch.
class scripted_launch final : public communicator {
public:
  scripted_launch(const std::shared_ptr<device>& where, std::function<void(int, stream_ref)> script)
    : communicator{rank{0}, 1, where}, script_{std::move(script)} {}
  void init() override {}
  bool do_launch(const operation&, stream_ref stream, completion_word) override {
    script_(++launches_, stream);
    return false;
  }
  void check() override {}
  void abort() override {}
  void destroy() override {}

private:
  std::function<void(int, stream_ref)> script_;
  int launches_ = 0;
};

struct one_rank {
  explicit one_rank(
      completion_strategy strategy, std::function<void(int, stream_ref)> script = [](int, stream_ref) {})
    : one_rank{pipeline_options{.strategy = strategy}, std::move(script)} {}
  one_rank(const pipeline_options& options, std::function<void(int, stream_ref)> script)
    : rig{1, options, [script = std::move(script)](rank, const std::shared_ptr<device>& where) {
            return std::make_shared<scripted_launch>(where, script);
          }} {}

  outcome_log submit(bool all_have_asked, shared_event ready = {}, std::size_t count = 4) {
    outcome_log log;
    const buffer memory = rig.numbers(0, count, 1);
    auto call = rig.ranks[0]->prepare(
        {.name = ticket{1},
         .what = all_reduce{.send = {memory, std::move(ready)}, .recv = memory, .count = count, .type = dtype::i32},
         .deadline = 1h,
         .reply = log.make_reply_promise()},
        rig.services.time->now());
    if (all_have_asked) call->all_have_asked();
    rig.ranks[0]->submit(std::move(call));
    return log;
  }

  pipeline_rig rig;
};

/// Waits until the poller has looked at everything since.
void await_looks(poller& eye) {
  class counter final : public polled {
  public:
    bool poll(time_point, running_time) override {
      looks.fetch_add(1);
      return false;
    }
    [[nodiscard]] std::size_t load() const noexcept override { return 1; }
    std::atomic<int> looks{0};
  };
  const auto counted = std::make_shared<counter>();
  eye.attach(counted);
  while (counted->looks.load() < 3) std::this_thread::yield();
  eye.detach(*counted);
}

void await(const outcome_log& log) {
  while (log.count() == 0) std::this_thread::yield();
}

} // namespace

TEST_CASE("launches that share marks are all answered, each with its own place", "[collectives][mock][ONE-1]") {
  one_rank one{GENERATE(from_range(all_completion_strategies))};
  std::vector<outcome_log> logs;
  busy_launcher busy{*one.rig.launchers[0]};
  for (int i = 0; i < 21; ++i) logs.push_back(one.submit(true));
  busy.end();
  one.rig.await_idle();
  std::uint64_t place = 0;
  for (const auto& log : logs) {
    REQUIRE(log.count() == 1);
    CHECK(log.success().launch == ++place);
  }
  CHECK(one.rig.close());
}

TEST_CASE("a launch whose mark comes with a later one does not wake the poller", "[collectives][mock]") {
  parked_poller eye{5ms};
  std::promise<void> has_come, may_go;
  one_rank one{{.strategy = completion_strategy::host_fn, .time = eye.time, .poller = eye.watch},
               [&](int launch, stream_ref) {
                 if (launch != 2) return;
                 has_come.set_value();
                 static_cast<void>(may_go.get_future().wait_for(60s));
               }};
  outcome_log first;
  outcome_log second;
  CHECK_FALSE(eye.is_woken_by([&] {
    busy_launcher busy{*one.rig.launchers[0]};
    first = one.submit(true);
    second = one.submit(true);
    busy.end();
    static_cast<void>(has_come.get_future().wait_for(60s));
  }));
  may_go.set_value();
  tests::await("the answers", [&] { return eye.watch->step(), first.count() == 1 && second.count() == 1; });
  CHECK_FALSE(first.failure());
  CHECK_FALSE(second.failure());
}

TEST_CASE("short launches that follow at once share a mark, and no other do", "[collectives][mock]") {
  // The second launch does not end before the gate is opened: whoever shares its mark is answered only then.
  const auto strategy = GENERATE(from_range(all_completion_strategies));
  std::shared_ptr<gate> closed;
  one_rank one{strategy, [&closed](int launch, stream_ref stream) {
                 if (launch == 2) closed->hold(stream);
               }};
  closed = std::make_shared<gate>(one.rig.devices[0]);
  busy_launcher busy{*one.rig.launchers[0]};
  outcome_log first;
  outcome_log second;
  bool shared = false;
  SECTION("short, and all have asked") {
    first = one.submit(true);
    second = one.submit(true);
    shared = true;
  }
  SECTION("a peer might never come to the second") {
    first = one.submit(true);
    second = one.submit(false);
  }
  SECTION("the second waits for an event") {
    first = one.submit(true);
    const stream other{one.rig.devices[0]};
    auto ready = std::make_shared<event>(one.rig.devices[0]);
    ready->record(other);
    second = one.submit(true, ready);
  }
  SECTION("the second is long") {
    first = one.submit(true);
    second = one.submit(true, {}, 1U << 20U);
  }
  SECTION("the first is long") {
    first = one.submit(true, {}, 1U << 20U);
    second = one.submit(true);
  }
  busy.end();
  if (shared) {
    one.rig.settle();
    await_looks(*one.rig.services.poller); // an answer that came too early would have come by now
    CHECK(first.count() == 0);
  } else {
    await(first);
  }
  CHECK(second.count() == 0);
  closed->open();
  one.rig.await_idle();
  CHECK_FALSE(first.failure());
  CHECK_FALSE(second.failure());
  CHECK(one.rig.close());
}

TEST_CASE("a launch without a mark has an unknown outcome when the next one fails", "[collectives][mock][ONE-2]") {
  one_rank one{completion_strategy::flag, [](int launch, stream_ref) {
                 if (launch == 2) throw exception{errc::communicator_failed, "told to fail"};
               }};
  busy_launcher busy{*one.rig.launchers[0]};
  const outcome_log first = one.submit(true);
  const outcome_log second = one.submit(true);
  busy.end();
  await(first);
  await(second);
  CHECK(first.failure().effect == effect::unknown_outcome);
  CHECK(second.failure().effect == effect::unknown_outcome);
}

} // namespace troupe::tests
