/// Processes join a world that serves: the next epoch is prepared beside the present one, and the world switches to it
/// without refusing a request (docs/design/0117-planned-change.md). Here each "process" is a runtime of this one.
#include "support/comes_true.hpp"
#include "support/drivers.hpp"

#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::planned_change_test {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr std::size_t count = 64;
constexpr const char* secret = "a secret of these tests";

controller_options options_of(int size) {
  controller_options made{.terms = {.world_size = size}};
  made.terms.recovery.policy = recovery_policy::shrink;
  made.terms.token = secret;
  made.terms.suspicion = 10s; // this machine may be busy
  return made;
}

configuration settings_of(const controller& control, int place, const std::string& name, int attempt = 0,
                          backend_choice used = backend_choice::mock) {
  configuration made;
  made.backend = used;
  made.profile = latency_profile::frugal;
  made.limits.one_shot_bytes = 0;
  made.mock.devices = 1;
  made.log_level = "off";
  made.control = {.address = control.address(), .planned_changes = true, .patience = 10s};
  made.control.assignment = {.token = secret, .name = name, .place = place, .attempt = attempt};
  made.deadlines.abort = 5s;
  return made;
}

configuration driver_settings_of(const controller& control) {
  configuration made;
  made.backend = backend_choice::mock;
  made.profile = latency_profile::frugal;
  made.log_level = "off";
  made.control = {.address = control.address(), .patience = 10s};
  made.control.assignment.token = secret;
  return made;
}

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
  [[nodiscard]] bool is_ready(epoch after, int size) {
    return comes_true(
        [&] {
          const world_event now = in().status();
          return now.phase == world_phase::ready && now.epoch > after && now.world_size == size;
        },
        60s);
  }

private:
  std::unique_ptr<runtime> runtime_;
  std::future<world> world_;
  std::optional<world> formed_;
};

/// The events of a controller.
class control_log {
public:
  [[nodiscard]] controller::hooks hooks() {
    return {.heard = [this](const control_event& one) {
      const std::lock_guard lock{mutex_};
      all_.push_back(one);
    }};
  }
  [[nodiscard]] std::size_t count(const std::function<bool(const control_event&)>& which) const {
    const std::lock_guard lock{mutex_};
    return static_cast<std::size_t>(std::ranges::count_if(all_, which));
  }

private:
  mutable std::mutex mutex_;
  std::vector<control_event> all_;
};

/// Where all clients of a lane stop: at the same request, because a request waits for all ranks.
class course {
public:
  /// \p pinned: whether the clients' memory is pinned host memory, so that they can also read that of GPUs.
  explicit course(bool pinned = false) : is_pinned{pinned} {}

  const bool is_pinned;
  [[nodiscard]] bool goes_on(std::uint64_t index) {
    const std::lock_guard lock{mutex_};
    if (index >= end_) return false;
    furthest_ = std::max(furthest_, index + 1);
    return true;
  }
  void end() {
    const std::lock_guard lock{mutex_};
    end_ = furthest_;
  }
  /// Notes what a client was refused, which ends its part of the course.
  void note(const error& refused) {
    const std::lock_guard lock{mutex_};
    refused_ += (refused_.empty() ? "" : "; ") + to_string(refused);
  }
  [[nodiscard]] std::string refused() const {
    const std::lock_guard lock{mutex_};
    return refused_;
  }

private:
  mutable std::mutex mutex_;
  std::string refused_;
  std::uint64_t furthest_ = 0;
  std::uint64_t end_ = std::numeric_limits<std::uint64_t>::max();
};

/// A sum that has ended, and how long it took.
struct summed {
  std::uint64_t index = 0;
  epoch in{};
  float value = 0;
  bool is_uniform = false;
  nanoseconds took{};
};

/// Asks a rank for sums, several at a time.
class load {
public:
  load(world& where, epoch acknowledged, std::uint64_t first, course& with)
    : with_{with}, thread_{[this, &where, acknowledged, first] { run(where, acknowledged, first, with_); }} {}
  load(const load&) = delete;
  load& operator=(const load&) = delete;
  ~load() {
    with_.end();
    if (thread_.joinable()) join();
  }

  /// Waits for the end of the course.
  void join() { thread_.join(); }
  /// Waits until this client has had some sums.
  void await_some() const {
    constexpr std::uint64_t some = 50;
    static_cast<void>(comes_true([&] { return done() > some; }, 30s));
    INFO(with_.refused());
    REQUIRE(done() > some);
  }
  [[nodiscard]] const std::vector<summed>& sums() const { return sums_; }
  [[nodiscard]] const std::vector<error>& refused() const { return refused_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }

private:
  struct pending {
    std::uint64_t index = 0;
    steady::time_point asked{};
    buffer memory{};
    std::future<completion> reply{};
  };

