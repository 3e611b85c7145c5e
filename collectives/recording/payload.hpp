/// Computes the size of a request, for statistics and for users.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>

namespace troupe {

/// Returns the bytes of the elements that \p what counts: for one count, one rank's part; for v-forms, all parts that
/// the rank sends (or receives, if each rank knows the counts of all); for a group, the sum. A barrier and a replay
/// have 0.
[[nodiscard]] std::size_t payload_of(const operation& what) noexcept;

} // namespace troupe
