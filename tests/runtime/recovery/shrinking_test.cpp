/// Worlds that go on without some of their ranks.
#include "support/comes_true.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <caf/scoped_actor.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::shrinking_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

constexpr std::size_t shrunk_count = 512;

configuration shrinking(configuration settings, recovery_rung first = recovery_rung::form_beside) {
  settings.recovery.policy = recovery_policy::shrink;
  settings.recovery.first_rung = first;
  settings.recovery.backoff = 1ms;
  settings.deadlines.abort = settings.backend == backend_choice::mock ? 5s : 10s;
  return settings;
}

/// What a pipeline of \p self would say of its device.
void report_broken_device(const world& where, rank self) {
  compat::post(caf::actor_cast<world_inner_handle>(actor_of(where)),
               world_notice{rank_report{rank_report::kind::faulted,
                                        self,
                                        where.epoch(),
                                        {.code = errc::device_failed, .text = "the test says so", .rank = self}}});
}

[[nodiscard]] bool becomes_ready_in(const world& where, epoch wanted) {
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < until) {
    const world_event now = where.status();
    if (now.phase == world_phase::ready && now.epoch == wanted) return true;
    if (now.phase == world_phase::failed || now.phase == world_phase::stopped) return false;
    std::this_thread::yield();
  }
  return false;
}

[[nodiscard]] std::vector<operation> sums(const std::vector<buffer>& values) {
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{.send = one, .recv = one, .count = shrunk_count});
  return parts;
}

/// An all_reduce of fresh values gives the sum of the present ranks' numbers.
void check_serves_all(world& where) {
  const auto values = ranked_values(where, shrunk_count);
  REQUIRE(failure_of(where.ask(sums(values))).code == errc::none);
  for (const rank self : where.local_ranks())
    REQUIRE(read_back(where, self, values[static_cast<std::size_t>(self.value())]) ==
            std::vector<float>(shrunk_count, ranked_sum(where.size())));
}

std::vector<recovery_rung> rungs_taken(const world& where) {
  std::vector<recovery_rung> all;
  if (const auto tries = where.status().recovery)
    for (const recovery_try& one : *tries) all.push_back(one.rung);
  return all;
}

} // namespace

TROUPE_WORLD_TEST(3, "a world goes on without the rank that is to blame (ONE-1, EPO-1, FLT-1)", "[runtime]") {
  runtime rt{shrinking(settings)};
  world where = rt.form_world();
  const auto old_values = ranked_values(where, shrunk_count);
  const collective_handle third = collective_of(where, rank{2});
  const auto third_device = where.device_of(rank{2});
  rank_lane of_lost{where, rank{1}, lane::named("lost")};
  rank_lane of_third{where, rank{2}, lane::named("third")};
  const epoch before = where.epoch();
  report_broken_device(where, rank{1});
  REQUIRE(becomes_ready_in(where, before.next()));

  CHECK(where.size() == 2);
  CHECK(where.local_ranks() == std::vector{rank{0}, rank{1}});
  const world_event now = where.status();
  CHECK(now.origins == std::vector{rank{0}, rank{2}});
  CHECK(now.is_degraded());
  CHECK_THAT(describe(now), ContainsSubstring("degraded: it began with 3, and rank 1 left it after epoch 1"));
  CHECK(collective_of(where, rank{1}).id() == third.id()); // it has another number
  CHECK(where.device_of(rank{1}) == third_device);
  check_serves_all(where);

  const error of_old_size = failure_of(where.ask(sums(old_values)));
  CHECK(of_old_size.code == errc::invalid_argument);
  CHECK_THAT(of_old_size.text, ContainsSubstring("no longer the 3 that it began with"));
  const error gone = failure_of(of_lost.ask(barrier{}, {.epoch = where.epoch()}));
  CHECK(gone.code == errc::rank_lost);
  CHECK(gone.effect == effect::rejected);
  CHECK_THAT(gone.text, ContainsSubstring("from epoch 2 on"));
  CHECK_THROWS_AS(collective_of(where, rank{2}), exception);
  const auto of_old_epoch = [&](epoch named) {
    return failure_of(where.ask(rank{2}, {.what = barrier{}, .epoch = named})); // which is another's number or nobody's
  };
  for (const epoch named : {before, epoch{}}) {
    const error over = of_old_epoch(named);
    CHECK(over.code == errc::stale_epoch);
    CHECK(over.effect == effect::rejected);
    CHECK(over.epoch == now.epoch);
  }
  CHECK_THROWS_AS(of_old_epoch(now.epoch), exception); // there is no such rank
  auto two_steps = where.ask_overlapped(rank{2}, {.what = barrier{}, .epoch = before});
  CHECK_THROWS_AS(two_steps.enqueued.get(), exception);
  CHECK(failure_of(std::move(two_steps.outcome)).code == errc::stale_epoch);
  const error no_such_root = failure_of(where.ask(
      rank{0}, {.what = broadcast{.send = old_values[0], .recv = old_values[0], .count = shrunk_count, .root = rank{2}},
                .epoch = now.epoch}));
  CHECK(no_such_root.code == errc::invalid_argument);

  CHECK(failure_of(of_lost.ask(barrier{})).code == errc::rank_lost);
  rank_lane first{where, rank{0}, lane::named("third")};
  first.acknowledge(now.epoch);
  of_third.acknowledge(now.epoch);
  auto here = first.ask(barrier{});
  CHECK(failure_of(of_third.ask(barrier{})).code == errc::none);
  CHECK(failure_of(std::move(here)).code == errc::none);
  where.stop();
  CHECK(where.status().phase == world_phase::stopped);
}

