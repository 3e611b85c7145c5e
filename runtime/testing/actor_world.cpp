#include <troupe/actors/world/world_actor.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/testing/actor_world.hpp>
#include <troupe/testing/virtual_machine.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::testing {

namespace {

/// The actor system does not tell when its delayed messages are due.
constexpr nanoseconds longest_jump{std::chrono::microseconds{100}};

} // namespace

class actor_world::stage {
public:
  stage(int ranks, actor_steps steps, virtual_options wanted)
    : on{ranks, std::move(wanted)}, steps_{std::move(steps)}, status_{std::make_shared<world_status>()} {
    status_->listen([this](const world_event& event) { events.push_back({steady_now() - on.began, event}); });
    auto spawned =
        spawn_world(*steps_.system, simulation::make_plan(on.terms, *on.machine, status_, on.options.script));
    world = std::move(spawned.world);
    ranks_of_it = std::move(spawned.ranks);
    run_until([this] { return status().phase != world_phase::forming; }, 2 * on.options.deadlines.form);
    on.options.script->attach(on.machine->api.get());
  }
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;

  ~stage() {
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

  [[nodiscard]] world_event status() const { return status_->latest(); }

  /// Returns whether anything was done.
  bool take_turn() { return steps_.handle_one() || on.threads->step(on.threads->now()); }

  void settle() {
    while (take_turn()) {
    }
  }

  bool run_until(const std::function<bool()>& enough, nanoseconds at_most) {
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

  virtual_machine on;
  std::vector<virtual_event> events;
  world_inner_handle world;
  std::shared_ptr<rank_directory> ranks_of_it;

private:
  actor_steps steps_;
  std::shared_ptr<world_status> status_;
};

actor_world::actor_world(int ranks, actor_steps steps, virtual_options options)
  : stage_{std::make_unique<stage>(ranks, std::move(steps), std::move(options))} {}

actor_world::~actor_world() = default;

world_handle actor_world::actor() const {
  return world_handle{stage_->world};
}

collective_handle actor_world::collective(rank whom) const {
  return collective_handle{stage_->ranks_of_it->at(place_of(whom, status()))};
}

std::vector<rank> actor_world::local_ranks() const {
  return status().local_ranks;
}

world_event actor_world::status() const {
  return stage_->status();
}

buffer actor_world::allocate(rank where, std::size_t size_bytes) const {
  return stage_->on.pools[place_of(where, status())]->allocate(size_bytes);
}

void actor_world::settle() {
  stage_->settle();
}

void actor_world::advance(nanoseconds span) {
  stage_->run_until([] { return false; }, span);
}

bool actor_world::run_until(const std::function<bool()>& enough, nanoseconds at_most) {
  return stage_->run_until(enough, at_most);
}

bool actor_world::run_until_ready(troupe::epoch wanted, nanoseconds at_most) {
  return run_until(
      [&] {
        const world_event latest = status();
        return latest.phase == world_phase::ready && latest.epoch >= wanted;
      },
      at_most);
}

const std::vector<virtual_event>& actor_world::events() const noexcept {
  return stage_->events;
}

fault_script& actor_world::script() noexcept {
  return *stage_->on.options.script;
}

mock_driver& actor_world::devices() noexcept {
  return *stage_->on.machine->api;
}

} // namespace troupe::testing
