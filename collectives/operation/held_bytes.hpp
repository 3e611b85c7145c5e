/// Computes how much memory a request holds until its outcome.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>

namespace troupe {

/// Returns the sum of the sizes of the request's buffers, in bytes. Whole buffers count, also their unused parts. A
/// buffer that is named twice in a row (in place) counts once.
[[nodiscard]] std::size_t held_bytes(const operation& what);

} // namespace troupe
