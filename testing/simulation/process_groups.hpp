/// The groups of fibers of simulated processes: a group for each process that is started.
#pragma once

#include <troupe/testing/simulation/fibers.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe::simulation {

enum class process_kind : std::uint8_t { rank, controller, order_service, driver };

/// Returns the group of a process. \p number: its place, address, host or number, less than 100,000. \p attempt: how
/// often a rank or an order service was started before, less than 1,000. No two processes have the same group, and none
/// has 0. It is in the process's name, and in what it draws from the seed.
[[nodiscard]] constexpr fibers::group group_of(process_kind kind, std::uint64_t number,
                                               std::uint64_t attempt = 0) noexcept {
  /// The first of each kind share the numbers below a million; the others of large worlds have a range of their own.
  struct range {
    std::uint64_t first, step, most;
  };
  constexpr std::array<range, 4> ranges{
      {{1'000, 1'000, 599}, {600'000, 1, 100'000}, {700'000, 1'000, 200}, {900'000, 1, 100'000}}};
  const auto which = static_cast<std::size_t>(kind);
  const range& of = ranges[which];
  const std::uint64_t above = number < of.most ? 0 : (which + 1) * 1'000'000'000;
  return above + of.first + of.step * number + attempt;
}

} // namespace troupe::simulation