  void run(world& where, epoch acknowledged, std::uint64_t first, course& with) {
    const rank self = where.local_ranks().front();
    rank_lane mine{where, self, lane::named("planned load")};
    mine.acknowledge(acknowledged);
    std::array<pending, 4> all;
    for (pending& one : all)
      one.memory =
          with.is_pinned ? where.allocate_pinned(count * sizeof(float)) : where.allocate(self, count * sizeof(float));
    std::uint64_t next = first;
    const auto take = [&](pending& one) {
      if (!one.reply.valid()) return;
      try {
        const completion done = one.reply.get();
        const auto* const values = reinterpret_cast<const float*>(one.memory.data());
        sums_.push_back(
            {.index = one.index,
             .in = done.epoch,
             .value = values[0],
             .is_uniform = std::all_of(values, values + count, [&](float each) { return each == values[0]; }),
             .took = steady::now() - one.asked});
        ++done_;
      } catch (const exception& failure) {
        refused_.push_back(failure.why());
        with.note(failure.why());
      }
    };
    for (; refused_.empty() && with.goes_on(next); ++next) {
      pending& one = all[next % all.size()];
      take(one);
      std::this_thread::sleep_for(1ms); // some are always on their way, and other tests get something of the cores
      one.index = next;
      const auto value = static_cast<float>((next % 64) * 8) + static_cast<float>(where.local_ranks().front().value());
      std::fill_n(reinterpret_cast<float*>(one.memory.data()), count, value);
      one.asked = steady::now();
      one.reply = mine.all_reduce(one.memory, one.memory, count, dtype::f32, reduction::sum, {.deadline = 30s});
    }
    for (std::size_t i = 0; i < all.size(); ++i) take(all[(next + i) % all.size()]);
  }

  course& with_;
  std::vector<summed> sums_;
  std::vector<error> refused_;
  std::atomic<std::uint64_t> done_{0};
  std::thread thread_;
};

/// Asks all ranks for barriers, one after another, each made for the ranks that the world has then.
class whole_load {
public:
  template <class Asker>
  explicit whole_load(Asker& by)
    : thread_{[this, &by] {
        while (!is_over_) try {
            const auto size = static_cast<std::size_t>(by.status().world_size);
            const auto asked = steady::now();
            static_cast<void>(by.ask(std::vector<operation>(size, barrier{}), {.deadline = 30s}).get());
            ++done;
            const std::lock_guard lock{mutex_};
            took_.push_back(steady::now() - asked);
          } catch (const exception& failure) {
            const error& why = failure.why();
            const bool is_outgrown = why.code == errc::invalid_argument && why.effect == effect::rejected;
            if (is_outgrown)
              ++outgrown;
            else
              refused.push_back(why);
          }
      }} {}
  void end() {
    is_over_ = true;
    thread_.join();
  }

  /// Returns the times of the requests that have ended since the last call.
  [[nodiscard]] std::vector<nanoseconds> take_times() {
    const std::lock_guard lock{mutex_};
    return std::exchange(took_, {});
  }

  int done = 0;
  int outgrown = 0; ///< Requests that were made for fewer ranks, while the world got another.
  std::vector<error> refused;

private:
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::vector<nanoseconds> took_;
  std::thread thread_;
};

/// The sum of the ranks' values at \p index, in a world of \p size.
float expected_sum(std::uint64_t index, int size) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += static_cast<float>((index % 64) * 8) + static_cast<float>(r);
  return sum;
}

/// Checks each sum, and that each request was done once, in its order.
void check_sums(const load& of, std::uint64_t first, const std::map<epoch, int>& sizes) {
  for (const error& why : of.refused()) FAIL_CHECK(to_string(why));
  std::size_t wrong = 0;
  std::uint64_t next = first;
  for (const summed& one : of.sums()) {
    const auto size = sizes.find(one.in);
    const bool is_right = size != sizes.end() && one.is_uniform && one.index == next &&
                          one.value == expected_sum(one.index, size->second);
    if (!is_right && wrong++ == 0)
      FAIL_CHECK("request " << one.index << " (" << next << " was next) of epoch " << to_string(one.in) << " gave "
                            << one.value);
    ++next;
  }
  CHECK(wrong == 0);
}

