#include <troupe/actors.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/program/support/fault_kinds.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

raised_fault happened_at(time_point when) {
  std::promise<time_point> raised;
  raised.set_value(when);
  return {raised.get_future()};
}

/// The lines of the script for the target. Those for what the recovery meets come before the line of the launch.
testing::fault_script::rank_lines target_of(const fault_scene& scene) {
  return scene.faults.on(scene.target);
}

raised_fault refuse_next_launch(const fault_scene& scene) {
  return {target_of(scene).next_operation().fail()};
}

std::size_t place_of(const fault_scene& scene) {
  const auto& locals = scene.where.local_ranks();
  return static_cast<std::size_t>(std::ranges::find(locals, scene.target) - locals.begin());
}

raised_fault raise_withheld(const fault_scene& scene) {
  return {target_of(scene).next_operation().hang()};
}

raised_fault raise_async(const fault_scene& scene) {
  raised_fault withheld = raise_withheld(scene);
  scene.faults.on(rank{(scene.target.value() + 1) % scene.where.size()}).next_check().fail();
  return withheld;
}

raised_fault raise_memory(const fault_scene& scene) {
  const device& on = *scene.where.device_of(scene.target);
  const std::size_t too_much = on.api().describe(on.id()).total_bytes + 1;
  const time_point began = monotonic_clock{}.now();
  try {
    static_cast<void>(scene.where.allocate(scene.target, too_much));
  } catch (const exception& refused) {
    if (refused.why().code == errc::out_of_memory) return happened_at(began);
    throw;
  }
  throw exception{errc::internal, "an allocation of " + std::to_string(too_much) + " bytes, one more than " +
                                      "device " + to_string(on.id()) + " has, was not refused"};
}

raised_fault raise_killed(const fault_scene& scene) {
  const time_point now = monotonic_clock{}.now();
  caf::anon_send_exit(collective_of(scene.where, scene.target), caf::exit_reason::kill);
  return happened_at(now);
}

/// Starts a client's kernel that runs for a long time, and sends a request that waits for it.
raised_fault raise_spinning(const fault_scene& scene) {
  constexpr std::size_t count = 256;
  const auto own = std::make_shared<stream>(scene.where.device_of(scene.target));
  std::vector<operation> parts;
  for (const rank self : scene.where.local_ranks()) {
    operand send{scene.where.allocate(self, count * sizeof(float))};
    const buffer recv = scene.where.allocate(self, count * sizeof(float));
    if (self == scene.target) {
      scene.kernels.at(place_of(scene)).spin(own->ref(), scene.spin_takes);
      send.ready = record_event(scene.where.device_of(self), own->ref());
    }
    parts.emplace_back(all_reduce{.send = std::move(send), .recv = recv, .count = count});
  }
  raised_fault raised = happened_at(monotonic_clock{}.now());
  raised.request = world{scene.where}.ask(std::move(parts));
  raised.held = own;
  return raised;
}

/// Raises a sticky error, from which this process cannot recover.
raised_fault poison(const fault_scene& scene, sticky_error how) {
  const auto own = std::make_shared<stream>(scene.where.device_of(scene.target));
  const time_point now = monotonic_clock{}.now();
  scene.kernels.at(place_of(scene)).poison(own->ref(), how);
  raised_fault raised = happened_at(now);
  raised.held = own;
  return raised;
}

constexpr fault_kind kinds[] = {
    {.name = "withheld",
     .what = "a rank launches nothing any more; its peers' operations hang on the device",
     .raise = &raise_withheld},
    {.name = "refused",
     .what = "a rank's launch fails; its peers' operations hang on the device",
     .raise = &refuse_next_launch},
    {.name = "async",
     .what = "a rank launches nothing any more, and a peer's communicator reports an error",
     .raise = &raise_async},
    {.name = "init",
     .what = "a launch fails, and then forming the next epoch fails",
     .raise =
         [](const fault_scene& scene) {
           target_of(scene).next_forming().fail();
           return refuse_next_launch(scene);
         }},
    {.name = "init-hang",
     .what = "a launch fails, and forming the next epoch hangs (until deadlines.form)",
     .raise =
         [](const fault_scene& scene) {
           target_of(scene).next_forming().hang();
           return refuse_next_launch(scene);
         }},
    {.name = "slow-abort",
     .what = "a launch fails, and a rank's abort is slow",
     .raise =
         [](const fault_scene& scene) {
           target_of(scene).next_abort().delay(scene.slow_abort_takes);
           return refuse_next_launch(scene);
         }},
    {.name = "memory",
     .what = "an allocation of more than a device has is refused; the world stays ready",
     .raise = &raise_memory,
     .leads_to = fault_consequence::stays_ready,
     .needs_peers = false},
    {.name = "killed", .what = "a rank's collective actor is killed", .raise = &raise_killed, .needs_peers = false},
    {.name = "spinning",
     .what = "a client's kernel spins on a rank's device, and an operation waits for it",
     .raise = &raise_spinning,
     .needs_peers = false},
    {.name = "illegal-address",
     .what = "a client's kernel writes to an unmapped address (CUDA error 700)",
     .raise = [](const fault_scene& scene) { return poison(scene, sticky_error::illegal_address); },
     .leads_to = fault_consequence::world_ends,
     .needs_peers = false},
    {.name = "assertion",
     .what = "an assertion in a client's kernel fails (CUDA error 710)",
     .raise = [](const fault_scene& scene) { return poison(scene, sticky_error::failed_assertion); },
     .leads_to = fault_consequence::world_ends,
     .needs_peers = false}};

} // namespace

std::span<const fault_kind> all_fault_kinds() noexcept {
  return kinds;
}

std::string fault_kind_names() {
  std::string names;
  for (const fault_kind& one : kinds) names += (names.empty() ? "" : ", ") + std::string{one.name};
  return names;
}

const fault_kind& find_fault_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kinds, name, &fault_kind::name);
  if (found == std::end(kinds))
    throw exception{errc::invalid_argument,
                    "'" + std::string{name} + "' is not a kind of fault: choose some of " + fault_kind_names()};
  return *found;
}

} // namespace troupe::program
