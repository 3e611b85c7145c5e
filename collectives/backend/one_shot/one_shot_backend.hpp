/// Adds one-shot kernels to a backend: small collectives of ranks that reach each other's memory are kernels of
/// troupe's own, which are faster than NCCL's there. Everything else is passed on, in the same stream and order.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// Settings of one-shot kernels.
struct one_shot_settings {
  bool enabled = true;
  /// See one_shot_limits. Empty: one_shot_limits::usual().
  std::optional<std::size_t> part_bytes{};
  /// For tests: the sequence of the first operation of each block (line_protocol.hpp).
  std::uint32_t first_sequence = 1;
  /// Where the ranks of a communicator meet. Null: all ranks of each are created by this backend.
  std::shared_ptr<one_shot_meeting_place> meetings{};
  /// Called when a communicator has no kernels although it is small enough, with the reason for people: once for each
  /// reason. Called on the thread of its init(). May be empty.
  std::function<void(const std::string& why)> on_absent{};
};

/// Returns a backend whose communicators launch small collectives as one-shot kernels, if the driver has these kernels
/// and all ranks reach each other's memory; otherwise they pass everything on to those of \p library.
[[nodiscard]] std::shared_ptr<backend> with_one_shot_kernels(std::shared_ptr<backend> library,
                                                             one_shot_settings settings);

} // namespace troupe