std::uint64_t complete_in(const world_event& now) {
  const resume_point* const found = now.resume ? find_point(*now.resume, lane::named("planned load")) : nullptr;
  return found != nullptr ? found->complete : 0;
}

/// A world of four that has lost two processes, and serves in an epoch of two ranks.
struct halved_world {
  explicit halved_world(backend_choice with = backend_choice::mock) : used{with} {
    for (member* const one : {&first, &second, third.get(), fourth.get()}) REQUIRE(one->is_ready(epoch{0}, 4));
    for (const char* const name : {"3", "2"}) {
      control.process_ended(name, ::getpid(), "the test says so");
      REQUIRE(first.is_ready(epoch{1}, name[0] == '3' ? 3 : 2));
    }
    REQUIRE(second.is_ready(epoch{2}, 2));
    third.reset();
    fourth.reset();
    began = first.in().epoch();
    sizes = {{began, 2}};
  }

  [[nodiscard]] configuration settings(int place, const std::string& name, int attempt = 0) const {
    return settings_of(control, place, name, attempt, used);
  }

  const backend_choice used;
  control_log log;
  controller control{options_of(4), log.hooks()};
  member first{settings(0, "0")}, second{settings(1, "1")};
  std::unique_ptr<member> third = std::make_unique<member>(settings(2, "2"));
  std::unique_ptr<member> fourth = std::make_unique<member>(settings(3, "3"));
  epoch began{};
  std::map<epoch, int> sizes; ///< Of the epochs since then.
};

} // namespace

TEST_CASE("processes join a world under load as planned: no request is refused, and positions and epochs go on",
          "[processes][planned][gloo][ONE-1][ORD-1][CUT-1]") {
  halved_world scene{GENERATE(backend_choice::mock, backend_choice::gloo)};
  course all;
  std::vector<std::unique_ptr<load>> loads;
  std::vector<std::uint64_t> firsts{0, 0};
  for (member* const one : {&scene.first, &scene.second})
    loads.push_back(std::make_unique<load>(one->in(), scene.began, 0, all));
  // Also requests to the whole world, by a rank's process and by a driver.
  world_driver driver{driver_settings_of(scene.control)};
  REQUIRE(driver.wait_ready(20s).phase == world_phase::ready);
  whole_load by_rank{scene.first.in()}, by_driver{driver};
  std::vector<std::unique_ptr<member>> newcomers;
  for (const int size : {3, 4}) {
    const std::uint64_t before = loads.front()->done();
    REQUIRE(comes_true([&] { return loads.front()->done() > before + 50; }, 30s));
    const epoch last = scene.first.in().epoch();
    newcomers.push_back(std::make_unique<member>(scene.settings(size - 1, std::to_string(size - 1) + "b", 1)));
    member& made = *newcomers.back();
    REQUIRE(made.is_ready(last, size));
    REQUIRE(scene.first.is_ready(last, size));
    scene.sizes.emplace(made.in().epoch(), size);
    firsts.push_back(complete_in(made.in().status()));
    loads.push_back(std::make_unique<load>(made.in(), made.in().epoch(), firsts.back(), all));
    loads.back()->await_some();
  }
  all.end();
  for (const auto& one : loads) one->join();
  by_rank.end();
  by_driver.end();
  for (std::size_t i = 0; i < loads.size(); ++i) {
    INFO("client " << i);
    check_sums(*loads[i], firsts[i], scene.sizes);
  }
  for (whole_load* const one : {&by_rank, &by_driver}) {
    for (const error& why : one->refused) FAIL_CHECK(to_string(why));
    CHECK(one->done > 0);
  }
}

TEST_CASE("a process that cannot form the prepared epoch leaves the world unharmed",
          "[processes][planned][gloo][ONE-1]") {
  halved_world scene{GENERATE(backend_choice::mock, backend_choice::gloo)};
  course all;
  load one{scene.first.in(), scene.began, 0, all}, other{scene.second.in(), scene.began, 0, all};
  one.await_some();
  const auto script = std::make_shared<testing::fault_script>();
  script->on(rank{2}).forming(0).fail(errc::communicator_failed);
  configuration settings = scene.settings(2, "2b", 1);
  settings.faults = script;
  const epoch last = scene.first.in().epoch();
  member newcomer{settings};
  REQUIRE(comes_true(
      [&] {
        return scene.log.count([](const control_event& each) {
          return each.phase == control_phase::serving && each.reason.text.find("planned change") != std::string::npos;
        }) > 0;
      },
      30s));
  // It goes on, until the next attempt, which may have succeeded by now: then the requests wait for the new client.
  const std::uint64_t before = one.done();
  REQUIRE(comes_true([&] { return one.done() > before + 50 || scene.first.in().epoch() > last; }, 30s));
  // The next attempt succeeds.
  REQUIRE(newcomer.is_ready(last, 3));
  REQUIRE(scene.first.is_ready(last, 3));
  scene.sizes.emplace(newcomer.in().epoch(), 3);
  const std::uint64_t first = complete_in(newcomer.in().status());
  load third{newcomer.in(), newcomer.in().epoch(), first, all};
  third.await_some();
  all.end();
  for (load* const each : {&one, &other, &third}) each->join();
  check_sums(one, 0, scene.sizes);
  check_sums(other, 0, scene.sizes);
  check_sums(third, first, scene.sizes);
}

