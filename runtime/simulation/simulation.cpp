#include <troupe/runtime/simulation/simulated_cast.hpp>
#include <troupe/runtime/simulation/simulated_faults.hpp>
#include <troupe/runtime/simulation/simulated_world.hpp>
#include <troupe/runtime/simulation/simulation.hpp>

#include <memory>
#include <string>
#include <utility>

namespace troupe::simulation {

simulation_result simulate(const scenario& what, bool with_trace) {
  dice chance{mix(what.seed, 4)};
  fibers threads{[&](std::size_t count) { return chance.below(count); }};
  trace log{with_trace};
  simulation_result result;
  {
    const simulated_terms terms = terms_of(what);
    auto machine = std::make_unique<simulated_machine>(terms);
    simulated_memory memory{what, machine->devices};
    simulation_ledger ledger{what, memory, log};
    memory.on_release([&](std::size_t request, rank self) { ledger.released(request, self); });
    const auto faults = std::make_shared<simulated_faults>(what, ledger, log);
    {
      simulated_world where{terms, *machine, faults, log};
      simulated_cast cast{what, *machine, where, memory, ledger, *faults};
      play_out(what, cast, where, ledger, log);
      if (const auto waiting = where.held_up())
        ledger.wrong("a turn waits for what only later ones would do, of which " + std::to_string(*waiting) +
                     " wait for it (BLK-2)");
      result.last_epoch = where.latest().epoch.value();
      result.retries = where.retries();
    }
    if (threads.forbidden_waits() > 0)
      ledger.wrong("actors' turns waited " + std::to_string(threads.forbidden_waits()) + " times (BLK-1)");
    ledger.judge_rebuilds(result.last_epoch);
    result.found = ledger.judge();
    result.findings = ledger.findings();
    result.requests = ledger.asked();
    result.kinds = ledger.kinds();
    result.on_registered = ledger.on_registered();
    result.faults = faults->injected();
    machine = nullptr; // before the objects that receive its last answers
    // Lets calls that hung for long return.
    threads.run([&] { return threads.living() == 0; }, steady_now() + longest(what));
  }
  result.trace = std::move(log.text());
  return result;
}

} // namespace troupe::simulation
