// Requests as senders, heard by a receiver written by hand: one ending each, where the resumer takes it.
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/runtime/interop/request_sender.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <barrier>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::request_sender_test {

namespace {

struct endings {
  int values = 0;
  int errors = 0;
  int stopped = 0;
  errc code = errc::none;
};

struct receiver {
  endings* told;

  void set_value(const completion&) const&& { ++told->values; }
  void set_error(const error& why) const&& {
    ++told->errors;
    told->code = why.code;
  }
  void set_stopped() const&& { ++told->stopped; }
};
static_assert(request_receiver<receiver>);

/// One that can be stopped.
struct stoppable_receiver : receiver {
  std::stop_token token;

  [[nodiscard]] std::stop_token get_stop_token() const noexcept { return token; }
};
static_assert(request_receiver<stoppable_receiver>);

/// Calls what comes to \p queue until one ending has been told.
void run_until_ended(resume_queue& queue, const endings& told) {
  while (told.values + told.errors + told.stopped == 0) {
    queue.post({[](void* self) { static_cast<resume_queue*>(self)->close(); }, {std::shared_ptr<void>{}, &queue}});
    queue.run();
  }
}

} // namespace

TROUPE_WORLD_TEST(2, "a sender asks when it is started, and ends with a value", "[runtime][interop][senders]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 100);
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{one, one, 100, dtype::f32, reduction::sum});
  resume_queue queue;
  endings first;
  endings second;
  const request_sender sender{queue.resumer(), where, parts};
  auto one = sender.connect(receiver{&first});
  auto two = sender.connect(receiver{&second});
  CHECK(read_back(where, rank{0}, values[0])[0] == 1.F); // nothing has been asked
  one.start();
  run_until_ended(queue, first);
  two.start();
  run_until_ended(queue, second);
  CHECK(first.values == 1);
  CHECK(second.values == 1);
  CHECK(first.errors + first.stopped + second.errors + second.stopped == 0);
  for (const float value : read_back(where, rank{1}, values[1])) REQUIRE(value == 6.F);
}

TEST_CASE("errors of a sender's request end with set_error, wherever they are found", "[runtime][interop][senders]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  resume_queue queue;
  endings told;
  SECTION("by the world") {
    const operation wrong = all_reduce{buffer{}, buffer{}, 5, dtype::f32, reduction::sum};
    auto state = request_sender{queue.resumer(), where, {wrong}}.connect(receiver{&told});
    state.start();
    run_until_ended(queue, told);
    CHECK(told.code == errc::invalid_argument);
  }
  SECTION("before it is asked") {
    auto state = request_sender{queue.resumer(), where, rank{9}, rank_request{barrier{}, where.epoch()}}.connect(
        receiver{&told});
    state.start();
    run_until_ended(queue, told);
    CHECK(told.code == errc::invalid_argument);
  }
  SECTION("by its deadline") {
    const held_client held{where.device_of(rank{0})};
    const copy waits{held.after(where.allocate_pinned(4)), where.allocate_pinned(4)};
    auto state = request_sender{queue.resumer(), where, rank{0}, rank_request{waits, where.epoch(), 50ms}}.connect(
        receiver{&told});
    state.start();
    run_until_ended(queue, told);
    CHECK(told.code == errc::deadline_exceeded);
  }
  CHECK(told.errors == 1);
  CHECK(told.values + told.stopped == 0);
}

TEST_CASE("a request that is taken back ends with set_stopped", "[runtime][interop][senders]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const buffer memory = where.allocate(rank{0}, 64);
  resume_queue queue;
  endings told;
  // Rank 1 is never asked, so that rank 0's request waits for it.
  rank_request asked{all_reduce{memory, memory, 4, dtype::f32, reduction::sum}, where.epoch()};
  asked.lane = lane::named("taken back");
  auto state = request_sender{queue.resumer(), where, rank{0}, asked}.connect(receiver{&told});
  state.start();
  compat::post(collective_of(where, rank{0}), cancel_request{lane::named("taken back"), 0});
  run_until_ended(queue, told);
  CHECK(told.stopped == 1);
  CHECK(told.values + told.errors == 0);
}

TROUPE_WORLD_TEST(2, "a sender that is stopped before it is started asks for nothing", "[runtime][interop][senders]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 100);
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{one, one, 100, dtype::f32, reduction::sum});
  resume_queue queue;
  endings told;
  std::stop_source stop;
  auto state = request_sender{queue.resumer(), where, parts}.connect(stoppable_receiver{{&told}, stop.get_token()});
  stop.request_stop();
  state.start();
  CHECK(told.stopped == 0); // it comes where the resumer takes it
  run_until_ended(queue, told);
  CHECK(told.stopped == 1);
  CHECK(told.values + told.errors == 0);
  where.barrier().get();
  CHECK(read_back(where, rank{0}, values[0])[0] == 1.F);
}

