/// Runs a scenario: a whole world in virtual time on one thread, from one seed (DET-1). Shortens scenarios that fail.
#pragma once

#include <troupe/testing/simulation/scenario.hpp>
#include <troupe/testing/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace troupe::simulation {

struct simulation_result {
  verdict found{};
  std::vector<std::string> findings{};           ///< A description of each violation.
  std::size_t requests = 0;                      ///< The number of requests. A request to ranks counts once per rank.
  std::map<operation_kind, std::size_t> kinds{}; ///< The number of requests of each kind.
  std::size_t on_registered = 0;                 ///< The number of requests on registered memory.
  std::map<fault_kind, std::size_t> faults{};
  std::uint64_t last_epoch = 0;
  std::string trace{}; ///< Empty unless it was requested.
};

/// Runs \p what. The same scenario gives the same result, and the same trace byte for byte. Threads: any; several may
/// run at a time.
[[nodiscard]] simulation_result simulate(const scenario& what, bool with_trace = false);

/// Returns a shorter scenario that still has a violation, though not necessarily the same: removes requests and faults
/// from \p failing that are not needed for one. Runs the scenario many times.
[[nodiscard]] scenario shorten(scenario failing);
/// Shortens \p failing in the same way while \p fails returns true for it.
[[nodiscard]] scenario shorten(scenario failing, const std::function<bool(const scenario&)>& fails);

} // namespace troupe::simulation