TEST_CASE(
    "a rank leaves a world under load as planned, and a process that stands by takes a place: the others lose nothing",
    "[processes][planned][gloo][ONE-1][ORD-1]") {
  const auto used = GENERATE(backend_choice::mock, backend_choice::gloo);
  control_log log;
  controller control{options_of(3), log.hooks()};
  std::vector<std::unique_ptr<member>> ranks;
  for (int place = 0; place < 3; ++place)
    ranks.push_back(std::make_unique<member>(settings_of(control, place, std::to_string(place), 0, used)));
  for (const auto& one : ranks) REQUIRE(one->is_ready(epoch{0}, 3));
  const epoch began = ranks[0]->in().epoch();
  std::map<epoch, int> sizes{{began, 3}};
  course all;
  std::vector<std::unique_ptr<load>> loads;
  for (const auto& one : ranks) loads.push_back(std::make_unique<load>(one->in(), began, 0, all));
  loads[0]->await_some();

  REQUIRE_THROWS_AS(control.leave(0).get(), exception); // the others would get other numbers
  control.leave(2).get();
  REQUIRE(ranks[0]->is_ready(began, 2));
  REQUIRE(ranks[1]->is_ready(began, 2));
  sizes.emplace(ranks[0]->in().epoch(), 2);
  loads[2]->join();
  // Its own clients are told. What was launched has ended well.
  REQUIRE_FALSE(loads[2]->refused().empty());
  for (const error& why : loads[2]->refused()) CHECK(why.effect == effect::rejected);
  CHECK(comes_true([&] { return ranks[2]->in().status().phase == world_phase::stopped; }, 30s));
  std::uint64_t before = loads[0]->done();
  REQUIRE(comes_true([&] { return loads[0]->done() > before + 50; }, 30s));

  // The first process that stands by takes the free place, the second one that of rank 1 when that leaves.
  std::vector<std::unique_ptr<member>> spares;
  std::vector<std::unique_ptr<load>> taken_over;
  std::vector<std::uint64_t> firsts;
  for (const int at : {2, 1}) {
    configuration settings = settings_of(control, at, "s" + std::to_string(at), 0, used);
    settings.control.assignment.spare = true;
    const epoch last = ranks[0]->in().epoch();
    spares.push_back(std::make_unique<member>(settings));
    if (at == 1) {
      REQUIRE(comes_true([&] { return log.count([](const control_event& one) { return one.spares > 0; }) > 0; }, 30s));
      control.leave(1).get();
    }
    member& made = *spares.back();
    REQUIRE(made.is_ready(last, 3));
    REQUIRE(ranks[0]->is_ready(last, 3));
    CHECK(made.in().local_ranks().front() == rank{at});
    sizes.emplace(made.in().epoch(), 3);
    firsts.push_back(complete_in(made.in().status()));
    taken_over.push_back(std::make_unique<load>(made.in(), made.in().epoch(), firsts.back(), all));
    taken_over.back()->await_some();
  }
  loads[1]->join();
  before = loads[0]->done();
  REQUIRE(comes_true([&] { return loads[0]->done() > before + 50; }, 30s));
  all.end();
  loads[0]->join();
  check_sums(*loads[0], 0, sizes);
  for (std::size_t i = 0; i < taken_over.size(); ++i) {
    taken_over[i]->join();
    check_sums(*taken_over[i], firsts[i], sizes);
  }
  for (const std::size_t gone : {1U, 2U})
    for (const error& why : loads[gone]->refused()) CHECK(why.effect == effect::rejected);
}

