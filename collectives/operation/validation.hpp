/// Validates a request before any part of it is launched (ORD-2, BUF-2).
#pragma once

#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/device.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <span>

namespace troupe {

/// The context of a check: the rank, the size of its world, and the device on which it works.
struct rank_context {
  rank self;
  int world_size = 1;
  const device& where;
  const capabilities* able = nullptr; ///< Null: every well-formed request is accepted.
  world_stamp stamp{};                ///< The world and epoch whose plans can be replayed.
};

/// Checks one rank's operation: values, support by the backend (errc::unsupported), sizes, alignment and overlap.
/// Checks that every buffer is still valid and is in memory of the rank's device or in host memory that its driver can
/// access. For a group, checks every part, and that no part writes memory that another part uses. check_agreement()
/// checks that the ranks' parts match.
/// Returns errc::none or the first error, which names the value, the limit and the remedy.
[[nodiscard]] error validate(const operation& what, const rank_context& at);

/// Checks that \p parts, which \p self launches together, hold a recv for each send to \p self and the reverse, of the
/// same count and dtype. Half a transfer to oneself that is launched alone waits for the other half, which is behind it
/// in the same stream. validate() has checked the parts of a group.
[[nodiscard]] error check_transfers_to_self(std::span<const operation> parts, rank self);

} // namespace troupe
