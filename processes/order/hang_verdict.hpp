/// Finds out which operation of a world over processes hangs, and which only wait behind it, also in other processes.
#pragma once

#include <troupe/collectives/order/resume_log.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace troupe {

struct hang_verdict {
  error why{};
  /// Set if only these two ranks take part in the operation that hangs, and both have launched it: the link between
  /// them may be broken.
  std::optional<std::pair<rank, rank>> ends{};
};

/// The verdict's `why` is \p why, the error with which rank \p from has reported that an operation did not end in time,
/// with these additions: the operation that hangs, the ranks that have not launched it, and the operations that wait
/// behind it. It is \p why unchanged if \p all does not show which operation hangs.
///
/// A device begins its work in the order of launches, which is the common order (ORD-3). So an operation waits behind
/// an earlier one of any world if there is a rank at which neither has ended. Following this relation from the first
/// open operation of \p from leads to the one that waits behind no other. The result does not depend on which of the
/// waiting ranks reports first.
[[nodiscard]] hang_verdict judge_hang(error why, rank from, const std::vector<open_operation>& all);

} // namespace troupe
