/// Worlds that span processes, on the mock: here each "process" is a runtime of this one.
#include "support/comes_true.hpp"
#include "support/gate.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"
#include "support/runtimes.hpp"
#include "support/transport/transport_rig.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/transport/certificates.hpp>
#include <troupe/processes/transport/shared_memory/local_socket.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/runtime/checkpoints.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests::processes_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = 256;
ordering kept_by = ordering::agreed; ///< In the present case.
std::size_t small_bytes = 0;         ///< one_shot_bytes in the present case.

controller_options options_of(int size, recovery_policy policy = recovery_policy::keep_size) {
  controller_options made{.terms = {.world_size = size}};
  made.terms.recovery.policy = policy;
  made.terms.token = "a secret of these tests";
  made.terms.suspicion = 10s; // this machine may be busy
  return made;
}

configuration settings_of(const controller& control, int place) {
  configuration made;
  made.backend = backend_choice::mock;
  made.profile = latency_profile::frugal;
  made.ordering = kept_by;
  made.limits.one_shot_bytes = small_bytes;
  made.mock.devices = 1;
  made.log_level = "off";
  made.control = {.address = control.address(), .patience = 10s};
  made.control.assignment = {.token = "a secret of these tests", .name = std::to_string(place), .place = place};
  made.deadlines.abort = 5s;
  return made;
}

/// For a process that stands by for place 1.
configuration settings_of_spare(const controller& control) {
  configuration made = settings_of(control, 1);
  made.control.assignment.name = "s1";
  made.control.assignment.spare = true;
  return made;
}

/// The controller's events.
class control_log {
public:
  [[nodiscard]] controller::hooks hooks() {
    return {.heard = [this](const control_event& one) {
      const std::lock_guard lock{mutex_};
      all_.push_back(one);
    }};
  }
  /// Returns how many ranks of an epoch had rings in shared memory when it began to serve; -1 if it did not within 20
  /// s. The processes may know that they serve before the controller does.
  [[nodiscard]] int ring_ranks(epoch of) const {
    for (const auto until = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < until;) {
      {
        const std::lock_guard lock{mutex_};
        for (const control_event& one : all_)
          if (one.phase == control_phase::serving && one.epoch == of) return one.ring_ranks;
      }
      std::this_thread::sleep_for(1ms);
    }
    return -1;
  }

private:
  mutable std::mutex mutex_;
  std::vector<control_event> all_;
};

/// One "process": a runtime, and its world as soon as that is ready.
class member {
public:
  explicit member(configuration settings)
    : runtime_{std::make_unique<runtime>(std::move(settings))}, world_{std::async(std::launch::async, [this] {
        return runtime_->form_world();
      })} {}

  [[nodiscard]] world& in() {
    if (!formed_) formed_ = world_.get();
    return *formed_;
  }
  [[nodiscard]] bool has_formed() const { return formed_ || world_.wait_for(0s) == std::future_status::ready; }
  [[nodiscard]] rank self() { return in().local_ranks().front(); }
  [[nodiscard]] driver& api() { return runtime_->api(); }
  [[nodiscard]] std::uint64_t used_bytes() {
    return dynamic_cast<mock_driver&>(runtime_->api()).used_bytes(device_id{0});
  }
  /// Returns whether it holds scratch of one-shot kernels: 4 MiB for each rank.
  [[nodiscard]] bool has_scratch() { return used_bytes() > (std::uint64_t{8} << 20U); }

private:
  std::unique_ptr<runtime> runtime_;
  std::future<world> world_;
  std::optional<world> formed_;
};

bool is_ready(const world& where, epoch at_least, int size) {
  for (const auto until = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < until;) {
    const world_event now = where.status();
    if (now.phase == world_phase::ready && now.epoch >= at_least && now.world_size == size) return true;
    if (now.phase == world_phase::failed || now.phase == world_phase::stopped) break;
    std::this_thread::sleep_for(1ms);
  }
  UNSCOPED_INFO(describe(where.status()));
  return false;
}

/// Soon: the controller may hear of a process's end before that process's own status says so.
bool is_stopped(const world& where) {
  for (const auto until = std::chrono::steady_clock::now() + 10s; std::chrono::steady_clock::now() < until;) {
    if (where.status().phase == world_phase::stopped) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

/// An all_reduce of each rank's number and one, checked.
void check_sum_in(const std::vector<world*>& all) {
  std::vector<buffer> memory;
  std::vector<std::future<completion>> replies;
  float expected = 0;
  for (world* const one : all) {
    const rank self = one->local_ranks().front();
    const auto value = static_cast<float>(self.value() + 1);
    expected += value;
    memory.push_back(one->allocate(self, count * sizeof(float)));
    std::fill_n(reinterpret_cast<float*>(memory.back().data()), count, value);
    replies.push_back(one->ask(self, {.what = all_reduce{.send = memory.back(), .recv = memory.back(), .count = count},
                                      .epoch = one->epoch(),
                                      .deadline = 20s}));
  }
  for (auto& one : replies) CHECK_NOTHROW(static_cast<void>(one.get()));
  for (const buffer& one : memory) {
    const auto* const values = reinterpret_cast<const float*>(one.data());
    CHECK(std::all_of(values, values + count, [&](float value) { return value == expected; }));
  }
}
void check_sum(const std::vector<member*>& all) {
  std::vector<world*> worlds;
  for (member* const one : all) worlds.push_back(&one->in());
  check_sum_in(worlds);
}

} // namespace

TEST_CASE("processes join a controller, form a world and leave it", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  control_log log;
  controller control{options_of(3), log.hooks()};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  CHECK(first.self() == rank{0});
  CHECK(second.self() == rank{1});
  CHECK(third.self() == rank{2});
  CHECK(first.in().size() == 3);
  CHECK(first.in().epoch() == epoch{1});
  check_sum({&first, &second, &third});
  CHECK(log.ring_ranks(epoch{1}) == (kept_by == ordering::agreed ? 3 : 0));
  for (member* const one : {&first, &second, &third}) one->in().stop();
  REQUIRE(control.wait(10s));
  CHECK_FALSE(control.reason());
}

TEST_CASE("a process that leaves does not end before its controller has heard so", "[processes]") {
  kept_by = ordering::agreed;
  std::promise<void> go_on;
  controller control{options_of(2), {.heard = [until = go_on.get_future().share()](const control_event& now) {
                       if (now.phase == control_phase::finishing) until.wait_for(30s);
                     }}};
  auto first = std::make_unique<member>(settings_of(control, 0));
  auto second = std::make_unique<member>(settings_of(control, 1));
  check_sum({first.get(), second.get()});
  first.reset(); // it is told that it may end, and then the controller reports that
  auto ended = std::async(std::launch::async, [&] { second.reset(); });
  CHECK(ended.wait_for(500ms) == std::future_status::timeout);
  go_on.set_value();
  REQUIRE(ended.wait_for(20s) == std::future_status::ready);
  REQUIRE(control.wait(10s));
  CHECK_FALSE(control.reason());
}

TEST_CASE("a refused process is told why", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  controller control{options_of(2)};
  configuration settings = settings_of(control, 0);
  settings.control.assignment.token = "another secret than theirs";
  runtime one{settings};
  try {
    static_cast<void>(one.form_world());
    FAIL("it has joined");
  } catch (const exception& failure) {
    CHECK(std::string{failure.what()}.find("token") != std::string::npos);
    CHECK(std::string{failure.what()}.find("another secret") == std::string::npos);
    CHECK(std::string{failure.what()}.find("a secret of these tests") == std::string::npos);
  }
}

TEST_CASE("a world over processes comes back with a spare, and what was pending is answered", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  member spare{settings_of_spare(control)};
  check_sum({&first, &second});
  CHECK_FALSE(spare.has_formed());

  const buffer memory = first.in().allocate(rank{0}, count * sizeof(float));
  auto pending =
      first.in().ask_overlapped(rank{0}, all_reduce{.send = memory, .recv = memory, .count = count}, {.deadline = 20s});
  // Under ordering::caller the request must be on the device before its peer is lost.
  if (kept_by == ordering::caller) REQUIRE(pending.enqueued.wait_for(20s) == std::future_status::ready);
  control.process_ended("1", ::getpid(), "the test says so");
  try {
    static_cast<void>(pending.outcome.get());
    FAIL("it has been answered well");
  } catch (const exception& failure) {
    INFO(to_string(failure.why()));
    // Under ordering::agreed it waited for its peer, and certainly has not run.
    CHECK(failure.why().effect == (kept_by == ordering::agreed ? effect::rejected : effect::unknown_outcome));
    CHECK(failure.why().rank == rank{1});
  }
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  CHECK(spare.self() == rank{1});
  // All are told the same (CUT-1): what the sums of check_sum() were, or under ordering::caller nothing.
  REQUIRE(is_ready(spare.in(), epoch{2}, 2));
  CHECK((first.in().status().resume != nullptr) == (kept_by == ordering::agreed));
  CHECK((spare.in().status().resume != nullptr) == (kept_by == ordering::agreed));
  // The one that was there must say that it goes on in this epoch; the one that has come has seen no other.
  rank_lane survivor{first.in(), rank{0}, lane::named("goes on")};
  rank_lane newcomer{spare.in(), rank{1}, lane::named("goes on")};
  try {
    static_cast<void>(survivor.ask(barrier{}).get());
    FAIL("nobody has acknowledged the epoch");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::stale_epoch);
    CHECK(failure.why().effect == effect::rejected);
  }
  survivor.acknowledge(epoch{2});
  auto acknowledged = survivor.ask(barrier{}, {.deadline = 20s});
  auto needs_none = newcomer.ask(barrier{}, {.deadline = 20s});
  CHECK(acknowledged.get().epoch == epoch{2});
  CHECK(needs_none.get().epoch == epoch{2});
  check_sum({&first, &spare});
  CHECK_FALSE(is_ready(second.in(), epoch{2}, 2)); // it is out, and knows
}

