/// Decides what follows a fault of a world: its end, or which recovery, after which delay, and without which ranks.
#pragma once

#include <troupe/actors/world/recovery/recovery_budget.hpp>
#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace troupe {

struct fault_report;

/// The activity of a world at the time of a fault.
enum class fault_time : std::uint8_t {
  serving,
  forming, ///< Forming with new communicators.
  /// Forming with communicators derived from failed ones (shrink, revoke + split). Whether that works depends on the
  /// failed ones.
  forming_of_failed,
};

/// Returns the ranks that recovery_policy::shrink excludes after \p why, ascending. While serving, these are the ranks
/// that \p report suspects, and the rank that \p why names if the error can only be that rank's own failure. While
/// forming, it is the rank that \p why names as having failed to form, unless the deadline passed, which happens to all
/// ranks at once. Empty if no rank can be blamed. \p report may be null.
[[nodiscard]] std::vector<rank> culprits_of(const error& why, const fault_report* report, fault_time when);

/// What a fault takes from a world.
enum class fault_loss : std::uint8_t {
  nothing, ///< All processes of the world remain, and can form again.
  process, ///< One of several processes, which another can replace.
  world,   ///< All of it, until it recovers: its ranks are in one process.
};

/// A fault of a world.
struct world_fault {
  error why{};
  fault_loss loses = fault_loss::world;
  int world_size = 1;
  std::vector<rank> blamed{}; ///< The result of culprits_of(), ascending.
  bool counts = true;         ///< Whether the recovery uses the budget.
  /// The shortest delay before the next epoch. If `longest_pause` is not 0, the pause doubles, up to that, with each
  /// such fault since the world has last served.
  nanoseconds pause{0};
  nanoseconds longest_pause{0};
};

/// The next step of a recovery.
struct recovery_step {
  recovery_rung rung = recovery_rung::give_up;
  nanoseconds delay{0};        ///< Delay before the forming.
  std::vector<rank> without{}; ///< The excluded ranks by their present numbers, ascending.
  error why{};                 ///< For give_up: the fault, and why no other rung is tried.
};

/// The authority for the recovery of one world: of a world of one process (world_state), or of a world over processes
/// (controller_state, which decides itself with which processes the next epoch forms).
/// Threads: one at a time.
class world_recovery {
public:
  /// \p seed: seeds the random delays.
  explicit world_recovery(recovery_terms terms = {}, std::uint64_t seed = 0) noexcept
    : terms_{with_window(terms)}, random_{seed}, rebuilds_{budget_of(terms_)} {}

  /// Returns the step after \p fault at \p now.
  [[nodiscard]] recovery_step on_fault(const world_fault& fault, running_time now);
  /// Records that the last chosen rung turned out to be impossible, so that new communicators were formed beside the
  /// failed ones instead.
  void fell_back() noexcept { last_ = recovery_rung::form_beside; }
  /// Records that an epoch serves, so that the world has recovered.
  void on_serving() noexcept;

  /// Returns whether a world of \p world_size ranks continues with \p present of them.
  [[nodiscard]] bool suffices(int present, int world_size) const noexcept;
  /// Returns whether the loss of a process ends the world.
  [[nodiscard]] bool fails_fast() const noexcept { return terms_.policy == recovery_policy::fail_fast; }
  /// Returns the terms, with a window.
  [[nodiscard]] const recovery_terms& terms() const noexcept { return terms_; }

private:
  [[nodiscard]] recovery_rung choose(const world_fault& fault, int left) const;
  [[nodiscard]] nanoseconds draw_delay(nanoseconds longest) noexcept;

  recovery_terms terms_;
  std::mt19937_64 random_;
  recovery_budget rebuilds_;
  bool is_recovering_ = false; ///< No epoch has served since the last fault.
  recovery_rung last_ = recovery_rung::give_up;
  std::size_t pauses_ = 0; ///< How often the pause of a fault has doubled since an epoch has served.
};

} // namespace troupe
