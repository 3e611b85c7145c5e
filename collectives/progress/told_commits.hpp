/// Carries what processes know of the commits of a world's lanes, so that no commit is forgotten with the service that
/// kept the resume log, and none with an epoch that no service has recorded (CUT-1).
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

struct rank_group;

/// The last commit of a lane that one process knows.
struct told_commit {
  std::optional<lane> where{}; ///< nullopt: requests to all ranks of the world.
  std::uint64_t seen = 0;      ///< Number of commits that have succeeded at the process's rank in the epoch.
  /// The number of the last of them; if there is none, that of the epoch's resume point. nullopt: there is none either.
  std::optional<std::uint64_t> number{};
  /// Values of agrees that the process knows, oldest first (resume_point::agreed).
  std::vector<std::shared_ptr<const agreed_value>> agreed{};
  std::uint64_t unlisted = 0; ///< Number of such values that are left out (resume_point::agreed_unlisted).
};

/// The commits that one process knows.
struct told_commits {
  epoch of{};                ///< The latest epoch that the process was directed to form; 0: none.
  bool has_survivors = true; ///< resume_points::has_survivors of that epoch, or true if a commit has succeeded since.
  std::vector<told_commit> lanes{};
};

/// Returns the commits that are complete according to \p all, the reports of several processes: of each lane the last
/// commit that all processes of the latest epoch know, and the agreed values that any of them knows. The others were
/// not part of that epoch, and do not count.
[[nodiscard]] told_commits common_commits(std::span<const told_commits> all);

/// Removes agreed values from \p lanes, each time the oldest of the lane that has the most, until most_kept_values and
/// most_kept_value_bytes are kept, divided by \p share: the number of such lists that are sent together. Counts them as
/// unlisted.
void bound_values(std::span<told_commit> lanes, std::size_t share = 1);
/// Returns the number of groups that the rank in the most groups is in, at least 1. When a split is repeated, the
/// values of each group have that share of their limits, because those of all groups of a rank are sent in one record.
[[nodiscard]] std::size_t value_share(std::span<const rank_group> groups, std::size_t world_size);

/// Returns the commits of \p all, the resume points of epoch \p of.
[[nodiscard]] told_commits commits_of(const resume_points& all, epoch of);

/// Records the commits that succeed at one rank in one epoch, beside those of the epoch's resume points. Threads: safe
/// from any.
class commit_record {
public:
  /// \p began_with: the resume points of epoch \p of; may be null.
  commit_record(epoch of, const std::shared_ptr<const resume_points>& began_with);

  /// Records a success. Call it before the client gets its reply.
  void note(const std::optional<lane>& where, std::uint64_t number) noexcept;
  /// Records an agreed value. Call it before the client gets its reply. Of very many, the oldest are forgotten. Returns
  /// false after seal(): the client must not get the value.
  [[nodiscard]] bool note(const std::optional<lane>& where, std::shared_ptr<const agreed_value> value) noexcept;
  [[nodiscard]] told_commits told() const;
  /// Returns told() for the report by which the next epoch is told the values. A value that clients get after it would
  /// be missing there, so from now on they get none. The epoch has ended, but a batch of decisions may be in progress.
  [[nodiscard]] told_commits seal();

private:
  [[nodiscard]] told_commits known() const; ///< As told(), with the mutex locked.
  /// Forgets the values of earlier epochs in \p where, because the lane has one of this epoch.
  void forget_past(const std::optional<lane>& where) noexcept;

  mutable std::mutex mutex_;
  epoch of_;
  bool has_survivors_;
  std::map<std::optional<lane>, told_commit> lanes_;
  struct noted_value {
    std::optional<lane> where{};
    std::shared_ptr<const agreed_value> value{};
  };
  std::deque<noted_value> agreed_; ///< Of this epoch, and of the resume points for lanes without one of this epoch.
  std::size_t agreed_bytes_ = 0;
  std::size_t past_ = 0; ///< Number of values of earlier epochs in agreed_.
  bool is_sealed_ = false;
};

/// Limits of the agreed values that are kept for the next epoch, for all lanes of a world.
inline constexpr std::size_t most_kept_values = 1024;
inline constexpr std::size_t most_kept_value_bytes = std::size_t{1} << 20U;

} // namespace troupe
