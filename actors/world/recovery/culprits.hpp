/// Determines which ranks caused a fault, so that a world can continue without them.
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <vector>

namespace troupe {

/// The activity of a world at the time of a fault.
enum class fault_time : std::uint8_t {
  serving,
  forming, ///< Forming with new communicators.
  /// Forming with communicators derived from failed ones (shrink, revoke + split). Whether that works depends on the
  /// failed ones.
  forming_of_failed,
};

/// Returns the ranks that recovery_policy::shrink excludes after \p why, ascending. While serving, these are the ranks
/// that \p report suspects, and the rank that \p why names if the error can only be that rank's own failure. While
/// forming, it is the rank that \p why names as having failed to form, unless the deadline passed, which happens to all
/// ranks at once. Empty if no rank can be blamed.
[[nodiscard]] std::vector<rank> culprits_of(const error& why, const fault_report* report, fault_time when);

} // namespace troupe