TEST_CASE("processes leave by their own request, by that of a driver, and with their host, and come as a driver asks",
          "[processes][planned][drivers][ONE-1][SEC-2]") {
  controller control{options_of(4)};
  const auto on_host = [&](int place, const std::string& host, int attempt) {
    configuration made = settings_of(control, place, std::to_string(place) + (attempt > 0 ? "b" : ""), attempt);
    made.control.assignment.host = host;
    return std::make_unique<member>(made);
  };
  std::vector<std::unique_ptr<member>> ranks;
  for (int place = 0; place < 4; ++place) ranks.push_back(on_host(place, place < 2 ? "left" : "right", 0));
  for (const auto& one : ranks) REQUIRE(one->is_ready(epoch{0}, 4));
  course all;
  std::vector<std::unique_ptr<load>> loads;
  for (const std::size_t place : {0U, 1U})
    loads.push_back(std::make_unique<load>(ranks[place]->in(), epoch{1}, 0, all));
  // The others ask as long as they are ranks.
  std::vector<std::unique_ptr<load>> leaving;
  for (const std::size_t place : {2U, 3U})
    leaving.push_back(std::make_unique<load>(ranks[place]->in(), epoch{1}, 0, all));
  std::map<epoch, int> sizes{{epoch{1}, 4}};
  const auto change_to = [&](int size, const std::function<void()>& change) {
    const epoch last = ranks[0]->in().epoch();
    const std::uint64_t before = loads[0]->done();
    REQUIRE(comes_true([&] { return loads[0]->done() > before + 20; }, 30s));
    change();
    for (const std::size_t place : {0U, 1U}) REQUIRE(ranks[place]->is_ready(last, size));
    sizes.emplace(ranks[0]->in().epoch(), size);
  };
  const auto code_of = [](auto answer) {
    try {
      static_cast<void>(answer.get());
      return errc::none;
    } catch (const exception& failure) {
      CHECK(failure.why().effect == effect::rejected);
      return failure.why().code;
    }
  };

  world_driver driver{driver_settings_of(control)};
  REQUIRE(driver.wait_ready(20s).phase == world_phase::ready);
  world_processes now = driver.processes().get();
  REQUIRE(now.size() == 4);
  CHECK(now[3].self == rank{3});
  CHECK(now[3].host == "right");
  CHECK(code_of(driver.leave(7)) == errc::invalid_argument);
  CHECK(code_of(driver.drain("elsewhere")) == errc::invalid_argument);
  CHECK(code_of(driver.drain("left")) == errc::invalid_argument); // others would get other numbers
  CHECK(code_of(driver.join(1)) == errc::invalid_argument);
  CHECK(code_of(ranks[1]->in().leave()) == errc::invalid_argument);
  {
    configuration settings = driver_settings_of(control);
    settings.control.assignment.token = "another secret of these tests";
    world_driver stranger{settings};
    CHECK(stranger.wait_ready(20s).phase == world_phase::stopped);
    CHECK(code_of(stranger.drain("right")) == errc::rebuilding);
  }
  CHECK(ranks[0]->in().epoch() == epoch{1});

  change_to(3, [&] { CHECK(code_of(ranks[3]->in().leave()) == errc::none); });
  CHECK(comes_true([&] { return ranks[3]->in().status().phase == world_phase::stopped; }, 30s));
  change_to(2, [&] { CHECK(code_of(driver.drain("right")) == errc::none); });
  for (auto& one : leaving) {
    one->join();
    for (const error& why : one->refused()) CHECK(why.effect == effect::rejected);
  }
  CHECK(driver.processes().get().size() <= 3); // one may not have ended yet
  // No rank would remain. The controller may not know yet that the world serves again.
  CHECK(comes_true([&] { return code_of(driver.drain("left")) == errc::invalid_argument; }, 30s));

  std::future<world_processes> joined = driver.join();
  std::unique_ptr<member> made;
  std::unique_ptr<load> third;
  change_to(3, [&] {
    CHECK(joined.wait_for(0s) == std::future_status::timeout);
    made = on_host(2, "right", 1);
    now = joined.get();
    third = std::make_unique<load>(made->in(), made->in().epoch(), complete_in(made->in().status()), all);
  });
  CHECK(std::ranges::count_if(now, [](const world_process& one) { return one.self.has_value(); }) == 3);
  REQUIRE(comes_true([&] { return third->done() > 20; }, 30s));
  all.end();
  for (auto& one : loads) {
    one->join();
    check_sums(*one, 0, sizes);
  }
  third->join();
  for (const error& why : third->refused()) FAIL_CHECK(to_string(why));
}

