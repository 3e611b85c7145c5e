#include <troupe/device/error.hpp>
#include <troupe/testing/simulation/scenario.hpp>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// With more ranks, operations whose memory grows with the square of the ranks are not drawn.
constexpr int most_ranks_of_all_to_all = 64;

/// Two clocks that are too fast and too slow by this much run apart by less than one per cent (lease_bound()).
constexpr std::int64_t allowed_drift_ppm = 4'900;

rank draw_rank(prng& chance, int ranks) {
  return rank{static_cast<int>(chance.below(static_cast<std::size_t>(ranks)))};
}

planned_request draw_request(prng& chance, const scenario& of, std::size_t number) {
  constexpr std::array small{operation_kind::all_reduce, operation_kind::broadcast, operation_kind::reduce,
                             operation_kind::barrier};
  constexpr std::array any{operation_kind::all_reduce, operation_kind::all_reduce, operation_kind::broadcast,
                           operation_kind::reduce,     operation_kind::all_gather, operation_kind::reduce_scatter,
                           operation_kind::all_to_all, operation_kind::group,      operation_kind::barrier};
  planned_request one{.number = number, .at = chance.within(of.length)};
  if (!chance.one_in(3)) one.lane = chance.below(of.lanes);
  one.jitter = chance.one_in(4) ? 20ms : 500us;
  one.what = of.ranks > most_ranks_of_all_to_all ? small[chance.below(small.size())] : any[chance.below(any.size())];
  one.count = 2 + chance.below(6);
  one.root = draw_rank(chance, of.ranks);
  one.deadline = chance.one_in(6) ? 5ms + chance.within(40ms) : 400ms;
  if (!one.lane) return one;
  if (chance.one_in(20)) one.silent = draw_rank(chance, of.ranks);
  if (chance.one_in(25) && one.what != operation_kind::barrier) one.disagreeing = draw_rank(chance, of.ranks);
  if (chance.one_in(15)) one.cancelling = draw_rank(chance, of.ranks);
  return one;
}

/// Gives some requests memory of another device. It draws from a generator of its own, like all features that were
/// added later, so that the rest of a seed's scenario does not change.
void draw_foreign(prng chance, const scenario& of, planned_request& one) {
  if (!one.lane && one.what != operation_kind::barrier && chance.one_in(30)) one.foreign = draw_rank(chance, of.ranks);
}

/// Replaces some requests by transfers and copies, drawn from a separate generator for the same reason.
void draw_transfers(prng chance, planned_request& one) {
  constexpr std::array kinds{operation_kind::exchange, operation_kind::exchange, operation_kind::transfer,
                             operation_kind::transfer, operation_kind::copy};
  if (!chance.one_in(5) || one.what == operation_kind::barrier) return;
  one.what = kinds[chance.below(kinds.size())];
  if (one.what == operation_kind::exchange) return;
  one.foreign.reset(); // a copy may read from that rank, and a transfer may not use its memory
  if (one.what == operation_kind::copy) one.disagreeing.reset(); // a copy belongs to one rank alone
}

/// Replaces some requests by agrees, drawn from a separate generator for the same reason.
void draw_agrees(prng chance, const scenario& of, planned_request& one) {
  if (!chance.one_in(6)) return;
  one.what = operation_kind::agree;
  one.foreign.reset(); // it has no memory
  if (chance.one_in(10)) one.objecting = draw_rank(chance, of.ranks);
}

/// Draws registrations of memory during the run, and the requests that use it.
void draw_registrations(scenario& made) {
  prng chance{mix(made.seed, 9)};
  if (!chance.one_in(3)) return;
  const std::size_t asked = made.requests.size();
  for (std::size_t i = 0, count = chance.one_in(4) ? 2 : 1; i < count; ++i) {
    const planned_request one{.number = made.requests.size(),
                              .at = chance.within(made.length / 2),
                              .what = operation_kind::registration,
                              .deadline = 2s + made.ranks * 500us}; // twice the time to handle the reports of all ranks
    for (std::size_t k = 0; k < asked; ++k) {
      planned_request& user = made.requests[k];
      if (user.what == operation_kind::barrier || user.what == operation_kind::agree || !chance.one_in(2)) continue;
      user.source = one.number;
      user.gives_back = !user.lane && chance.one_in(2);
    }
    made.requests.push_back(one);
  }
}

