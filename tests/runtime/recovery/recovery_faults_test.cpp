/// Worlds whose communicators go wrong, one way after the other, and that serve again.
#include "support/runtimes.hpp"

#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <future>
#include <thread>
#include <vector>

namespace troupe::tests::recovery_faults_test {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t count = 256;

[[nodiscard]] std::vector<operation> sum_of(const std::vector<buffer>& values) {
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{.send = one, .recv = one, .count = count});
  return parts;
}

/// The first launch of an NCCL kernel loads it, for which a rank's peers may wait longer than a hang verdict takes.
void load_kernels(const configuration& settings) {
  if (settings.backend == backend_choice::mock) return;
  runtime rt{settings};
  world where = rt.form_world();
  REQUIRE(failure_of(where.ask(sum_of(ranked_values(where, count)))).code == errc::none);
  where.stop();
}

/// A world of two that forms again, and what makes it go wrong.
struct faulty_world {
  explicit faulty_world(configuration settings, nanoseconds hang = 500ms)
    : rt{prepared(std::move(settings), hang, faults)}, where{rt.form_world()}, values{ranked_values(where, count)} {
    serve();
  }
  faulty_world(const faulty_world&) = delete;
  faulty_world& operator=(const faulty_world&) = delete;
  ~faulty_world() { faults->release(); }

  [[nodiscard]] std::future<completion> ask() { return where.ask(sum_of(values)); }

  /// Fresh values are added up. Those of a request with unknown outcome may be written to until it has been aborted.
  void serve() {
    values = ranked_values(where, count);
    REQUIRE(failure_of(ask()).code == errc::none);
    for (const rank self : where.local_ranks())
      REQUIRE(read_back(where, self, values[static_cast<std::size_t>(self.value())]) ==
              std::vector<float>(count, 3.0F));
  }

  /// Until the world is ready in a later epoch than \p before. Returns that epoch, or \p before where it has failed.
  [[nodiscard]] epoch next_after(epoch before) const {
    const auto until = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < until) {
      const world_event now = where.status();
      if (now.phase == world_phase::ready && now.epoch > before) return now.epoch;
      if (now.phase == world_phase::failed || now.phase == world_phase::stopped) break;
      std::this_thread::yield();
    }
    return before;
  }

  /// Whether \p wanted aborts have returned in all, now or soon.
  [[nodiscard]] bool has_aborted(std::size_t wanted) const {
    std::size_t ended = 0;
    const auto until = std::chrono::steady_clock::now() + 30s;
    while (ended < wanted && std::chrono::steady_clock::now() < until) {
      ended += faults->take_ended_aborts().size();
      std::this_thread::yield();
    }
    return ended == wanted;
  }

  std::shared_ptr<testing::fault_script> faults = std::make_shared<testing::fault_script>();
  runtime rt;
  world where;
  std::vector<buffer> values;

private:
  static configuration prepared(configuration settings, nanoseconds hang, std::shared_ptr<fault_injector> faults) {
    load_kernels(settings);
    settings.recovery.policy = recovery_policy::keep_size;
    settings.recovery.backoff = 1ms;
    settings.limits.hang = hang;
    settings.deadlines.form = settings.backend == backend_choice::mock ? nanoseconds{1s} : nanoseconds{5s};
    settings.faults = std::move(faults);
    return settings;
  }
};

} // namespace

TROUPE_WORLD_TEST(2, "a rank whose launch never comes is seen as a hang, and comes again in the next epoch (FLT-1)",
                  "[runtime][faults]") {
  faulty_world one{settings};
  const epoch before = one.where.epoch();
  const auto withheld = one.faults->on(rank{1}).next_operation().hang();
  const error lost = failure_of(one.ask());
  CHECK(lost.code == errc::deadline_exceeded);
  CHECK(lost.effect == effect::unknown_outcome);
  REQUIRE(withheld.wait_for(0s) == std::future_status::ready);
  REQUIRE(one.next_after(before) == before.next());
  one.serve();
  CHECK(one.has_aborted(2));
}

