/// Settings for completion: how the end of an operation becomes visible, how threads wait, and the limits of pending
/// requests.
#pragma once

#include <troupe/device/enum_names.hpp>
#include <troupe/device/time.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// The mechanism that is enqueued behind an operation to signal its end.
enum class completion_strategy : std::uint8_t {
  flag,      ///< The GPU writes a word of pinned memory; a check costs one load.
  event,     ///< An event without timing; a check is a driver call.
  host_fn,   ///< A host function in the stream; a check costs one load, but the driver's thread must wake to call it.
  automatic, ///< "auto": flag if the device's streams can write words, else event.
             ///< (docs/design/0007-completion-strategy.md)
};

/// The concrete strategies, that is, all except automatic.
inline constexpr std::array all_completion_strategies = {completion_strategy::flag, completion_strategy::event,
                                                         completion_strategy::host_fn};

template <>
inline constexpr std::array<std::string_view, 4> enum_names<completion_strategy>{"flag", "event", "host_fn", "auto"};
/// Returns the strategy called \p name. Errors: invalid_argument, naming the existing strategies.
[[nodiscard]] inline completion_strategy parse_completion_strategy(std::string_view name) {
  return parse_enum("completion strategy", name,
                    std::array{completion_strategy::automatic, completion_strategy::flag, completion_strategy::event,
                               completion_strategy::host_fn});
}

/// Defines how a thread of troupe waits: it spins first, then it sleeps between polls.
struct wait_profile {
  nanoseconds spin{0};                  ///< Time to spin after the last work before giving up the core.
  nanoseconds nap{nanoseconds{20'000}}; ///< Sleep between polls when a wait for a device exceeds `spin`.
  /// Sleep where the end of the work ends it, too: between looks at deadlines and faults.
  nanoseconds sleep{std::chrono::milliseconds{1}};
};

/// Time limits of a track (TIM-1). Time in which the poller's thread did not run does not count for `launch` and
/// `hang`.
struct track_limits {
  nanoseconds launch{std::chrono::seconds{10}};             ///< A launch call that takes longer counts as stuck.
  nanoseconds hang{std::chrono::seconds{30}};               ///< A longer run on the device counts as hanging.
  nanoseconds check_interval{std::chrono::milliseconds{1}}; ///< Interval between checks of deadlines.
  /// The track's probe is called when nothing has finished for this long, and then repeatedly at this interval.
  /// Querying a stream delays the work in it by some microseconds.
  nanoseconds quiet{std::chrono::milliseconds{20}};
};

/// Returns how much of each time in which the poller's thread did not run counts for these limits. It is not 0, so that
/// a thread that is always late still detects a hang.
[[nodiscard]] constexpr nanoseconds counted_of_pause(const track_limits& limits) noexcept {
  return (limits.launch < limits.hang ? limits.launch : limits.hang) / 16;
}

/// Limits of one world in one process; 0 means unlimited.
struct pending_limits {
  std::size_t operations = 65'536;
  std::size_t bytes = 0;
};

} // namespace troupe