TEST_CASE("a world over processes shrinks and grows back without a fault", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  control_log log;
  controller control{options_of(3, recovery_policy::shrink), log.hooks()};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  check_sum({&first, &second, &third});
  control.process_ended("1", ::getpid(), "the test says so");
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(third.in(), epoch{2}, 2));
  CHECK(third.self() == rank{1});
  check_sum({&first, &third});

  configuration again = settings_of(control, 1);
  again.control.assignment.name = "1b";
  again.control.assignment.attempt = 1;
  member newcomer{again};
  REQUIRE(is_ready(first.in(), epoch{3}, 3));
  REQUIRE(is_ready(third.in(), epoch{3}, 3));
  CHECK(newcomer.self() == rank{1});
  CHECK(third.self() == rank{2});
  check_sum({&first, &newcomer, &third});
  const bool is_agreed = kept_by == ordering::agreed;
  CHECK(log.ring_ranks(epoch{2}) == (is_agreed ? 2 : 0));
  CHECK(log.ring_ranks(epoch{3}) == (is_agreed ? 3 : 0));
}

TEST_CASE("without a gate the requests of processes go through their connections", "[processes]") {
  kept_by = ordering::agreed;
  controller_options options = options_of(2, recovery_policy::shrink);
  control_log log;
  std::optional<order_gate> holder; // another process has the name
  std::optional<controller> found;
  for (int attempt = 0; attempt < 50 && !found; ++attempt) {
    options.port = parse_control_address(controller{options_of(2)}.address()).port;
    try {
      holder.emplace(options.port);
      found.emplace(options, log.hooks());
    } catch (const exception&) { // another program has been given the port meanwhile
      found.reset();
    }
  }
  REQUIRE(found);
  controller& control = *found;
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  check_sum({&first, &second});
  CHECK(log.ring_ranks(epoch{1}) == 0);
}

TEST_CASE("small collectives of processes on one node are kernels, also with a process that has come",
          "[processes][one-shot]") {
  kept_by = ordering::agreed;
  small_bytes = 1024;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  member spare{settings_of_spare(control)};
  check_sum({&first, &second});
  CHECK(first.has_scratch());
  CHECK(second.has_scratch());
  control.process_ended("1", ::getpid(), "the test says so");
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(spare.in(), epoch{2}, 2));
  check_sum({&first, &spare});
  CHECK(first.has_scratch());
  CHECK(spare.has_scratch());
  small_bytes = 0;
}

TEST_CASE("small collectives of processes without a common order service are the library's", "[processes][one-shot]") {
  kept_by = ordering::caller;
  small_bytes = 1024;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  check_sum({&first, &second});
  CHECK_FALSE(first.has_scratch());
  CHECK_FALSE(second.has_scratch());
  small_bytes = 0;
}

TEST_CASE("small collectives of processes whose controller cannot serve their meetings are the library's",
          "[processes][one-shot]") {
  kept_by = ordering::agreed;
  small_bytes = 1024;
  controller_options options = options_of(2);
  file_descriptor holder; // another process has the name
  std::optional<controller> found;
  for (int attempt = 0; attempt < 50 && !found; ++attempt) {
    options.port = parse_control_address(controller{options_of(2)}.address()).port;
    holder = listen_locally(meeting_address(options.port), 1);
    try {
      if (holder) found.emplace(options);
    } catch (const exception&) { // another program has been given the port meanwhile
    }
  }
  REQUIRE(found);
  // Nobody serves at the name, as after the end of that process.
  REQUIRE(::shutdown(holder.native(), SHUT_RDWR) == 0);
  member first{settings_of(*found, 0)}, second{settings_of(*found, 1)};
  check_sum({&first, &second});
  CHECK_FALSE(first.has_scratch());
  small_bytes = 0;
}

TEST_CASE("a process with another one_shot_bytes may not join", "[processes][one-shot]") {
  kept_by = ordering::agreed;
  std::atomic<int> joined{0};
  controller control{options_of(2), {.joined = [&](const process_identity&) { ++joined; }}};
  small_bytes = 1024;
  member first{settings_of(control, 0)};
  REQUIRE(comes_true([&] { return joined == 1; }));
  const configuration same = settings_of(control, 1);
  configuration settings = same;
  settings.limits.one_shot_bytes = std::nullopt;
  small_bytes = 0;
  {
    runtime other{settings};
    const error why = error_of([&] { static_cast<void>(other.form_world()); });
    CHECK_THAT(why.text, ContainsSubstring("one_shot_bytes") && ContainsSubstring("auto") && ContainsSubstring("1K"));
  }
  member second{same}; // the place is still free
  check_sum({&first, &second});
}

TEST_CASE("worlds that grow under load let every request that was released finish", "[processes][ORD-1]") {
  kept_by = ordering::agreed;
  controller control{options_of(3, recovery_policy::shrink)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  check_sum({&first, &second, &third});
  control.process_ended("2", ::getpid(), "the test says so");
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(second.in(), epoch{2}, 2));
  // Requests are on their way through every stage while the world is quiesced for a third process.
  std::atomic<bool> over{false};
  std::atomic<int> answered{0}, started{0};
  std::vector<std::thread> clients;
  for (member* const one : {&first, &second})
    clients.emplace_back([&, one] {
      rank_lane mine{one->in(), one->self(), lane::named("load")};
      mine.acknowledge(epoch{2});
      std::vector<std::future<completion>> pending;
      while (!over) {
        for (int i = 0; i < 20; ++i) pending.push_back(mine.ask(barrier{}, {.deadline = 20s}));
        for (auto& each : pending) try {
            static_cast<void>(each.get());
            ++answered;
          } catch (const exception& failure) {
            if (failure.why().effect != effect::rejected) ++started; // what was released must finish
            over = true;
          }
        pending.clear();
      }
    });
  while (answered < 200 && !over) std::this_thread::sleep_for(1ms);
  configuration again = settings_of(control, 2);
  again.control.assignment.name = "2b";
  again.control.assignment.attempt = 1;
  member newcomer{again};
  for (auto& one : clients) one.join();
  CHECK(started == 0);
  REQUIRE(is_ready(first.in(), epoch{3}, 3));
  REQUIRE(is_ready(second.in(), epoch{3}, 3));
  check_sum({&first, &second, &newcomer});
}

TEST_CASE("a hang and a late error by script end the epoch of mock ranks in processes, which form the next one",
          "[processes][mock-processes][FLT-1]") {
  const bool hangs = GENERATE(true, false);
  // The late error is found while its operation waits for a peer that does not ask, which only `caller` launches.
  kept_by = hangs ? GENERATE(ordering::agreed, ordering::caller) : ordering::caller;
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{1}).forming(0).delay(50ms); // forms late, which is no fault
  if (hangs)
    script->on(rank{1}).operation(1).hang();
  else
    script->on(rank{1}).operation(1).fail_later(errc::communicator_failed);
  controller control{options_of(2)};
  configuration settings = settings_of(control, 0);
  settings.limits.hang = 500ms;
  member first{settings};
  settings = settings_of(control, 1);
  settings.limits.hang = 500ms;
  settings.faults = script;
  member second{settings};
  check_sum({&first, &second});
  const auto ask = [&](member& of) {
    const buffer memory = of.in().allocate(of.self(), count * sizeof(float));
    return of.in().ask(of.self(), all_reduce{.send = memory, .recv = memory, .count = count});
  };
  auto withheld = hangs ? ask(second) : std::future<completion>{}; // nothing is on its device, so it ends
  auto waiting = ask(hangs ? first : second);
  try {
    static_cast<void>(waiting.get());
    FAIL("it has been answered well");
  } catch (const exception& failure) {
    CHECK(failure.why().effect == effect::unknown_outcome);
  }
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(second.in(), epoch{2}, 2));
  check_sum({&first, &second});
  CHECK(script->waiting().empty());
}

