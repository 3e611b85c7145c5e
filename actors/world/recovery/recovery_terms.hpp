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
  fail_fast, ///< A fault ends the world; in a world over processes, the loss of a process does.
  /// The world keeps its size. The same ranks form again; a world over processes waits for a process in the place of a
  /// lost one, preferably a spare.
  keep_size,
  /// The world continues with fewer ranks: without those that can be blamed, or without a lost process that no spare
  /// replaces. A world over processes grows again when another process has joined.
  shrink,
};
/// Parses the name of a policy. Errors: invalid_argument, which names the choices, and the present name of one that was
/// called otherwise before 0.3.0.
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

/// The configuration of recoveries, of a world of one process or of the controller of a world over processes.
struct recovery_terms {
  recovery_policy policy = recovery_policy::keep_size;
  int smallest = 1; ///< The smallest number of ranks to which a world shrinks.
  /// Maximum number of rebuilds within `window`; the world fails closed at the next fault.
  std::size_t rebuilds = 3;
  nanoseconds window{0}; ///< 0: derived from deadlines and limits, see with_window() in recovery_budget.hpp.
  /// Maximum delay before the second rebuild in the window. The maximum doubles for each later rebuild, and the delay
  /// is drawn between half of it and all of it. The first rebuild has no delay.
  nanoseconds backoff{std::chrono::milliseconds{100}};
  /// The first attempt, in a world of one process; not give_up. shrink requires recovery_policy::shrink; revoke
  /// requires keep_size. If no communicator can be derived from the failed ones, new ones are formed beside them. If
  /// that forming fails too, the failed ones are aborted first in any case.
  recovery_rung first_rung = recovery_rung::form_beside;
};

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