TEST_CASE("after a planned change sub-worlds and plans for the former ranks have ended, and registered memory is back",
          "[processes][planned][splits][plans][registered]") {
  constexpr std::size_t registered_bytes = std::size_t{1} << 16U;
  controller control{options_of(3)};
  std::vector<std::unique_ptr<member>> ranks;
  for (int place = 0; place < 3; ++place)
    ranks.push_back(std::make_unique<member>(settings_of(control, place, std::to_string(place))));
  for (const auto& one : ranks) REQUIRE(one->is_ready(epoch{0}, 3));
  const auto each = [&](const std::function<void(world&, std::size_t)>& work) {
    std::vector<std::future<void>> all;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      all.push_back(std::async(std::launch::async, [&, i] { work(ranks[i]->in(), i); }));
    for (auto& one : all) one.get();
  };
  const std::vector<rank_group> groups{{"pair", {rank{0}, rank{1}}}};
  std::vector<std::optional<world>> pairs(3);
  std::vector<std::shared_ptr<captured_plan>> plans(3);
  each([&](world& in, std::size_t i) {
    in.register_memory(registered_bytes);
    pairs[i] = in.split(groups).front().handle;
    plans[i] = in.capture(plan_steps{{barrier{}}}, {.name = "beat"});
  });
  REQUIRE(pairs[0]);
  const auto check_barriers = [&](const std::function<operation(std::size_t)>& what) {
    CHECK_NOTHROW(each([&](world& in, std::size_t i) {
      const rank self = in.local_ranks().front();
      rank_request asked{.what = what(i), .epoch = in.epoch(), .deadline = 30s, .lane = lane::named("parts")};
      in.ask(self, std::move(asked)).get();
    }));
  };
  check_barriers([&](std::size_t i) { return operation{replay{plans[i]}}; });
  control.leave(2).get();
  ranks.pop_back();
  for (const auto& one : ranks) REQUIRE(one->is_ready(epoch{1}, 2));
  CHECK(comes_true([&] { return pairs[0]->status().phase == world_phase::failed; }, 30s));
  CHECK(pairs[0]->status().reason.text.find("split it again") != std::string::npos);
  each([&](world& in, std::size_t i) { pairs[i] = in.split(groups).front().handle; });
  std::vector<std::future<void>> beats;
  for (const int i : {0, 1})
    beats.push_back(std::async(std::launch::async, [&, i] {
      rank_lane mine{*pairs[static_cast<std::size_t>(i)], rank{i}, lane::named("of the pair")};
      mine.barrier({.deadline = 30s}).get();
    }));
  for (auto& one : beats) CHECK_NOTHROW(one.get());
  for (const auto& one : ranks) {
    const auto is_in = [&](restored_kind kind, restored_state state) {
      const auto restored = one->in().status().restored;
      return restored && std::ranges::any_of(*restored, [&](const restored_part& part) {
               return part.kind == kind && part.state == state;
             });
    };
    CHECK(comes_true([&] { return is_in(restored_kind::registration, restored_state::back); }, 30s));
    CHECK(comes_true([&] { return is_in(restored_kind::plan, restored_state::lost); }, 30s)); // it was for three ranks
    CHECK(one->in().registered_memory().size_bytes == registered_bytes);
  }
  each([&](world& in, std::size_t i) { plans[i] = in.capture(plan_steps{{barrier{}}}, {.name = "beat"}); });
  check_barriers([&](std::size_t i) { return operation{replay{plans[i]}}; });
}

namespace {

/// What a planned change costs the requests beside it.
struct change_cost {
  nanoseconds longest{}; ///< Of the requests to the whole world during the change.
  double rate = 0;       ///< Of these requests, compared with the time before.
};

/// Prints the 50th and 95th percentile, and the worst.
void print(const std::string& what, const std::vector<change_cost>& all) {
  const auto line = [&](const char* name, auto of, bool is_low_bad) {
    std::vector<double> values;
    for (const change_cost& one : all) values.push_back(of(one));
    std::ranges::sort(values);
    if (is_low_bad) std::ranges::reverse(values);
    const auto at = [&](std::size_t percent) { return values[(values.size() - 1) * percent / 100]; };
    std::printf("%-6s %-28s p50 %9.2f  p95 %9.2f  worst %9.2f\n", what.c_str(), name, at(50), at(95), values.back());
  };
  line(
      "longest request, ms", [](const change_cost& one) { return static_cast<double>(one.longest.count()) / 1e6; },
      false);
  line(
      "rate, of that before, %", [](const change_cost& one) { return 100 * one.rate; }, true);
}

} // namespace

