/// Decides which recovery is tried after a fault and how often, and which ranks the world continues without.
#pragma once

#include <troupe/actors/world/recovery/recovery_terms.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
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

/// The next step of a recovery.
struct recovery_step {
  recovery_rung rung = recovery_rung::give_up;
  nanoseconds delay{0};        ///< Delay before the forming.
  std::vector<rank> without{}; ///< The excluded ranks by their present numbers, ascending.
  error why{};                 ///< For give_up: the fault, and why no other rung is tried.
};

/// The state of the world that the choice of a rung depends on, in addition to the fault.
struct recovery_view {
  bool while_rebuilding = false; ///< The fault occurred before the world had recovered from the previous one.
  int world_size = 1;
  std::vector<rank> blamed{}; ///< The result of culprits_of(), ascending.
};

/// Chooses the rung for each fault of one world. Threads: one at a time.
class recovery_ladder {
public:
  /// \p seed: seeds the random delays.
  explicit recovery_ladder(recovery_terms terms = {}, std::uint64_t seed = 0) noexcept
    : terms_{with_window(terms)}, random_{seed} {}

  /// Returns the step after the fault \p why at \p now.
  [[nodiscard]] recovery_step on_fault(const error& why, time_point now, const recovery_view& seen);
  /// Records that the last chosen rung turned out to be impossible, so that new communicators were formed beside the
  /// failed ones instead.
  void fell_back() noexcept { last_ = recovery_rung::form_beside; }

private:
  [[nodiscard]] recovery_rung choose(const error& why, const recovery_view& seen, std::size_t left) const;
  [[nodiscard]] nanoseconds draw_delay(std::size_t before) noexcept;

  recovery_terms terms_;
  std::mt19937_64 random_;
  recovery_rung last_ = recovery_rung::give_up;
  std::deque<time_point> rebuilds_; ///< Times of the rebuilds within the window.
};

} // namespace troupe
