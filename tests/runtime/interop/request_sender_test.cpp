// Requests as senders, heard by a receiver written by hand: one ending each, where the resumer takes it.
#include "../../support/runtimes.hpp"

#include <troupe/runtime/interop/request_sender.hpp>

#include <catch2/catch_test_macros.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

struct endings {
  int values = 0;
  int errors = 0;
  int stopped = 0;
  errc code = errc::none;
};

struct receiver {
  endings* told;

  void set_value(const completion&) && { ++told->values; }
  void set_error(error why) && {
    ++told->errors;
    told->code = why.code;
  }
  void set_stopped() && { ++told->stopped; }
};
static_assert(request_receiver<receiver>);

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
  compat::post(where.collective(rank{0}), cancel_request{lane::named("taken back"), 0});
  run_until_ended(queue, told);
  CHECK(told.stopped == 1);
  CHECK(told.values + told.errors == 0);
}

TEST_CASE("an operation may be destroyed by its own ending", "[runtime][interop][senders]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  struct destroying_receiver {
    std::function<void()>* ended;
    void set_value(const completion&) && { (*ended)(); }
    void set_error(const error&) && { (*ended)(); }
    void set_stopped() && { (*ended)(); }
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

} // namespace troupe::tests
