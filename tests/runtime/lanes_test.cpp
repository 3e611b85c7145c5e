/// Clients that ask single ranks, in lanes: one order for all of them (ORD-1, ORD-2), and who is missing.

#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <caf/exit_reason.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::lanes_test {

namespace {

constexpr std::size_t count = 64;

operation sum_of(const buffer& values) {
  return all_reduce{values, values, count, dtype::f32, reduction::sum};
}

/// An actor that has asked rank 0 for a barrier, and lives until it is killed.
class lonely_client final : public listener_handle::base {
public:
  lonely_client(caf::actor_config& settings, const world& where, lane in)
    : listener_handle::base{settings}, at_{collective_of(where, rank{0})}, epoch_{where.epoch()}, lane_{in} {}

  behavior_type make_behavior() override {
    compat::request_unbounded(this, at_, rank_request{.what = barrier{}, .epoch = epoch_, .lane = lane_})
        .then([](const completion&) {}, [](const caf::error&) {});
    return {[](const world_event&) {}};
  }
  void on_exit() override { at_ = nullptr; }

private:
  collective_handle at_;
  epoch epoch_;
  lane lane_;
};

/// One lane of each rank.
std::vector<rank_lane> open_lanes(const world& where, std::string_view name) {
  std::vector<rank_lane> lanes;
  for (const rank self : where.local_ranks()) lanes.emplace_back(where, self, lane::named(name));
  return lanes;
}

} // namespace

TROUPE_WORLD_TEST(2, "two lanes that reach the ranks in opposite orders are launched in one (ORD-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto one = ranked_values(where, count);
  const auto other = ranked_values(where, count);
  auto first = open_lanes(where, "first");
  auto second = open_lanes(where, "second");
  struct pair {
    std::future<completion> left, right;
  };
  std::vector<pair> sums;
  std::vector<pair> broadcasts;
  std::vector<std::future<completion>> of_world;
  const auto send_all = [&](std::size_t i) { return broadcast{other[i], other[i], count, dtype::f32, rank{0}}; };
  for (int i = 0; i < 100; ++i) {
    pair& sum = sums.emplace_back();
    pair& sent = broadcasts.emplace_back();
    sum.left = first[0].ask(sum_of(one[0]));
    sent.left = second[0].ask(send_all(0));
    sent.right = second[1].ask(send_all(1));
    sum.right = first[1].ask(sum_of(one[1]));
    of_world.push_back(where.barrier());
  }
  for (auto& reply : of_world) CHECK(reply.get().launch == 0); // no rank's own
  std::map<std::uint64_t, std::uint64_t> launches;             // the same operation's, at rank 0 and at rank 1
  for (auto* const kind : {&sums, &broadcasts})
    for (pair& both : *kind) {
      const std::uint64_t left = both.left.get().launch;
      const std::uint64_t right = both.right.get().launch;
      CHECK(launches.try_emplace(left, right).first->second == right);
    }
  CHECK(std::ranges::is_sorted(launches, {}, &std::pair<const std::uint64_t, std::uint64_t>::second));
}

TROUPE_WORLD_TEST(2, "under ordering::caller a broken promise is caught, and the world says so", "[runtime]") {
  if (settings.backend == backend_choice::nccl) SKIP("a GPU cannot tell what it waits for: it hangs until the verdict");
  settings.ordering = ordering::caller;
  settings.recovery.policy = recovery_policy::fail_fast;
  runtime rt{settings};
  world where = rt.form_world();
  const auto one = ranked_values(where, count);
  auto first = where.ask(rank{0}, sum_of(one[0]));
  auto crossed = where.ask(rank{1}, broadcast{one[1], one[1], count, dtype::f32, rank{0}});
  CHECK(failure_of(std::move(first)).code == errc::mismatch);
  CHECK(failure_of(std::move(crossed)).code == errc::mismatch);
  CHECK(reaches(where, world_phase::failed));
}

TROUPE_WORLD_TEST(3, "ranks that disagree are refused, and the lane goes on (ORD-2)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  auto lanes = open_lanes(where, "disagree");
  std::vector<std::future<completion>> replies;
  for (std::size_t i = 0; i < 3; ++i)
    replies.push_back(lanes[i].ask(all_reduce{values[i], values[i], count - (i == 2 ? 1 : 0)}));
  for (auto& reply : replies) {
    const error failure = failure_of(std::move(reply));
    CHECK(failure.code == errc::mismatch);
    CHECK(failure.effect == effect::rejected);
  }
  replies.clear();
  for (std::size_t i = 0; i < 3; ++i) replies.push_back(lanes[i].ask(sum_of(values[i])));
  for (auto& reply : replies) CHECK_NOTHROW(reply.get());
  for (const float seen : read_back(where, rank{2}, values[2])) REQUIRE(seen == 6);
}