/// Draws plans that are captured during the run, with their replays. Replays are requested from the world, or from its
/// ranks in separate lanes.
void draw_plans(scenario& made) {
  prng chance{mix(made.seed, 10)};
  if (!chance.one_in(3)) return;
  for (std::size_t i = 0, count = 1 + chance.below(2); i < count; ++i) {
    const planned_request one{.number = made.requests.size(),
                              .at = chance.within(made.length * 3 / 4),
                              .what = operation_kind::capture,
                              .count = 1 + chance.below(4),
                              .deadline = chance.one_in(4) ? 2ms + chance.within(20ms) : 200ms,
                              .of_requests = chance.one_in(3),
                              .throws = chance.one_in(4)};
    made.requests.push_back(one);
    for (std::size_t k = 0, replays = 2 + chance.below(6); k < replays; ++k) {
      planned_request again{.number = made.requests.size(),
                            .at = one.at + chance.within(made.length - one.at),
                            .what = operation_kind::replay,
                            .count = one.count,
                            .deadline = chance.one_in(6) ? 5ms + chance.within(40ms) : 400ms,
                            .source = one.number,
                            .gives_back = chance.one_in(10)};
      if (chance.one_in(2)) again.lane = made.lanes + i;
      made.requests.push_back(again);
    }
  }
}

/// Numbers the commits in the order in which a lane's clients request them.
void number_commits(scenario& made) {
  std::uint64_t next = 0;
  for (planned_request& one : made.requests)
    if (one.what == operation_kind::barrier && one.lane) one.commit = ++next;
}

planned_fault draw_fault(prng& chance, const scenario& of, const std::vector<fault_kind>& kinds, std::size_t number) {
  planned_fault one{.number = number,
                    .kind = kinds[chance.below(kinds.size())],
                    .at = chance.within(of.length),
                    .where = draw_rank(chance, of.ranks),
                    .span = 1ms + chance.within(chance.one_in(3) ? 2s : 90ms)};
  // Communicators are formed rarely. A fault there occurs at the first forming after its time; at time 0, at the first.
  if ((one.kind == fault_kind::failed_init || one.kind == fault_kind::stuck_init) && chance.one_in(4)) one.at = 0ns;
  return one;
}

/// Draws the recovery terms from a separate generator, so that the rest does not change. A world that ends with its
/// first fault keeps that policy.
void draw_recovery(scenario& made) {
  if (made.recovery.policy == recovery_policy::fail_fast) return;
  prng chance{mix(made.seed, 6)};
  constexpr std::array keeping{recovery_rung::form_beside, recovery_rung::form_beside, recovery_rung::abort_first,
                               recovery_rung::revoke};
  constexpr std::array shrinking{recovery_rung::form_beside, recovery_rung::shrink, recovery_rung::shrink,
                                 recovery_rung::abort_first};
  const bool shrinks = chance.one_in(2);
  made.recovery.policy = shrinks ? recovery_policy::shrink : recovery_policy::keep_size;
  made.recovery.first_rung = (shrinks ? shrinking : keeping)[chance.below(keeping.size())];
}

/// Lets some processes ask late for a capture, or not at all, so that the others' turn is granted late or refused.
void draw_turns(prng chance, const scenario& of, planned_request& one) {
  if (one.what != operation_kind::capture) return;
  if (chance.one_in(3)) one.jitter = 1ms + chance.within(60ms);
  if (chance.one_in(8)) one.silent = draw_rank(chance, of.ranks);
}