// Not run by default: troupe_membership_tests "[planned-figures]". Needs a quiet machine; NCCL needs three GPUs.
TEST_CASE("figures of planned changes", "[.][planned-figures]") {
  const auto used = GENERATE(backend_choice::mock, backend_choice::gloo, backend_choice::nccl);
  const bool is_gpu = used == backend_choice::nccl;
  if (is_gpu) static_cast<void>(gpus(3));
  controller control{options_of(3)};
  const auto settings = [&](int place, const std::string& name, int attempt) {
    configuration made = settings_of(control, place, name, attempt, used);
    if (is_gpu) made.control.assignment.device = place;
    return made;
  };
  constexpr int cycles = 20;
  const auto slow = std::make_shared<testing::fault_script>(); // so that the rate meanwhile can be seen
  for (std::uint64_t i = 1; i <= 3 * cycles; ++i) slow->on(rank{0}).forming(i).delay(500ms);
  configuration of_first = settings(0, "0", 0);
  of_first.faults = slow;
  member first{of_first}, second{settings(1, "1", 0)};
  auto third = std::make_unique<member>(settings(2, "2", 0));
  for (member* const one : {&first, &second, third.get()}) REQUIRE(one->is_ready(epoch{0}, 3));
  whole_load asker{first.in()};
  std::map<std::string, std::vector<change_cost>> all;
  const auto measure = [&](const std::string& kind, const std::function<void()>& change) {
    static_cast<void>(asker.take_times());
    const auto before = steady::now();
    std::this_thread::sleep_for(300ms);
    const auto began = steady::now();
    const double usual =
        static_cast<double>(asker.take_times().size()) / std::chrono::duration<double>(began - before).count();
    change();
    const auto ended = steady::now();
    const std::vector<nanoseconds> times = asker.take_times();
    const double rate = static_cast<double>(times.size()) / std::chrono::duration<double>(ended - began).count();
    all[kind].push_back(
        {.longest = times.empty() ? ended - began : *std::ranges::max_element(times), .rate = rate / usual});
  };
  for (int i = 0; i < cycles; ++i) {
    const epoch last = first.in().epoch();
    measure("leave", [&] { control.leave(2).get(); });
    REQUIRE(first.is_ready(last, 2));
    third = nullptr;
    const epoch small = first.in().epoch();
    measure("join", [&] {
      third = std::make_unique<member>(settings(2, "2." + std::to_string(i), i + 1));
      REQUIRE(third->is_ready(small, 3));
    });
    REQUIRE(first.is_ready(small, 3));
    if (is_gpu) continue; // two processes of one world do not share a GPU
    configuration made = settings(2, "s" + std::to_string(i), 0);
    made.control.assignment.spare = true;
    auto spare = std::make_unique<member>(made);
    const auto stands_by = [&] {
      return std::ranges::any_of(control.change({}).get(), [](const world_process& one) { return !one.place; });
    };
    REQUIRE(comes_true(stands_by, 30s));
    const epoch full = first.in().epoch();
    measure("replace", [&] {
      control.leave(2).get();
      REQUIRE(spare->is_ready(full, 3));
    });
    REQUIRE(first.is_ready(full, 3));
    third = std::move(spare);
  }
  asker.end();
  for (const error& why : asker.refused) FAIL_CHECK(to_string(why));
  const std::string name{to_string(used)};
  for (const auto& [kind, costs] : all) print(name + " " + kind, costs);
  std::printf("%s: %d requests were made for another number of ranks\n", name.c_str(), asker.outgrown);
}