TROUPE_WORLD_TEST(3, "who is missing is told at the deadline, and the world goes on at once (TIM-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  auto lanes = open_lanes(where, "absent");
  auto other = open_lanes(where, "present");
  // All that the report must contain happens before the deadline begins.
  CHECK_NOTHROW(lanes[2].ask(copy{values[2], where.allocate(rank{2}, values[2].size_bytes())}).get());
  auto one = lanes[1].ask(sum_of(values[1]), {.deadline = 20s});
  auto zero = lanes[0].ask(sum_of(values[0]), {.deadline = 50ms});

  const error failure = failure_of(std::move(zero));
  CHECK(failure.code == errc::deadline_exceeded);
  CHECK(failure.effect == effect::rejected);
  REQUIRE(failure.absence);
  REQUIRE(failure.absence->missing() == std::vector{rank{2}});
  CHECK(failure.absence->ranks.at(2).last_asked->what.find("copy") != std::string::npos);
  CHECK(failure.absence->ranks.at(2).last_finished->what.find("copy") != std::string::npos);
  CHECK(failure.text.find("all_reduce of 64 f32, sum") != std::string::npos);
  const error told = failure_of(std::move(one));
  CHECK(told.code == errc::cancelled);
  CHECK(told.effect == effect::rejected);

  // Nothing was launched, so nothing hangs.
  std::vector<std::future<completion>> replies;
  for (std::size_t i = 0; i < 3; ++i) replies.push_back(other[i].ask(sum_of(values[i])));
  for (auto& reply : replies) CHECK_NOTHROW(reply.get());
  // The late one hears that the others gave up, and all three meet at the next.
  CHECK(failure_of(lanes[2].ask(sum_of(values[2]))).code == errc::cancelled);
  replies.clear();
  for (std::size_t i = 0; i < 3; ++i) replies.push_back(lanes[i].ask(sum_of(values[i])));
  for (auto& reply : replies) CHECK_NOTHROW(reply.get());
  CHECK(where.status().phase == world_phase::ready);
}

TROUPE_WORLD_TEST(2, "stragglers are told of before the deadline", "[runtime]") {
  settings.limits.sequencing.straggling = 20ms;
  runtime rt{settings};
  world where = rt.form_world();
  std::promise<std::shared_ptr<const absence_report>> heard;
  std::once_flag once;
  where.on_event([&](const world_event& event) {
    if (event.straggling) std::call_once(once, [&] { heard.set_value(event.straggling); });
  });
  auto lanes = open_lanes(where, "slow");
  auto early = lanes[1].ask(barrier{});
  const auto report = heard.get_future().get();
  CHECK(report->missing() == std::vector{rank{0}});
  CHECK(report->lane == lane::named("slow"));
  CHECK(report->waited >= 20ms);
  auto late = lanes[0].ask(barrier{});
  CHECK_NOTHROW(early.get());
  CHECK_NOTHROW(late.get());
}

TROUPE_WORLD_TEST(2, "sends meet receives by tag, whatever order they are asked in", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, count);
  const buffer got[] = {where.allocate(rank{1}, values[0].size_bytes()),
                        where.allocate(rank{1}, values[0].size_bytes())};
  // Of two lanes, since within one a rank's requests are done in the order asked.
  auto left = open_lanes(where, "left");
  auto right = open_lanes(where, "right");
  auto first = left[0].ask(send{values[0], count, dtype::f32, rank{1}, 7});
  auto second = right[0].ask(send{values[0], count, dtype::f32, rank{1}, 8});
  auto meets_second = right[1].ask(recv{got[1], count, dtype::f32, rank{0}, 8});
  auto meets_first = left[1].ask(recv{got[0], count, dtype::f32, rank{0}, 7});
  for (auto* one : {&first, &second, &meets_first, &meets_second}) CHECK_NOTHROW(one->get());
  for (const buffer& one : got)
    for (const float seen : read_back(where, rank{1}, one)) REQUIRE(seen == 1);
}

TROUPE_WORLD_TEST(2, "a request can be taken back until its peers have asked", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  auto lanes = open_lanes(where, "regret");
  auto regretted = lanes[0].ask(barrier{});
  lanes[0].cancel(0);
  const error failure = failure_of(std::move(regretted));
  CHECK(failure.code == errc::cancelled);
  CHECK(failure.effect == effect::rejected);
  CHECK(failure_of(lanes[1].ask(barrier{})).code == errc::cancelled);
  auto left = lanes[0].ask(barrier{});
  auto right = lanes[1].ask(barrier{});
  CHECK_NOTHROW(left.get());
  lanes[0].cancel(1); // too late: nothing happens
  CHECK_NOTHROW(right.get());
}

TROUPE_WORLD_TEST(2, "a client that ends takes back what it waits for, and its peers are told", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  auto right = rank_lane{where, rank{1}, lane::named("mortal")};
  std::future<completion> orphan;
  {
    auto left = rank_lane{where, rank{0}, lane::named("mortal")};
    orphan = left.ask(barrier{});
  }
  CHECK(failure_of(std::move(orphan)).code == errc::cancelled);
  CHECK(failure_of(right.ask(barrier{})).code == errc::cancelled);
  auto heir = rank_lane{where, rank{0}, lane::named("mortal")};
  auto left = heir.ask(barrier{});
  auto met = right.ask(barrier{});
  CHECK_NOTHROW(left.get());
  CHECK_NOTHROW(met.get());
}

