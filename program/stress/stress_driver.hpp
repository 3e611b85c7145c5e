/// Drivers of a stress run: processes without a rank that send requests to all ranks beside the ranks' own clients.
#pragma once

#include <troupe/program/stress/stress_client.hpp>

#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>

namespace troupe::program {

/// The memory of one rank that drivers use: exported by name. Each driver has its own part of it.
class stress_driver_memory {
public:
  stress_driver_memory(const world& where, rank self, std::size_t drivers);

  /// Waits until all drivers have ended.
  void await_drivers() const;

private:
  world where_;
  std::size_t drivers_;
  buffer ended_; ///< One number for each driver, 1 when it has ended.
};

/// Runs the \p number-th of \p drivers drivers, until about \p requests parts of requests have been answered. \p
/// settings name the controller. Its requests are copies into a rank's memory, sums, and copies out, several in flight.
[[nodiscard]] stress_totals run_stress_driver(const configuration& settings, std::size_t number, std::size_t requests,
                                              std::uint64_t seed);

} // namespace troupe::program
