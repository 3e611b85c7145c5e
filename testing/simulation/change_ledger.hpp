/// Defines the record of the planned changes of a simulated run, and the checks of what they promise.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/device/error.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Records what is asked, answered and done about the ranks of a world, and reports to a simulation_ledger:
/// - A rank leaves as planned only if a change names it that has not been refused, and keeps its number unless a change
///   allows another one (ONE-2).
/// - A change that has succeeded is in effect.
/// - An epoch begins as planned only when all its ranks have formed it, and all former ones have ended their requests.
/// - The number of an epoch is used once (EPO-1).
/// - Without faults, each change that can be made is made, is planned, and is answered with success (ONE-1).
/// Processes are named by their pids. Threads: only that of the run.
class change_ledger {
public:
  using number = std::size_t;

  change_ledger(const scenario& of, simulation_ledger& to) : of_{of}, to_{to} {}

  /// Records that \p what is asked for, by process \p asker or, with 0, by another one. \p now: all processes.
  [[nodiscard]] number asked(const rank_change& what, std::uint64_t asker, const world_processes& now);
  /// Records the answer to change \p which. \p now: all processes; empty if they are not known. \p may_join: whether
  /// nothing keeps a process from joining that was asked for.
  void answered(number which, const error& why, const world_processes& now, bool may_join);
  /// Records that controller \p by begins to form \p of with these processes. \p is_switching: as planned.
  void begins(std::uint64_t by, epoch of, bool is_switching, const world_processes& now);
  /// Records that the order is held, or that a change is given up because of \p why.
  void stops() noexcept { was_dropped_ = false; }
  void given_up(const error& why);
  /// Records that the world ends because a process has not joined. \p now: all processes.
  void misses(const world_processes& now);
  /// Records that the world is quiesced. \p now: all processes. \p can_plan: whether nothing but the number of ranks
  /// keeps the world from changing as planned.
  void quiesces(const world_processes& now, bool can_plan);
  /// Records that a controller with a store welcomes process \p who. It says what it has decided in that order, but
  /// only when the store has answered: processes may have joined since that it has not welcomed yet.
  void welcomes(std::uint64_t who) { welcomed_.insert(who); }
  /// Records a message of process \p from to its controller.
  void hears(std::uint64_t from, const process_message& what);
  /// Records that process \p by is sent the \p id with which epoch \p of forms. \p now: the processes that the sending
  /// controller has.
  void told(std::uint64_t by, epoch of, const unique_id& id, const world_processes& now);
  /// Records that process \p by is told to form \p of, so that another controller learns of that epoch.
  void directed(std::uint64_t by, epoch of) { directed_.emplace(by, of); }
  /// Records that \p which has ended.
  void ended(std::uint64_t which) { ended_.insert(which); }
  /// Records that the world serves as its controller knows, and that it is stopped: what changes promise ends then.
  void serves() noexcept { has_served_ = true; }
  void stopped() noexcept { is_stopped_ = true; }

private:
  struct change {
    rank_change what;
    std::uint64_t asker = 0;
    std::set<std::uint64_t> named{}; ///< The processes that it names, when it is asked for.
    bool is_open = true;
    bool was_serving = false; ///< Whether the world had served when it was asked for, by a process that had joined.
  };
  [[nodiscard]] static bool names(const change& one, const world_process& whom);
  [[nodiscard]] bool is_undisturbed() const noexcept { return of_.faults.empty() && !is_stopped_; }
  void judge_departures(const world_processes& now);
  void judge_reports(epoch of, const world_processes& now);

  const scenario& of_;
  simulation_ledger& to_;
  std::vector<change> changes_;
  std::uint64_t controller_ = 0; ///< That has formed the latest epoch.
  epoch latest_{};
  world_processes before_;  ///< The processes when it began.
  std::size_t dropped_ = 0; ///< The changes that were given up since an epoch began.
  bool was_dropped_ = false;
  bool may_renumber_ = false; ///< A drain that allows other numbers has ended spares since, which others needed.
  bool was_quiesced_ = false;
  bool has_served_ = false;
  bool is_stopped_ = false;
  enum class step : std::uint8_t { formed, held, drained };
  std::set<std::tuple<std::uint64_t, epoch, step>> reported_;
  std::map<epoch, std::map<std::uint64_t, decltype(unique_id::bytes)>> ids_; ///< As each process was told.
  std::set<std::pair<std::uint64_t, epoch>> directed_;
  std::set<std::uint64_t> welcomed_;
  std::set<std::uint64_t> ended_;
};

} // namespace troupe::simulation
