/// Derives the outcome of each part of a group from the group's reply.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/reply/outcome.hpp>

#include <vector>

namespace troupe {

/// Returns one outcome for each part of \p asked, from its reply \p whole. If the group succeeded, all parts succeeded
/// at the same time. If it was rejected, no part ran: the part at fault (error::part) has the reason, and the others
/// refer to it. If the outcome is unknown, it is unknown for every part.
[[nodiscard]] std::vector<outcome> part_outcomes(const group& asked, const outcome& whole);

} // namespace troupe
