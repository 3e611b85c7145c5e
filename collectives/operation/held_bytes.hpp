/// How much memory a request holds until its outcome.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>

namespace troupe {

/// Units: bytes, of the buffers as they are given, used or not. A buffer that is named twice in a row (in place) counts
/// once.
[[nodiscard]] std::size_t held_bytes(const operation& what);

} // namespace troupe
