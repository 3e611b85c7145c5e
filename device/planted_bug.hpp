/// Bugs that a test plants, to see that the simulator finds them. In every other build they do not exist.
#pragma once

#include <cstdint>

namespace troupe {

/// Which bug, by the promise that it breaks.
enum class planted_bug : std::uint8_t {
  none,
  lost_answer,       ///< ONE-1: what is withdrawn is kept, and forgotten.
  doubled_answer,    ///< ONE-1: an error is delivered twice.
  false_rejection,   ///< ONE-2: what may have run is said not to have.
  reordered_rank,    ///< ORD-1: one rank launches what is fused in another order.
  unchecked_request, ///< ORD-2: ranks that disagree launch all the same.
  split_group,       ///< GRP-1: the parts of a group are launched one by one.
  blocking_turn,     ///< BLK-1: an actor's turn aborts by itself, and waits for the launcher.
  awaited_turn,      ///< BLK-2: an actor's turn waits for what only its later turns do.
  early_release,     ///< BUF-1: failed operations let go of their buffers before the abort.
  foreign_memory,    ///< BUF-2: nobody looks whose device a buffer is of.
  stale_request,     ///< EPO-1: a request of an epoch that is over is taken.
  untold_rank,       ///< EPO-1: a rank that has left its world is not told.
  missed_deadline,   ///< TIM-1: nobody looks whether peers are late.
  endless_rebuilds,  ///< FLT-1: the budget is not looked at.
  lost_registration, ///< EPO-1: registered memory is not registered again in the next epoch.
  unmarked_retry,    ///< EPO-1: run again although not every participant said that it may be.
  early_retry,       ///< BUF-1: run again while the failed work may still write to its results.
  overtaken_retry,   ///< ORD-1: what is newer in a lane goes before what is run again.
  unseeded_choice,   ///< DET-1: something depends on more than the seed.
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