/// Draws a limit of pending requests, and clients that reserve a part of it.
void draw_credits(scenario& made) {
  prng chance{mix(made.seed, 26)};
  if (!chance.one_in(3)) return;
  made.processes->pending_operations = 4 + chance.below(12);
  for (std::size_t i = 0, count = 1 + chance.below(6); i < count; ++i)
    made.credits.push_back({.number = i,
                            .at = chance.within(made.length),
                            .where = draw_rank(chance, made.ranks),
                            .operations = 1 + chance.below(made.processes->pending_operations),
                            .deadline = chance.one_in(3) ? 5ms + chance.within(40ms) : 400ms,
                            .span = chance.within(60ms)});
}

/// Draws order services for the hosts, with their faults. Some runs are long enough for processes to find a service
/// that was started again, and have a process killed after that, so that another epoch begins.
void draw_services(scenario& made, const std::vector<fault_kind>& kinds) {
  prng chance{mix(made.seed, 28)};
  if (!chance.one_in(3)) return;
  made.processes->has_services = true;
  made.processes->one_shot_bytes = prng{mix(made.seed, 34)}.one_in(2) ? 256 : 0;
  std::vector<fault_kind> own;
  std::ranges::copy_if(kinds, std::back_inserter(own), is_of_service);
  if (own.empty()) return;
  const auto add = [&](fault_kind kind, rank where, nanoseconds at) {
    made.faults.push_back({.number = made.faults.size(),
                           .kind = kind,
                           .at = at,
                           .where = where,
                           .span = 1ms + chance.within(chance.one_in(3) ? 2s : 90ms)});
  };
  for (std::size_t i = 0, count = chance.below(3); i < count; ++i) {
    add(own[chance.below(own.size())], draw_rank(chance, made.ranks), chance.within(made.length));
    ++made.recovery.rebuilds; // its end fails the epoch
  }
  if (!chance.one_in(3) || std::ranges::find(kinds, fault_kind::killed_process) == kinds.end()) return;
  const nanoseconds until = made.length;
  made.length += 1500ms;
  add(fault_kind::killed_process, draw_rank(chance, made.ranks), until + 1200ms + chance.within(100ms));
  ++made.recovery.rebuilds;
  for (planned_request& one : made.requests) // some of the requests come in the last epoch
    if (one.what != operation_kind::capture && one.what != operation_kind::replay && chance.one_in(4))
      one.at = until + 1200ms + chance.within(300ms);
  std::ranges::stable_sort(made.requests, {}, &planned_request::at);
}

/// Draws sub-worlds, and requests to them.
void draw_splits(scenario& made) {
  prng chance{mix(made.seed, 29)};
  if (!chance.one_in(3)) return;
  std::size_t number = 0; // the first one that is free
  for (const planned_request& one : made.requests) number = std::max(number, one.number + 1);
  for (std::size_t i = 0, count = 1 + chance.below(2); i < count; ++i) {
    planned_split one{.number = i, .at = chance.within(made.length / 3), .jitter = 100us + chance.within(20ms)};
    std::vector<rank> left;
    for (int r = 0; r < made.ranks; ++r) left.emplace_back(r);
    for (std::size_t k = 0, size = chance.one_in(8) ? 1 : 2 + chance.below(left.size() - 1); k < size; ++k) {
      const auto next = left.begin() + static_cast<std::ptrdiff_t>(chance.below(left.size()));
      one.members.push_back(*next);
      left.erase(next);
    }
    if (chance.one_in(2)) one.stops_at = one.at + chance.within(made.length - one.at);
    for (std::size_t k = 0, requests = 4 + chance.below(9); k < requests; ++k) {
      planned_request asked = draw_request(chance, made, number++);
      asked.at = one.at + chance.within(made.length - one.at);
      asked.lane = chance.below(made.lanes);
      asked.split = i;
      asked.cancelling.reset();
      if (chance.one_in(3)) asked.what = operation_kind::barrier; // a commit
      if (asked.what == operation_kind::barrier) asked.disagreeing.reset();
      draw_transfers(prng{mix(made.seed, 30, asked.number)}, asked);
      if (asked.what == operation_kind::copy) asked.what = operation_kind::exchange;
      draw_agrees(prng{mix(made.seed, 36, asked.number)}, made, asked);
      made.requests.push_back(asked);
    }
    made.splits.push_back(std::move(one));
  }
  std::ranges::stable_sort(made.requests, {}, &planned_request::at);
}