TROUPE_WORLD_TEST(3, "a world shrinks its communicators while they hang (FLT-1)", "[runtime]") {
  runtime rt{shrinking(settings, recovery_rung::shrink)};
  world where = rt.form_world();
  if (where.capabilities().find(feature::shrink).available == availability::no) SKIP("this NCCL cannot shrink");
  check_serves_all(where);
  report_broken_device(where, rank{0});
  REQUIRE(becomes_ready_in(where, epoch{2}));
  CHECK(rungs_taken(where) == std::vector{recovery_rung::shrink});
  check_serves_all(where);
}

TROUPE_WORLD_TEST(2, "a world revokes its communicators and keeps its size (FLT-1)", "[runtime]") {
  settings.recovery.policy = recovery_policy::keep_size;
  settings.recovery.first_rung = recovery_rung::revoke;
  std::optional<runtime> rt{std::in_place, settings};
  std::optional<world> formed;
  try {
    formed = rt->form_world();
  } catch (const exception& failure) {
    REQUIRE(failure.why().code == errc::unsupported);
    SKIP(failure.why().text);
  }
  world& where = *formed;
  check_serves_all(where);
  compat::post(
      caf::actor_cast<world_inner_handle>(actor_of(where)),
      world_notice{rank_report{rank_report::kind::faulted,
                               rank{0},
                               where.epoch(),
                               {.code = errc::communicator_failed, .text = "the test says so", .rank = rank{0}}}});
  REQUIRE(becomes_ready_in(where, epoch{2}));
  CHECK(rungs_taken(where) == std::vector{recovery_rung::revoke});
  CHECK(where.size() == 2);
  check_serves_all(where);
}

TROUPE_WORLD_TEST(3, "a world shrinks to its last rank, which nobody can be gone on without", "[runtime]") {
  runtime rt{shrinking(settings)};
  world where = rt.form_world();
  report_broken_device(where, rank{2});
  REQUIRE(becomes_ready_in(where, epoch{2}));
  check_serves_all(where);
  report_broken_device(where, rank{0});
  REQUIRE(becomes_ready_in(where, epoch{3}));
  CHECK(where.size() == 1);
  CHECK(where.status().origins == std::vector{rank{1}});
  check_serves_all(where);
  report_broken_device(where, rank{0});
  CHECK(reaches(where, world_phase::failed));
  CHECK_THAT(where.status().reason.text, ContainsSubstring("it was the last rank"));
}

TROUPE_WORLD_TEST(3, "a killed rank's actor leaves with its rank, and whoever asks there is told", "[runtime]") {
  runtime rt{shrinking(settings)};
  world where = rt.form_world();
  rank_lane of_killed{where, rank{0}, lane::named("killed")};
  caf::anon_send_exit(collective_of(where, rank{0}), caf::exit_reason::kill);
  REQUIRE(becomes_ready_in(where, epoch{2}));
  CHECK(where.status().origins == std::vector{rank{1}, rank{2}});
  CHECK(failure_of(of_killed.ask(barrier{})).code == errc::rank_lost); // by another actor in its place
  check_serves_all(where);
}

TROUPE_WORLD_TEST(3, "registered memory, plans and sub-worlds follow the new size", "[runtime][plans]") {
  runtime rt{shrinking(settings)};
  world where = rt.form_world();
  where.register_memory(std::size_t{1} << 20U);
  const auto own = std::make_shared<std::vector<buffer>>(ranked_values(where, shrunk_count));
  const auto steps = where.capture(plan_steps{sums(*own)});
  const auto places = std::make_shared<std::vector<std::shared_ptr<device>>>();
  for (const rank self : where.local_ranks()) places->push_back(where.device_of(self));
  const auto follows = where.capture([own, places](rank_capture& capture) {
    for (std::size_t i = 0; i < places->size(); ++i)
      if ((*places)[i].get() == capture.where().get())
        capture.launch(all_reduce{.send = (*own)[i], .recv = (*own)[i], .count = shrunk_count});
  });
  report_broken_device(where, rank{0});
  REQUIRE(becomes_ready_in(where, epoch{2}));

  const auto registered = where.allocate_all(shrunk_count * sizeof(float));
  REQUIRE(registered.size() == 2);
  fill_ranked(where, registered, shrunk_count);
  REQUIRE(failure_of(where.ask(sums(registered))).code == errc::none);
  CHECK(read_back(where, rank{1}, registered[rank{1}]) == std::vector<float>(shrunk_count, 3.0F));

  const error old_steps = failure_of(where.replay(steps));
  CHECK(old_steps.effect == effect::rejected);
  CHECK_THAT(old_steps.text, ContainsSubstring("its requests are for 3 ranks, and the world now has 2"));
  REQUIRE(failure_of(where.replay(follows)).code == errc::none);
  CHECK(read_back(where, rank{0}, (*own)[1]) == std::vector<float>(shrunk_count, 5.0F)); // 2 + 3

  auto parts = where.split({rank_group{.name = "both", .members = {rank{0}, rank{1}}}});
  REQUIRE(parts.size() == 1);
  REQUIRE(parts[0].handle);
  CHECK(parts[0].handle->device_of(rank{1}) == where.device_of(rank{1}));
  check_serves_all(*parts[0].handle);
}

