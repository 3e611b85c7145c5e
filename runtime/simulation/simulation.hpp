/// Plays a scenario: the whole of a world in virtual time on one thread, from one seed (DET-1).
#pragma once

#include <troupe/collectives/order/retry_counts.hpp>
#include <troupe/runtime/simulation/scenario.hpp>
#include <troupe/runtime/simulation/simulation_ledger.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace troupe::simulation {

struct simulation_result {
  verdict found{};
  std::vector<std::string> findings{};           ///< Each thing that must not be, in words.
  std::size_t requests = 0;                      ///< Asked; of each rank, where ranks are asked.
  std::map<operation_kind, std::size_t> kinds{}; ///< The same by what was asked.
  std::size_t on_registered = 0;                 ///< Of them, on registered memory.
  std::map<fault_kind, std::size_t> faults{};
  std::uint64_t last_epoch = 0;
  retry_counts retries{}; ///< Of requests marked retry_safe.
  std::string trace{};    ///< Where it was asked for.
};

/// The same scenario gives the same result, and the same trace byte for byte. Several threads may play at a time.
[[nodiscard]] simulation_result simulate(const scenario& what, bool with_trace = false);

} // namespace troupe::simulation
