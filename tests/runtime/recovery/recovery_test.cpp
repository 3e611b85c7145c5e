/// Worlds that form again after a fault.
#include "support/comes_true.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests::recovery_test {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t count = 1024;

[[nodiscard]] std::vector<operation> sum_of(const std::vector<buffer>& values) {
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{.send = one, .recv = one, .count = count});
  return parts;
}

[[nodiscard]] std::vector<operation> held_sum_of(const std::vector<buffer>& values, const held_client& client) {
  auto parts = sum_of(values);
  auto& first = std::get<all_reduce>(parts.front());
  first.send = client.after(first.send.memory);
  return parts;
}

configuration keeping_size(configuration settings) {
  settings.recovery.policy = recovery_policy::keep_size;
  settings.recovery.backoff = 1ms;
  settings.deadlines.abort = settings.backend == backend_choice::mock ? 5s : 10s;
  return settings;
}

/// What a pipeline of \p self would say.
void report_fault(const world& where, rank self, epoch formed_in) {
  compat::post(
      caf::actor_cast<world_inner_handle>(actor_of(where)),
      world_notice{rank_report{rank_report::kind::faulted,
                               self,
                               formed_in,
                               {.code = errc::communicator_failed, .text = "the test says so", .rank = self}}});
}

[[nodiscard]] bool is_ready_in(const world& where, epoch wanted) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < until) {
    const world_event now = where.status();
    if (now.phase == world_phase::ready && now.epoch == wanted) return true;
    if (now.phase == world_phase::failed || now.phase == world_phase::stopped) return false;
    std::this_thread::yield();
  }
  return false;
}

/// An all_reduce of fresh values gives the sum of all ranks' numbers.
void check_serves(world& where) {
  const auto values = ranked_values(where, count);
  REQUIRE(failure_of(where.ask(sum_of(values))).code == errc::none);
  for (const rank self : where.local_ranks())
    REQUIRE(read_back(where, self, values[static_cast<std::size_t>(self.value())]) ==
            std::vector<float>(count, ranked_sum(where.size())));
}

} // namespace

TROUPE_WORLD_TEST(2, "a world that has a fault forms again beside what still waits, and serves (ONE-1, EPO-1, FLT-1)",
                  "[runtime]") {
  configuration patient = keeping_size(settings);
  runtime rt{patient};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const epoch before = where.epoch();
  held_client client{where.device_of(rank{0})};
  auto held = where.ask(held_sum_of(values, client));
  auto queued = where.ask(sum_of(values));
  report_fault(where, rank{1}, before);
  CHECK(failure_of(std::move(held)).code == errc::communicator_failed);
  CHECK(failure_of(std::move(queued)).code == errc::communicator_failed);
  // While NCCL forms, CUDA waits for whatever is on the devices; what an abort ends does not count, a client's gate
  // does.
  if (settings.backend == backend_choice::nccl) client.open();
  REQUIRE(is_ready_in(where, before.next()));
  check_serves(where); // while the failed communicators' work still waits for the client
  CHECK_NOTHROW(where.credit(2, 0, 20s).get());
  const error stale = failure_of(where.ask(world_request{sum_of(values), before}));
  CHECK(stale.code == errc::stale_epoch);
  CHECK(stale.effect == effect::rejected);
  client.open();
  check_serves(where);
  where.stop();
  CHECK(where.status().phase == world_phase::stopped);
}

TROUPE_WORLD_TEST(2, "a peer that never comes is seen as a hang, and the world forms again (TIM-1, FLT-1)",
                  "[runtime]") {
  configuration quick = keeping_size(settings);
  quick.ordering = ordering::caller;
  quick.limits.hang = 500ms;
  runtime rt{quick};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  check_serves(where); // an NCCL kernel is loaded by its first launch, which would take longer than the verdict
  const epoch before = where.epoch();
  const error lonely = failure_of(where.ask(rank{0}, sum_of(values).front()));
  CHECK(lonely.effect == effect::unknown_outcome);
  REQUIRE(is_ready_in(where, before.next()));
  check_serves(where);
}

