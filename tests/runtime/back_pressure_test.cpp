// Under overload a client is answered busy, or asks for credit; nobody hangs, and nothing is lost (ONE-1, BLK-2).
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::back_pressure_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = 64;

/// A request to the world that does not end before \p client opens.
std::vector<operation> held_sum(const std::vector<buffer>& values, const held_client& client) {
  std::vector<operation> parts;
  for (std::size_t r = 0; r < values.size(); ++r) {
    const operand both = r == 0 ? client.after(values[r]) : operand{values[r]};
    parts.emplace_back(all_reduce{both, both, count, dtype::f32, reduction::sum});
  }
  return parts;
}

void await_nothing_pending(const world& where) {
  while (!(where.pending() == pending_amount{})) std::this_thread::yield();
}

/// Asks for credit, then under it, and tells what came of it.
class careful_client final : public listener_handle::base {
public:
  careful_client(caf::actor_config& settings, const world& where, std::promise<int>* told)
    : listener_handle::base{settings},
      at_{actor_of(where)},
      ranks_{where.size()},
      epoch_{where.epoch()},
      told_{*told} {}

  behavior_type make_behavior() override {
    compat::request_unbounded(this, at_, credit_request{.operations = 2, .epoch = epoch_})
        .then(
            [this](const credit& given) {
              mine_ = given;
              for (int i = 0; i < 3; ++i) ask();
            },
            [this](const caf::error& why) { told_.set_value(-static_cast<int>(from_caf(why).code)); });
    return {[](const world_event&) {}};
  }
  void on_exit() override { at_ = nullptr; }

private:
  void ask() {
    compat::request_unbounded(
        this, at_,
        world_request{std::vector<operation>(static_cast<std::size_t>(ranks_), barrier{}), epoch_, {}, mine_})
        .then([this](const completion&) { count_one(true); }, [this](const caf::error&) { count_one(false); });
  }
  void count_one(bool well) {
    done_ += well ? 1 : 0;
    if (++answered_ < 3) return;
    told_.set_value(done_);
    quit();
  }

  world_handle at_;
  int ranks_;
  epoch epoch_;
  credit mine_;
  int done_ = 0, answered_ = 0;
  std::promise<int>& told_;
};

} // namespace

TEST_CASE("beyond the bound a world is busy, and free again with the replies", "[runtime][busy]") {
  configuration settings = mock_settings(2);
  settings.limits.pending.operations = 3;
  settings.scheduler_threads = 1;
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  await_nothing_pending(where);
  const held_client client{where.device_of(rank{0})};
  std::vector<std::future<completion>> replies;
  for (int i = 0; i < 4; ++i) replies.push_back(where.ask(held_sum(values, client)));
  const error busy = failure_of(where.barrier());
  CHECK(busy.code == errc::busy);
  CHECK(busy.effect == effect::rejected);
  CHECK(busy.ticket);
  CHECK_THAT(busy.text, ContainsSubstring("limits.pending_operations"));
  CHECK(where.pending().operations == 3);
  // A rank's lane is heard all the same, once.
  auto first = where.ask(rank{1}, copy{values[1], where.allocate(rank{1}, values[1].size_bytes())});
  client.open();
  for (auto& one : replies) CHECK_NOTHROW(one.get());
  CHECK_NOTHROW(first.get());
  CHECK(where.pending() == pending_amount{});
  CHECK_NOTHROW(where.barrier().get());
}

TEST_CASE("bytes that requests hold are bounded", "[runtime][busy]") {
  configuration settings = mock_settings(2);
  settings.limits.pending = {.operations = 0, .bytes = 2 * count * sizeof(float)};
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  await_nothing_pending(where);
  const held_client client{where.device_of(rank{0})};
  auto first = where.ask(held_sum(values, client));
  auto second = where.ask(held_sum(values, client)); // both ranks' buffers, in place: as much as may be
  const error busy = failure_of(where.ask(held_sum(values, client)));
  CHECK(busy.code == errc::busy);
  CHECK_THAT(busy.text, ContainsSubstring("512 bytes are pending, this one names 512, and the limit is 512"));
  auto without = where.barrier();
  client.open();
  for (auto* one : {&first, &second, &without}) CHECK_NOTHROW(one->get());
}

TEST_CASE("a rank that floods its lane does not shut its peers out (BLK-2)", "[runtime][busy]") {
  for (const ordering order : {ordering::agreed, ordering::caller}) {
    configuration settings = mock_settings(2);
    settings.limits.pending.operations = 3;
    settings.scheduler_threads = 1;
    settings.ordering = order;
    runtime rt{settings};
    world where = rt.form_world();
    std::vector<std::future<completion>> eager;
    std::size_t refused = 0;
    for (int i = 0; i < 8; ++i) {
      auto one = where.ask(rank{0}, barrier{});
      if (i < 4)
        eager.push_back(std::move(one));
      else
        refused += failure_of(std::move(one)).code == errc::busy ? 1 : 0;
    }
    CHECK(refused == 4);
    CHECK(where.pending().operations == 3);
    for (int i = 0; i < 4; ++i) CHECK_NOTHROW(where.ask(rank{1}, barrier{}).get());
    for (auto& one : eager) CHECK_NOTHROW(one.get());
    await_nothing_pending(where);
  }
}

