/// How a request ends: with a completion or with an error, and never both (ONE-1).
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <variant>

namespace troupe {

/// When a request passed its stations, on the process's steady clock. For a request to a whole world, the first
/// rank's `queued` and the last rank's `launched` and `done`.
struct times {
  time_point queued;   ///< Accepted by its actor.
  time_point launched; ///< Enqueued on the GPU.
  time_point done;     ///< Seen done by the poller.
};

/// The reply to a request that succeeded: the GPU is done and the results may be used.
struct completion {
  troupe::ticket ticket;
  troupe::epoch epoch;
  troupe::times times;
  /// Where in the order of its rank's launches it was, from 1; what was launched together shares a place. 0 in the
  /// reply to a request to a whole world.
  std::uint64_t launch = 0;
};

using outcome = std::variant<completion, error>;

/// The error of \p result, or nullptr if it succeeded.
[[nodiscard]] inline const error* failure_of(const outcome& result) noexcept {
  return std::get_if<error>(&result);
}

} // namespace troupe