TROUPE_WORLD_TEST(2, "an actor that dies takes back what it waits for, and its lane is free", "[runtime]") {
  settings.limits.sequencing.straggling = 1ms;
  std::promise<void> waits;
  std::once_flag once;
  runtime rt{settings};
  world where = rt.form_world();
  where.on_event([&](const world_event& event) {
    if (event.straggling) std::call_once(once, [&] { waits.set_value(); });
  });
  const lane shared = lane::named("of an actor");
  const auto client = rt.system().spawn<lonely_client>(where, shared);
  waits.get_future().wait(); // its request has come
  caf::anon_send_exit(client, caf::exit_reason::kill);

  auto heir = rank_lane{where, rank{0}, shared};
  const buffer here = where.allocate_pinned(16);
  const buffer there = where.allocate_pinned(16);
  while (failure_of(heir.ask(copy{here, there})).code == errc::invalid_argument) // the lane is the actor's yet
    std::this_thread::yield();
  auto right = rank_lane{where, rank{1}, shared};
  CHECK(failure_of(right.ask(barrier{})).code == errc::cancelled);
  auto left = heir.ask(barrier{});
  CHECK_NOTHROW(right.ask(barrier{}).get());
  CHECK_NOTHROW(left.get());
}

TROUPE_WORLD_TEST(2, "a lane has one client at each rank", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  auto owner = rank_lane{where, rank{0}, lane::named("mine")};
  auto asked = owner.ask(barrier{});
  auto intruder = rank_lane{where, rank{0}, lane::named("mine")};
  const error failure = failure_of(intruder.ask(barrier{}));
  CHECK(failure.code == errc::invalid_argument);
  CHECK(failure.text.find("mine") != std::string::npos);
  auto peer = rank_lane{where, rank{1}, lane::named("mine")};
  CHECK_NOTHROW(peer.ask(barrier{}).get());
  CHECK_NOTHROW(asked.get());
}

TROUPE_WORLD_TEST(2, "a gap and a repetition in a lane are noticed", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto ask = [&](rank target, std::uint64_t position) {
    return where.ask(
        target,
        rank_request{.what = barrier{}, .epoch = where.epoch(), .lane = lane::named("counted"), .position = position});
  };
  auto left = ask(rank{0}, 0);
  CHECK(failure_of(ask(rank{0}, 2)).text.find("gap") != std::string::npos);
  CHECK(failure_of(ask(rank{0}, 0)).code == errc::invalid_argument);
  auto right = ask(rank{1}, 0);
  CHECK_NOTHROW(left.get());
  CHECK_NOTHROW(right.get());
}

TROUPE_WORLD_TEST(2, "a rank that runs too far ahead is refused as busy", "[runtime]") {
  settings.limits.sequencing.lead = 4;
  runtime rt{settings};
  world where = rt.form_world();
  auto lanes = open_lanes(where, "eager");
  std::vector<std::future<completion>> ahead;
  for (int i = 0; i < 4; ++i) ahead.push_back(lanes[0].ask(barrier{}));
  const error failure = failure_of(lanes[0].ask(barrier{}));
  CHECK(failure.code == errc::busy);
  CHECK(failure.effect == effect::rejected);
  for (int i = 0; i < 4; ++i) CHECK_NOTHROW(lanes[1].ask(barrier{}).get());
  for (auto& one : ahead) CHECK_NOTHROW(one.get());
}

TROUPE_WORLD_TEST(2, "a stop answers what still waits for peers", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  auto lonely = where.ask(rank{0}, barrier{});
  where.stop();
  const error failure = failure_of(std::move(lonely));
  CHECK(failure.code == errc::stopping);
  CHECK(failure.effect == effect::rejected);
}

TROUPE_WORLD_TEST(4, "sub-worlds and their parent share one order (ORD-1)", "[runtime]") {
  runtime rt{settings};
  world where = rt.form_world();
  auto halves =
      where.split({{.name = "low", .members = {rank{0}, rank{1}}}, {.name = "high", .members = {rank{2}, rank{3}}}});
  std::vector<std::thread> clients;
  std::atomic<int> failed{0};
  const auto run = [&](const world& in, const std::string& name) {
    for (const rank self : in.local_ranks())
      clients.emplace_back([&failed, in, self, name] {
        rank_lane mine{in, self, lane::named(name)};
        std::vector<std::future<completion>> replies;
        for (int i = 0; i < 50; ++i) replies.push_back(mine.ask(barrier{}));
        for (auto& one : replies)
          if (failure_of(std::move(one))) ++failed;
      });
  };
  run(where, "whole");
  run(*halves[0].handle, "part");
  run(*halves[1].handle, "part");
  for (auto& one : clients) one.join();
  CHECK(failed == 0);
}

} // namespace troupe::tests::lanes_test