TROUPE_WORLD_TEST(2, "a launch that fails on one rank ends the epoch for all (FLT-1)", "[runtime][faults]") {
  faulty_world one{settings};
  const epoch before = one.where.epoch();
  const auto refused = one.faults->on(rank{0}).next_operation().fail();
  const error failure = failure_of(one.ask());
  CHECK(failure.code == errc::communicator_failed);
  CHECK(failure.rank == rank{0});
  REQUIRE(refused.wait_for(0s) == std::future_status::ready);
  REQUIRE(one.next_after(before) == before.next());
  one.serve();
}

TROUPE_WORLD_TEST(2, "an error that comes asynchronously is seen before the operation counts as hung (FLT-1)",
                  "[runtime][faults]") {
  faulty_world one{settings, 30s};
  const epoch before = one.where.epoch();
  const auto withheld = one.faults->on(rank{1}).next_operation().hang();
  const auto found = one.faults->on(rank{0}).next_check().fail();
  const error failure = failure_of(one.ask());
  CHECK(failure.code == errc::communicator_failed);
  CHECK(failure.effect == effect::unknown_outcome);
  CHECK(failure.rank == rank{0});
  REQUIRE(found.wait_for(0s) == std::future_status::ready);
  REQUIRE(one.next_after(before) == before.next());
  one.serve();
}

TROUPE_WORLD_TEST(2, "where forming beside fails everything is aborted and formed again (FLT-1)", "[runtime][faults]") {
  faulty_world one{settings};
  const epoch before = one.where.epoch();
  const auto failed = one.faults->on(rank{1}).next_forming().fail();
  const auto refused = one.faults->on(rank{0}).next_operation().fail();
  CHECK(failure_of(one.ask()).code == errc::communicator_failed);
  REQUIRE(one.next_after(before) == before.next().next());
  CHECK(one.has_aborted(4)); // of both epochs
  one.serve();
}

TROUPE_WORLD_TEST(2, "a forming that hangs is given up at its deadline, aborted and tried again (TIM-1, FLT-1)",
                  "[runtime][faults]") {
  faulty_world one{settings};
  const epoch before = one.where.epoch();
  const auto hung = one.faults->on(rank{1}).next_forming().hang();
  const auto refused = one.faults->on(rank{0}).next_operation().fail();
  CHECK(failure_of(one.ask()).code == errc::communicator_failed);
  REQUIRE(one.next_after(before) == before.next().next());
  CHECK(one.has_aborted(4));
  one.serve();
}

TROUPE_WORLD_TEST(2, "a slow abort holds nobody up whose next epoch was formed beside it (FLT-1)",
                  "[runtime][faults]") {
  faulty_world one{settings};
  const epoch before = one.where.epoch();
  const auto slow = one.faults->on(rank{1}).next_abort().delay(1h);
  const auto refused = one.faults->on(rank{0}).next_operation().fail();
  CHECK(failure_of(one.ask()).code == errc::communicator_failed);
  REQUIRE(one.next_after(before) == before.next());
  one.serve();
  REQUIRE(slow.wait_for(30s) == std::future_status::ready);
  one.serve();
  one.faults->release();
  CHECK(one.has_aborted(2));
}

TROUPE_WORLD_TEST(2, "under first_rung = abort_first the failed epoch is aborted before the next forms (FLT-1)",
                  "[runtime][faults]") {
  settings.recovery.first_rung = recovery_rung::abort_first;
  faulty_world one{settings};
  const epoch before = one.where.epoch();
  const auto refused = one.faults->on(rank{1}).next_operation().fail();
  CHECK(failure_of(one.ask()).code == errc::communicator_failed);
  REQUIRE(one.next_after(before) == before.next());
  CHECK(one.faults->take_ended_aborts().size() == 2);
  one.serve();
}

} // namespace troupe::tests::recovery_faults_test
