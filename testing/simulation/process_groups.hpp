/// The groups of fibers of simulated processes: a group for each process that is started.
#pragma once

#include <troupe/testing/simulation/fibers.hpp>

#include <cstdint>

namespace troupe::simulation {

enum class process_kind : std::uint8_t { rank, order_service, driver, controller };

/// Returns the group of a process. \p number: its place, host or address, from 0; less than a million. \p attempt: how
/// often it was started before; less than a thousand. No two processes have the same, and none has 0.
[[nodiscard]] constexpr fibers::group group_of(process_kind kind, std::uint64_t number,
                                               std::uint64_t attempt = 0) noexcept {
  return static_cast<std::uint64_t>(kind) * 10'000'000'000 + (number + 1) * 1000 + attempt;
}

} // namespace troupe::simulation
