// A thread is bound where it may be, and otherwise left where it was. Each test binds a thread of its own.
#include "support/outcomes.hpp"
#include "support/two_sockets.hpp"

#include <troupe/device/topology/thread_binding.hpp>

#include <catch2/catch_test_macros.hpp>

#include <pthread.h>
#include <sched.h>

#include <array>
#include <thread>
#include <vector>

using namespace troupe;
using namespace troupe::tests;

namespace {

/// As the kernel says, not hwloc.
cpu_set cpus_of_this_thread() {
  cpu_set_t bits;
  REQUIRE(sched_getaffinity(0, sizeof bits, &bits) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &bits)) cpus.push_back(cpu);
  return cpu_set{std::move(cpus)};
}

struct binding_seen {
  thread_binding result;
  cpu_set before;
  cpu_set after;
};

binding_seen bind_a_thread(const cpu_set& wanted, const machine& host = machine::here()) {
  binding_seen seen;
  std::thread{[&] {
    seen.before = cpus_of_this_thread();
    seen.result = bind_this_thread(wanted, host);
    seen.after = cpus_of_this_thread();
  }}.join();
  return seen;
}

} // namespace

TEST_CASE("the CPUs that the process may use are those that the kernel says", "[device]") {
  CHECK(usable_cpus() == cpus_of_this_thread());
}

TEST_CASE("a thread is bound to the CPUs asked for", "[device]") {
  const cpu_set last{usable_cpus().cpus().back()};
  const auto seen = bind_a_thread(last);
  CHECK_FALSE(seen.result.why);
  CHECK(seen.result.cpus == last);
  CHECK(seen.after == last);
}

TEST_CASE("CPUs that the process may not use are left out of those asked for", "[device]") {
  const int usable = usable_cpus().cpus().front();
  const auto seen = bind_a_thread({usable, 100'000});
  CHECK(seen.result.cpus == cpu_set{usable});
  CHECK(seen.after == cpu_set{usable});
}

TEST_CASE("a thread stays where it was, with a reason, if it may use none of the CPUs asked for", "[device]") {
  const auto seen = bind_a_thread({100'000, 100'001});
  CHECK(seen.result.why.code == errc::unsupported);
  CHECK(seen.result.why.text.find("100000-100001") != std::string::npos);
  CHECK(seen.result.why.text.find("TROUPE_PLACEMENT=none") != std::string::npos);
  CHECK(seen.result.cpus.empty());
  CHECK(seen.after == seen.before);
}

TEST_CASE("a thread stays where it was if no CPU is named", "[device]") {
  const auto seen = bind_a_thread({});
  CHECK(seen.result.why.code == errc::invalid_argument);
  CHECK(seen.after == seen.before);
}

TEST_CASE("no thread is bound by the description of another machine", "[device]") {
  const auto seen = bind_a_thread({0}, machine::from_xml(two_sockets));
  CHECK(seen.result.why.code == errc::unsupported);
  CHECK(seen.result.why.text.find("instead of this machine") != std::string::npos);
  CHECK(seen.after == seen.before);
}

TEST_CASE("a thread bears its name, cut to what Linux keeps", "[device]") {
  const auto name_kept = [](const std::string& name) {
    std::array<char, 32> kept{};
    std::thread{[&] {
      name_this_thread(name);
      pthread_getname_np(pthread_self(), kept.data(), kept.size());
    }}.join();
    return std::string{kept.data()};
  };
  CHECK(name_kept("troupe/gpu0") == "troupe/gpu0");
  CHECK(name_kept("a name of more than fifteen") == "a name of more ");
}

TEST_CASE("placements have names, and another name is refused with the choices", "[device]") {
  for (const auto placement : {thread_placement::near_device, thread_placement::anywhere})
    CHECK(parse_thread_placement(to_string(placement)) == placement);
  const error why = error_of([] { static_cast<void>(parse_thread_placement("far")); });
  CHECK(why.code == errc::invalid_argument);
  CHECK(why.text == "unknown thread placement 'far': choose one of near, none");
}