// Not run by default: troupe_membership_tests "[pause-figures]". NCCL needs two GPUs.
TEST_CASE("figures of changes to and from one rank, for which the world pauses", "[.][pause-figures]") {
  const auto used = GENERATE(backend_choice::mock, backend_choice::nccl);
  const bool is_gpu = used == backend_choice::nccl;
  if (is_gpu) static_cast<void>(gpus(2));
  controller control{options_of(2)};
  const auto enter = [&](int place, int attempt) {
    configuration made =
        settings_of(control, place, std::to_string(place) + "." + std::to_string(attempt), attempt, used);
    if (is_gpu) made.control.assignment.device = place;
    return std::make_unique<member>(made);
  };
  const auto first = enter(0, 0);
  auto second = enter(1, 0);
  for (const auto& one : {first.get(), second.get()}) REQUIRE(one->is_ready(epoch{0}, 2));
  std::atomic<bool> is_over{false};
  std::atomic<std::int64_t> longest_ns{0}; // between two results
  std::thread asking{[&] {
    for (auto last = steady::now(); !is_over;) try {
        const auto size = static_cast<std::size_t>(first->in().status().world_size);
        static_cast<void>(first->in().ask(std::vector<operation>(size, barrier{}), {.deadline = 30s}).get());
        const auto now = steady::now();
        longest_ns = std::max(longest_ns.load(), nanoseconds{now - last}.count());
        last = now;
      } catch (const exception&) { // it ends with its epoch
        std::this_thread::sleep_for(100us);
      }
  }};
  std::map<std::string, std::vector<double>> pauses;
  const auto measure = [&](const std::string& kind, int size, const std::function<void()>& change) {
    std::this_thread::sleep_for(100ms);
    const epoch last = first->in().epoch();
    longest_ns = 0;
    change();
    REQUIRE(first->is_ready(last, size));
    std::this_thread::sleep_for(100ms);
    pauses[kind].push_back(static_cast<double>(longest_ns) / 1e6);
  };
  for (int i = 0; i < 20; ++i) {
    measure("2 to 1", 1, [&] { control.leave(1).get(); });
    second = nullptr;
    measure("1 to 2", 2, [&] { second = enter(1, i + 1); });
  }
  is_over = true;
  asking.join();
  for (auto& [kind, all] : pauses) {
    std::ranges::sort(all);
    std::printf("%s %s: pause p50 %.1f ms, p95 %.1f ms\n", std::string{to_string(used)}.c_str(), kind.c_str(),
                all[all.size() / 2], all[all.size() * 95 / 100]);
  }
}

TEST_CASE("a world on GPUs changes its ranks as planned, and ends its epoch for that to and from one rank",
          "[processes][planned][gpu][ONE-1][ORD-1]") {
  const int size = std::min(gpus(2)->device_count(), 3);
  controller control{options_of(size)};
  const auto on_gpu = [&](int place, int attempt) {
    configuration made = settings_of(control, place, std::to_string(place) + "." + std::to_string(attempt), attempt,
                                     backend_choice::nccl);
    made.control.assignment.device = place;
    return std::make_unique<member>(made);
  };
  std::vector<std::unique_ptr<member>> ranks;
  for (int place = 0; place < size; ++place) ranks.push_back(on_gpu(place, 0));
  for (const auto& one : ranks) REQUIRE(one->is_ready(epoch{0}, size));
  const auto change = [&](int to, const std::function<void()>& how) {
    const epoch last = ranks[0]->in().epoch();
    how();
    for (int place = 0; place < to; ++place) REQUIRE(ranks[static_cast<std::size_t>(place)]->is_ready(last, to));
  };
  const auto leave = [&] {
    control.leave(static_cast<int>(ranks.size()) - 1).get();
    ranks.pop_back();
  };
  const auto join = [&] { ranks.push_back(on_gpu(static_cast<int>(ranks.size()), 1)); };
  const auto serve = [&] {
    course all{true};
    const epoch now = ranks[0]->in().epoch();
    std::vector<std::unique_ptr<load>> loads;
    for (const auto& one : ranks) loads.push_back(std::make_unique<load>(one->in(), now, 0, all));
    loads.back()->await_some();
    all.end();
    for (const auto& one : loads) one->join();
    for (const auto& one : loads) check_sums(*one, 0, {{now, static_cast<int>(ranks.size())}});
  };
  if (size > 2) { // the next epoch is prepared beside the present one, and nothing is refused
    course all{true};
    const epoch began = ranks[0]->in().epoch();
    std::map<epoch, int> sizes{{began, 3}};
    std::vector<std::unique_ptr<load>> loads;
    for (const auto& one : ranks) loads.push_back(std::make_unique<load>(one->in(), began, 0, all));
    loads[0]->await_some();
    change(2, [&] { control.leave(2).get(); });
    loads[2]->join();
    ranks.pop_back();
    sizes.emplace(ranks[0]->in().epoch(), 2);
    change(3, join);
    sizes.emplace(ranks[0]->in().epoch(), 3);
    const std::uint64_t first = complete_in(ranks[2]->in().status());
    load third{ranks[2]->in(), ranks[2]->in().epoch(), first, all};
    third.await_some();
    all.end();
    for (const std::size_t i : {0U, 1U}) {
      loads[i]->join();
      check_sums(*loads[i], 0, sizes);
    }
    third.join();
    check_sums(third, first, sizes);
    change(2, leave);
  }
  serve();
  change(1, leave); // a single rank has no order over processes, which could be held
  serve();
  change(2, join);
  serve();
}

} // namespace troupe::tests::planned_change_test