/// Adds losses that follow each other closely, which faults drawn one by one rarely do: a process is lost soon after
/// the controller, and a place is lost twice.
void draw_losses(scenario& made, const std::vector<fault_kind>& kinds) {
  prng chance{mix(made.seed, 24)};
  const auto has = [&](fault_kind one) { return std::ranges::find(kinds, one) != kinds.end(); };
  if (!has(fault_kind::killed_process) || !chance.one_in(2)) return;
  const rank where = draw_rank(chance, made.ranks);
  nanoseconds at = 20ms + chance.within(made.length / 2); // the world has formed by then
  const auto add = [&](fault_kind kind) {
    made.faults.push_back({.number = made.faults.size(), .kind = kind, .at = at, .where = where, .span = 1ms});
    at += chance.within(chance.one_in(2) ? 30ms : 150ms);
  };
  if (has(fault_kind::lost_controller) && chance.one_in(2)) {
    add(fault_kind::lost_controller);
    made.processes->orphans = orphan_policy::rejoin;
  } else {
    add(fault_kind::killed_process);
  }
  add(fault_kind::killed_process);
  made.recovery.rebuilds += 2;
}

/// Draws faults that keep processes and their controller apart for longer than a lease, sometimes while another
/// controller takes over.
void draw_separations(scenario& made, const std::vector<fault_kind>& kinds) {
  prng chance{mix(made.seed, 37)};
  std::vector<fault_kind> own;
  std::ranges::copy_if(kinds, std::back_inserter(own), separates);
  if (own.empty() || !chance.one_in(2)) return;
  if (chance.one_in(2)) { // the world goes on without a process that nobody ends, and that continues later
    made.processes->orphans = orphan_policy::rejoin;
    made.recovery.policy = recovery_policy::shrink;
    made.recovery.smallest = 1;
  }
  const auto add = [&](fault_kind kind, nanoseconds at) {
    made.faults.push_back({.number = made.faults.size(),
                           .kind = kind,
                           .at = at,
                           .where = draw_rank(chance, made.ranks),
                           .span = 20ms + chance.within(chance.one_in(3) ? 2s : 400ms)});
    ++made.recovery.rebuilds;
  };
  const bool may_lose = std::ranges::find(kinds, fault_kind::lost_controller) != kinds.end();
  for (std::size_t i = 0, count = 1 + chance.below(2); i < count; ++i) {
    const nanoseconds at = 20ms + chance.within(made.length);
    add(own[chance.below(own.size())], at);
    if (!may_lose || !chance.one_in(4)) continue;
    add(fault_kind::lost_controller, at + chance.within(100ms));
    made.processes->orphans = orphan_policy::rejoin;
  }
}

