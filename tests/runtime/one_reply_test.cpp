/// Every request gets exactly one reply, whatever happens (ONE-1), and it says whether the work may have run (ONE-2).
/// A future is answered by its promise once at most; these tests show that it is answered at all.

#include "support/comes_true.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>

#include <caf/exit_reason.hpp>

#include <catch2/catch_test_macros.hpp>

#include <future>
#include <utility>
#include <vector>

namespace troupe::tests::one_reply_test {

namespace {

constexpr std::size_t count = 64;

std::vector<operation> sum_of(const std::vector<buffer>& values) {
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{one, one, count, dtype::f32, reduction::sum});
  return parts;
}

/// The same, but rank 0's part waits for a client's own work.
std::vector<operation> held_sum_of(const std::vector<buffer>& values, const held_client& client) {
  auto parts = sum_of(values);
  std::get<all_reduce>(parts.front()).send.ready = client.after(values.front()).ready;
  return parts;
}

} // namespace

TROUPE_WORLD_TEST(3, "a stop lets requests in flight finish and rejects later ones (ONE-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  held_client client{where.device_of(rank{0})};
  auto held = where.ask(held_sum_of(values, client));
  auto stopping = std::async(std::launch::async, [&] { where.stop(); });
  REQUIRE(reaches(where, world_phase::stopping));
  // The status is published before requests are refused: those asked in between are still in flight. A refusal is
  // delivered at once.
  std::vector<std::future<completion>> in_flight;
  error late;
  CHECK(comes_true([&] {
    auto next = where.ask(sum_of(values));
    if (next.wait_for(0s) == std::future_status::ready)
      late = failure_of(std::move(next));
    else
      in_flight.push_back(std::move(next));
    return late.code != errc::none;
  }));
  CHECK(late.code == errc::stopping);
  CHECK(late.effect == effect::rejected);
  client.open();
  CHECK_NOTHROW(held.get());
  for (auto& one : in_flight) CHECK_NOTHROW(one.get());
  stopping.get();
  CHECK(where.status().phase == world_phase::stopped);
  CHECK(failure_of(where.ask(sum_of(values))).code != errc::none);
}

TROUPE_WORLD_TEST(2, "a stop that cannot drain answers what is in flight with unknown outcome (ONE-1, ONE-2, TIM-1)",
                  "[runtime]") {
  settings.deadlines.drain = 50ms;
  settings.deadlines.abort = settings.backend == backend_choice::mock ? 100ms : 2s; // NCCL's own takes 500 ms
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  held_client client{where.device_of(rank{0})};
  auto held = where.ask(held_sum_of(values, client));
  where.stop(); // the abort waits for the client's own work, and is abandoned
  const error failure = failure_of(std::move(held));
  CHECK(failure.code == errc::deadline_exceeded);
  CHECK(failure.effect == effect::unknown_outcome);
  client.open();
}

TROUPE_WORLD_TEST(4, "a runtime that ends answers everything (ONE-1)", "[runtime]") {
  std::vector<std::future<completion>> replies;
  {
    runtime rt{settings};
    world where = rt.form_world();
    const auto values = ranked_values(where, count);
    for (int i = 0; i < 200; ++i) replies.push_back(where.ask(sum_of(values)));
  }
  for (auto& reply : replies) REQUIRE(reply.wait_for(0s) == std::future_status::ready);
}

TROUPE_WORLD_TEST(3, "a killed collective actor fails its world, and everything is answered (ONE-1, FLT-1)",
                  "[runtime]") {
  settings.recovery.policy = recovery_policy::fail_fast;
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  held_client client{where.device_of(rank{0})};
  auto held = where.ask(held_sum_of(values, client));
  auto queued = where.ask(sum_of(values));
  caf::anon_send_exit(collective_of(where, rank{1}), caf::exit_reason::kill);
  CHECK(failure_of(std::move(held)).code != errc::none);
  CHECK(failure_of(std::move(queued)).code != errc::none);
  client.open();
  REQUIRE(reaches(where, world_phase::failed));
  CHECK(where.status().reason.rank == rank{1});
  const error late = failure_of(where.ask(sum_of(values)));
  CHECK(late.code == errc::world_failed);
  CHECK(late.effect == effect::rejected);
  CHECK(failure_of(where.ask(rank{1}, barrier{})).code == errc::abandoned);
  CHECK(failure_of(where.ask(rank{0}, barrier{})).code == errc::world_failed);
}

TROUPE_WORLD_TEST(2, "a killed world actor leaves nothing unanswered (ONE-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  held_client client{where.device_of(rank{0})};
  auto held = where.ask(held_sum_of(values, client));
  caf::anon_send_exit(caf::actor_cast<caf::actor>(actor_of(where)), caf::exit_reason::kill);
  CHECK(failure_of(std::move(held)).code == errc::abandoned);
  client.open();
  REQUIRE(reaches(where, world_phase::stopped));
  CHECK(failure_of(where.ask(sum_of(values))).code == errc::abandoned);
  CHECK_NOTHROW(where.stop());
}