TEST_CASE("a sticky error of its device ends one mock rank in a process, and a spare takes its place",
          "[processes][mock-processes][FLT-1]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  member spare{settings_of_spare(control)};
  check_sum({&first, &second});
  dynamic_cast<mock_driver&>(second.api())
      .fail_next(device_id{0}, {.code = errc::process_poisoned, .text = "an illegal address"});
  std::vector<std::future<completion>> replies;
  for (member* const one : {&first, &second}) {
    const buffer memory = one->in().allocate(one->self(), count * sizeof(float));
    replies.push_back(one->in().ask(one->self(), all_reduce{.send = memory, .recv = memory, .count = count}));
  }
  for (auto& one : replies) CHECK_THROWS_AS(one.get(), exception);
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  CHECK(spare.self() == rank{1});
  check_sum({&first, &spare});
}

TEST_CASE("a controller that is told to stop lets all processes finish", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  check_sum({&first, &second});
  control.stop();
  REQUIRE(control.wait(10s));
  CHECK_FALSE(control.reason());
  CHECK(is_stopped(first.in()));
}

TEST_CASE("without its controller a world ends, and says so", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  auto control = std::make_unique<controller>(options_of(2));
  member first{settings_of(*control, 0)}, second{settings_of(*control, 1)};
  check_sum({&first, &second});
  control.reset();
  CHECK_FALSE(is_ready(first.in(), epoch{2}, 2));
  CHECK(first.in().status().reason.text.find("controller") != std::string::npos);
}

TEST_CASE("or the processes join another at its place, which goes on with the epochs", "[processes]") {
  kept_by = GENERATE(ordering::agreed, ordering::caller);
  auto control = std::make_unique<controller>(options_of(2));
  const auto rejoining = [&](int place) {
    configuration made = settings_of(*control, place);
    made.control.orphaned = orphan_policy::rejoin;
    return made;
  };
  member first{rejoining(0)}, second{rejoining(1)};
  check_sum({&first, &second});
  controller_options again = options_of(2);
  const std::string address = control->address();
  again.port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  control.reset();
  control = std::make_unique<controller>(again);
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(second.in(), epoch{2}, 2));
  check_sum({&first, &second});
}

