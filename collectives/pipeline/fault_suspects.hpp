/// Who is to blame: conclusions from where the ranks stand.
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>

#include <string>
#include <vector>

namespace troupe {

/// Whom to suspect, or why nobody.
struct judgement {
  std::vector<suspect> suspects{}; ///< In rank order; a device's own failure first seen comes first.
  std::string remark{};            ///< Where there is none: why nothing can be told.
};

/// From \p report's fault and ranks alone. Collectives are compared by their number in the epoch, since all ranks have
/// the same ones in the same order (ORD-1); the oldest that some rank has not finished is the one that everybody waits
/// for, or will. In this order:
/// 1. A rank that reported a failure of its own: of its device, its memory, its actor, and then of its communicator,
///    unless all did.
/// 2. Ranks that have not come to that collective; if all have, or are in the call: those whose call does not return.
/// 3. A rank that another waits for in a send or recv.
/// 4. Of those that have launched it: the few that have not started or not finished it, or that alone have.
[[nodiscard]] judgement judge(const fault_report& report);

/// Whether \p code can only be the failure of the rank that reports it: not what it hears of others, sees of others, or
/// is told.
[[nodiscard]] bool is_of_its_own(errc code) noexcept;

} // namespace troupe
