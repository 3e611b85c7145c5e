/// Determines from the state of the ranks which of them may have caused a fault.
#pragma once

#include <troupe/collectives/pipeline/fault_report.hpp>

#include <string>
#include <vector>

namespace troupe {

/// The suspected ranks, or the reason why no rank is suspected.
struct diagnosis {
  std::vector<suspect> suspects{}; ///< In rank order, but the device failure that was seen first comes first.
  std::string remark{};            ///< The reason if there is no suspect.
};

/// Determines the suspects from \p report's fault and ranks only. Collectives are compared by their number in the
/// epoch, because all ranks have the same ones in the same order (ORD-1). All ranks wait, or will wait, for the oldest
/// collective that some rank has not finished. The first of these conditions that holds for any rank decides:
/// 1. The rank reported a failure of its own: of its device, memory or actor; otherwise of its communicator, unless all
///    ranks reported that.
/// 2. It has not launched that collective and is not in its launch call.
/// 3. Another rank waits for it in a send or recv.
/// 4. It is in a launch call that does not return, unless all ranks are.
/// 5. Its device has not started the collective or runs another operation, unless this holds for all ranks.
/// 6. It belongs to the minority that has not finished the collective, or to the minority that has finished it.
/// 7. It has not launched all collectives that it was asked for, unless this holds for all ranks.
[[nodiscard]] diagnosis diagnose(const fault_report& report);

/// Returns whether \p code can only mean a failure of the reporting rank itself, not one that it has observed at other
/// ranks or that was reported to it.
[[nodiscard]] bool is_of_its_own(errc code) noexcept;

} // namespace troupe