TROUPE_WORLD_TEST(2, "a request that waits for its peers is taken back by its stop token, and its peer is told",
                  "[runtime][interop][senders]") {
  runtime rt{settings};
  world where = rt.form_world();
  const buffer memory = where.allocate(rank{0}, 64);
  const buffer peers = where.allocate(rank{1}, 64);
  resume_queue queue;
  endings told;
  std::stop_source stop;
  const auto asked = [&](const buffer& what, std::uint64_t position) {
    rank_request made{all_reduce{what, what, 4, dtype::f32, reduction::sum}, where.epoch()};
    made.lane = lane::named("stopped");
    made.position = position;
    return made;
  };
  auto state = request_sender{queue.resumer(), where, rank{0}, asked(memory, 0)}.connect(
      stoppable_receiver{{&told}, stop.get_token()});
  state.start();
  stop.request_stop();
  run_until_ended(queue, told);
  CHECK(told.stopped == 1);
  CHECK(told.values + told.errors == 0);

  endings peer;
  auto late = request_sender{queue.resumer(), where, rank{1}, asked(peers, 0)}.connect(receiver{&peer});
  late.start();
  run_until_ended(queue, peer);
  CHECK(peer.stopped == 1);
}

TEST_CASE("a request that cannot be withdrawn continues after a stop, and ends as it ends",
          "[runtime][interop][senders]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  resume_queue queue;
  endings told;
  std::stop_source stop;
  SECTION("a request to all ranks, on the GPU") {
    const held_client held{where.device_of(rank{0})};
    std::vector<operation> parts;
    for (const rank self : where.local_ranks()) {
      const buffer memory = where.allocate(self, 64);
      parts.emplace_back(
          all_reduce{self == rank{0} ? held.after(memory) : operand{memory}, memory, 4, dtype::f32, reduction::sum});
    }
    auto state = request_sender{queue.resumer(), where, parts}.connect(stoppable_receiver{{&told}, stop.get_token()});
    state.start();
    stop.request_stop();
    CHECK(told.values + told.errors + told.stopped == 0);
    held.open();
    run_until_ended(queue, told);
  }
  SECTION("a request to one rank that has been launched") {
    const held_client held{where.device_of(rank{0})};
    rank_request asked{copy{held.after(where.allocate_pinned(4)), where.allocate_pinned(4)}, where.epoch()};
    asked.lane = lane::named("launched");
    asked.position = 0;
    auto state =
        request_sender{queue.resumer(), where, rank{0}, asked}.connect(stoppable_receiver{{&told}, stop.get_token()});
    state.start();
    stop.request_stop();
    held.open();
    run_until_ended(queue, told);
  }
  SECTION("a request to one rank that does not name its position") {
    const buffer memory = where.allocate(rank{0}, 64);
    const buffer peers = where.allocate(rank{1}, 64);
    rank_request asked{all_reduce{memory, memory, 4, dtype::f32, reduction::sum}, where.epoch()};
    auto state =
        request_sender{queue.resumer(), where, rank{0}, asked}.connect(stoppable_receiver{{&told}, stop.get_token()});
    state.start();
    stop.request_stop();
    where.ask(rank{1}, all_reduce{peers, peers, 4, dtype::f32, reduction::sum}).get();
    run_until_ended(queue, told);
  }
  CHECK(told.values == 1);
  CHECK(told.errors + told.stopped == 0);
}

TEST_CASE("a deadline is an error of a sender that has been stopped, too", "[runtime][interop][senders]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const buffer memory = where.allocate(rank{0}, 64);
  resume_queue queue;
  endings told;
  std::stop_source stop;
  const rank_request asked{all_reduce{memory, memory, 4, dtype::f32, reduction::sum}, where.epoch(), 50ms};
  auto state =
      request_sender{queue.resumer(), where, rank{0}, asked}.connect(stoppable_receiver{{&told}, stop.get_token()});
  state.start();
  stop.request_stop();
  run_until_ended(queue, told);
  CHECK(told.errors == 1);
  CHECK(told.code == errc::deadline_exceeded);
}