TEST_CASE("requests of many lanes, asked in other orders by each process, meet", "[processes]") {
  kept_by = ordering::agreed;
  controller control{options_of(3)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  const std::vector<member*> all{&first, &second, &third};
  for (member* const one : all) static_cast<void>(one->in());
  constexpr int lanes = 8, rounds = 40;
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (std::size_t who = 0; who < all.size(); ++who)
    for (int which = 0; which < lanes; ++which)
      clients.emplace_back([&, who, which] {
        world where = all[who]->in();
        const rank self{static_cast<int>(who)};
        const lane mine = lane::named("lane " + std::to_string((which + static_cast<int>(who) * 3) % lanes));
        const auto factor = static_cast<float>(mine.index());
        const buffer memory = where.allocate(self, count * sizeof(float));
        for (int i = 0; i < rounds; ++i) {
          auto* const values = reinterpret_cast<float*>(memory.data());
          std::fill_n(values, count, factor + static_cast<float>(i));
          where
              .ask(self, {.what = all_reduce{.send = memory, .recv = memory, .count = count},
                          .epoch = where.epoch(),
                          .deadline = 20s,
                          .lane = mine})
              .get();
          if (values[count - 1] == 3 * (factor + static_cast<float>(i))) ++right;
        }
      });
  for (auto& one : clients) one.join();
  CHECK(right == 3 * lanes * rounds);
}

namespace {

/// What a process's capture came to.
struct capture_outcome {
  std::shared_ptr<captured_plan> plan;
  error why;
};

std::future<capture_outcome> begin_capture(member& one, capture_function function, plan_options options = {}) {
  return std::async(std::launch::async, [where = one.in(), function = std::move(function), options]() mutable {
    capture_outcome made;
    made.why = error_of([&] { made.plan = where.capture(std::move(function), options); });
    return made;
  });
}

/// A process's rank, with a plan that adds the ranks' numbers in place and then multiplies by the number of ranks.
struct planning_member {
  explicit planning_member(member& one, const std::string& lane_name = "plans")
    : at{one},
      memory{one.in().allocate(one.self(), count * sizeof(float))},
      asks{one.in(), one.self(), lane::named(lane_name)} {
    asks.acknowledge(one.in().epoch());
  }

  [[nodiscard]] std::future<capture_outcome> capture(plan_options options = {}) {
    return begin_capture(
        at,
        [memory = memory, calls = calls](rank_capture& mine) {
          ++*calls;
          const all_reduce sum{.send = memory, .recv = memory, .count = count};
          mine.launch(sum);
          mine.launch(sum);
        },
        std::move(options));
  }
  void fill(float value) const { std::fill_n(reinterpret_cast<float*>(memory.data()), count, value); }
  [[nodiscard]] bool holds(float value) const {
    const auto* const values = reinterpret_cast<const float*>(memory.data());
    return std::all_of(values, values + count, [&](float one) { return one == value; });
  }

  member& at;
  buffer memory;
  rank_lane asks;
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
};

void replay_on(const std::vector<std::pair<planning_member*, std::shared_ptr<captured_plan>>>& all) {
  std::vector<std::future<completion>> replies;
  for (const auto& [one, plan] : all) {
    one->fill(1);
    replies.push_back(one->asks.replay(plan, {.deadline = 20s}));
  }
  for (auto& one : replies) CHECK_NOTHROW(static_cast<void>(one.get()));
  const auto ranks = static_cast<float>(all.size());
  for (const auto& [one, plan] : all) CHECK(one->holds(ranks * ranks));
}

} // namespace

TEST_CASE("a plan is captured and replayed by ranks in processes of their own", "[processes][plans]") {
  kept_by = ordering::agreed;
  controller control{options_of(3)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  planning_member a{first}, b{second}, c{third};
  auto of_a = a.capture(), of_b = b.capture(), of_c = c.capture();
  const capture_outcome made[]{of_a.get(), of_b.get(), of_c.get()};
  for (const capture_outcome& one : made) REQUIRE(one.why.code == errc::none);
  CHECK(made[0].plan->common_number() == made[1].plan->common_number());
  for (int i = 0; i < 3; ++i) replay_on({{&a, made[0].plan}, {&b, made[1].plan}, {&c, made[2].plan}});
  CHECK(*a.calls == 1);
  check_sum({&first, &second, &third}); // beside other requests

  SECTION("plans with names may be captured in any order, and their replays are told apart") {
    auto x_of_a = a.capture({.name = "x"});
    auto y_of_b = b.capture({.name = "y"}), y_of_c = c.capture({.name = "y"});
    auto x_of_b = b.capture({.name = "x"}), x_of_c = c.capture({.name = "x"});
    const capture_outcome x[]{x_of_a.get(), x_of_b.get(), x_of_c.get()};
    for (const capture_outcome& one : x) REQUIRE(one.why.code == errc::none);
    const capture_outcome y[]{a.capture({.name = "y"}).get(), y_of_b.get(), y_of_c.get()};
    for (const capture_outcome& one : y) REQUIRE(one.why.code == errc::none);
    replay_on({{&a, x[0].plan}, {&b, x[1].plan}, {&c, x[2].plan}});
    auto wrong_a = a.asks.replay(x[0].plan), wrong_b = b.asks.replay(y[1].plan), wrong_c = c.asks.replay(x[2].plan);
    CHECK(error_of([&] { static_cast<void>(wrong_a.get()); }).code == errc::mismatch);
    CHECK(error_of([&] { static_cast<void>(wrong_b.get()); }).code == errc::mismatch);
    CHECK(error_of([&] { static_cast<void>(wrong_c.get()); }).code == errc::mismatch);
    replay_on({{&a, y[0].plan}, {&b, y[1].plan}, {&c, y[2].plan}});
  }
  SECTION("a plan of requests needs the own rank's part alone") {
    // At the third rank the two steps share no memory and may be one launch, at the others they may not.
    const buffer other = third.in().allocate(third.self(), count * sizeof(float));
    const auto steps_of = [](const buffer& early, const buffer& late) {
      return plan_steps{{all_reduce{.send = early, .recv = early, .count = count}},
                        {all_reduce{.send = late, .recv = late, .count = count}}};
    };
    const auto capture = [](member& one, plan_steps steps) {
      return std::async(std::launch::async,
                        [where = one.in(), all = std::move(steps)]() mutable { return where.capture(std::move(all)); });
    };
    auto from_a = capture(first, steps_of(a.memory, a.memory)), from_b = capture(second, steps_of(b.memory, b.memory)),
         from_c = capture(third, steps_of(c.memory, other));
    for (planning_member* const one : {&a, &b, &c}) one->fill(1);
    std::fill_n(reinterpret_cast<float*>(other.data()), count, 1.0F);
    auto reply_a = a.asks.replay(from_a.get()), reply_b = b.asks.replay(from_b.get()),
         reply_c = c.asks.replay(from_c.get());
    for (auto* const one : {&reply_a, &reply_b, &reply_c}) CHECK_NOTHROW(static_cast<void>(one->get()));
    CHECK(a.holds(7)); // 3 + 3 + 1
    CHECK(b.holds(7));
    CHECK(c.holds(3));
    CHECK(error_of([&] { static_cast<void>(first.in().capture(plan_steps{{}})); }).code == errc::invalid_argument);
  }
}

TEST_CASE("ranks in processes that capture alone or too slowly are told, and the world goes on", "[processes][plans]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  const buffer a = first.in().allocate(first.self(), count * sizeof(float));
  const buffer b = second.in().allocate(second.self(), count * sizeof(float));
  const auto sum = [](const buffer& memory, std::size_t elements) {
    return [memory, elements](rank_capture& mine) {
      mine.launch(all_reduce{.send = memory, .recv = memory, .count = count});
      mine.launch(all_reduce{.send = memory, .recv = memory, .count = elements});
    };
  };
  SECTION("nothing at one of them") {
    const error why = begin_capture(first, sum(a, 4), {.deadline = 50ms, .name = "lonely"}).get().why;
    CHECK(why.code == errc::deadline_exceeded);
    CHECK_THAT(why.text, ContainsSubstring("plan 'lonely'") && ContainsSubstring("rank 1 has not asked"));
  }
  SECTION("a function that is too slow") {
    std::promise<void> quick_is_told;
    auto slow = begin_capture(first, [told = quick_is_told.get_future().share()](rank_capture&) { told.wait(); },
                              {.deadline = 2s});
    auto quick = begin_capture(second, sum(b, 4), {.deadline = 2s});
    const error first_told = quick.get().why;
    quick_is_told.set_value();
    for (const error& why : {first_told, slow.get().why}) {
      CHECK(why.code == errc::deadline_exceeded);
      CHECK_THAT(why.text, ContainsSubstring("rank 0 has launched 0 times"));
    }
  }
  check_sum({&first, &second});
  CHECK(first.in().epoch() == epoch{1});
  auto left = begin_capture(first, sum(a, 4), {.name = "then"});
  auto right = begin_capture(second, sum(b, 4), {.name = "then"});
  CHECK(left.get().why.code == errc::none);
  CHECK(right.get().why.code == errc::none);
}

TEST_CASE("plans of processes are captured again in each epoch, with the process that has come", "[processes][plans]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  member spare{settings_of_spare(control)};
  planning_member a{first}, b{second};
  auto of_a = a.capture(), of_b = b.capture();
  const capture_outcome from_a = of_a.get(), from_b = of_b.get();
  REQUIRE(from_a.why.code == errc::none);
  auto named_a = a.capture({.name = "decode"}), named_b = b.capture({.name = "decode"});
  const auto decode_a = named_a.get().plan, decode_b = named_b.get().plan;
  REQUIRE(decode_a);
  replay_on({{&a, from_a.plan}, {&b, from_b.plan}});
  auto pending = a.asks.replay(from_a.plan, {.deadline = 20s});
  control.process_ended("1", ::getpid(), "the test says so");
  CHECK_THROWS_AS(static_cast<void>(pending.get()), exception);
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  planning_member c{spare};
  a.asks.acknowledge(epoch{2});
  // The survivor asks before its new peer has the plan.
  auto early = a.asks.replay(from_a.plan, {.deadline = 20s});
  const auto decode_c = c.capture({.name = "decode"}).get(); // in another order than the others did
  REQUIRE(decode_c.why.code == errc::none);
  const auto from_c = c.capture().get();
  REQUIRE(from_c.why.code == errc::none);
  CHECK(*a.calls == 4);
  a.fill(1);
  c.fill(1);
  auto late = c.asks.replay(from_c.plan, {.deadline = 20s});
  CHECK(early.get().epoch == epoch{2});
  CHECK(late.get().epoch == epoch{2});
  CHECK(a.holds(4));
  replay_on({{&a, decode_a}, {&c, decode_c.plan}});
  replay_on({{&a, from_a.plan}, {&c, from_c.plan}});
}

TEST_CASE("a capture is answered when the world that it waits in ends or fails", "[processes][plans]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  member spare{settings_of_spare(control)};
  planning_member a{first};
  static_cast<void>(second.in());
  auto waits = a.capture();
  SECTION("a peer is lost before it captures") {
    control.process_ended("1", ::getpid(), "the test says so");
  }
  SECTION("a peer is lost within the capture") {
    std::promise<void> inside, may_leave;
    auto other = begin_capture(second, [&inside, left = may_leave.get_future().share()](rank_capture&) {
      inside.set_value();
      left.wait();
    });
    inside.get_future().get();
    control.process_ended("1", ::getpid(), "the test says so");
    CHECK(waits.get().why.code != errc::none);
    may_leave.set_value();
    CHECK(other.get().why.code != errc::none);
    return;
  }
  CHECK(waits.get().why.code != errc::none);
}

TEST_CASE("a process that leaves answers the captures that wait for its peers", "[processes][plans]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  planning_member a{first};
  static_cast<void>(second.in());
  auto waits = a.capture();
  first.in().stop();
  const error why = waits.get().why;
  CAPTURE(to_string(why));
  CHECK(why.code != errc::none); // which one depends on whether the world had stopped before the capture arrived
  CHECK(why.effect == effect::rejected);
}

TEST_CASE("a process that does not ask is named by the controller", "[processes]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  static_cast<void>(second.in());
  const buffer memory = first.in().allocate(rank{0}, count * sizeof(float));
  auto pending =
      first.in().ask(rank{0}, all_reduce{.send = memory, .recv = memory, .count = count}, {.deadline = 100ms});
  try {
    static_cast<void>(pending.get());
    FAIL("it has been answered well");
  } catch (const exception& failure) {
    CHECK(failure.why().effect == effect::rejected);
    REQUIRE(failure.why().absence);
    CHECK(failure.why().absence->missing() == std::vector{rank{1}});
  }
  // Its peer, who comes to it now, is told; nothing hangs, and the lane goes on.
  const buffer other = second.in().allocate(rank{1}, count * sizeof(float));
  CHECK_THROWS_AS(
      second.in().ask(rank{1}, all_reduce{.send = other, .recv = other, .count = count}, {.deadline = 20s}).get(),
      exception);
  check_sum({&first, &second});
}

TEST_CASE("a world over processes is composed by the hosts that they are on, and again when it has shrunk",
          "[processes][hierarchy]") {
  kept_by = ordering::agreed;
  controller control{options_of(5, recovery_policy::shrink)};
  std::vector<std::unique_ptr<member>> all;
  for (int place = 0; place < 5; ++place) {
    configuration settings = settings_of(control, place);
    settings.control.assignment.host = place < 2 ? "north" : "south";
    settings.hierarchy.mode = hierarchy_mode::always;
    settings.hierarchy.scratch_bytes = std::size_t{32} << 20U;
    all.push_back(std::make_unique<member>(std::move(settings)));
  }
  const auto everybody = [&] {
    std::vector<member*> these;
    for (const auto& one : all) these.push_back(one.get());
    return these;
  };
  check_sum(everybody());
  // What is composed has scratch memory, which nothing else shows.
  for (const auto& one : all) CHECK(one->used_bytes() >= std::size_t{32} << 20U);

  control.process_ended("0", ::getpid(), "the test says so");
  all.erase(all.begin()); // north has one rank now, and south three
  for (const auto& one : all) REQUIRE(is_ready(one->in(), epoch{2}, 4));
  check_sum(everybody());
}

TEST_CASE("processes of one host compose nothing", "[processes][hierarchy]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  configuration settings = settings_of(control, 0);
  settings.hierarchy.mode = hierarchy_mode::always;
  settings.hierarchy.scratch_bytes = std::size_t{32} << 20U;
  configuration other = settings;
  other.control.assignment.name = "1";
  other.control.assignment.place = 1;
  member first{std::move(settings)}, second{std::move(other)};
  check_sum({&first, &second});
  CHECK(first.used_bytes() < std::size_t{32} << 20U);
}

TEST_CASE("SEC-2: a controller without certificates has one port, a gate and meetings, and its processes have none",
          "[processes]") {
  kept_by = ordering::agreed;
  const std::set<std::string> before = listening_sockets();
  controller control{options_of(2)};
  CHECK(listening_sockets().size() == before.size() + 3);
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  check_sum({&first, &second});
  CHECK(listening_sockets().size() == before.size() + 3);

  // A frame without a payload, and one of 4 GiB, before the sender has proved that it knows the token.
  const std::uint16_t port = parse_control_address(control.address()).port;
  for (const char length : {'\0', '\xff'}) {
    loopback_client stranger{port};
    std::string head = message_frame("x").substr(0, frame_header_bytes);
    std::fill_n(head.begin() + 4, 4, length);
    head.resize(4'096);
    stranger.send(head);
    CHECK(stranger.receive(4'096).size() <= greeting_frame_bytes + answer_frame_bytes); // and then the end
  }
  check_sum({&first, &second});
}

TEST_CASE("a world needs a join token that nobody can guess, at either side", "[processes]") {
  controller_options bare = options_of(1);
  for (const char* const token : {"", "short"}) {
    bare.terms.token = token;
    CHECK_THROWS_AS(controller{bare}, exception);
  }
  controller control{options_of(1)};
  configuration settings = settings_of(control, 0);
  settings.control.assignment.token.clear();
  runtime process{settings};
  try {
    static_cast<void>(process.form_world());
    FAIL("it has joined");
  } catch (const exception& failure) {
    CHECK(std::string{failure.what()}.find("TROUPE_JOIN_TOKEN is not set") != std::string::npos);
  }
}

TEST_CASE("a controller that cannot have its port says so, and ends", "[processes]") {
  controller holder{options_of(1)};
  controller_options second = options_of(1);
  second.port = parse_control_address(holder.address()).port;
  CHECK_THROWS_AS(controller{second}, exception);
}

TEST_CASE("a controller with certificates lets in who has certificates of its CA", "[processes][transport]") {
  kept_by = ordering::agreed;
  const auto folder = std::filesystem::temp_directory_path() / ("troupe-processes-" + std::to_string(::getpid()));
  static_cast<void>(make_certificates({.folder = folder}));
  const std::string token = "a secret that is long enough";
  controller_options behind = options_of(2);
  behind.terms.token = token;
  behind.certificates = controller_credentials(folder);
  controller control{behind};
  const auto guarded = [&](int place) {
    configuration made = settings_of(control, place);
    made.control.assignment.token = token;
    made.control.ca = folder / "ca.pem";
    made.control.certificate = folder / "host.pem";
    made.control.key = folder / "host.key";
    return made;
  };
  {
    member first{guarded(0)}, second{guarded(1)};
    check_sum({&first, &second});
    first.in().stop();
    second.in().stop();
    CHECK(control.wait(10s));
  }
  std::filesystem::remove_all(folder);

  controller_options beyond = options_of(2);
  beyond.host = "10.0.0.1";
  CHECK_THROWS_AS(controller{beyond}, exception); // SEC-1
  configuration far = settings_of(control, 0);
  far.control.address = "10.0.0.1:27700";
  runtime process{far};
  CHECK_THROWS_AS(process.form_world(), exception); // SEC-1
}

namespace {

const std::vector<rank_group> front_and_back{{"front", {rank{0}, rank{1}}}, {"back", {rank{2}, rank{1}}}};

/// A process's part of a split: its sub-worlds by name.
std::future<std::map<std::string, world>> begin_split(member& of, std::vector<rank_group> groups) {
  return std::async(std::launch::async, [&of, groups = std::move(groups)]() mutable {
    std::map<std::string, world> mine;
    for (split_world& one : of.in().split(std::move(groups)))
      if (one.handle) mine.emplace(one.group.name, *one.handle);
    return mine;
  });
}

} // namespace

TEST_CASE("ORD-3: sub-worlds of processes that share ranks are asked crosswise, and have one order",
          "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(3)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  auto a = begin_split(first, front_and_back), b = begin_split(second, front_and_back),
       c = begin_split(third, front_and_back);
  auto of_a = a.get(), of_b = b.get(), of_c = c.get();
  REQUIRE(of_b.size() == 2);
  CHECK(of_a.at("front").size() == 2);
  CHECK(of_c.at("back").local_ranks() == std::vector{rank{0}});
  // Rank 1 is in both; the others ask for the whole world first, or last.
  constexpr int rounds = 20;
  const auto work = [&](world where, int step) {
    const rank self = where.local_ranks().front();
    for (int i = 0; i < rounds; ++i)
      for (int k = 0; k < step; ++k)
        static_cast<void>(where.ask(self, {.what = barrier{}, .epoch = where.epoch(), .deadline = 30s}).get());
  };
  std::vector<std::future<void>> all;
  for (member* const one : {&first, &second, &third}) all.push_back(std::async(std::launch::async, work, one->in(), 3));
  for (const auto& one : {of_a, of_b, of_c})
    for (const auto& [name, where] : one) all.push_back(std::async(std::launch::async, work, where, 2));
  for (auto& one : all) CHECK_NOTHROW(one.get());
  check_sum_in({&of_a.at("front"), &of_b.at("front")});
  check_sum_in({&of_c.at("back"), &of_b.at("back")});
}

TEST_CASE("sub-worlds of processes come back with each epoch, also with a process that has come",
          "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(3)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  static_cast<void>(second.in());
  configuration standing_by = settings_of(control, 1);
  standing_by.control.assignment.name = "s1";
  standing_by.control.assignment.spare = true;
  member spare{standing_by};
  auto a = begin_split(first, front_and_back), b = begin_split(second, front_and_back),
       c = begin_split(third, front_and_back);
  auto of_a = a.get(), of_b = b.get(), of_c = c.get();
  check_sum_in({&of_a.at("front"), &of_b.at("front")});
  world front = of_a.at("front");
  rank_lane lane_of_a{front, rank{0}, lane::named("sub lane")};
  auto pending = lane_of_a.ask(barrier{}, {.deadline = 20s});
  control.process_ended("1", ::getpid(), "the test says so");
  try {
    static_cast<void>(pending.get());
    FAIL("it has been answered well");
  } catch (const exception& failure) {
    CHECK(failure.why().effect == effect::rejected); // it waited for its peer
  }
  REQUIRE(is_ready(first.in(), epoch{2}, 3));
  CHECK(front.status().phase != world_phase::ready); // it waits for the process that has come
  auto d = begin_split(spare, front_and_back);
  auto of_d = d.get();
  REQUIRE(of_d.size() == 2);
  REQUIRE(is_ready(front, epoch{2}, 2));
  CHECK(front.epoch() == epoch{2});
  try {
    static_cast<void>(lane_of_a.ask(barrier{}).get());
    FAIL("nobody has acknowledged the epoch");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::stale_epoch);
  }
  lane_of_a.acknowledge(epoch{2});
  rank_lane lane_of_d{of_d.at("front"), rank{1}, lane::named("sub lane")};
  auto mine = lane_of_a.ask(barrier{}, {.deadline = 20s});
  auto theirs = lane_of_d.ask(barrier{}, {.deadline = 20s});
  CHECK(mine.get().epoch == epoch{2});
  CHECK(theirs.get().epoch == epoch{2});
  check_sum_in({&of_a.at("front"), &of_d.at("front")});
  REQUIRE(is_ready(of_c.at("back"), epoch{2}, 2));
  check_sum_in({&of_c.at("back"), &of_d.at("back")});
}

TEST_CASE("a fault in a sub-world of processes is one of the whole world, and both come back", "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  const std::vector<rank_group> both{{"both", {rank{1}, rank{0}}}};
  auto a = begin_split(first, both), b = begin_split(second, both);
  auto of_a = a.get(), of_b = b.get();
  world in_a = of_a.at("both"), in_b = of_b.at("both");
  check_sum_in({&in_b, &in_a});
  dynamic_cast<mock_driver&>(second.api())
      .fail_next(device_id{0}, {.code = errc::device_failed, .text = "the test says so"});
  auto one = in_a.ask(rank{1}, {.what = barrier{}, .epoch = in_a.epoch(), .deadline = 20s});
  auto other = in_b.ask(rank{0}, {.what = barrier{}, .epoch = in_b.epoch(), .deadline = 20s});
  CHECK_THROWS_AS(static_cast<void>(other.get()), exception);
  CHECK_THROWS_AS(static_cast<void>(one.get()), exception);
  for (world* const each : {&in_a, &in_b}) REQUIRE(is_ready(*each, epoch{2}, 2));
  check_sum_in({&in_b, &in_a});
  check_sum({&first, &second});
}

TEST_CASE("a rank that is alone in its sub-world has resume points (CUT-1)", "[processes][splits][resume]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  const std::vector<rank_group> each{{"left", {rank{0}}}, {"right", {rank{1}}}};
  auto a = begin_split(first, each), b = begin_split(second, each);
  world left = a.get().at("left"), right = b.get().at("right");
  CHECK(left.status().resume == nullptr);
  rank_lane steps{left, rank{0}, lane::named("alone")};
  for (std::uint64_t step = 1; step <= 3; ++step) static_cast<void>(steps.commit(step).get());
  dynamic_cast<mock_driver&>(second.api())
      .fail_next(device_id{0}, {.code = errc::device_failed, .text = "the test says so"});
  CHECK_THROWS_AS(
      static_cast<void>(right.ask(rank{0}, {.what = barrier{}, .epoch = right.epoch(), .deadline = 20s}).get()),
      exception);
  REQUIRE(is_ready(left, epoch{2}, 1));
  REQUIRE(left.status().resume != nullptr);
  const resume_point* const reached = find_point(*left.status().resume, lane::named("alone"));
  REQUIRE(reached != nullptr);
  CHECK(reached->complete == 3);
  CHECK(reached->commit == 3);
  steps.acknowledge(epoch{2});
  CHECK(steps.commit(4).get().epoch == epoch{2});
}

TEST_CASE("a process that replaces a rank that was alone in its sub-world is told that its commits are lost (CUT-1)",
          "[processes][splits][resume]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  static_cast<void>(first.in());
  configuration standing_by = settings_of(control, 0);
  standing_by.control.assignment.name = "s0";
  standing_by.control.assignment.spare = true;
  member spare{standing_by};
  const std::vector<rank_group> alone{{"left", {rank{0}}}};
  auto a = begin_split(first, alone), b = begin_split(second, alone);
  world left = a.get().at("left");
  static_cast<void>(b.get());
  rank_lane steps{left, rank{0}, lane::named("alone")};
  for (std::uint64_t step = 1; step <= 3; ++step) static_cast<void>(steps.commit(step).get());
  const auto commit = [](world& where) {
    const auto resume = where.status().resume;
    REQUIRE(resume);
    const resume_point* const reached = find_point(*resume, lane::named("alone"));
    REQUIRE(reached);
    return std::pair{reached->commit, resume->has_survivors};
  };
  using known = std::pair<std::optional<std::uint64_t>, bool>;
  dynamic_cast<mock_driver&>(second.api())
      .fail_next(device_id{0}, {.code = errc::device_failed, .text = "the test says so"});
  CHECK_THROWS_AS(
      static_cast<void>(
          second.in().copy(rank{1}, second.in().allocate(rank{1}, 64), second.in().allocate(rank{1}, 64)).get()),
      exception);
  REQUIRE(is_ready(left, epoch{2}, 1));
  CHECK(commit(left) == known{3, true});
  control.process_ended("0", ::getpid(), "the test says so");
  REQUIRE(is_ready(second.in(), epoch{3}, 2));
  auto c = begin_split(spare, alone);
  world next = c.get().at("left");
  CHECK(commit(next) == known{3, false});
  rank_lane later{next, rank{0}, lane::named("alone")};
  static_cast<void>(later.commit(4).get());
  dynamic_cast<mock_driver&>(second.api())
      .fail_next(device_id{0}, {.code = errc::device_failed, .text = "the test says so"});
  CHECK_THROWS_AS(
      static_cast<void>(
          second.in().copy(rank{1}, second.in().allocate(rank{1}, 64), second.in().allocate(rank{1}, 64)).get()),
      exception);
  REQUIRE(is_ready(next, epoch{4}, 1));
  CHECK(commit(next) == known{4, true});
}

namespace {

/// A process's rank that keeps checkpoints of one buffer.
struct keeper {
  explicit keeper(member& of) : where{of.in()}, lane{where, of.self(), lane::named("keeper")} {}

  [[nodiscard]] buffer allocate() const { return where.allocate(where.local_ranks().front(), count * sizeof(float)); }
  checkpoints::resumed resume() {
    state = allocate();
    return saved.resume(where.status(), {state});
  }
  void commit(std::uint64_t number, float value) {
    lane.write(std::vector<float>(count, value), state).get();
    saved.commit(number);
  }
  [[nodiscard]] bool holds(float value) { return lane.read<float>(state).get() == std::vector<float>(count, value); }

  world where;
  rank_lane lane;
  buffer state = allocate();
  checkpoints saved{lane, {state}};
};

/// Whether all of \p all continue from the same commit: \p last, or the one before. A resume point is conservative, but
/// never older than that once a rank has seen \p last succeed.
bool all_at(const std::vector<checkpoints::resumed>& all, std::uint64_t last) {
  const auto reached = all.front().commit;
  return (reached == last || reached == last - 1) &&
         std::ranges::all_of(all, [&](const auto& one) { return one.commit == reached; });
}

/// Calls \p work for each of \p all at once. \p work checks nothing: Catch2's checks belong on the test's thread.
void at_each(const std::vector<keeper*>& all, const std::function<void(keeper&)>& work) {
  std::vector<std::future<void>> ends;
  for (keeper* const one : all) ends.push_back(std::async(std::launch::async, [one, &work] { work(*one); }));
  for (auto& one : ends) CHECK_NOTHROW(one.get());
}
std::vector<checkpoints::resumed> resume_at(const std::vector<keeper*>& all) {
  std::map<keeper*, checkpoints::resumed> found;
  for (keeper* const one : all) found[one]; // nodes, so that threads may assign to them
  at_each(all, [&](keeper& one) { found.at(&one) = one.resume(); });
  std::vector<checkpoints::resumed> in_order;
  for (keeper* const one : all) in_order.push_back(found.at(one));
  return in_order;
}

} // namespace

TEST_CASE("a process that replaces a lost one receives the state of the last commit (CUT-1)",
          "[processes][checkpoints]") {
  kept_by = ordering::agreed;
  controller control{options_of(3)};
  member first{settings_of(control, 0)}, third{settings_of(control, 2)};
  auto second = std::make_unique<member>(settings_of(control, 1));
  member spare{settings_of_spare(control)};
  keeper a{first}, c{third};
  {
    keeper b{*second};
    for (const auto& at : resume_at({&a, &b, &c})) CHECK_FALSE(at.commit);
    for (std::uint64_t number = 1; number <= 3; ++number)
      at_each({&a, &b, &c}, [&](keeper& one) { one.commit(number, static_cast<float>(number)); });
    CHECK(b.holds(3));
  }
  control.process_ended("1", ::getpid(), "the test says so");
  for (keeper* const one : {&a, &c}) REQUIRE(is_ready(one->where, epoch{2}, 3));
  keeper b{spare};
  const auto at = resume_at({&a, &b, &c});
  REQUIRE(all_at(at, 3));
  CHECK_FALSE(at[0].received_from);
  CHECK(at[1].received_from == rank{0});
  CHECK_FALSE(at[2].received_from);
  for (keeper* const one : {&a, &b, &c}) CHECK(one->holds(static_cast<float>(*at[0].commit)));
  at_each({&a, &b, &c}, [](keeper& one) { one.commit(4, 4); });
}

TEST_CASE("ranks that are renumbered and a rank that joins continue from one checkpoint (CUT-1)",
          "[processes][checkpoints]") {
  kept_by = ordering::agreed;
  controller control{options_of(3, recovery_policy::shrink)};
  auto first = std::make_unique<member>(settings_of(control, 0));
  member second{settings_of(control, 1)}, third{settings_of(control, 2)};
  static_cast<void>(first->in());
  keeper b{second}, c{third};
  {
    keeper a{*first};
    for (const auto& at : resume_at({&a, &b, &c})) CHECK_FALSE(at.commit);
    for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{2}})
      at_each({&a, &b, &c}, [&](keeper& one) { one.commit(number, &one == &b ? 5.F : 1.F); });
  }
  control.process_ended("0", ::getpid(), "the test says so");
  for (keeper* const one : {&b, &c}) REQUIRE(is_ready(one->where, epoch{2}, 2));
  CHECK(b.lane.target() == rank{1});
  CHECK(b.lane.rank_in(b.where.status()) == rank{0});
  const auto fewer = resume_at({&b, &c});
  CHECK(all_at(fewer, 2));
  for (const auto& one : fewer) CHECK_FALSE(one.received_from);
  CHECK(b.holds(5));
  CHECK(c.holds(1));
  for (const std::uint64_t number : {std::uint64_t{3}, std::uint64_t{4}})
    at_each({&b, &c}, [&](keeper& one) { one.commit(number, 2); });
  first.reset();
  member joined{settings_of(control, 0)}; // the world grows again
  keeper d{joined};
  for (keeper* const one : {&b, &c}) REQUIRE(is_ready(one->where, epoch{3}, 3));
  const auto at = resume_at({&b, &c, &d});
  CHECK(all_at(at, 4));
  CHECK_FALSE(at[0].received_from);
  CHECK_FALSE(at[1].received_from);
  CHECK(at[2].received_from.has_value());
  for (keeper* const one : {&b, &c, &d}) CHECK(one->holds(2));
}

namespace {

/// The reasons for which a world has been rebuilt.
class reason_log {
public:
  [[nodiscard]] static std::shared_ptr<reason_log> of(world& where) {
    auto made = std::make_shared<reason_log>();
    where.on_event([made](const world_event& one) {
      const std::lock_guard lock{made->mutex_};
      if (one.phase == world_phase::rebuilding) made->all_.push_back(one.reason);
    });
    return made;
  }
  [[nodiscard]] std::vector<error> all() const {
    const std::lock_guard lock{mutex_};
    return all_;
  }

private:
  mutable std::mutex mutex_;
  std::vector<error> all_;
};

} // namespace

TEST_CASE("two processes between which transfers hang in consecutive epochs do not stay in one world",
          "[processes][links]") {
  kept_by = ordering::agreed;
  controller_options terms = options_of(3, recovery_policy::shrink);
  terms.terms.link_retry = 1h;
  controller control{terms};
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{0}).operation(0).hang(); // in epoch 1
  script->on(rank{0}).operation(1).hang(); // in epoch 2
  const auto settings = [&](int place) {
    configuration made = settings_of(control, place);
    made.limits.hang = 500ms;
    if (place == 0) made.faults = script;
    return made;
  };
  member first{settings(0)}, second{settings(1)}, third{settings(2)};
  const auto transfer = [&] {
    const buffer from = first.in().allocate(rank{0}, 64), to = second.in().allocate(rank{1}, 64);
    auto sent = first.in().ask(
        rank{0},
        {.what = send{.memory = from, .count = 16, .peer = rank{1}}, .epoch = first.in().epoch(), .deadline = 60s});
    auto got = second.in().ask(
        rank{1},
        {.what = recv{.memory = to, .count = 16, .peer = rank{0}}, .epoch = second.in().epoch(), .deadline = 60s});
    CHECK(failure_of(std::move(got)).effect == effect::unknown_outcome);
  };
  REQUIRE(is_ready(first.in(), epoch{1}, 3));
  transfer();
  for (member* const one : {&first, &second, &third}) REQUIRE(is_ready(one->in(), epoch{2}, 3));
  check_sum({&first, &second, &third});
  transfer();
  for (member* const one : {&first, &third}) REQUIRE(is_ready(one->in(), epoch{3}, 2));
  check_sum({&first, &third});
  CHECK_THAT(second.in().status().reason.text, ContainsSubstring("the world continues without process 1"));
}

TEST_CASE("a hang verdict names the operation that hangs, not one that waits behind it in another process",
          "[processes][splits][FLT-1]") {
  kept_by = ordering::agreed;
  controller control{options_of(3)};
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{0}).operation(0).hang(); // that of "front"
  const auto patient = [&](int place) {
    configuration made = settings_of(control, place);
    made.limits.hang = place == 2 ? nanoseconds{500ms} : nanoseconds{1h};
    if (place == 0) made.faults = script;
    return made;
  };
  member first{patient(0)}, second{patient(1)}, third{patient(2)};
  auto a = begin_split(first, front_and_back), b = begin_split(second, front_and_back),
       c = begin_split(third, front_and_back);
  auto of_a = a.get(), of_b = b.get(), of_c = c.get();
  world front_of_a = of_a.at("front"), front_of_b = of_b.at("front"), back_of_b = of_b.at("back"),
        back_of_c = of_c.at("back");
  const auto start = [](world where, const shared_event& ready = nullptr) {
    const rank self = where.local_ranks().front();
    const buffer memory = where.allocate(self, count * sizeof(float));
    return where.ask(self, {.what = all_reduce{.send = {memory, ready}, .recv = memory, .count = count},
                            .epoch = where.epoch(),
                            .deadline = 60s});
  };
  auto withheld = start(front_of_a), hanging = start(front_of_b);
  CHECK_NOTHROW(static_cast<void>(withheld.get())); // it has been released: nothing is on its device
  std::vector<std::shared_ptr<reason_log>> told;
  for (world* const one : {&first.in(), &second.in(), &third.in(), &front_of_a, &back_of_b, &back_of_c})
    told.push_back(reason_log::of(*one));
  // The mock's streams do not wait for each other: a gate makes rank 1 do as a GPU does.
  const auto& gpu = back_of_b.device_of(rank{1});
  const stream before{gpu};
  gate held{gpu};
  held.hold(before.ref());
  auto behind = start(back_of_b, record_event(gpu, before.ref())), peer = start(back_of_c);

  // Peers of the mock may also see that another has aborted.
  for (auto* const one : {&hanging, &behind, &peer})
    CHECK(failure_of(std::move(*one)).effect == effect::unknown_outcome);
  held.open();
  for (world* const one : {&front_of_a, &front_of_b, &back_of_b, &back_of_c}) REQUIRE(is_ready(*one, epoch{2}, 2));
  check_sum_in({&front_of_a, &front_of_b});
  check_sum_in({&back_of_c, &back_of_b});
  for (const auto& one : told) {
    REQUIRE(one->all().size() == 1);
    const error why = one->all().front();
    CHECK(why.rank == rank{0});
    CHECK_THAT(why.text, ContainsSubstring("all_reduce of 256 f32, sum (lane default, request 0) of sub-world 'front' "
                                           "hangs: rank 0 reports to have finished it, and rank 1 waits in it; "
                                           "all_reduce of 256 f32, sum (lane default, request 0) of sub-world 'back' "
                                           "waits behind it; rank 2 reported: sub-world 'back': "));
  }
}

