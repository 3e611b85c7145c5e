/// Defines the positions of the lanes of a world at the end of an epoch, where clients continue after a fault (CUT-1).
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// An operation that was released in an epoch that has ended, and is not complete. Its outputs count as overwritten at
/// each of its ranks. Ranks have their numbers of that epoch.
struct incomplete_operation {
  std::uint64_t position = 0;    ///< From resume_point::complete on.
  std::vector<rank> succeeded{}; ///< Where it is known to have succeeded.
  std::vector<rank> unknown{};   ///< The other participants.
};

/// Where a lane stood when an epoch ended. Every rank of the next epoch gets the same resume points.
///
/// It is conservative: an operation that has succeeded may count as incomplete. Clients therefore continue from a state
/// that they saved at or before this point, for example a copy made at commit number `commit`. Later operations may
/// have overwritten their outputs, and an operation in place overwrites its input.
struct resume_point {
  static constexpr std::size_t most_listed = 32;

  std::optional<lane> where{};               ///< nullopt: requests to all ranks of the world.
  std::uint64_t complete = 0;                ///< Number of complete operations since resume_points::counted_from.
  std::optional<std::uint64_t> commit{};     ///< The number of the last complete commit(); nullopt: there is none.
  std::uint64_t incomplete = 0;              ///< Number of operations that were released and are not complete.
  std::vector<incomplete_operation> later{}; ///< The first of these: at most `most_listed`, fewer in very large worlds.
  /// The values of agrees that were at positions from `complete` on when their epoch ended, oldest first: a rank may
  /// have received them, others may not have. Values of an earlier epoch are listed until an operation of all ranks is
  /// released in the lane; copies may have moved `complete` past them. A value that no process of this epoch and no
  /// service of the order knows is lost.
  std::vector<std::shared_ptr<const agreed_value>> agreed{};
  std::uint64_t agreed_unlisted = 0; ///< Number of such values that are left out, because there were too many.
};

/// The resume points of the lanes that a world has used.
struct resume_points {
  std::vector<resume_point> lanes{};
  /// The epoch at whose beginning the positions of all lanes were 0. It is the present one if nobody has recorded the
  /// operations of the previous epoch, for example because it had a single rank, or the controller has been restarted.
  /// Commits are known nonetheless.
  epoch counted_from{1};
  /// Whether a process that was told of these commits is still in the world. If none is, later commits may have been
  /// complete, too: all processes that knew of them have ended.
  bool has_survivors = true;
};

/// Returns the point of \p where, or nullptr if the lane was not used.
[[nodiscard]] const resume_point* find_point(const resume_points& all, const std::optional<lane>& where) noexcept;
/// Returns one line for people: "lane step: 120 complete, commit 12, 3 released and not complete".
[[nodiscard]] std::string describe(const resume_points& all);

} // namespace troupe
