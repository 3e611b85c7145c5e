/// Finds what is wrong with a request before anything of it is launched (ORD-2, BUF-2).
#pragma once

#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/world_stamp.hpp>
#include <troupe/device/device.hpp>

namespace troupe {

/// Whose part is checked: a rank, the size of its world, and the device on which it works.
struct seat {
  rank self;
  int world_size = 1;
  const device& where;
  const capabilities* able = nullptr; ///< None: whatever is well formed is let through.
  world_stamp stamp{};                ///< Whose plans can be replayed.
};

/// Checks one rank's part: values, that it is possible at all (errc::unsupported), sizes, alignment, overlap, and that
/// every buffer lives, now, where the rank does or in host memory that its driver reaches. Of a group, every part and
/// that they do not touch each other's memory. What ranks must agree on is checked by check_agreement().
/// Returns errc::none or the first error, which names the value, the limit and the remedy.
[[nodiscard]] error validate(const operation& what, const seat& at);

} // namespace troupe
