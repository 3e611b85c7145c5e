/// Defines the settings for the reaction of worlds and their processes to faults: policies, budgets and deadlines.
#pragma once

#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// The reaction to a fault.
enum class recovery_policy : std::uint8_t {
  fail_fast, ///< A fault ends the world.
  keep_size, ///< The same ranks form again.
  shrink,    ///< The ranks that cannot be blamed form again; all ranks, if none can be blamed.
  guided,    ///< A controller decides (controller_channel). Only for worlds that span processes; not a user setting.
};
/// Parses the name of a policy. Errors: invalid_argument, which names the choices.
[[nodiscard]] recovery_policy parse_recovery_policy(std::string_view name);

/// The way in which a world recovers.
enum class recovery_rung : std::uint8_t {
  shrink,      ///< The survivors shrink the failed communicator, which is aborted afterwards.
  revoke,      ///< The failed communicator is revoked and split with all its ranks, and aborted afterwards.
  form_beside, ///< New communicators are formed while the failed ones still hang; those are aborted afterwards.
  abort_first, ///< The failed ones are aborted, then new ones are formed.
  give_up,     ///< The world fails closed.
};
/// Parses the first rung of a recovery. Errors: invalid_argument, which names the choices.
[[nodiscard]] recovery_rung parse_first_rung(std::string_view name);

/// The configuration of recoveries.
struct recovery_terms {
  recovery_policy policy = recovery_policy::keep_size;
  /// Maximum number of rebuilds within `window`; the world fails closed at the next fault.
  std::size_t rebuilds = 3;
  nanoseconds window{0}; ///< 0: derived from deadlines and limits, see with_window().
  /// Maximum delay before the second rebuild in the window. The maximum doubles for each later rebuild, and the delay
  /// is drawn between half of it and all of it. The first rebuild has no delay.
  nanoseconds backoff{std::chrono::milliseconds{100}};
  /// The first attempt; not give_up. shrink requires recovery_policy::shrink; revoke requires keep_size. If no
  /// communicator can be derived from the failed ones, new ones are formed beside them. If that forming fails too, the
  /// failed ones are aborted first in any case.
  recovery_rung first_rung = recovery_rung::form_beside;
};

/// Returns the maximum delay before the rebuild that follows \p before others in the window.
[[nodiscard]] nanoseconds backoff_before(const recovery_terms& terms, std::size_t before) noexcept;
/// Returns the maximum total delay of all rebuilds of one window.
[[nodiscard]] nanoseconds total_backoff(const recovery_terms& terms) noexcept;
/// Returns \p terms with a window. If it is 0, it becomes twice the time that the rebuild budget or the detection of a
/// fault can take, and at least ten minutes. A rebuild takes at most \p form and \p abort; a fault is noticed within \p
/// notice.
[[nodiscard]] recovery_terms with_window(recovery_terms terms, nanoseconds form = {}, nanoseconds abort = {},
                                         nanoseconds notice = {}) noexcept;
/// Validates \p terms. Errors: invalid_argument, with the arithmetic, for terms under which the budget could never be
/// used up or never be available.
void check(const recovery_terms& terms);

/// The deadlines of a world's phases (TIM-1).
struct world_deadlines {
  nanoseconds form{std::chrono::seconds{60}};
  nanoseconds operation{std::chrono::seconds{60}}; ///< For requests without their own deadline.
  nanoseconds drain{std::chrono::seconds{30}};
  nanoseconds release{std::chrono::seconds{30}};
  nanoseconds abort{std::chrono::seconds{30}};
};

/// Reaction to the loss of the controller.
enum class orphan_policy : std::uint8_t {
  leave,  ///< The world of the process ends.
  rejoin, ///< The process waits until the controller is back at its address, and joins again.
};
/// Parses the name of a policy. Errors: invalid_argument, which names the choices.
[[nodiscard]] inline orphan_policy parse_orphan_policy(std::string_view name) {
  return parse_enum<orphan_policy>("action without a controller", name);
}

} // namespace troupe