TEST_CASE("sub-worlds of processes end when their world has another size", "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(3, recovery_policy::shrink)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  auto a = begin_split(first, front_and_back), b = begin_split(second, front_and_back),
       c = begin_split(third, front_and_back);
  auto of_a = a.get(), of_b = b.get(), of_c = c.get();
  world front = of_a.at("front");
  control.process_ended("2", ::getpid(), "the test says so");
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(second.in(), epoch{2}, 2));
  REQUIRE(reaches(front, world_phase::failed));
  CHECK_THAT(front.status().reason.text, ContainsSubstring("had 3 ranks and has 2 now: split it again"));
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  auto again_a = begin_split(first, both), again_b = begin_split(second, both);
  auto in_a = again_a.get(), in_b = again_b.get();
  check_sum_in({&in_a.at("both"), &in_b.at("both")});
}

TEST_CASE("a world that its controller stops lets its sub-worlds finish what is in flight first",
          "[processes][splits][MEM-1]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  auto a = begin_split(first, both), b = begin_split(second, both);
  auto of_a = a.get(), of_b = b.get();
  world in_a = of_a.at("both"), in_b = of_b.at("both");
  const auto& gpu = in_b.device_of(rank{1});
  const stream before{gpu};
  gate held{gpu};
  held.hold(before.ref());
  const auto start = [](world where, const shared_event& ready) {
    const rank self = where.local_ranks().front();
    const buffer memory = where.allocate(self, count * sizeof(float));
    return where.ask(self, {.what = all_reduce{.send = {memory, ready}, .recv = memory, .count = count},
                            .epoch = where.epoch(),
                            .deadline = 60s});
  };
  auto one = start(in_a, nullptr), other = start(in_b, record_event(gpu, before.ref()));
  // Decided behind them, without the device.
  rank_lane lane_a{in_a, rank{0}, lane::named("behind")}, lane_b{in_b, rank{1}, lane::named("behind")};
  auto value_a = lane_a.agree(agreement_rule::max, 1), value_b = lane_b.agree(agreement_rule::max, 2);
  CHECK_NOTHROW(static_cast<void>(value_a.get()));
  CHECK_NOTHROW(static_cast<void>(value_b.get()));
  control.stop();
  REQUIRE(reaches(in_b, world_phase::stopping));
  const world_phase at = second.in().status().phase; // it leaves, and gives up its lease, after its sub-worlds
  CHECK(at != world_phase::stopping);
  CHECK(at != world_phase::stopped);
  held.open();
  CHECK_NOTHROW(static_cast<void>(one.get()));
  CHECK_NOTHROW(static_cast<void>(other.get()));
  REQUIRE(control.wait(10s));
  CHECK_FALSE(control.reason());
  for (world* const each : {&first.in(), &second.in(), &in_a, &in_b}) CHECK(is_stopped(*each));
}