/// Draws clocks that run apart or jump, suspended machines, and connections that are slow.
void draw_times(scenario& made, const std::vector<fault_kind>& kinds) {
  prng chance{mix(made.seed, 38)};
  made.processes->ends_at_sigterm = chance.one_in(2);
  const auto has = [&](fault_kind one) { return std::ranges::find(kinds, one) != kinds.end(); };
  const auto add = [&](fault_kind kind, nanoseconds at, nanoseconds span) {
    made.faults.push_back(
        {.number = made.faults.size(), .kind = kind, .at = at, .where = draw_rank(chance, made.ranks), .span = span});
    return &made.faults.back();
  };
  if (has(fault_kind::drift) && chance.one_in(2)) {
    for (planned_fault& one : made.faults)
      one.stops_clock = one.kind != fault_kind::partition && separates(one.kind) && chance.one_in(2);
    add(fault_kind::drift, 0ns, 0ns)->drift_ppm = allowed_drift_ppm;
    made.processes->counts_attempts = !chance.one_in(4);
  }
  if (has(fault_kind::boot_jump) && chance.one_in(4)) {
    add(fault_kind::boot_jump, 20ms + chance.within(made.length), 20ms + chance.within(chance.one_in(3) ? 2s : 400ms));
    ++made.recovery.rebuilds; // the lease lapses, and may be renewed too late
  }
  if (has(fault_kind::long_link) && chance.one_in(4))
    for (std::size_t i = 0, count = 1 + chance.below(3); i < count; ++i)
      add(fault_kind::long_link, 0ns, 1ms + chance.within(chance.one_in(4) ? 40ms : 12ms));
  if (has(fault_kind::slow_reader) && chance.one_in(3))
    for (std::size_t i = 0, count = 1 + chance.below(2); i < count; ++i) {
      add(fault_kind::slow_reader, chance.within(made.length), 10ms + chance.within(chance.one_in(3) ? 2s : 300ms));
      ++made.recovery.rebuilds; // its connection may be given up
    }
}

/// Draws planned changes, some of which follow each other closely, and faults at their steps.
void draw_departures(prng& chance, scenario& made, const std::vector<fault_kind>& kinds) {
  constexpr std::array askers{change_asker::controller, change_asker::controller, change_asker::driver,
                              change_asker::driver,     change_asker::process,    change_asker::stranger};
  constexpr nanoseconds until_formed = 60ms;
  const bool has_spares = made.ranks > 2 && made.processes->orphans == orphan_policy::rejoin && !chance.one_in(3);
  if (has_spares) {
    made.processes->spares = chance.one_in(3) && made.ranks > 3 ? 2 : 1;
    made.processes->counts_attempts = true; // else one that is replaced by a spare is refused
  }
  for (std::size_t i = 0, count = 1 + chance.below(4); i < count; ++i) {
    const bool follows = i > 0 && chance.one_in(2);
    planned_departure one{.number = i,
                          .at = follows ? made.departures.back().at + chance.within(10ms)
                                        : until_formed + chance.within(made.length),
                          .where = draw_rank(chance, made.ranks),
                          .is_drain = chance.one_in(4),
                          .by = askers[chance.below(askers.size())],
                          .renumbers = !chance.one_in(3)};
    if (!chance.one_in(4)) one.span = chance.one_in(3) ? 0ns : chance.within(200ms);
    one.is_in_vain = chance.one_in(5);
    made.departures.push_back(one);
  }
  std::vector<fault_kind> own;
  std::ranges::copy_if(kinds, std::back_inserter(own), [&](fault_kind one) {
    return one == fault_kind::killed_process || one == fault_kind::cut_link || one == fault_kind::ended_actor ||
           one == fault_kind::partition || (one == fault_kind::killed_service && made.processes->has_standby) ||
           (one == fault_kind::lost_controller && made.processes->orphans == orphan_policy::rejoin);
  });
  if (own.empty() || chance.one_in(3)) return;
  constexpr std::array steps{change_step::preparing, change_step::stopping, change_step::switching};
  std::size_t next = 0; // numbers of faults stay unique
  for (const planned_fault& one : made.faults) next = std::max(next, one.number + 1);
  for (std::size_t i = 0, count = 1 + chance.below(3); i < count; ++i) {
    made.faults.push_back({.number = next++,
                           .kind = own[chance.below(own.size())],
                           .at = chance.one_in(2) ? 0ns : chance.within(20ms),
                           .where = draw_rank(chance, made.ranks),
                           .span = 20ms + chance.within(400ms),
                           .during = steps[chance.below(steps.size())]});
    ++made.recovery.rebuilds;
  }
}

