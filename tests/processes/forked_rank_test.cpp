/// A fork of a process with a rank drops, ends and uses what it has inherited: nothing of the parent's changes.
#include "processes/transport/forked_process.hpp"
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tests::forked_rank_test {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t count = 64;

/// A "process" of a world of two, with handles of every kind that a program may drop.
struct rank_holder {
  rank_holder(const controller& control, int place) {
    configuration settings = settings_for(control);
    settings.control.assignment.name = std::to_string(place);
    settings.control.assignment.place = place;
    rt.emplace(settings);
    forming = rt->form_world_async();
  }
  [[nodiscard]] static configuration settings_for(const controller& control) {
    configuration made = mock_settings(1);
    made.control = {.address = control.address(), .patience = 10s};
    made.control.assignment.token = "a secret of these tests";
    return made;
  }
  void hold() {
    where = forming.get();
    self = where->local_ranks().front();
    memory = where->allocate(self, count * sizeof(float));
    clients.emplace(*where, self, lane::named("c10d"));
  }
  [[nodiscard]] operation sum() const { return all_reduce{.send = memory, .recv = memory, .count = count}; }

  std::optional<runtime> rt;
  std::future<world> forming;
  std::optional<world> where;
  rank self{0};
  buffer memory;
  std::optional<rank_lane> clients;
  std::optional<credit> reserved;
  std::shared_ptr<captured_plan> plan;
};

struct two_processes {
  two_processes() {
    for (int place = 0; place < 2; ++place) ranks.push_back(std::make_unique<rank_holder>(*control, place));
    for (const auto& one : ranks) one->hold();
    std::vector<std::future<std::shared_ptr<captured_plan>>> captured;
    for (const auto& one : ranks)
      captured.push_back(std::async(std::launch::async,
                                    [held = one.get()] { return held->where->capture(plan_steps{{held->sum()}}); }));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->plan = captured[i].get();
    for (const auto& one : ranks) one->reserved = one->where->credit(4, 0, 10s).get();
    configuration settings = rank_holder::settings_for(*control);
    driver.emplace(settings);
    REQUIRE(driver->wait_ready(20s).phase == world_phase::ready);
  }
  ~two_processes() {
    driver.reset();
    for (const auto& one : ranks) one->where->stop();
  }
  static controller_options options() {
    controller_options made{.terms = {.world_size = 2}};
    made.terms.recovery.policy = recovery_policy::fail_fast; // else a fault would be hidden by the next epoch
    made.terms.token = "a secret of these tests";
    made.terms.suspicion = 10s;
    return made;
  }
  /// Both ranks sum in their lane, several times, so that what is numbered and confirmed wrongly is noticed.
  void check_sums() {
    for (int i = 0; i < 20; ++i) {
      std::vector<std::future<completion>> replies;
      for (const auto& one : ranks) replies.push_back(one->clients->ask(one->sum(), {.deadline = 20s}));
      for (auto& one : replies) CHECK_NOTHROW(static_cast<void>(one.get()));
    }
    for (const auto& one : ranks) CHECK(one->where->status().phase == world_phase::ready);
    CHECK_NOTHROW(driver->barrier({.deadline = 20s}).get());
  }

  std::optional<controller> control{options()};
  std::vector<std::unique_ptr<rank_holder>> ranks;
  std::optional<world_driver> driver;
};

/// Returns whether \p ask is refused because this process is a fork.
bool is_refused(const std::function<void()>& ask) {
  try {
    ask();
  } catch (const exception& failure) {
    return failure.why().code == errc::unsupported && failure.why().text.find("is a fork of") != std::string::npos;
  }
  return false;
}

/// Calls \p in_fork in a fork of a process with two ranks and a request that waits, then uses the ranks.
void check_fork(const std::function<bool(two_processes&)>& in_fork) {
#if defined(__SANITIZE_THREAD__)
  SKIP("ThreadSanitizer does not support locks in a child that was forked from several threads");
#endif
  two_processes all;
  all.check_sums();
  auto waits = all.ranks[1]->clients->ask(all.ranks[1]->sum(), {.deadline = 20s});
  {
    forked_process child{[&] {
      ::alarm(20); // a hang ends by a signal
      return in_fork(all) ? 0 : 1;
    }};
    CHECK(child.status() == 0);
  }
  auto other = all.ranks[0]->clients->ask(all.ranks[0]->sum(), {.deadline = 20s});
  CHECK_NOTHROW(static_cast<void>(waits.get())); // it was not withdrawn
  CHECK_NOTHROW(static_cast<void>(other.get()));
  all.check_sums();
}

} // namespace

TEST_CASE("a fork that drops a lane of its parent withdraws nothing and writes nothing", "[processes][fork]") {
  check_fork([](two_processes& all) {
    for (const auto& one : all.ranks) one->clients.reset();
    return true;
  });
}

TEST_CASE("a fork drops and ends everything that it has inherited, and its parent goes on", "[processes][fork]") {
  check_fork([](two_processes& all) {
    for (const auto& one : all.ranks) one->where->stop();
    all.driver.reset();
    for (const auto& one : all.ranks) {
      one->clients.reset();
      one->reserved.reset();
      one->plan.reset();
      one->memory = {};
      one->where.reset();
      one->rt.reset();
    }
    all.control.reset();
    return true;
  });
}

TEST_CASE("a fork is refused what needs its parent's threads", "[processes][fork]") {
  check_fork([](two_processes& all) {
    rank_holder& one = *all.ranks.front();
    const auto refused = [&](auto ask) { return is_refused([&] { static_cast<void>(ask().get()); }); };
    return refused([&] { return one.clients->ask(one.sum()); }) &&
           refused([&] { return one.where->ask(one.self, one.sum()); }) &&
           refused([&] { return all.driver->barrier(); }) &&
           refused([&] { return all.driver->find_memory(rank{0}, "weights"); }) &&
           refused([&] { return all.driver->capture("steps", plan_steps{{one.sum()}}); }) &&
           is_refused([&] { static_cast<void>(all.driver->status()); }) &&
           is_refused([&] { static_cast<void>(one.where->status()); }) &&
           is_refused([&] { static_cast<void>(one.where->credit(1, 0, 1s)); }) && is_refused([&] {
             static_cast<void>(one.where->split({{"all", {rank{0}, rank{1}}}}));
           }) &&
           is_refused([&] { static_cast<void>(one.where->capture(plan_steps{{one.sum()}})); }) &&
           is_refused([&] { one.where->register_memory(4096); });
  });
}

TEST_CASE("a fork that drops a supervisor ends no process of its parent", "[launch][fork]") {
#if defined(__SANITIZE_THREAD__)
  SKIP("ThreadSanitizer does not support locks in a child that was forked from several threads");
#endif
  std::promise<int> ended;
  auto signal = ended.get_future();
  auto supervisor = std::make_unique<launch::process_supervisor>();
  const auto started = supervisor->start(
      {.program = "sleep", .arguments = {"1000"}},
      {.on_exit = [&](auto, pid_t, const launch::exit_status& status) { ended.set_value(status.signal); }});
  {
    forked_process child{[&] {
      ::alarm(20);
      supervisor.reset();
      return 0;
    }};
    CHECK(child.status() == 0);
  }
  ::kill(started.pid, SIGUSR1); // which the fork would have come before, by SIGKILL
  REQUIRE(signal.wait_for(20s) == std::future_status::ready);
  CHECK(signal.get() == SIGUSR1);
}

} // namespace troupe::tests::forked_rank_test
