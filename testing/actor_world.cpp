#include <troupe/actors/caf/caf_host.hpp>
#include <troupe/actors/world/world_actor.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/actor_world.hpp>
#include <troupe/testing/virtual_machine.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::testing {

namespace {

/// The longest step of virtual time. The actor system does not report when its delayed messages are due.
constexpr nanoseconds longest_jump{std::chrono::microseconds{100}};

} // namespace

class actor_world::impl final : public core {
public:
  impl(int ranks, actor_steps steps, virtual_options wanted)
    : core{ranks, std::move(wanted)}, steps_{std::move(steps)}, status_{std::make_shared<world_status>()} {
    register_message_types(); // also those that users cannot name in CAF_TEST_MAIN()
    status_->listen([this](const world_event& event) { events.push_back({steady_now() - on.began, event}); });
    auto spawned =
        spawn_world(*steps_.system, simulation::make_plan(on.terms, *on.machine, status_, on.options.script));
    world = std::move(spawned.world);
    ranks_of_it = std::move(spawned.ranks);
    run_until([this] { return status().phase != world_phase::forming; }, 2 * on.options.deadlines.form);
    on.options.script->attach(on.machine->api.get());
  }
  ~impl() override {
    on.options.script->attach(nullptr);
    on.options.script->release();
    compat::post(world, stop_world{});
    const bool over = run_until([this] { return status().phase == world_phase::stopped; }, on.longest_stop());
    if (!over)
      report_leak(
          {.code = errc::deadline_exceeded, .text = "an actor world has not ended: it is " + describe(status())});
    world = world_inner_handle{};
    ranks_of_it->clear();
    settle(); // the last messages of actors that have ended
  }

  [[nodiscard]] world_event status() const override { return status_->latest(); }

  /// Handles one message or runs one turn of a thread. Returns whether there was one.
  bool take_turn() { return steps_.handle_one() || on.threads->step(on.threads->now()); }

  void settle() {
    while (take_turn()) {
    }
  }

  bool run_until(const std::function<bool()>& enough, nanoseconds at_most) override {
    const time_point until = later(steady_now(), at_most);
    while (!enough()) {
      if (take_turn()) continue;
      const time_point before = steady_now();
      if (before >= until) return false;
      const time_point next = std::min(until, later(before, longest_jump));
      if (!on.threads->step(next)) on.threads->sleep(next - before);
      steps_.advance(steady_now() - before);
    }
    return true;
  }

  void register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) override {
    post_request(world, asked, std::move(reply));
  }

  world_inner_handle world;
  std::shared_ptr<rank_directory> ranks_of_it;

private:
  actor_steps steps_;
  std::shared_ptr<world_status> status_;
};

actor_world::actor_world(int ranks, actor_steps steps, virtual_options options)
  : impl_{std::make_unique<impl>(ranks, std::move(steps), std::move(options))} {}

actor_world::~actor_world() = default;

world_handle actor_of(const actor_world& where) {
  return world_handle{where.impl_->world};
}

collective_handle collective_of(const actor_world& where, rank target) {
  return collective_handle{where.impl_->ranks_of_it->at(place_of(target, where.status()))};
}

actor_world::core& actor_world::shared() const noexcept {
  return *impl_;
}

void actor_world::settle() {
  impl_->settle();
}

void actor_world::advance(nanoseconds span) {
  impl_->run_until([] { return false; }, span);
}

} // namespace troupe::testing