TROUPE_WORLD_TEST(2, "bad requests are refused with the reason and disturb nobody (ONE-1, ONE-2, ORD-2, BUF-2)",
                  "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const auto refuse = [&](std::vector<operation> parts) { return failure_of(where.ask(std::move(parts))); };
  auto parts = sum_of(values);
  errc expected = errc::invalid_argument;

  SECTION("a count beyond the buffer") {
    std::get<all_reduce>(parts[1]).count = count + 1;
    std::get<all_reduce>(parts[0]).count = count + 1;
  }
  SECTION("a buffer of another device") {
    std::get<all_reduce>(parts[1]).recv = values[0];
    expected = errc::wrong_device;
  }
  SECTION("ranks that disagree") {
    std::get<all_reduce>(parts[1]).op = reduction::max;
    expected = errc::mismatch;
  }
  SECTION("a part too few") {
    parts.pop_back();
  }
  SECTION("an unknown dtype") {
    for (auto& part : parts) std::get<all_reduce>(part).type = static_cast<dtype>(99);
  }
  SECTION("a stale buffer") {
    where.device_of(rank{1})->declare_memory_lost();
    expected = errc::stale_buffer;
  }
  const error failure = refuse(std::move(parts));
  CHECK(failure.code == expected);
  CHECK(failure.effect == effect::rejected);
  CHECK(!failure.text.empty());
  CHECK_NOTHROW(where.barrier().get());
}

TROUPE_WORLD_TEST(2, "a request for another epoch is rejected with the present one (EPO-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const error by_world = failure_of(where.ask(world_request{{barrier{}, barrier{}}, where.epoch().next()}));
  CHECK(by_world.code == errc::stale_epoch);
  CHECK(by_world.epoch == where.epoch());
  CHECK(failure_of(where.ask(rank{0}, {.what = barrier{}, .epoch = where.epoch().next()})).code == errc::stale_epoch);
  CHECK_NOTHROW(where.barrier().get());
}

TROUPE_WORLD_TEST(2, "a peer that never comes: the deadline answers, then the hang verdict fails the world (TIM-1)",
                  "[runtime]") {
  settings.recovery.policy = recovery_policy::fail_fast;
  settings.limits.hang = 500ms;
  settings.ordering = ordering::caller; // else nothing would be launched
  runtime rt{settings};
  world where = rt.form_world();
  auto lonely = where.ask(rank{0}, barrier{}, {.deadline = 20ms});
  const error failure = failure_of(std::move(lonely));
  CHECK(failure.code == errc::deadline_exceeded);
  CHECK(failure.effect == effect::unknown_outcome);
  REQUIRE(reaches(where, world_phase::failed));
  CHECK(where.status().reason.code == errc::deadline_exceeded);

  // The runtime goes on: another world over the same devices serves.
  world next = rt.form_world();
  const auto values = ranked_values(next, count);
  next.ask(sum_of(values)).get();
  for (const float seen : read_back(next, rank{1}, values[1])) REQUIRE(seen == 3);
}

TEST_CASE("an error of the device that comes late is answered and fails the world (ONE-2)", "[runtime]") {
  configuration settings = mock_settings(2);
  settings.recovery.policy = recovery_policy::fail_fast;
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  errc injected = errc::device_failed;
  SECTION("one that passes") {}
  SECTION("a sticky one") {
    injected = errc::process_poisoned;
  }
  mock_of(rt).fail_next(device_id{1}, error{.code = injected, .text = "injected"});
  const error failure = failure_of(where.ask(sum_of(values)));
  CHECK(failure.code == injected);
  CHECK(failure.effect == effect::unknown_outcome);
  REQUIRE(reaches(where, world_phase::failed));
}

TEST_CASE("a late error that another call is told of still fails the operation that was lost (ONE-2)", "[runtime]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  held_client client{where.device_of(rank{0})};
  const buffer host = where.allocate_pinned(16);
  const buffer memory = where.allocate(rank{0}, 16);
  auto lost = where.ask(rank{0}, copy{client.after(host), memory});
  mock_of(rt).fail_next(device_id{0}, error{.code = errc::device_failed, .text = "injected"});
  client.open();
  // This thread's calls take the device's error before the poller can; the stream keeps its own.
  for (bool told = false; !told && lost.wait_for(0s) != std::future_status::ready;) {
    try {
      rt.api().open(device_id{0});
    } catch (const exception& failure) {
      told = failure.why().text == "injected";
    }
  }
  auto later = where.ask(rank{0}, copy{host, memory});
  CHECK(failure_of(std::move(lost)).text.find("injected") != std::string::npos);
  CHECK(failure_of(std::move(later)).code != errc::none);
}

} // namespace troupe::tests::one_reply_test
