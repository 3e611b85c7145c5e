// Launches that write the completion word themselves, in place of a mark behind them.
#include "support/gate.hpp"
#include "support/pipeline_rig.hpp"

#include <troupe/collectives/pipeline/pipeline_call.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe::tests::completion_word_test {

namespace {

constexpr std::size_t count = 4;

/// Its launches do what the test says, and tell whether they write the word.
class word_peers final : public communicator {
public:
  using communicator::communicator;
  void init() override {}
  void check() override {}
  void interrupt() noexcept override { ++interrupts; }
  void abort() override {}
  void destroy() override {}

  std::function<bool(std::size_t launch, stream_ref, completion_word)> script;
  std::vector<completion_word> words; ///< Of each launch. The launcher's until it is settled.
  std::optional<stream_ref> line;     ///< Of the last launch.
  std::atomic<int> interrupts{0};

private:
  bool do_launch_together(std::span<const operation* const>, stream_ref stream, completion_word at_end) override {
    words.push_back(at_end);
    line.emplace(stream);
    return script(words.size(), stream, at_end);
  }
};

struct word_rig {
  std::shared_ptr<word_peers> peers;
  pipeline_rig rig;

  explicit word_rig(completion_strategy strategy = completion_strategy::flag)
    : rig{1, {.strategy = strategy}, [this](rank self, const auto& gpu) {
            return peers = std::make_shared<word_peers>(self, 1, gpu);
          }} {}

  [[nodiscard]] submission request(operation what, const outcome_log& log) const {
    return {.name = ticket{1}, .what = std::move(what), .deadline = 1h, .reply = log.make_reply_promise()};
  }
  /// \p is_short: the launch may leave its mark to a later one.
  outcome_log submit(bool is_short = false) {
    const outcome_log log;
    const std::size_t length = is_short ? count : std::size_t{1} << 20U;
    const buffer memory = rig.numbers(0, length, 1);
    auto call = rig.ranks[0]->prepare(request(sum_of(memory, memory, length), log), rig.services.time->now());
    call->all_have_asked();
    rig.ranks[0]->submit(std::move(call));
    return log;
  }
  /// Waits until the launcher is idle, the stream has run (unless it is \p held), and the poller has looked at
  /// everything since.
  void settle(bool held = false) const {
    class counter final : public polled {
    public:
      bool poll(time_point, running_time) override {
        looks.fetch_add(1);
        return false;
      }
      [[nodiscard]] std::size_t load() const noexcept override { return 1; }
      std::atomic<int> looks{0};
    };
    rig.settle();
    if (!held) peers->line->synchronize();
    const auto counted = std::make_shared<counter>();
    rig.services.poller->attach(counted);
    while (counted->looks.load() < 3) std::this_thread::yield();
    rig.services.poller->detach(*counted);
  }
  /// Keeps the launcher busy until the result is counted down.
  [[nodiscard]] std::shared_ptr<std::latch> keep_busy() const {
    const auto go = std::make_shared<std::latch>(1);
    rig.launchers[0]->post([go] { go->wait(); });
    return go;
  }
};

/// Writes as a kernel does at its end.
void write(completion_word at_end) {
  std::atomic_ref{*at_end.word}.store(at_end.value, std::memory_order_release);
}

void await(const outcome_log& log) {
  tests::await("an answer", [&] { return log.count() > 0; });
}

} // namespace

TEST_CASE("a launch that writes the completion word gets no mark, and is answered when it has written",
          "[collectives][mock][ONE-1]") {
  word_rig one;
  one.peers->script = [](auto, auto, completion_word at_end) { return static_cast<bool>(at_end); };
  for (std::uint32_t launch = 1; launch <= 3; ++launch) {
    const outcome_log log = one.submit(launch == 2);
    one.settle();
    CHECK(log.count() == 0); // a mark would be there by now
    const completion_word given = one.peers->words.back();
    REQUIRE(given);
    CHECK(given.value - one.peers->words.front().value == launch - 1);
    write(given);
    await(log);
    CHECK(log.success().launch == launch);
  }
  CHECK(one.rig.close());
}

TEST_CASE("the word is offered only when the side stream's last mark has been seen, so that it never decreases",
          "[collectives][mock][ONE-1]") {
  word_rig one;
  std::optional<gate> closed{one.rig.devices[0]};
  one.peers->script = [&closed](std::size_t launch, stream_ref stream, completion_word at_end) {
    if (launch == 1) closed->hold(stream);
    return static_cast<bool>(at_end) && launch > 2 && launch != 5;
  };
  const outcome_log first = one.submit();
  const outcome_log second = one.submit();
  const outcome_log third = one.submit();
  one.settle(true);
  CHECK(one.peers->words[0]);       // and the launch did not use it
  CHECK(one.peers->words[1]);       // the first one's mark is in the stream itself, so it cannot come later
  CHECK_FALSE(one.peers->words[2]); // the second one's is not
  CHECK(first.count() + second.count() + third.count() == 0);
  closed->open();
  for (const auto& log : {first, second, third}) await(log);
  const outcome_log fourth = one.submit();
  one.settle();
  const completion_word last = one.peers->words[3];
  REQUIRE(last);
  CHECK(last.value == one.peers->words[0].value + 3);
  CHECK(std::atomic_ref{*last.word}.load() == last.value - 1);
  CHECK(fourth.count() == 0);
  const outcome_log fifth = one.submit(); // behind a word that is not written yet
  one.settle();
  CHECK(one.peers->words[4]); // not used by the launch, so it is marked
  await(fourth);              // by the mark of the fifth, because the fourth never writes its word
  await(fifth);
  CHECK(std::atomic_ref{*last.word}.load() == last.value + 1);
  CHECK(one.rig.close());
}

