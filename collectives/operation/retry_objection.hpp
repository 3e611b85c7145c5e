/// Finds requests that cannot be run again after a fault, and are therefore refused if a client marks them retry_safe.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

namespace troupe {

/// Checks whether \p what, a validated operation of rank \p self, can be run again. Returns errc::none;
/// invalid_argument if a result overwrites an input; or unsupported for a replay, whose memory accesses are unknown.
[[nodiscard]] error objection_to_retry(const operation& what, rank self, int world_size);

/// Returns the error for a request in two steps: kernels behind its event may already have used the first result.
[[nodiscard]] error two_step_retry();

} // namespace troupe
