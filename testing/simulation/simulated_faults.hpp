/// Injects the planned faults of a simulated run.
#pragma once

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulated_trace.hpp>
#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

namespace troupe::simulation {

/// Injects the faults inside the communicators; simulated_deployment injects the others. Threads: only that of the run.
class simulated_faults final : public fault_injector {
public:
  simulated_faults(const scenario& of, simulation_ledger& ledger, trace& log);

  /// Counts \p one as injected.
  void count(const planned_fault& one);
  [[nodiscard]] const std::map<fault_kind, std::size_t>& injected() const noexcept { return injected_; }

  void before_init(const fault_place& who) override;
  [[nodiscard]] bool before_launch(const fault_place& who, std::span<const operation* const> all) override;
  void in_place_of_launch(const fault_place& who, stream_ref into) override;
  void before_register(const fault_place& who, const registered_region& region) override;
  void before_check(const fault_place& who) override;
  void before_abort(const fault_place& who) override;
  void after_abort(const fault_place& who) override;

private:
  /// Returns the next planned fault of one of \p kinds that hits \p who now, and marks it as used.
  [[nodiscard]] const planned_fault* take(const fault_place& who, std::initializer_list<fault_kind> kinds);
  void delay(nanoseconds longest);

  const scenario& of_;
  simulation_ledger& ledger_;
  trace& log_;
  prng chance_;
  time_point began_ = virtual_now();
  std::set<std::size_t> used_;
  std::set<std::pair<std::uint64_t, rank>> gone_; ///< Ranks that launch nothing more in a formation.
  std::map<fault_kind, std::size_t> injected_;
  /// Used if there are plans: the streams of ranks in gone_ wait for words_ until these ranks are aborted.
  const bool has_plans_;
  std::map<communicator_place, std::uint32_t> words_;
};

} // namespace troupe::simulation