TEST_CASE("when a world of processes grows, its sub-worlds finish what is in flight, and end", "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(3, recovery_policy::shrink)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
  static_cast<void>(second.in());
  control.process_ended("1", ::getpid(), "the test says so");
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  REQUIRE(is_ready(third.in(), epoch{2}, 2));
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  auto a = begin_split(first, both), b = begin_split(third, both);
  auto of_a = a.get(), of_b = b.get();
  world in_a = of_a.at("both"), in_b = of_b.at("both");
  check_sum_in({&in_a, &in_b});
  auto undecided = in_a.ask(rank{0}, {.what = barrier{}, .epoch = in_a.epoch(), .deadline = 30s});
  std::atomic<int> wrong = 0;
  std::vector<std::future<void>> busy;
  for (world* const each : {&in_a, &in_b})
    busy.push_back(std::async(std::launch::async, [&wrong, where = *each]() mutable {
      rank_lane mine{where, where.local_ranks().front(), lane::named("busy")};
      try {
        for (;;) static_cast<void>(mine.barrier({.deadline = 30s}).get());
      } catch (const exception& failure) { // what was launched has ended well
        wrong += failure.why().effect == effect::rejected ? 0 : 1;
      }
    }));
  configuration again = settings_of(control, 1);
  again.control.assignment.name = "1b";
  again.control.assignment.attempt = 1;
  member newcomer{again};
  REQUIRE(is_ready(first.in(), epoch{3}, 3));
  REQUIRE(is_ready(third.in(), epoch{3}, 3));
  for (auto& one : busy) one.get();
  CHECK(wrong == 0);
  CHECK_THROWS_AS(static_cast<void>(undecided.get()), exception);
  REQUIRE(reaches(in_a, world_phase::failed));
  CHECK_THAT(in_a.status().reason.text, ContainsSubstring("had 2 ranks and has 3 now: split it again"));
  check_sum({&first, &newcomer, &third});
}

