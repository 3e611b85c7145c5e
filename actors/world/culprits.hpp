/// Who is to blame for a fault, as far as a world may go on without them.
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <vector>

namespace troupe {

/// What a world was doing when it had a fault.
enum class fault_time : std::uint8_t {
  serving,
  forming,           ///< With communicators of their own.
  forming_of_failed, ///< With such as are made of failed ones: whether that can be done lies with those.
};

/// Ranks that recovery_policy::shrink leaves out after \p why, ascending: those whom \p report of that fault suspects,
/// and the one that \p why names where it is a failure of its own; while they form, whoever could not, unless time ran
/// out, which it does for all at once. Empty where nobody can be blamed.
[[nodiscard]] std::vector<rank> culprits_of(const error& why, const fault_report* report, fault_time when);

} // namespace troupe