/// Lets a second controller stand by, and draws faults of the one that decides and of their store.
void add_standby(scenario& made, const std::vector<fault_kind>& kinds, int hosts) {
  prng chance{mix(made.seed, 43)};
  made.processes->has_standby = true;
  made.processes->orphans = orphan_policy::rejoin;
  made.processes->replaces_wanted = false;
  if (chance.one_in(2) && hosts == 0) made.processes->hosts = 1;
  made.processes->has_services = !chance.one_in(4);
  if (!made.processes->has_services) {
    made.processes->one_shot_bytes = 0;
    std::erase_if(made.faults, [](const planned_fault& one) { return is_of_service(one.kind); });
  }
  if (chance.one_in(2)) {
    made.recovery.policy = recovery_policy::shrink;
    made.recovery.smallest = 1;
  }
  std::size_t next = 0; // numbers of faults stay unique
  for (const planned_fault& one : made.faults) next = std::max(next, one.number + 1);
  const auto add = [&](fault_kind kind, nanoseconds at) {
    made.faults.push_back({.number = next++,
                           .kind = kind,
                           .at = at,
                           .where = draw_rank(chance, made.ranks),
                           .span = 10ms + chance.within(chance.one_in(4) ? 2s : 300ms)});
    ++made.recovery.rebuilds;
  };
  std::vector<fault_kind> own;
  std::ranges::copy_if(kinds, std::back_inserter(own), [](fault_kind one) {
    return one == fault_kind::lost_controller || one == fault_kind::stopped_controller || is_of_store(one);
  });
  if (own.empty()) return;
  const bool may_kill = std::ranges::find(kinds, fault_kind::killed_process) != kinds.end();
  for (std::size_t i = 0, count = 1 + chance.below(3); i < count; ++i) {
    const nanoseconds at = 20ms + chance.within(made.length);
    add(own[chance.below(own.size())], at);
    if (may_kill && chance.one_in(3)) add(fault_kind::killed_process, at + chance.within(150ms));
  }
}

} // namespace

std::string_view to_string(fault_kind kind) noexcept {
  static constexpr std::array<std::string_view, enumerator_count<fault_kind>()> names{"withheld",
                                                                                      "refused",
                                                                                      "stuck-launch",
                                                                                      "slow-rank",
                                                                                      "asynchronous",
                                                                                      "device",
                                                                                      "sticky",
                                                                                      "failed-init",
                                                                                      "stuck-init",
                                                                                      "slow-abort",
                                                                                      "ended-actor",
                                                                                      "ended-client",
                                                                                      "jump",
                                                                                      "killed-world",
                                                                                      "dropped-world",
                                                                                      "killed-process",
                                                                                      "stopped-process",
                                                                                      "cut-link",
                                                                                      "slow-link",
                                                                                      "lost-controller",
                                                                                      "killed-service",
                                                                                      "stopped-service",
                                                                                      "cut-service",
                                                                                      "partition",
                                                                                      "suspended-host",
                                                                                      "stopped-controller",
                                                                                      "drift",
                                                                                      "boot-jump",
                                                                                      "slow-reader",
                                                                                      "long-link",
                                                                                      "unreachable-store",
                                                                                      "cut-store"};
  static_assert(!names.back().empty());
  const auto index = static_cast<std::size_t>(kind);
  return index < names.size() ? names[index] : std::string_view{};
}

std::vector<fault_kind> parse_fault_kinds(std::string_view names, std::span<const fault_kind> kinds) {
  if (names == "all") return {kinds.begin(), kinds.end()};
  if (names == "none") return {};
  std::vector<fault_kind> parsed;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const auto found = std::ranges::find(kinds, name, [](fault_kind one) { return to_string(one); });
    if (found == kinds.end()) {
      std::string text = "unknown kind of fault '" + std::string{name} + "': choose from all, none";
      for (const fault_kind one : kinds) text += ", " + std::string{to_string(one)};
      throw exception{errc::invalid_argument, std::move(text)};
    }
    parsed.push_back(*found);
  }
  return parsed;
}

