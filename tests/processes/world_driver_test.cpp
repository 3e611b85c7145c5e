/// Drivers of a world over processes, on the mock: here each "process" is a runtime of this one.
#include "support/comes_true.hpp"
#include "support/runtimes.hpp"

#include <troupe/device/stream.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/world_group.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::world_driver_test {

namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::size_t count = 64;
constexpr const char* token = "a secret of these tests";

/// A process of a rank, which exports "values", its rank + 1, and registers "move", a copy.
struct served_rank {
  served_rank(const controller& control, int place) : settings{settings_of(control, place)} {
    forming = std::async(std::launch::async, [this] {
      rt = std::make_unique<runtime>(settings);
      return rt->form_world();
    });
  }
  static configuration settings_of(const controller& control, int place) {
    configuration made = mock_settings(1);
    made.control = {.address = control.address(), .patience = 10s};
    made.control.assignment = {.token = token, .name = std::to_string(place), .place = place};
    return made;
  }
  void serve() {
    where.emplace(forming.get());
    const rank self = where->local_ranks().front();
    values = where->allocate_pinned(count * sizeof(float));
    reset();
    static_cast<void>(where->export_memory(self, values, "values"));
    where->register_function("move", [](const rank_call& with) {
      with.stream.copy(with.memory[1].data(), with.memory[0].data(), with.memory[0].size_bytes());
    });
  }
  void reset() const {
    std::ranges::fill(values.host_span<float>(), static_cast<float>(where->local_ranks().front().value() + 1));
    lock_device();
  }
  [[nodiscard]] float first() const {
    lock_device();
    return values.host_span<float>()[0];
  }
  /// Takes the lock that the mock's thread takes around its work. Requests and replies pass through rings that this
  /// process maps twice, and ThreadSanitizer sees no order in that.
  void lock_device() const { const stream made{where->device_of(where->local_ranks().front())}; }

  configuration settings;
  std::unique_ptr<runtime> rt;
  std::future<world> forming;
  std::optional<world> where;
  buffer values;
};

/// A world of two processes and a driver.
struct driven_world {
  driven_world() {
    for (int place = 0; place < 2; ++place) ranks.push_back(std::make_unique<served_rank>(control, place));
    for (const auto& one : ranks) one->serve();
    driver.emplace(driver_settings());
    REQUIRE(driver->wait_ready(20s).phase == world_phase::ready);
  }
  ~driven_world() {
    driver.reset();
    for (const auto& one : ranks) one->where->stop();
  }
  static controller_options options() {
    controller_options made{.terms = {.world_size = 2}};
    made.terms.token = token;
    made.terms.suspicion = 10s;
    return made;
  }
  [[nodiscard]] configuration driver_settings() const {
    configuration made = mock_settings(1);
    made.control = {.address = control.address(), .patience = 10s};
    made.control.assignment.token = token;
    return made;
  }
  [[nodiscard]] std::vector<buffer> values() const {
    std::vector<buffer> all;
    for (int r = 0; r < 2; ++r) all.push_back(driver->find_memory(rank{r}, "values").get().as_buffer());
    return all;
  }
  [[nodiscard]] static std::vector<operation> sum(const std::vector<buffer>& of) {
    std::vector<operation> parts;
    for (const buffer& one : of) parts.emplace_back(all_reduce{one, one, count, dtype::f32, reduction::sum});
    return parts;
  }
  [[nodiscard]] static std::vector<operation> moved(const std::vector<buffer>& from, const std::vector<buffer>& to) {
    const auto function = std::make_shared<const rank_function>("move");
    std::vector<operation> parts;
    for (std::size_t r = 0; r < from.size(); ++r) parts.emplace_back(call{function, {from[r], to[r]}});
    return parts;
  }
  [[nodiscard]] std::vector<buffer> on_devices() {
    std::vector<buffer> all;
    for (int r = 0; r < 2; ++r) all.push_back(driver->allocate(rank{r}, count * sizeof(float)).get().as_buffer());
    return all;
  }

  controller control{options()};
  std::vector<std::unique_ptr<served_rank>> ranks;
  std::optional<world_driver> driver;
};

error thrown(auto work) {
  try {
    work();
  } catch (const exception& failure) {
    return failure.why();
  }
  return {};
}

} // namespace

TEST_CASE("a group of a world over processes has a part for each rank, also of other processes",
          "[runtime][drivers][GRP-1]") {
  driven_world one;
  const served_rank& asking = *one.ranks[0];
  const rank self = asking.where->local_ranks().front();
  std::vector<buffer> values = one.values();
  values[static_cast<std::size_t>(self.value())] = asking.values;
  world_group asked{*asking.where};
  asked.on_all([&](rank part) {
    const buffer& memory = values[static_cast<std::size_t>(part.value())];
    return all_reduce{memory, memory, count, dtype::f32, reduction::sum};
  });
  CHECK(asked.parts().size() == 2);
  CHECK_FALSE(failure_of(asked.ask()));
  for (const auto& rank_process : one.ranks) CHECK(rank_process->first() == 3.0F);
}

