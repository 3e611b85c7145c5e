/// Concludes from the state of the ranks which of them caused a fault.
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>

#include <string>
#include <vector>

namespace troupe {

/// The suspects, or the reason why there are none.
struct judgement {
  std::vector<suspect> suspects{}; ///< In rank order, but the device failure that was seen first comes first.
  std::string remark{};            ///< If there is no suspect: why.
};

/// Judges by \p report's fault and ranks alone. Collectives are compared by their number in the epoch, because all
/// ranks have the same ones in the same order (ORD-1). The oldest one that some rank has not finished is the one for
/// which all ranks wait, or will wait. In this order:
/// 1. A rank that reported a failure of its own: of its device, memory or actor, and then of its communicator, unless
/// all ranks reported this.
/// 2. Ranks that have not reached that collective. If all have, or are in the launch call: ranks whose call does not
/// return.
/// 3. A rank for which another waits in a send or recv.
/// 4. Of the ranks that have launched it: the few that have not started or not finished it, or that are the only ones
/// to have finished it.
[[nodiscard]] judgement judge(const fault_report& report);

/// Returns whether \p code can only be a failure of the rank that reports it: not one that it observes at other ranks
/// or is informed of.
[[nodiscard]] bool is_of_its_own(errc code) noexcept;

} // namespace troupe