TEST_CASE("a split is repeated for the sub-worlds that are left, and leaves no communicator behind",
          "[processes][splits]") {
  kept_by = ordering::agreed;
  const std::size_t leaks = leak_count();
  {
    controller control{options_of(3)};
    member first{settings_of(control, 0)}, second{settings_of(control, 1)}, third{settings_of(control, 2)};
    const std::vector<rank_group> groups{{"all", {rank{2}, rank{1}, rank{0}}}, {"pair", {rank{0}, rank{1}}}};
    auto a = begin_split(first, groups), b = begin_split(second, groups), c = begin_split(third, groups);
    auto of_a = a.get(), of_b = b.get(), of_c = c.get();
    of_a.at("pair").stop(); // rank 1 keeps its part, which has nobody to ask with
    dynamic_cast<mock_driver&>(third.api())
        .fail_next(device_id{0}, {.code = errc::device_failed, .text = "the test says so"});
    CHECK_THROWS_AS(
        static_cast<void>(
            third.in().copy(rank{2}, third.in().allocate(rank{2}, 64), third.in().allocate(rank{2}, 64)).get()),
        exception);
    for (auto* const each : {&of_a, &of_b, &of_c}) REQUIRE(is_ready(each->at("all"), epoch{2}, 3));
    check_sum_in({&of_c.at("all"), &of_b.at("all"), &of_a.at("all")});
    REQUIRE(is_ready(of_b.at("pair"), epoch{2}, 2));
    auto waits = of_b.at("pair").ask(rank{1}, {.what = barrier{}, .epoch = epoch{2}, .deadline = 20s});
    try {
      static_cast<void>(waits.get());
      FAIL("it has been answered well");
    } catch (const exception& failure) { // at once: the order knows that rank 0 has left in this epoch, too
      CHECK(failure.why().code == errc::stopping);
      CHECK_THAT(failure.why().text, ContainsSubstring("rank 0 has left the sub-world 'pair'"));
    }
  }
  CHECK(leak_count() == leaks);
}

