#include <troupe/testing/simulation/simulation.hpp>

#include <troupe/testing/simulation/simulated_deployment.hpp>
#include <troupe/testing/simulation/simulated_faults.hpp>
#include <troupe/testing/simulation/simulated_processes.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

namespace {

/// Runs \p what on \p where, a simulated_world or simulated_processes.
void play(const scenario& what, simulated_machine& machine, auto& where, simulated_memory& memory,
          simulation_ledger& ledger, simulated_faults& faults, trace& log, simulation_result& result) {
  where.listen(
      [&](const world_event& event, std::uint64_t process = 0) { note_resume_points(what, event, process, ledger); });
  simulated_deployment deployment{what, machine, where, memory, ledger, faults};
  play_out(what, deployment, where, ledger, log);
  if (const auto waiting = where.held_up())
    ledger.wrong("a turn waits for a later turn, and " + std::to_string(*waiting) + " turns wait behind it (BLK-2)");
  result.last_epoch = where.latest().epoch.value();
}

} // namespace

simulation_result simulate(const scenario& what, bool with_trace) {
  prng chance{mix(what.seed, 4)};
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
    if (what.processes) {
      simulated_processes where{what, *machine, faults, ledger, log};
      play(what, *machine, where, memory, ledger, *faults, log, result);
    } else {
      simulated_world where{terms, *machine, faults, log};
      play(what, *machine, where, memory, ledger, *faults, log, result);
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
    // Lets hanging calls return.
    threads.run([&] { return threads.living() == 0; }, virtual_now() + longest(what));
  }
  result.trace = std::move(log.text());
  return result;
}

namespace {

/// The limit of runs per scenario: a result that is not the shortest is acceptable.
constexpr int most_plays = 200;

/// Removes sequences of \p list, long ones first, as long as \p fails remains true. Returns whether any was removed.
template <class Item, class Fails>
bool thin_out(std::vector<Item>& list, const Fails& fails) {
  bool any = false;
  for (std::size_t run = std::max<std::size_t>(list.size() / 2, 1); run > 0; run /= 2)
    for (std::size_t at = 0; at < list.size();) {
      const auto first = list.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last = first + static_cast<std::ptrdiff_t>(std::min(run, list.size() - at));
      std::vector<Item> without{list.begin(), first};
      without.insert(without.end(), last, list.end());
      std::swap(list, without);
      if (fails()) {
        any = true;
      } else {
        std::swap(list, without);
        at += run;
      }
    }
  return any;
}

} // namespace

scenario shorten(scenario failing) {
  return shorten(std::move(failing), [](const scenario& one) { return !simulate(one).found.is_good(); });
}

scenario shorten(scenario failing, const std::function<bool(const scenario&)>& fails) {
  int plays = 0;
  const auto still = [&] { return ++plays <= most_plays && fails(failing); };
  while (plays < most_plays && (thin_out(failing.faults, still) || thin_out(failing.requests, still))) {
  }
  return failing;
}

} // namespace troupe::simulation
