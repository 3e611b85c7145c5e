// A runtime in an actor system that was there before it and goes on after it.
#include "processes/membership/heard_log.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>

#include <caf/actor_registry.hpp>
#if TROUPE_TEST_CAF_IO
#include <caf/io/middleman.hpp>
#endif
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::guest_test {

namespace {

using Catch::Matchers::ContainsSubstring;

/// An actor of the host's own, which asks a world once and goes on listening.
class host_actor final : public listener_handle::base {
public:
  host_actor(caf::actor_config& settings, int* heard, std::promise<void>* told)
    : listener_handle::base{settings}, heard_{heard}, done_{told} {}

  behavior_type make_behavior() override {
    return {[this](const world_event&) {
      ++*heard_;
      done_->set_value();
      quit();
    }};
  }

private:
  int* heard_;
  std::promise<void>* done_;
};

/// The host's own work, before and after.
void require_alive(caf::actor_system& host) {
  int heard = 0;
  std::promise<void> done;
  auto seen = done.get_future();
  compat::post(host.spawn<host_actor>(&heard, &done), world_event{});
  REQUIRE(seen.wait_for(30s) == std::future_status::ready);
  CHECK(heard == 1);
}

/// The number goes down as actors end: after the reply.
void require_running(caf::actor_system& host, std::size_t expected) {
  const auto give_up = std::chrono::steady_clock::now() + 30s;
  while (host.registry().running() != expected && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  REQUIRE(host.registry().running() == expected);
}

/// Asks a world for a sum and tells the reply.
class asking_actor final : public listener_handle::base {
public:
  asking_actor(caf::actor_config& settings, const world& where, std::vector<buffer> values, std::promise<outcome>* told)
    : listener_handle::base{settings},
      at_{actor_of(where)},
      epoch_{where.epoch()},
      values_{std::move(values)},
      told_{told} {}

  behavior_type make_behavior() override {
    std::vector<operation> parts;
    for (const buffer& one : values_) parts.emplace_back(all_reduce{one, one, 100, dtype::f32, reduction::sum});
    compat::request_unbounded(this, at_, world_request{std::move(parts), epoch_})
        .then([this](const completion& reply) { end(reply); }, [this](const caf::error& why) { end(from_caf(why)); });
    return {[](const world_event&) {}};
  }
  void on_exit() override { at_ = nullptr; }

private:
  void end(outcome how) {
    told_->set_value(std::move(how));
    quit();
  }
  world_handle at_;
  epoch epoch_;
  std::vector<buffer> values_;
  std::promise<outcome>* told_;
};

} // namespace

TROUPE_WORLD_TEST(2, "a guest's worlds serve the host's actors, and the host goes on after it",
                  "[runtime][interop][guest]") {
  caf::actor_system_config host_settings;
  prepare_host(host_settings, settings);
  caf::actor_system host{host_settings};
  require_alive(host);
  require_running(host, 0);
  for (int life = 0; life < 2; ++life) {
    {
      runtime rt{host, settings};
      CHECK(&rt.system() == &host);
      world where = rt.form_world();
      CHECK(host.registry().running() >= 3); // a world and its two ranks
      const auto values = ranked_values(where, 100);
      std::promise<outcome> told;
      host.spawn<asking_actor>(where, values, &told);
      CHECK(failure_of(told.get_future().get()) == nullptr);
      for (const float value : read_back(where, rank{0}, values[0])) REQUIRE(value == 3.F);
      require_running(host, 3);
    }
    // What a runtime's end leaves of its actors: none, at once.
    CHECK(host.registry().running() == 0);
    require_alive(host);
    require_running(host, 0);
  }
}

TEST_CASE("two guests live in one host, and end one after the other", "[runtime][interop][guest]") {
  caf::actor_system_config host_settings;
  prepare_host(host_settings, mock_settings(2));
  caf::actor_system host{host_settings};
  auto first = std::make_unique<runtime>(host, mock_settings(2));
  runtime second{host, mock_settings(3)};
  world one = first->form_world();
  world two = second.form_world();
  one.barrier().get();
  two.barrier().get();
  first.reset();
  CHECK(host.registry().running() == 4);
  two.barrier().get();
  CHECK(one.status().phase == world_phase::stopped);
}

TEST_CASE("a guest whose world was split, and asked until its end, leaves no actor behind",
          "[runtime][interop][guest]") {
  caf::actor_system_config host_settings;
  prepare_host(host_settings, mock_settings(4));
  caf::actor_system host{host_settings};
  {
    runtime rt{host, mock_settings(4)};
    world where = rt.form_world();
    auto halves = where.split({rank_group{"low", {rank{0}, rank{1}}}, rank_group{"high", {rank{2}, rank{3}}}});
    for (auto& half : halves) half.handle->barrier().get();
    std::vector<std::future<completion>> pending;
    for (int i = 0; i < 50; ++i) pending.push_back(where.barrier());
  }
  CHECK(host.registry().running() == 0);
  require_alive(host);
}

TEST_CASE("a host that was not prepared serves, and what it lacks is known", "[runtime][interop][guest]") {
  configuration settings = mock_settings(1);
  register_message_types(); // CAF 1.x cannot do without
  caf::actor_system_config host_settings;
  compat::set_worker_count(host_settings, 2);
  const auto lacks = host_shortcomings(host_settings, settings);
  REQUIRE(lacks.size() == 1); // frugal workers are not to spin
  CHECK_THAT(lacks[0], ContainsSubstring("handle all messages in one turn"));
  compat::set_messages_per_turn(host_settings, 30);
  CHECK_THAT(host_shortcomings(host_settings, settings).at(0), ContainsSubstring("up to 30 messages"));
  caf::actor_system host{host_settings};
  {
    runtime rt{host, settings};
    world where = rt.form_world();
    where.barrier().get();
  }
  require_alive(host);
}

TEST_CASE("a host that was prepared lacks nothing, on a machine of any size", "[runtime][interop][guest]") {
  for (const latency_profile profile : {latency_profile::latency, latency_profile::balanced, latency_profile::frugal}) {
    configuration settings = mock_settings(4);
    settings.profile = profile;
    settings.scheduler_threads = 0; // as by default
    caf::actor_system_config host_settings;
    prepare_host(host_settings, settings);
    CHECK(host_shortcomings(host_settings, settings).empty());
  }
}

TEST_CASE("a host's workers spin where they fit the machine, and are found too many where not",
          "[runtime][interop][guest]") {
  configuration settings = mock_settings(1);
  settings.profile = latency_profile::balanced;
  const std::size_t cores = std::thread::hardware_concurrency();
  settings.scheduler_threads = 1; // it, the poller and a launcher spin on machines of four cores and more
  caf::actor_system_config many;
  compat::set_worker_count(many, cores);
  prepare_host(many, settings);
  const auto lacks = host_shortcomings(many, settings);
  REQUIRE(lacks.size() == (cores < 4 ? 0 : 1)); // fewer would not spin either
  if (cores < 4) SKIP("no worker spins on a machine of less than four cores");
  CHECK_THAT(lacks[0], ContainsSubstring("too many to spin"));
  CHECK_THAT(lacks[0],
             ContainsSubstring("give it 1 (" + std::string{compat::settings_prefix} + "scheduler.max-threads)"));

  caf::actor_system_config few;
  CHECK(host_shortcomings(few, settings).size() == 2);
  prepare_host(few, settings);
  CHECK(host_shortcomings(few, settings).empty());
}

TEST_CASE("only of a host that was not prepared the log says that it lacks settings", "[runtime][interop][guest]") {
  const heard_log log{"debug"};
  configuration settings = mock_settings(1);
  settings.log_level = "debug";
  static_cast<void>(runtime{settings}.form_world());
  {
    caf::actor_system_config host_settings;
    prepare_host(host_settings, settings);
    caf::actor_system host{host_settings};
    static_cast<void>(runtime{host, settings}.form_world());
  }
  CHECK(log.count("actor system") == 0);
  CHECK(log.count("prepare_host") == 0);
  register_message_types();
  caf::actor_system_config host_settings;
  caf::actor_system host{host_settings};
  static_cast<void>(runtime{host, settings}.form_world());
  CHECK(log.count("the client's actor system lacks a setting of troupe::prepare_host(): ") > 0);
}

namespace {

/// Forms a world with a controller in \p host, asks it, and leaves it.
void require_member(caf::actor_system& host) {
  controller_options options{.terms = {.world_size = 1}};
  options.terms.token = "a token of the tests, long enough";
  controller control{std::move(options)};
  configuration settings = mock_settings(1);
  settings.control.address = control.address();
  settings.control.assignment.name = "0";
  settings.control.assignment.place = 0;
  settings.control.assignment.token = "a token of the tests, long enough";
  {
    runtime rt{host, settings};
    world where = rt.form_world();
    where.barrier().get();
  }
  CHECK(control.wait(std::chrono::seconds{20}));
  CHECK(control.reason().code == errc::none);
  require_alive(host);
}

} // namespace

namespace {

/// Keeps the thread that forms a communicator until open().
class forming_gate final : public fault_injector {
public:
  void before_init(const fault_place&) override {
    reached_.set_value();
    opening_.wait();
  }
  [[nodiscard]] bool is_reached() { return reached_.get_future().wait_for(30s) == std::future_status::ready; }
  void open() { opened_.set_value(); }

private:
  std::promise<void> reached_, opened_;
  std::shared_future<void> opening_ = opened_.get_future().share();
};

} // namespace

TEST_CASE("a guest ends when the threads that form worlds in it no longer use it", "[runtime][interop][guest]") {
  controller_options options{.terms = {.world_size = 1}};
  options.terms.token = "a token of the tests, long enough";
  controller control{std::move(options)};
  configuration settings = mock_settings(1);
  settings.control.address = control.address();
  settings.control.assignment = {.token = "a token of the tests, long enough", .name = "s1", .spare = true};
  const auto gate = std::make_shared<forming_gate>();
  settings.faults = gate; // a spare forms a communicator inside form_world(), to warm up
  caf::actor_system_config host_settings;
  prepare_host(host_settings, settings);
  caf::actor_system host{host_settings};
  auto rt = std::make_unique<runtime>(host, settings);
  auto forming = std::async(std::launch::async, [&in = *rt] { static_cast<void>(in.form_world()); });
  const bool is_reached = gate->is_reached();

  std::atomic<bool> opened{false};
  std::promise<void> returned;
  std::jthread opener{[&, metrics = rt->metrics(), too_early = returned.get_future()] {
    while (is_reached && metrics->read()) std::this_thread::yield(); // until the runtime has ended its parts
    static_cast<void>(too_early.wait_for(200ms)); // an opportunity for a destructor that does not wait to return
    opened = true;
    gate->open();
  }};
  rt.reset();
  CHECK(is_reached);
  CHECK(opened);
  CHECK(host.registry().running() == 0);
  returned.set_value();
  try {
    forming.get();
    FAIL("a world was formed");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::stopping);
  }
  require_alive(host);
}

TEST_CASE("a host without CAF's io serves a world with a controller", "[runtime][interop][guest]") {
  register_message_types();
  caf::actor_system_config host_settings;
  caf::actor_system host{host_settings};
  REQUIRE_FALSE(host.has_middleman());
  require_member(host);
}

#if TROUPE_TEST_CAF_IO
TEST_CASE("a host that has CAF's io loaded serves a world with a controller", "[runtime][interop][guest]") {
  register_message_types();
#if !TROUPE_CAF_0_17
  caf::io::middleman::init_global_meta_objects();
#endif
  caf::actor_system_config host_settings;
  host_settings.load<caf::io::middleman>();
  caf::actor_system host{host_settings};
  REQUIRE(host.has_middleman());
  require_member(host);
}
#endif

} // namespace troupe::tests::guest_test
