/// Keeps copies of a rank's state at its last commits, so that work that overwrites its state can go on after a fault.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Copies of some buffers of one rank at the last two commits of a lane. After a fault all ranks agree on the last
/// commit that is complete at every rank (its resume point): each one restores its copy of it, and a rank without one,
/// for example in a process that has replaced a lost one, receives the state of the lowest rank that has it. So the
/// state must be the same at all ranks, or it must be acceptable that a replacement has the state of another rank.
///
/// The copies are in page-locked host memory: at most three times the size of the buffers, during a commit. They end
/// with this object and with its process: state that only ended processes had is lost (resume_points::has_survivors).
///
/// Order: its requests are those of the lane, and every rank calls the same functions at the same place among its
/// requests. The functions wait for the outcome. If one throws because the epoch has ended, wait for the next `ready`
/// event and call resume().
/// Lifetime: the lane outlives it. Threads: that of the lane.
class checkpoints {
public:
  /// Where a rank continues.
  struct resumed {
    /// The commit whose state the buffers have; the same at all ranks. nullopt: no commit is complete, the buffers are
    /// unchanged, and all ranks begin anew.
    std::optional<std::uint64_t> commit{};
    /// The rank whose state this rank has received. nullopt: it had a copy of its own.
    std::optional<rank> received_from{};
  };

  /// Keeps \p state, memory that the rank of \p in uses. All ranks name the same number of buffers, of the same sizes.
  /// Errors: unsupported (ordering::caller, under which there are no resume points).
  checkpoints(rank_lane& in, std::vector<buffer> state);
  checkpoints(const checkpoints&) = delete;
  checkpoints& operator=(const checkpoints&) = delete;

  /// Copies the state, after all earlier requests of the lane, and commits \p number in the lane (commit()). Errors:
  /// those of a copy and of a commit. If only the outcome of the commit is unknown, resume() tells whether it counts.
  void commit(std::uint64_t number);

  /// Acknowledges the epoch of \p now at the lane (rank_lane::acknowledge()), and brings the state to the last complete
  /// commit. Call it first in each epoch, with the `ready` event of that epoch: in the first one it only returns
  /// nullopt. After an error, wait for a later epoch (world::wait_ready(after, …)): the world may not have noticed the
  /// fault yet. Errors: stale_epoch (this rank has continued or committed in that epoch already; nothing has changed);
  /// missing, at all ranks alike (no rank has the state of that commit: load a checkpoint of your own, or begin anew);
  /// those of the lane's requests.
  resumed resume(const world_event& now); // NOLINT(modernize-use-nodiscard)
  /// Does the same with \p state in place of the buffers, from now on; their sizes are equal. Name new memory after a
  /// fault: work of the failed epoch may write to the old memory until that work has been aborted. Errors: also
  /// invalid_argument (other sizes).
  resumed resume(const world_event& now, std::vector<buffer> state); // NOLINT(modernize-use-nodiscard)

private:
  struct copy_of_state {
    std::uint64_t commit = 0;
    std::vector<buffer> memory{};
  };

  [[nodiscard]] copy_of_state make_copy(std::uint64_t number);
  [[nodiscard]] const copy_of_state* find(std::uint64_t number) const noexcept;
  /// Returns, by rank, whether it has a copy of the commit.
  [[nodiscard]] std::vector<bool> gather_holders(bool has_copy, int world_size);

  rank_lane& lane_;
  std::vector<buffer> state_;
  epoch last_in_{};                        ///< The last epoch in which it has resumed or committed.
  std::vector<copy_of_state> kept_;        ///< In the order of commits: two, or three while a commit is pending.
  std::vector<std::vector<buffer>> spare_; ///< Memory of complete copies that are no longer kept.
};

} // namespace troupe