TEST_CASE("the first rung of a recovery must be available, or it is refused at the start", "[runtime]") {
  configuration settings = shrinking(mock_settings(2), recovery_rung::shrink);
  settings.mock.without = {feature::shrink, feature::revoke};
  {
    runtime rt{settings};
    CHECK_THROWS_WITH(rt.form_world(),
                      ContainsSubstring("recovery.first_rung is shrink") && ContainsSubstring("set it to form_beside"));
  }
  settings.recovery.policy = recovery_policy::keep_size;
  settings.recovery.first_rung = recovery_rung::revoke;
  runtime rt{settings};
  CHECK_THROWS_WITH(rt.form_world(), ContainsSubstring("recovery.first_rung is revoke"));
}

TEST_CASE("a plan in streams of the client is lost when the world shrinks, and it is said why", "[runtime][plans]") {
  runtime rt{shrinking(mock_settings(3))};
  world where = rt.form_world();
  const auto values = ranked_values(where, shrunk_count);
  std::vector<stream> own;
  plan_options options{.name = "sums"};
  for (const rank self : where.local_ranks()) {
    own.emplace_back(where.device_of(self));
    options.streams.push_back(own.back().ref().native());
  }
  const auto in_streams = where.capture(plan_steps{sums(values)}, options);
  const auto whole = where.capture([](rank_capture&) {});
  REQUIRE(failure_of(where.replay(in_streams)).code == errc::none);
  report_broken_device(where, rank{1});
  REQUIRE(becomes_ready_in(where, epoch{2}));
  const error lost = failure_of(where.replay(in_streams));
  CHECK(lost.effect == effect::rejected);
  const std::string why = "it was captured in 3 streams of the client, one for each rank, and the world has 2 ranks "
                          "now: capture another";
  CHECK_THAT(lost.text, ContainsSubstring(why));
  REQUIRE(failure_of(where.replay(whole)).code == errc::none);
  const auto restored = where.status().restored;
  REQUIRE(restored);
  CHECK(sum_of(*restored, restored_kind::plan).lost == 1);
  const auto of_lost = std::ranges::find(*restored, restored_state::lost, &restored_part::state);
  CHECK(of_lost->name == "sums");
  CHECK(of_lost->failure.text == why);
}

TEST_CASE(
    "a rank that cannot derive a communicator from a failed one is not the culprit, one that cannot form a new one is",
    "[runtime][FLT-1]") {
  const auto first_rung = GENERATE(recovery_rung::shrink, recovery_rung::form_beside);
  testing::virtual_world world{4, {.recovery = {.policy = recovery_policy::shrink, .first_rung = first_rung}}};
  world.script().on(rank{0}).operation(0).lose_device();
  world.script().on(rank{1}).forming(1).fail(errc::communicator_failed);
  const auto reply = world.ask(std::vector<operation>(4, barrier{}));
  REQUIRE(world.run_until_ready(epoch{3}, 10s));
  CHECK(world.status().world_size == (first_rung == recovery_rung::shrink ? 3 : 2));
}

TEST_CASE("the end of the actor of a rank that has left its world is no fault, and requests to it are still answered",
          "[runtime][FLT-1]") {
  runtime rt{shrinking(mock_settings(3))};
  world where = rt.form_world();
  rank_lane of_lost{where, rank{1}, lane::named("lost")};
  const auto actor = caf::actor_cast<caf::actor>(collective_of(where, rank{1}));
  report_broken_device(where, rank{1});
  REQUIRE(becomes_ready_in(where, epoch{2}));
  caf::scoped_actor self{rt.system()};
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  self->wait_for(actor);
  // The world puts another actor in its place when it hears of the end.
  CHECK(comes_true([&] { return failure_of(of_lost.ask(barrier{})).code == errc::rank_lost; }));
  check_serves_all(where);
  CHECK(where.status().epoch == epoch{2});
}

} // namespace troupe::tests::shrinking_test