TEST_CASE("a launch whose mark was late is answered by the word of a later one", "[collectives][mock][ONE-1]") {
  word_rig one;
  one.peers->script = [](std::size_t launch, auto, completion_word) { return launch == 2; };
  const auto busy = one.keep_busy();
  const outcome_log first = one.submit(true);
  const outcome_log second = one.submit(true);
  busy->count_down();
  one.settle();
  const auto& words = one.peers->words;
  REQUIRE(words[1]);
  CHECK(words[0] == words[1]); // the first left its mark to the second
  CHECK(first.count() + second.count() == 0);
  write(words[1]);
  await(first);
  await(second);
  CHECK(first.success().launch == 1);
  CHECK(second.success().launch == 2);
  const outcome_log third = one.submit(true);
  await(third); // by a mark
  CHECK(words[2].value == words[1].value + 1);
  CHECK(one.rig.close());
}

TEST_CASE("requests of one launch are answered together by its word", "[collectives][mock][fusion][ONE-1]") {
  word_rig one;
  one.peers->script = [](auto, auto, completion_word at_end) { return static_cast<bool>(at_end); };
  const std::vector<outcome_log> logs(3);
  std::vector<submission> all;
  for (const outcome_log& log : logs) {
    const buffer memory = one.rig.numbers(0, count, 1);
    all.push_back(one.request(sum_of(memory, memory, count), log));
  }
  one.rig.ranks[0]->submit_together(std::move(all));
  one.settle();
  REQUIRE(one.peers->words.size() == 1);
  for (const auto& log : logs) CHECK(log.count() == 0);
  write(one.peers->words[0]);
  for (const auto& log : logs) await(log);
  CHECK(one.rig.close());
}

TEST_CASE("a group with copies, and a request with copies behind it, are not completed by their collectives",
          "[collectives][mock]") {
  word_rig one;
  one.peers->script = [](auto, auto, completion_word at_end) { return static_cast<bool>(at_end); };
  outcome_log log;
  SECTION("a group with copies") {
    const buffer memory = one.rig.numbers(0, count, 1);
    const buffer copied = one.rig.numbers(0, count, 2);
    group several;
    several.parts.push_back(sum_of(memory, memory, count));
    several.parts.push_back(copy{copied, one.rig.numbers(0, count, 3)});
    one.rig.submit(0, std::move(several), log);
  }
  SECTION("a request on host memory") {
    const std::vector<std::int32_t> values(count, 1);
    const buffer memory = allocate_pinned(one.rig.devices[0], count * sizeof(std::int32_t));
    std::memcpy(memory.data(), values.data(), memory.size_bytes());
    one.rig.submit(0, sum_of(memory, memory, count), log);
  }
  one.settle();
  REQUIRE(one.peers->words.size() == 1);
  REQUIRE_FALSE(one.peers->words[0]);
  await(log);
  CHECK(log.success().launch == 1);
  CHECK(one.rig.close());
}

TEST_CASE("sources that write no words offer none", "[collectives][mock]") {
  for (const auto strategy : {completion_strategy::event, completion_strategy::host_fn}) {
    word_rig one{strategy};
    one.peers->script = [](auto, auto, completion_word at_end) { return static_cast<bool>(at_end); };
    await(one.submit());
    CHECK_FALSE(one.peers->words[0]);
    CHECK(one.rig.close());
  }
}

TEST_CASE("a failed communicator is interrupted once, and its word is no success any more",
          "[collectives][mock][ONE-2]") {
  word_rig one;
  one.peers->script = [](auto, auto, completion_word at_end) { return static_cast<bool>(at_end); };
  const outcome_log log = one.submit();
  one.settle();
  CHECK(one.peers->interrupts == 0);
  one.rig.ranks[0]->fail({.code = errc::communicator_failed, .text = "the test says so"});
  CHECK(one.peers->interrupts == 1);
  write(one.peers->words[0]);
  await(log);
  CHECK(log.failure().code == errc::communicator_failed);
  CHECK(log.failure().effect == effect::unknown_outcome);
  one.rig.abort({.code = errc::stopping});
  CHECK(one.peers->interrupts == 1);
}

TEST_CASE("the slot of a launch that may still write its word is not used again", "[collectives][mock]") {
  const auto api = make_mock_driver({.device_count = 1});
  const auto gpu = device::open(api, device_id{0});
  const auto slots = std::make_shared<slot_table>(gpu, 1);
  bool drained = false;
  SECTION("before its stream has drained") {}
  SECTION("but afterwards") {
    drained = true;
  }
  {
    const auto source = make_completion_source(completion_strategy::flag, gpu, slots);
    source->prepare(gpu);
    CHECK(source->word_for(1));
    if (drained) source->drained();
  }
  if (drained)
    CHECK_NOTHROW(slots->release(slots->acquire()));
  else
    CHECK(error_of([&] { static_cast<void>(slots->acquire()); }).code == errc::out_of_memory);
}

} // namespace troupe::tests::completion_word_test
