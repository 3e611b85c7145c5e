/// Finds what is wrong with a request before anything of it is launched (ORD-2, BUF-2).
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/device/device.hpp>

#include <span>

namespace troupe {

/// Checks one rank's part: values, sizes, alignment, overlap, and that every buffer lives, now, where the rank does.
/// Returns errc::none or the first error, which names the value, the limit and the remedy.
[[nodiscard]] error validate(const operation& what, const device& where);

/// Checks that all ranks' parts describe the same operation. Returns errc::none, or errc::mismatch naming two ranks
/// and what each asked for.
[[nodiscard]] error check_agreement(std::span<const operation> parts);

} // namespace troupe