scenario draw_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds) {
  prng chance{mix(seed, 1)};
  constexpr std::array strategies{completion_strategy::flag, completion_strategy::event, completion_strategy::host_fn};
  constexpr std::array fusions{fusion::off, fusion::plans, fusion::free};
  scenario made{.seed = seed,
                .ranks = ranks,
                .lanes = 1 + chance.below(3),
                .strategy = strategies[chance.below(strategies.size())],
                .fused = fusions[chance.below(fusions.size())],
                .length = 100ms + chance.within(400ms) +
                          (ranks > most_ranks_of_all_to_all ? ranks * 1ms : 0ms), // a large world takes longer to form
                .stops_busy = chance.one_in(4)};
  made.recovery = {.policy = chance.one_in(6) ? recovery_policy::fail_fast : recovery_policy::keep_size,
                   .rebuilds = 1 + chance.below(4),
                   .window = 10s,
                   .backoff = chance.within(20ms)};
  draw_recovery(made);
  const std::size_t requests = ranks > most_ranks_of_all_to_all ? 12 : 16 + chance.below(ranks > 8 ? 8 : 33);
  for (std::size_t i = 0; i < requests; ++i) made.requests.push_back(draw_request(chance, made, i));
  for (planned_request& one : made.requests) draw_foreign(prng{mix(seed, 7, one.number)}, made, one);
  for (planned_request& one : made.requests) draw_transfers(prng{mix(seed, 8, one.number)}, one);
  for (planned_request& one : made.requests) draw_agrees(prng{mix(seed, 35, one.number)}, made, one);
  draw_registrations(made);
  draw_plans(made);
  if (!kinds.empty())
    for (std::size_t i = 0, count = chance.below(5); i < count; ++i)
      made.faults.push_back(draw_fault(chance, made, kinds, i));
  std::ranges::stable_sort(made.requests, {}, &planned_request::at);
  number_commits(made);
  // The smaller sizes divide the requests, and the parts of groups, between kernels and library. The scratch memory of
  // kernels makes a run six times as long, so one run of four has them.
  constexpr std::array<std::size_t, 3> one_shot_sizes{8, 64, std::size_t{1} << 20U};
  prng size{mix(seed, 33)};
  made.one_shot_bytes = size.one_in(4) ? one_shot_sizes[size.below(one_shot_sizes.size())] : 0;
  return made;
}

int host_of(const scenario& of, int place) noexcept {
  constexpr int usual = 2; // processes of a host
  const int hosts = of.processes ? of.processes->hosts : 0;
  return place / (hosts > 0 ? (of.ranks + hosts - 1) / hosts : usual);
}

