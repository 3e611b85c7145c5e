/// The outcome of a request: either a completion or an error, never both (ONE-1).
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <variant>

namespace troupe {

/// The times at which a request passed its stages, on the process's steady clock. For a request to a whole world:
/// `queued` of the first rank, `launched` and `done` of the last rank.
struct times {
  time_point queued;   ///< Accepted by its actor.
  time_point launched; ///< Enqueued on the GPU.
  time_point done;     ///< Observed by the poller as done.
};

/// The reply to a successful request: the GPU is done and the results may be used.
struct completion {
  troupe::ticket ticket;
  troupe::epoch epoch;
  troupe::times times;
  /// The position in the order of its rank's launches, from 1. Requests launched together have the same position. 0 in
  /// the reply to a request to a whole world.
  std::uint64_t launch = 0;
};

using outcome = std::variant<completion, error>;

/// Returns the error of \p result, or nullptr if it succeeded.
[[nodiscard]] inline const error* failure_of(const outcome& result) noexcept {
  return std::get_if<error>(&result);
}

} // namespace troupe
