/// What cannot be run again after a fault, and so is refused where a client marks it retry_safe.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

namespace troupe {

/// Of a validated \p what of rank \p self: errc::none, or why it cannot be run again: its result is written where an
/// input lies, so that the input is gone (invalid_argument); or it is a replay, of whose memory nothing is known
/// (unsupported).
[[nodiscard]] error objection_to_retry(const operation& what, rank self, int world_size);

/// Why a request in two steps cannot be: somebody works with what its first reply was about.
[[nodiscard]] error two_step_retry();

} // namespace troupe