TEST_CASE("stop, start and the peer's request at once: one ending each, and the lane goes on",
          "[runtime][interop][senders]") {
  /// Ends on whatever thread answers, also within request_stop() and start(), and deletes its operation.
  struct counting_receiver {
    std::atomic<int>* values;
    std::atomic<int>* stopped;
    std::atomic<int>* ended;
    std::stop_token token;
    std::shared_ptr<void>* operation;

    [[nodiscard]] std::stop_token get_stop_token() const noexcept { return token; }
    void end() const {
      operation->reset();
      ended->fetch_add(1);
      ended->notify_all();
    }
    void set_value(const completion&) const&& {
      values->fetch_add(1);
      end();
    }
    void set_error(const error& why) const&& {
      UNSCOPED_INFO(to_string(why));
      end();
    }
    void set_stopped() const&& {
      stopped->fetch_add(1);
      end();
    }
  };
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const std::vector<buffer> memory{where.allocate(rank{0}, 64), where.allocate(rank{1}, 64)};
  constexpr int rounds = 400;
  std::stop_source stop;
  std::barrier<> begin{3};
  std::barrier<> end{3};
  std::array<std::atomic<int>, 2> values{};
  std::array<std::atomic<int>, 2> stopped{};
  std::atomic<int> ended{0};
  std::array<std::shared_ptr<void>, 2> operations;
  std::array<std::function<void()>, 2> starts;
  const auto taking_part = [&](auto what) {
    return std::jthread{[&, what] {
      for (int i = 0; i < rounds; ++i) {
        begin.arrive_and_wait();
        what();
        end.arrive_and_wait();
      }
    }};
  };
  const std::jthread peer = taking_part([&] { starts[1](); });
  const std::jthread stopper = taking_part([&] { stop.request_stop(); });
  for (int i = 0; i < rounds; ++i) {
    stop = std::stop_source{};
    ended = 0;
    for (std::size_t k = 0; k < 2; ++k) {
      rank_request asked{all_reduce{memory[k], memory[k], 4, dtype::f32, reduction::sum}, where.epoch()};
      asked.lane = lane::named("raced");
      asked.position = static_cast<std::uint64_t>(i);
      const std::stop_token token = k == 0 ? stop.get_token() : std::stop_token{};
      using sender = request_sender<inline_resumer>;
      const auto made = std::shared_ptr<sender::state<counting_receiver>>{
          new auto(sender{inline_resumer{}, where, rank{static_cast<int>(k)}, asked}.connect(
              counting_receiver{&values[k], &stopped[k], &ended, token, &operations[k]}))};
      operations[k] = made;
      starts[k] = [state = made.get()] { state->start(); };
    }
    begin.arrive_and_wait();
    starts[0]();
    end.arrive_and_wait();
    // Stopped before it was asked for: the peer waits, and the lane is kept in step by asking now. Where only the
    // peer's ending is still to come, this position is taken, and nothing happens.
    if (ended == 1) {
      rank_request asked{all_reduce{memory[0], memory[0], 4, dtype::f32, reduction::sum}, where.epoch()};
      asked.lane = lane::named("raced");
      asked.position = static_cast<std::uint64_t>(i);
      auto [reply, future] = make_future_promise();
      ask_into(where, rank{0}, asked, std::move(reply));
      static_cast<void>(outcome_of(std::move(future)));
    }
    for (int seen = ended; seen != 2; seen = ended) ended.wait(seen);
    REQUIRE(operations[0] == nullptr);
    REQUIRE(values[0] + stopped[0] == i + 1);
    REQUIRE(values[1] + stopped[1] == i + 1);
  }
  CAPTURE(values[0], stopped[0], values[1], stopped[1]);
  CHECK(values[1] >= values[0]); // the peer's succeeds where this one's does
}

TEST_CASE("an operation may be destroyed by its own ending", "[runtime][interop][senders]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  struct destroying_receiver {
    std::function<void()>* ended;
    void set_value(const completion&) const&& { (*ended)(); }
    void set_error(const error&) const&& { (*ended)(); }
    void set_stopped() const&& { (*ended)(); }
  };
  resume_queue queue;
  using sender = request_sender<decltype(queue.resumer())>;
  std::function<void()> ended;
  auto state = std::unique_ptr<sender::state<destroying_receiver>>{
      new auto(sender{queue.resumer(), where, {barrier{}}}.connect(destroying_receiver{&ended}))};
  ended = [&] {
    state.reset();
    queue.close();
  };
  state->start();
  queue.run();
  CHECK(state == nullptr);
}

} // namespace troupe::tests::request_sender_test
