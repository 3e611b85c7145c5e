// Which threads run where: the plan, and the threads of a runtime as the kernel sees them.
#include "support/runtimes.hpp"

#include <troupe/runtime/placement/thread_plan.hpp>

#include <catch2/matchers/catch_matchers_string.hpp>

#include <sched.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace troupe::tests::thread_plan_test {

using Catch::Matchers::ContainsSubstring;

namespace {

const cpu_set sixteen{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

device_place place(int id, cpu_set cpus) {
  return {.id = device_id{id}, .pci_bus_id = {}, .local = {.cpus = std::move(cpus)}};
}

/// The CPUs of this process's threads of that name.
std::vector<cpu_set> cpus_of_threads(const std::string& name) {
  std::vector<cpu_set> found;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::string seen;
    std::getline(std::ifstream{task.path() / "comm"}, seen);
    if (seen != name) continue;
    const std::string id = task.path().filename();
    int number = 0;
    std::from_chars(id.data(), id.data() + id.size(), number);
    cpu_set_t bits;
    if (sched_getaffinity(number, sizeof bits, &bits) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &bits)) cpus.push_back(cpu);
    found.emplace_back(std::move(cpus));
  }
  return found;
}

/// When it returns, launchers and poller have done something and so have begun.
void use_all_ranks(world& where) {
  const auto values = ranked_values(where, 4);
  where.all_reduce(values, values, 4, dtype::f32, reduction::sum).get();
}

} // namespace

TEST_CASE("launchers run near their devices and the poller near all of them", "[runtime]") {
  const std::array places{place(0, {0, 1, 2, 3}), place(1, {0, 1, 2, 3}), place(2, {8, 9, 10, 11})};
  const auto plan = plan_threads(places, sixteen, true);
  CHECK(plan.launcher_of(device_id{1}) == cpu_set{0, 1, 2, 3});
  CHECK(plan.launcher_of(device_id{2}) == cpu_set{8, 9, 10, 11});
  CHECK(plan.poller == cpu_set{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(plan.notes.empty());
}

TEST_CASE("where a device's place is not known its launcher and the poller run anywhere", "[runtime]") {
  const std::array places{place(0, {0, 1}), place(1, {})};
  const auto plan = plan_threads(places, sixteen, false);
  CHECK(plan.launcher_of(device_id{0}) == cpu_set{0, 1});
  CHECK(plan.launcher_of(device_id{1}).empty());
  CHECK(plan.poller.empty());
}

TEST_CASE("threads that spin are not bound to fewer CPUs than they are", "[runtime]") {
  const std::array places{place(0, {0, 1}), place(1, {0, 1}), place(2, {4, 5})};
  const auto plan = plan_threads(places, sixteen, true);
  CHECK(plan.launcher_of(device_id{0}).empty());
  CHECK(plan.launcher_of(device_id{1}).empty());
  CHECK(plan.launcher_of(device_id{2}) == cpu_set{4, 5});
  CHECK(plan.poller.empty());
  REQUIRE(plan.notes.size() == 2);
  CHECK_THAT(plan.notes[0], ContainsSubstring("CPUs 0-1, too few for 3 spinning threads"));

  CHECK(plan_threads(places, sixteen, false).poller == cpu_set{0, 1, 4, 5}); // threads that park may share
}

TEST_CASE("only CPUs that the process may use count for threads that spin", "[runtime]") {
  const std::array places{place(0, {0, 1, 2, 3})};
  CHECK(plan_threads(places, {3, 4, 5}, true).launcher_of(device_id{0}).empty());
  CHECK(plan_threads(places, {2, 3, 4}, true).launcher_of(device_id{0}) == cpu_set{0, 1, 2, 3});
}

TEST_CASE("a device that cannot be asked leaves threads anywhere, and does not throw", "[runtime]") {
  const auto api = make_mock_driver({.device_count = 1, .mode = engine_mode::manual});
  const device_id id{0};
  const auto stream = api->create_stream(id);
  api->fail_next(id, {.code = errc::process_poisoned, .text = "injected"});
  std::uint32_t word = 0;
  api->write_word(id, stream, &word, 1);
  api->run_until_blocked();
  const std::array in_use{id};
  CHECK(plan_threads(*api, in_use, false).launchers.empty());
}

TEST_CASE("a runtime's launchers and poller bear their names and run on the CPUs near their devices", "[runtime]") {
  const cpu_set usable = usable_cpus();
  configuration settings = mock_settings(2);
  const cpu_set first{usable.cpus().front()};
  const cpu_set last{usable.cpus().back()};
  settings.mock.cpus = {first, last};
  runtime rt{settings};
  world all = rt.form_world();
  use_all_ranks(all);
  CHECK(cpus_of_threads("troupe/gpu0") == std::vector{first});
  CHECK(cpus_of_threads("troupe/gpu1") == std::vector{last});
  CHECK(cpus_of_threads("troupe/poll") == std::vector{union_of(first, last)});
}

TEST_CASE("placement none leaves a runtime's threads where they were", "[runtime]") {
  const cpu_set usable = usable_cpus();
  configuration settings = mock_settings(1);
  settings.mock.cpus = {{usable.cpus().front()}};
  settings.placement = thread_placement::anywhere;
  runtime rt{settings};
  world all = rt.form_world();
  use_all_ranks(all);
  CHECK(cpus_of_threads("troupe/gpu0") == std::vector{usable});
  CHECK(cpus_of_threads("troupe/poll") == std::vector{usable});
}

TEST_CASE("a runtime whose devices are near CPUs that it may not use runs all the same", "[runtime]") {
  configuration settings = mock_settings(1);
  settings.mock.cpus = {{100'000}};
  runtime rt{settings};
  world all = rt.form_world();
  use_all_ranks(all);
  CHECK(cpus_of_threads("troupe/gpu0") == std::vector{usable_cpus()});
}

} // namespace troupe::tests::thread_plan_test