TEST_CASE("a sub-world of processes that one process stops ends at its other ranks, too", "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  const std::vector<rank_group> both{{"both", {rank{0}, rank{1}}}};
  auto a = begin_split(first, both), b = begin_split(second, both);
  auto of_a = a.get(), of_b = b.get();
  auto waits = of_a.at("both").ask(rank{0}, {.what = barrier{}, .deadline = 20s});
  of_b.at("both").stop();
  try {
    static_cast<void>(waits.get());
    FAIL("it has been answered well");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::stopping);
    CHECK(failure.why().effect == effect::rejected);
  }
  of_a.at("both").stop();
  check_sum({&first, &second});
}

TEST_CASE("a process that splits alone is told who has not asked, and the world goes on", "[processes][splits]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  configuration impatient = settings_of(control, 0);
  impatient.deadlines.form = 2s; // also for the other process to join
  impatient.deadlines.drain = 100ms;
  member first{impatient}, second{settings_of(control, 1)};
  static_cast<void>(second.in());
  auto alone = begin_split(first, {{"both", {rank{0}, rank{1}}}});
  try {
    static_cast<void>(alone.get());
    FAIL("it has been answered well");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::deadline_exceeded);
    CHECK_THAT(failure.what(), ContainsSubstring("rank 1 has not asked for it"));
  }
  CHECK(first.in().epoch() == epoch{1});
  check_sum({&first, &second});
}

namespace {

constexpr std::size_t registered_bytes = std::size_t{1} << 20U;

std::future<error> begin_registration(member& of, std::size_t size_bytes = registered_bytes) {
  return std::async(std::launch::async, [&of, size_bytes] {
    try {
      of.in().register_memory(size_bytes);
      return error{};
    } catch (const exception& failure) {
      return failure.why();
    }
  });
}

/// An all_reduce on the given memory of two processes. Returns both answers.
std::array<error, 2> sum_on(const std::array<member*, 2>& all, const std::array<buffer, 2>& memory) {
  std::array<std::future<completion>, 2> replies;
  for (std::size_t i = 0; i < 2; ++i)
    replies[i] =
        all[i]->in().ask(all[i]->self(), {.what = all_reduce{.send = memory[i], .recv = memory[i], .count = count},
                                          .epoch = all[i]->in().epoch(),
                                          .deadline = 20s});
  return {failure_of(std::move(replies[0])), failure_of(std::move(replies[1]))};
}

} // namespace

TEST_CASE("registered memory of processes comes back with a process that has come", "[processes][registered]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  member first{settings_of(control, 0)}, second{settings_of(control, 1)};
  member spare{settings_of_spare(control)};
  for (const std::size_t size : {registered_bytes, 2 * registered_bytes}) {
    auto a = begin_registration(first, size), b = begin_registration(second, size);
    REQUIRE(a.get().code == errc::none);
    REQUIRE(b.get().code == errc::none);
  }
  const std::size_t size = count * sizeof(float);
  const buffer kept = first.in().allocate_all(size).front();
  static_cast<void>(second.in().allocate_all(size));
  control.process_ended("1", ::getpid(), "the test says so");
  REQUIRE(is_ready(first.in(), epoch{2}, 2));
  const std::array<member*, 2> both{&first, &spare};
  // Until the new process has registered as much, the memory is ordinary.
  for (const error& why : sum_on(both, {kept, spare.in().allocate(rank{1}, size)})) CHECK(why.code == errc::none);
  const auto count_back = [&] {
    const auto restored = first.in().status().restored;
    return restored ? std::ranges::count(*restored, restored_state::back, &restored_part::state) : 0;
  };
  CHECK(count_back() == 0);
  for (const std::size_t each : {registered_bytes, 2 * registered_bytes})
    REQUIRE(begin_registration(spare, each).get().code == errc::none);
  for (const auto until = std::chrono::steady_clock::now() + 20s;
       count_back() < 2 && std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(1ms);
  CHECK(count_back() == 2);
  const buffer theirs = spare.in().allocate_all(size).front(), other = first.in().allocate_all(size).front();
  for (const error& why : sum_on(both, {kept, theirs})) CHECK(why.code == errc::none);
  for (const error& why : sum_on(both, {other, theirs})) CHECK(why.code == errc::mismatch);
  check_sum({&first, &spare});
}

TEST_CASE("a process that registers memory alone is told who has not, and the world goes on",
          "[processes][registered]") {
  kept_by = ordering::agreed;
  controller control{options_of(2)};
  configuration impatient = settings_of(control, 0);
  impatient.deadlines.form = 2s; // also for the other process to join
  impatient.deadlines.drain = 100ms;
  member first{impatient}, second{settings_of(control, 1)};
  static_cast<void>(second.in());
  const error why = begin_registration(first).get();
  CHECK(why.code == errc::deadline_exceeded);
  CHECK_THAT(why.text, ContainsSubstring("the allocation of 1048576 bytes to register was not begun in time: rank 1"));
  CHECK(first.in().epoch() == epoch{1});
  check_sum({&first, &second});
}

} // namespace troupe::tests::processes_test