TEST_CASE("requests under credit are taken while the world is busy, and who waits for credit gets it in turn",
          "[runtime][credit]") {
  configuration settings = mock_settings(2);
  settings.limits.pending.operations = 4;
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  await_nothing_pending(where);
  const held_client client{where.device_of(rank{0})};
  std::optional<credit> mine = where.credit(2).get();
  CHECK(where.pending().operations == 2);
  std::vector<std::future<completion>> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(where.ask(held_sum(values, client)));
  CHECK(failure_of(where.barrier()).code == errc::busy);
  for (int i = 0; i < 2; ++i)
    replies.push_back(
        where.ask(world_request{.parts = held_sum(values, client), .epoch = where.epoch(), .credit = *mine}));
  CHECK(failure_of(where.ask(world_request{.parts = held_sum(values, client), .epoch = where.epoch(), .credit = *mine}))
            .text.find("use up the credit") != std::string::npos);
  auto waits = where.credit(4);
  auto behind = where.credit(1);
  const error late = [&] {
    try {
      static_cast<void>(where.credit(1, 0, 1ms).get());
    } catch (const exception& failure) {
      return failure.why();
    }
    return error{};
  }();
  CHECK(late.code == errc::deadline_exceeded);
  CHECK(waits.wait_for(0s) == std::future_status::timeout);
  mine.reset();
  client.open();
  for (auto& one : replies) CHECK_NOTHROW(one.get());
  CHECK(waits.get().size().operations == 4);
  CHECK(behind.get().size().operations == 1);
  await_nothing_pending(where);
}

TEST_CASE("a lane's requests are charged to the credit that it uses", "[runtime][credit]") {
  configuration settings = mock_settings(2);
  settings.limits.pending.operations = 4;
  runtime rt{settings};
  world where = rt.form_world();
  credit both = where.credit(4).get(); // for both ranks of two operations
  std::vector<rank_lane> lanes;
  for (const rank self : where.local_ranks()) {
    lanes.emplace_back(where, self, lane::named("under credit"));
    lanes.back().use(both);
  }
  std::vector<std::future<completion>> replies;
  for (int i = 0; i < 3; ++i) replies.push_back(lanes[0].ask(barrier{}));
  replies.push_back(lanes[1].ask(barrier{}));
  CHECK_NOTHROW(replies[0].get());
  CHECK_NOTHROW(replies[3].get());
  CHECK(where.pending().operations == 4);
  for (int i = 0; i < 2; ++i) CHECK_NOTHROW(lanes[1].ask(barrier{}).get());
  for (const std::size_t i : {1U, 2U}) CHECK_NOTHROW(replies[i].get());
  both = {};
  for (rank_lane& one : lanes) one.use({});
  await_nothing_pending(where);
}

TEST_CASE("an actor asks for credit by message, with one scheduler thread (BLK-2)", "[runtime][credit]") {
  configuration settings = mock_settings(2);
  settings.limits.pending.operations = 2;
  settings.scheduler_threads = 1;
  runtime rt{settings};
  world where = rt.form_world();
  std::vector<std::promise<int>> told(3);
  for (auto& one : told) rt.system().spawn<careful_client>(where, &one);
  for (auto& one : told) CHECK(one.get_future().get() >= 2); // the third may have found its credit used up
  await_nothing_pending(where);
}

TEST_CASE("a world that stops or fails answers who waits for credit", "[runtime][credit]") {
  for (const bool fails : {false, true}) {
    configuration settings = mock_settings(2);
    settings.limits.pending.operations = 2;
    settings.ordering = ordering::caller;
    settings.recovery.policy = recovery_policy::fail_fast;
    runtime rt{settings};
    world where = rt.form_world();
    const credit all = where.credit(2).get();
    auto waits = where.credit(1);
    std::vector<std::future<completion>> crossed;
    if (fails) {
      const auto values = where.allocate_all(64);
      crossed.push_back(where.ask(rank{0}, barrier{}));
      crossed.push_back(where.ask(rank{1}, broadcast{values[rank{1}], values[rank{1}], 4, dtype::f32, rank{0}}));
    } else {
      where.stop();
    }
    try {
      static_cast<void>(waits.get());
      FAIL("no credit became free in time");
    } catch (const exception& failure) {
      CHECK(failure.why().code == (fails ? errc::world_failed : errc::stopping));
      CHECK(failure.why().effect == effect::rejected);
    }
  }
}

TEST_CASE("a sub-world has an account of its own", "[runtime][credit]") {
  configuration settings = mock_settings(2);
  settings.limits.pending.operations = 2;
  runtime rt{settings};
  world where = rt.form_world();
  auto parts = where.split({{.name = "all", .members = {rank{0}, rank{1}}}});
  world child = *parts[0].handle;
  const credit all = where.credit(2).get();
  const credit its = child.credit(2).get();
  CHECK(where.pending().operations == 2);
  CHECK(child.pending().operations == 2);
  const error foreign = failure_of(
      child.ask(world_request{.parts = std::vector<operation>(2, barrier{}), .epoch = child.epoch(), .credit = all}));
  CHECK(foreign.code == errc::invalid_argument);
}

} // namespace troupe::tests::back_pressure_test