scenario draw_process_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds, int hosts) {
  std::vector<fault_kind> of_ranks;
  std::ranges::copy_if(kinds, std::back_inserter(of_ranks), [](fault_kind one) {
    return !is_of_service(one) && !separates(one) && !is_of_time(one) && !is_of_store(one);
  });
  scenario made = draw_scenario(seed, ranks, of_ranks);
  prng chance{mix(seed, 12)};
  made.processes = {.orphans = chance.one_in(3) ? orphan_policy::rejoin : orphan_policy::leave,
                    .stops_by_itself = chance.one_in(2),
                    .hosts = hosts};
  made.one_shot_bytes = 0;
  if (made.recovery.policy != recovery_policy::shrink) made.recovery.policy = recovery_policy::keep_size;
  if (chance.one_in(8)) made.recovery.policy = recovery_policy::fail_fast;
  made.recovery.smallest = ranks == 2 || prng{mix(seed, 23)}.one_in(2) ? 1 : 2;
  made.recovery.backoff = 0ns; // epochs over processes have other delays
  std::erase_if(made.requests, [](const planned_request& one) { return one.what == operation_kind::registration; });
  for (planned_request& one : made.requests) {
    if (one.what == operation_kind::capture || one.what == operation_kind::replay) continue;
    if (!one.lane && prng{mix(seed, 19, one.number)}.one_in(2)) one.lane = one.number % made.lanes; // else by a driver
    if (one.what == operation_kind::copy) one.what = operation_kind::exchange; // another process's memory is not local
    one.source.reset();
    one.gives_back = false;
    one.foreign.reset();
    if (one.lane && prng{mix(seed, 22, one.number)}.one_in(3)) { // clients need commits to go on after a fault
      one.what = operation_kind::barrier;
      one.disagreeing.reset();
    }
  }
  for (planned_request& one : made.requests) draw_turns(prng{mix(seed, 25, one.number)}, made, one);
  draw_services(made, kinds);
  draw_splits(made);
  number_commits(made);
  draw_losses(made, kinds);
  draw_separations(made, kinds);
  draw_credits(made);
  draw_times(made, kinds);
  made.processes->replaces_wanted = made.recovery.policy == recovery_policy::keep_size &&
                                    made.processes->orphans == orphan_policy::leave && prng{mix(seed, 27)}.one_in(3);
  return made;
}

scenario draw_changing_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds, int hosts,
                                bool has_standby) {
  std::vector<fault_kind> suitable;
  std::ranges::copy_if(kinds, std::back_inserter(suitable), [](fault_kind one) {
    return one != fault_kind::ended_client && !is_of_service(one) && !is_of_store(one);
  });
  scenario made = draw_process_scenario(seed, ranks, suitable, hosts);
  prng chance{mix(seed, 41)};
  made.processes->plans_changes = true;
  made.processes->has_standby = has_standby;
  if (has_standby) made.processes->orphans = orphan_policy::rejoin;
  made.processes->pending_operations = 0; // a client that is told to come back would miss a request
  made.processes->has_services = false;
  made.processes->replaces_wanted = false;
  made.processes->one_shot_bytes = 0;
  made.recovery.policy = recovery_policy::shrink;
  made.recovery.smallest = 1;
  made.stops_busy = false;
  made.splits.clear();
  made.credits.clear();
  std::erase_if(made.requests, [](const planned_request& one) {
    return one.split || one.what == operation_kind::capture || one.what == operation_kind::replay;
  });
  for (planned_request& one : made.requests) {
    one.what = prng{mix(seed, 42, one.number)}.one_in(4) ? operation_kind::barrier : operation_kind::all_reduce;
    if (!one.lane) one.lane = one.number % made.lanes;
    one.deadline = std::max<nanoseconds>(one.deadline, 500ms);
    one.silent = one.disagreeing = one.objecting = one.cancelling = one.foreign = std::nullopt;
    one.commit.reset();
    one.source.reset();
    one.gives_back = false;
  }
  draw_departures(chance, made, kinds);
  if (has_standby) add_standby(made, kinds, hosts);
  return made;
}

scenario draw_standby_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds, int hosts) {
  scenario made = draw_process_scenario(seed, ranks, kinds, hosts);
  add_standby(made, kinds, hosts);
  return made;
}

bool may_replace_controller(const scenario& of, const planned_fault& fault) noexcept {
  if (fault.kind == fault_kind::lost_controller) return true;
  if (!of.processes || !of.processes->has_standby) return false;
  return fault.kind == fault_kind::stopped_controller || fault.kind == fault_kind::jump || is_of_store(fault.kind);
}

std::uint64_t prng::next() noexcept { // splitmix64
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  prng first{a};
  prng second{first.next() ^ b};
  prng third{second.next() ^ c};
  return third.next();
}

} // namespace troupe::simulation