TEST_CASE("a driver captures a plan of requests and calls, and replays it by name", "[runtime][drivers][plans]") {
  driven_world one;
  const auto first = one.on_devices(), second = one.on_devices();
  const auto host = one.values();
  const auto copies = [&](const std::vector<buffer>& from, const std::vector<buffer>& to) {
    std::vector<operation> parts;
    for (std::size_t r = 0; r < 2; ++r) parts.emplace_back(copy{from[r], to[r]});
    return parts;
  };
  one.driver
      ->capture("steps", {copies(host, first), driven_world::sum(first), driven_world::moved(first, second),
                          driven_world::sum(second), copies(second, host)})
      .get();
  one.driver->replay("steps").get();
  CHECK(one.ranks[0]->first() == 6.F); // 1 + 2 = 3, 3 + 3 = 6
  CHECK(one.ranks[1]->first() == 6.F);
  one.driver->replay("steps").get();
  CHECK(one.ranks[1]->first() == 24.F);

  // A plan of this name takes its place.
  for (const auto& each : one.ranks) each->reset();
  one.driver->capture("steps", {copies(host, first), driven_world::sum(first), copies(first, host)}).get();
  one.driver->replay("steps").get();
  CHECK(one.ranks[1]->first() == 3.F);

  // One whose capture fails does not.
  for (const auto& each : one.ranks) each->reset();
  auto stale = first;
  stale[1] = remote_buffer{rank{1}, 1, 1, 0, count * sizeof(float)}.as_buffer();
  CHECK(thrown([&] { one.driver->capture("steps", {driven_world::sum(stale)}).get(); }).code == errc::stale_buffer);
  one.driver->replay("steps").get();
  CHECK(one.ranks[1]->first() == 3.F);

  one.driver->drop_plan("steps");
  const error gone = thrown([&] { one.driver->replay("steps").get(); });
  CHECK(gone.code == errc::invalid_argument);
  CHECK_THAT(gone.text, ContainsSubstring("no plan called 'steps'"));
}

TEST_CASE("a capture that one rank cannot make is refused at once at all ranks, with its reason",
          "[runtime][drivers][plans]") {
  driven_world one;
  const auto device = one.on_devices();
  const auto began = std::chrono::steady_clock::now();
  SECTION("memory that its process has let go of") {
    std::vector<buffer> wrong = device;
    wrong[1] = remote_buffer{rank{1}, 1, 1, 0, count * sizeof(float)}.as_buffer();
    const error why = thrown([&] {
      one.driver->capture("steps", {driven_world::sum(device), driven_world::sum(wrong)}).get();
    });
    CHECK(why.code == errc::stale_buffer);
    CHECK_THAT(why.text, ContainsSubstring("step 1 of the plan"));
  }
  SECTION("a buffer that is too short") {
    std::vector<buffer> wrong = device;
    wrong[0] = one.driver->allocate(rank{0}, 4).get().as_buffer();
    const error why = thrown([&] { one.driver->capture("steps", {driven_world::sum(wrong)}).get(); });
    CHECK(why.code == errc::invalid_argument);
  }
  SECTION("host memory") {
    CHECK(thrown([&] { one.driver->capture("steps", {driven_world::sum(one.values())}).get(); }).code ==
          errc::invalid_argument);
  }
  SECTION("a name that is too long") {
    CHECK(thrown([&] { one.driver->capture(std::string(65, 'x'), {driven_world::sum(device)}).get(); }).code ==
          errc::invalid_argument);
  }
  CHECK(std::chrono::steady_clock::now() - began < 30s); // no rank waited for another's deadline
  one.driver->capture("steps", {driven_world::sum(device)}).get();
  one.driver->replay("steps").get();
}

TEST_CASE("metrics and flight records of the ranks reach a driver", "[runtime][drivers]") {
  driven_world one;
  const auto host = one.values();
  one.driver->ask(driven_world::sum(host)).get();
  const std::string record = one.driver->flight_record(rank{1}).get();
  CHECK_THAT(record, ContainsSubstring("all_reduce"));
  CHECK(record.front() == '{');
  if (has_metrics()) {
    const std::string metrics = one.driver->metrics(rank{0}).get();
    CHECK_THAT(metrics, ContainsSubstring("troupe_"));
    CHECK_THAT(metrics, ContainsSubstring("all_reduce"));
  } else {
    CHECK(thrown([&] { static_cast<void>(one.driver->metrics(rank{0}).get()); }).code == errc::missing);
  }
  CHECK(thrown([&] { static_cast<void>(one.driver->metrics(rank{2}).get()); }).code == errc::invalid_argument);
  // Reports are given back.
  for (int i = 0; i < 3; ++i) static_cast<void>(one.driver->flight_record(rank{0}).get());
}

