/// What one reply says about each part of a group.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/reply/outcome.hpp>

#include <vector>

namespace troupe {

/// One outcome for each part of \p asked, from \p whole, the reply to it. A group that succeeded has done all its
/// parts, at once; one that was rejected has done none, and the part at fault (error::part) has the reason, the others
/// say that it was another's; where the outcome is unknown, it is so of every part.
[[nodiscard]] std::vector<outcome> part_outcomes(const group& asked, const outcome& whole);

} // namespace troupe
