/// Deliberate bugs that a test enables to check that the simulator finds them. They are not compiled into any other
/// build.
#pragma once

#include <cstdint>

namespace troupe {

/// Selects a bug. Each value names the invariant that the bug violates.
enum class planted_bug : std::uint8_t {
  none,
  lost_answer,       ///< ONE-1: a withdrawn request is kept and never answered.
  doubled_answer,    ///< ONE-1: an error is delivered twice.
  false_rejection,   ///< ONE-2: work that may have run is reported as rejected.
  reordered_rank,    ///< ORD-1: one rank launches fused requests in another order.
  unchecked_request, ///< ORD-2: ranks that disagree launch nevertheless.
  split_group,       ///< GRP-1: the parts of a group are launched one by one.
  blocking_turn,     ///< BLK-1: an actor's handler aborts by itself and waits for the launcher.
  awaited_turn,      ///< BLK-2: an actor's handler waits for something that only its later handlers do.
  early_release,     ///< BUF-1: failed operations release their buffers before the abort.
  foreign_memory,    ///< BUF-2: the device of a buffer is not checked.
  stale_request,     ///< EPO-1: a request of a past epoch is accepted.
  untold_rank,       ///< EPO-1: a rank that has left its world is not informed.
  missed_deadline,   ///< TIM-1: lateness of peers is not checked.
  endless_rebuilds,  ///< FLT-1: the restart budget is not checked.
  lost_registration, ///< EPO-1: registered memory is not registered again in the next epoch.
  unmarked_retry,    ///< EPO-1: a request is retried although not every participant allowed it.
  early_retry,       ///< BUF-1: a request is retried while the failed work may still write to its results.
  overtaken_retry,   ///< ORD-1: a newer request of a lane runs before the retried one.
  unseeded_choice,   ///< DET-1: a choice depends on more than the seed.
};

#ifdef TROUPE_PLANT_BUGS
inline planted_bug the_planted_bug = planted_bug::none;
inline namespace with_planted_bugs {
[[nodiscard]] inline bool is_planted(planted_bug which) noexcept {
  return which == the_planted_bug;
}
} // namespace with_planted_bugs
#else
inline namespace without_planted_bugs {
[[nodiscard]] constexpr bool is_planted(planted_bug) noexcept {
  return false;
}
} // namespace without_planted_bugs
#endif

} // namespace troupe