TEST_CASE("a driver is told of each epoch, and captures its plans again in it", "[runtime][drivers][plans]") {
  std::mutex guard;
  std::vector<world_event> heard;
  driven_world one;
  one.driver->on_event([&](const world_event& now) {
    const std::lock_guard lock{guard};
    heard.push_back(now);
  });
  const auto device = one.on_devices();
  one.driver->capture("steps", {driven_world::sum(device)}).get();
  one.driver->replay("steps").get();
  // A request that cannot run ends the epoch: a function that throws.
  one.ranks[1]->where->register_function("move", [](const rank_call&) { throw std::runtime_error{"it fails"}; });
  const error failure = thrown([&] { one.driver->ask(driven_world::moved(device, one.on_devices())).get(); });
  INFO(to_string(failure));
  CHECK(failure.effect == effect::unknown_outcome);
  for (const auto until = std::chrono::steady_clock::now() + 30s;
       (one.driver->epoch() < epoch{2} || one.driver->status().phase != world_phase::ready) &&
       std::chrono::steady_clock::now() < until;)
    std::this_thread::sleep_for(1ms);
  REQUIRE(one.driver->status().phase == world_phase::ready);
  CHECK(one.driver->status().resume != nullptr);
  {
    const std::lock_guard lock{guard};
    REQUIRE_FALSE(heard.empty());
    CHECK(std::ranges::any_of(heard, [](const auto& now) { return now.phase != world_phase::ready && now.reason; }));
    CHECK(heard.back().epoch == epoch{2});
  }
  CHECK(thrown([&] { one.driver->replay("steps").get(); }).code == errc::invalid_argument);
  one.driver->capture("steps", {driven_world::sum(device)}).get();
  one.driver->replay("steps").get();
}

TEST_CASE("a driver's listeners are not told of the end of the driver itself", "[runtime][drivers]") {
  driven_world one;
  std::atomic<int> ends{0};
  one.driver->on_event([&](const world_event& now) { ends += now.phase == world_phase::stopped ? 1 : 0; });
  one.driver.reset();
  CHECK(ends == 0);
}

TEST_CASE("a driver that cannot reach a controller gives up, and answers", "[runtime][drivers]") {
  configuration settings = mock_settings(1);
  {
    controller gone{driven_world::options()};
    settings.control = {.address = gone.address(), .patience = 200ms};
  }
  settings.control.assignment.token = token;
  world_driver driver{settings};
  const world_event now = driver.wait_ready(20s);
  CHECK(now.phase == world_phase::stopped);
  CHECK(now.phase != world_phase::ready);
  CHECK(now.reason);
  CHECK(thrown([&] { static_cast<void>(driver.find_memory(rank{0}, "values").get()); }));
  CHECK(thrown([&] { driver.capture("steps", {}).get(); }));
  CHECK(thrown([&] { static_cast<void>(driver.metrics(rank{0}).get()); }));
}

TEST_CASE("a driver with another token is refused", "[runtime][drivers][SEC-1]") {
  controller control{driven_world::options()};
  configuration settings = mock_settings(1);
  settings.control = {.address = control.address(), .patience = 5s};
  settings.control.assignment.token = "another secret than theirs";
  world_driver driver{settings};
  const world_event now = driver.wait_ready(20s);
  CHECK(now.phase == world_phase::stopped);
  CHECK_THAT(now.reason.text, ContainsSubstring("token"));
  CHECK_THAT(now.reason.text, !ContainsSubstring("secret"));
}

TEST_CASE("a driver orders values, and hears those that the ranks agree on", "[drivers][agree]") {
  driven_world all;
  std::mutex guard;
  std::vector<std::pair<std::string, agreed_value>> heard;
  all.driver->on_agreed([&](const std::string& where, const agreed_value& value) {
    const std::lock_guard lock{guard};
    heard.emplace_back(where, value);
  });
  const completion first = all.driver->agree("first").get();
  REQUIRE(first.agreed);
  CHECK(first.agreed->text() == "first");
  std::vector<std::future<completion>> replies;
  std::vector<rank_lane> lanes;
  for (int r = 0; r < 2; ++r) {
    lanes.emplace_back(*all.ranks[static_cast<std::size_t>(r)]->where, rank{r}, lane::named("driver test agree"));
    replies.push_back(lanes.back().agree(agreement_rule::sum, r + 1));
  }
  for (auto& one : replies) CHECK(one.get().agreed->integer() == 3);
  CHECK(comes_true([&] {
    const std::lock_guard lock{guard};
    return heard.size() == 2;
  }));
  const std::lock_guard lock{guard};
  CHECK(heard.front().second == *first.agreed);
  CHECK(heard.back().first == "driver test agree");
  CHECK(heard.back().second.integer() == 3);
  const error why = failure_of(
      all.driver->ask(std::vector<operation>(2, agree{.value = std::vector<std::byte>(most_contributed_bytes + 1)})));
  CHECK(why.code == errc::invalid_argument);
}

} // namespace troupe::tests::world_driver_test