TROUPE_WORLD_TEST(2, "a rank whose actor was killed has another one in the next epoch (ONE-1, FLT-1)", "[runtime]") {
  runtime rt{keeping_size(settings)};
  world where = rt.form_world();
  check_serves(where);
  const epoch before = where.epoch();
  const collective_handle old = collective_of(where, rank{1});
  caf::anon_send_exit(old, caf::exit_reason::kill);
  REQUIRE(is_ready_in(where, before.next()));
  CHECK(collective_of(where, rank{1}).id() != old.id());
  check_serves(where);
  std::vector<std::future<completion>> replies;
  for (const rank self : where.local_ranks())
    replies.push_back(where.ask(self, {.what = barrier{}, .epoch = before.next()}));
  for (auto& one : replies) CHECK(failure_of(std::move(one)).code == errc::none);
}

TEST_CASE("the end of an actor that is linked to the world's actor or a rank's names it (ONE-1)", "[runtime][mock]") {
  runtime rt{keeping_size(mock_settings(2))};
  world where = rt.form_world();
  const auto held = held_client{where.device_of(rank{0})};
  auto pending = where.ask(held_sum_of(ranked_values(where, count), held));
  caf::actor_id failed = 0;
  const auto fail_linked_to = [&](const caf::actor& which) {
    const auto failing = [](caf::event_based_actor* self, const caf::actor& linked) {
      self->link_to(linked);
      self->quit(caf::make_error(caf::sec::runtime_error));
    };
    const caf::actor client = rt.system().spawn(failing, which);
    failed = client.id();
  };
  const auto names_it = [&](const std::string& text) {
    INFO(text);
    return text.find("by actor " + std::to_string(failed) + ", which is linked to it") != std::string::npos;
  };
  SECTION("a rank's: the world forms again") {
    fail_linked_to(caf::actor_cast<caf::actor>(collective_of(where, rank{1})));
    REQUIRE(is_ready_in(where, epoch{2}));
    CHECK(failure_of(std::move(pending)).code != errc::none); // it may not have been launched
  }
  SECTION("the world's: it ends for all") {
    fail_linked_to(caf::actor_cast<caf::actor>(actor_of(where)));
    const error told = failure_of(std::move(pending));
    CHECK(told.code == errc::abandoned);
    CHECK(names_it(told.text));
  }
}

namespace {

/// How many streams rank 0's device has, as each of its communicators forms.
class stream_counts final : public fault_injector {
public:
  void before_init(const fault_place& who) override {
    if (who.rank == rank{0}) seen.push_back(devices.load()->stream_count(who.device));
  }
  std::atomic<mock_driver*> devices{nullptr};
  std::vector<std::size_t> seen{}; ///< Rank 0's formations come one after the other.
};

} // namespace

TEST_CASE("mock: an epoch that forms beside a failed one finds streams that were reserved for it (FLT-1)",
          "[runtime]") {
  configuration settings = keeping_size(mock_settings(2));
  const auto counts = std::make_shared<stream_counts>();
  settings.faults = counts;
  const auto in_use = [](recovery_policy policy, const std::shared_ptr<stream_counts>& by, configuration with) {
    with.recovery.policy = policy;
    runtime rt{with};
    by->devices = &mock_of(rt);
    const world where = rt.form_world();
    return mock_of(rt).stream_count(where.device_of(rank{0})->id());
  };
  const std::size_t without = in_use(recovery_policy::fail_fast, counts, settings);
  const std::size_t with = in_use(recovery_policy::keep_size, counts, settings);
  REQUIRE(with > without); // of a world that does not form again none are kept
  counts->seen.clear();

  runtime rt{settings};
  counts->devices = &mock_of(rt);
  world where = rt.form_world();
  const device_id first = where.device_of(rank{0})->id();
  REQUIRE(mock_of(rt).stream_count(first) == with);
  report_fault(where, rank{1}, where.epoch());
  REQUIRE(is_ready_in(where, epoch{2}));
  REQUIRE(counts->seen.size() == 2);
  CHECK(counts->seen[1] < with); // though the failed epoch's were there still
  while (mock_of(rt).stream_count(first) != with) std::this_thread::yield(); // once that has been aborted
  where.stop();
}

