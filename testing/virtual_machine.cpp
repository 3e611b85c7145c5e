#include <troupe/actors/world/recovery/recovery_budget.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/testing/virtual_machine.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace troupe::testing {

namespace {

/// Checks the options before anything is created.
virtual_options checked(int ranks, virtual_options options) {
  if (ranks < 1)
    throw exception{errc::invalid_argument,
                    "a world of " + std::to_string(ranks) + " ranks is impossible: it needs at least 1"};
  if (fibers::current() != nullptr)
    throw exception{errc::invalid_argument, "this thread has a virtual world already, or buffers of one: they must end "
                                            "before another begins"};
  check(options.recovery, options.deadlines, options.limits);
  if (!options.script) options.script = std::make_shared<fault_script>();
  return options;
}

fibers::chooser chooser_of(std::optional<std::uint64_t> seed) {
  if (!seed) return [](std::size_t) -> std::size_t { return 0; };
  return
      [chance = simulation::prng{simulation::mix(*seed, 4)}](std::size_t count) mutable { return chance.below(count); };
}

/// Returns a device that holds the threads that serve it, so that buffers may outlive their world.
std::shared_ptr<device> with_threads(std::shared_ptr<fibers> threads, std::shared_ptr<device> where) {
  struct both {
    std::shared_ptr<fibers> threads; // ends after the device
    std::shared_ptr<device> where;
  };
  const auto held = std::make_shared<both>(both{std::move(threads), std::move(where)});
  return {held, held->where.get()};
}

} // namespace

virtual_machine::virtual_machine(int count, virtual_options wanted)
  : options{checked(count, std::move(wanted))},
    threads{std::make_shared<fibers>(chooser_of(options.seed))},
    began{steady_now()},
    terms{.ranks = count,
          .memory_bytes = options.memory_bytes,
          .strategy = options.strategy,
          .limits = options.limits,
          .deadlines = options.deadlines,
          .recovery = options.recovery,
          .fused = options.fusion,
          .sequencing = options.sequencing,
          .pending = options.pending,
          .ordering = options.ordering,
          .seed = options.seed},
    machine{std::make_unique<simulation::simulated_machine>(terms)} {
  for (int i = 0; i < count; ++i) {
    devices.push_back(with_threads(threads, machine->devices[static_cast<std::size_t>(i)]));
    pools.push_back(memory_pool::create(devices.back()));
  }
}

virtual_machine::~virtual_machine() {
  pools.clear();
  devices.clear();
  machine = nullptr;
  threads->run([this] { return threads->living() == 0; }, later(steady_now(), longest_stop()));
}

bool virtual_machine::run_until(const std::function<bool()>& enough, nanoseconds at_most) {
  const time_point until = later(steady_now(), at_most);
  if (threads->run(enough, until)) return true;
  if (until > steady_now()) threads->sleep(until - steady_now()); // nothing is due before that time
  return enough();
}

nanoseconds virtual_machine::longest_stop() const {
  const world_deadlines& most = options.deadlines;
  nanoseconds all = options.limits.hang + options.limits.launch + most.operation + most.drain + most.release;
  for (std::size_t i = 0; i <= options.recovery.rebuilds; ++i) all += most.form + most.abort;
  return all + total_backoff(options.recovery) + std::chrono::seconds{1};
}

std::size_t place_of(rank target, const world_event& now) {
  if (target < rank{0} || target.value() >= now.world_size)
    throw exception{errc::invalid_argument, "there is no rank " + to_string(target) + ": the world has " +
                                                std::to_string(now.world_size) + ", counted from 0"};
  return static_cast<std::size_t>(now.origins[static_cast<std::size_t>(target.value())].value());
}

} // namespace troupe::testing