TROUPE_WORLD_TEST(2, "registered memory is registered again in the next epoch", "[runtime]") {
  runtime rt{keeping_size(settings)};
  world where = rt.form_world();
  where.register_memory(std::size_t{1} << 20U);
  const auto values = where.allocate_all(count * sizeof(float));
  fill_ranked(where, values, count);
  const epoch before = where.epoch();
  report_fault(where, rank{1}, before);
  REQUIRE(is_ready_in(where, before.next()));
  REQUIRE(failure_of(where.ask(sum_of(values))).code == errc::none);
  for (const rank self : where.local_ranks())
    CHECK(read_back(where, self, values[self]) == std::vector<float>(count, ranked_sum(where.size())));
  check_serves(where);
}

TROUPE_WORLD_TEST(2, "plans are captured again for the new epoch", "[runtime][plans]") {
  runtime rt{keeping_size(settings)};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto plan = where.capture(plan_steps{sum_of(values)});
  where.replay(plan).get();
  const epoch before = where.epoch();
  report_fault(where, rank{1}, before);
  REQUIRE(is_ready_in(where, before.next()));
  where.replay(plan).get();
  CHECK(read_back(where, rank{0}, values[0]) == std::vector<float>(count, 6.0F)); // (1 + 2) + (1 + 2)
}

TROUPE_WORLD_TEST(2, "rank-level requests find the ranks of the new epoch", "[runtime]") {
  runtime rt{keeping_size(settings)};
  world where = rt.form_world();
  const epoch before = where.epoch();
  for (std::uint64_t fault = 1; fault <= 3; ++fault) {
    report_fault(where, rank{0}, epoch{before.value() + fault - 1});
    REQUIRE(is_ready_in(where, epoch{before.value() + fault}));
    std::vector<std::future<completion>> replies;
    for (const rank self : where.local_ranks())
      replies.push_back(where.ask(self, {.what = barrier{}, .epoch = epoch{before.value() + fault}}));
    for (auto& one : replies) CHECK(failure_of(std::move(one)).code == errc::none);
    check_serves(where);
  }
  report_fault(where, rank{0}, epoch{before.value() + 3});
  REQUIRE(reaches(where, world_phase::failed));
  CHECK(where.status().reason.text.find("given up after 3 rebuilds") != std::string::npos);
  // The state changes before the ranks refuse requests because of it.
  CHECK(comes_true([&] { return failure_of(where.ask(rank{0}, barrier{})).code == errc::world_failed; }));
}

TROUPE_WORLD_TEST(2, "a world that is stopped while it is rebuilt ends", "[runtime]") {
  configuration slow = keeping_size(settings);
  slow.recovery.backoff = 10s;
  runtime rt{slow};
  world where = rt.form_world();
  const epoch before = where.epoch();
  for (std::uint64_t fault = 0; fault < 2; ++fault) {
    report_fault(where, rank{0}, epoch{before.value() + fault});
    if (fault == 0) REQUIRE(is_ready_in(where, before.next()));
  }
  REQUIRE(reaches(where, world_phase::rebuilding));
  error refused;
  CHECK(comes_true([&] { return (refused = failure_of(where.ask(rank{0}, barrier{}))).code == errc::rebuilding; }));
  CHECK(refused.effect == effect::rejected);
  const auto began = std::chrono::steady_clock::now();
  where.stop();
  CHECK(where.status().phase == world_phase::stopped);
  CHECK(where.status().reason.code == errc::stopping); // and not the fault before
  CHECK(std::chrono::steady_clock::now() - began < 9s);
}

} // namespace troupe::tests::recovery_test
