/// Finds up to which position the lanes of a world are complete, so that its clients know where to continue after a
/// fault (CUT-1).
///
/// A position of a lane is one released operation: a collective, a transfer, a group, a copy or a replay. It is
/// complete when it and all earlier ones of the lane have succeeded at all their participants. Requests to the whole
/// world form a lane of their own. Positions are counted from 0 in the order of release, across epochs: an epoch begins
/// at the first position that is not complete.
#pragma once

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Returns the number of the commit that \p what is, or nullopt.
[[nodiscard]] std::optional<std::uint64_t> commit_of(const operation& what) noexcept;

/// Identifies an operation in the order of several logs.
struct released_name {
  std::uint64_t number = 0; ///< Ascending in the common order.
  operation_sketch what{operation_sketch::words{}};
};

/// An operation that was released in the common order of a world over processes and its sub-worlds, and has not ended
/// at all its ranks.
struct open_operation {
  /// The state of a participant, according to its latest report.
  struct standing {
    troupe::rank rank{}; ///< In the whole world.
    bool has_launched = false;
    bool has_finished = false;
  };

  std::uint64_t number = 0; ///< Ascending in the common order; operations that are launched together share it.
  std::string sub_world{};  ///< Empty: the whole world.
  operation_mark what{};
  std::vector<standing> ranks{};
};

/// Records the released operations of a world until they are complete. Its memory is proportional to the operations in
/// flight. Threads: all functions may be called from any thread.
class resume_log {
public:
  /// Takes over the commits that the processes of the next epoch know, before begin(). They are used if this log has
  /// not recorded the latest epoch; else it knows more. A log whose operations outlive no process needs no call.
  void learn(const told_commits& known);
  /// Returns the last complete commits, for another log that records the next epoch.
  [[nodiscard]] told_commits commits();

  /// Ends the present epoch, if there is one, and begins \p of. Operations that are not complete by now stay
  /// incomplete. \p ranks count the successes of each rank.
  void begin(epoch of, std::vector<std::shared_ptr<const success_count>> ranks);
  /// Records nothing more of the present epoch, because its operations are ordered elsewhere.
  void stop();
  /// Drops everything, for a world that begins anew or whose last epochs are not known here.
  void forget();

  /// Drops the lane \p where, in which nothing more is released. If the lane is used again in this epoch, its positions
  /// go on, because no two values of an epoch may have one position; in a later epoch they begin at 0.
  void drop(lane where);

  /// Records that an operation was released to \p participants, in the order of release. \p commit: see commit_of().
  /// Does nothing if epoch \p of has ended.
  /// \p name is for first_open(). \p agreed: the value of an agree; sets its position.
  void released(epoch of, const std::optional<lane>& where, std::span<const rank> participants,
                const std::optional<std::uint64_t>& commit, const released_name& name = {},
                const std::shared_ptr<agreed_value>& agreed = {});
  /// Returns how many requests were released to \p one in the present epoch.
  [[nodiscard]] std::uint64_t released_to(rank one) const;

  /// Returns where the lanes stood when the latest epoch began; null in the world's first epoch.
  [[nodiscard]] std::shared_ptr<const resume_points> points() const;
  /// Leaves values out of points() until they are at most most_kept_values and most_kept_value_bytes, divided by
  /// \p share, as in bound_values().
  void bound_points(std::size_t share);
  /// Returns, for each rank, the first operation that was released to it and has not succeeded there; each operation
  /// once. Its ranks are those of this log's world. Whether they have launched it is not known here.
  [[nodiscard]] std::vector<open_operation> first_open();
  /// Returns the number of recorded operations.
  [[nodiscard]] std::size_t open() const;

private:
  struct entry {
    std::optional<std::uint64_t> commit{};
    std::vector<rank> participants{}; ///< Empty: all ranks.
    std::size_t missing = 0;          ///< Number of participants that have not succeeded.
    released_name name{};
    std::shared_ptr<const agreed_value> agreed{};
    bool is_unkept = false; ///< It has a value, which is not kept.
  };
  struct lane_log {
    std::optional<lane> where{};
    std::deque<entry> entries{}; ///< From position `complete` on.
    std::uint64_t next = 0;      ///< Position of the next operation.
    std::uint64_t complete = 0;
    std::optional<std::uint64_t> commit{};
    /// Values of earlier epochs: see resume_point::agreed.
    std::vector<std::shared_ptr<const agreed_value>> agreed{};
    std::uint64_t agreed_unlisted = 0;
    std::uint64_t unkept = 0; ///< Number of values of `entries` that are not kept.
    bool is_used = false;     ///< An operation of all ranks was released in the present epoch.
  };
  /// Requests that were released to a rank one after the other, at consecutive positions of one lane.
  struct run {
    lane_log* where;
    std::uint64_t position; ///< The position of the first one.
    std::uint64_t count;
  };
  struct rank_log {
    std::shared_ptr<const success_count> successes;
    std::uint64_t released = 0;
    std::uint64_t seen = 0; ///< Successes that have been applied.
    std::deque<run> open{}; ///< Released requests whose success has not been applied.
  };

  [[nodiscard]] static std::uint64_t lane_of(const std::optional<lane>& where);
  /// Drops values of earlier epochs beyond the limits, the last ones first.
  void bound_values();
  /// Keeps the value for make_points(), unless there are too many.
  void keep(lane_log& there, entry& of, std::shared_ptr<const agreed_value> value);
  [[nodiscard]] bool is_open(rank at, const lane_log& where, std::uint64_t position) const;
  /// Applies the successes since the last call.
  void advance();
  [[nodiscard]] resume_points make_points() const;

  static constexpr std::size_t most_mentions = 8192; ///< Limit of the ranks in all resume_point::later.
  static constexpr std::size_t least_look = 256;     ///< Operations after which the successes are applied.

  mutable std::mutex mutex_;
  epoch epoch_{};                           ///< The epoch that is recorded; 0: none.
  epoch latest_{};                          ///< The latest epoch of the world that is known here; 0: none.
  epoch used_{};                            ///< The latest one in which operations may have been released.
  epoch counted_from_{};                    ///< resume_points::counted_from
  bool has_survivors_ = true;               ///< resume_points::has_survivors
  std::map<std::uint64_t, lane_log> lanes_; ///< By lane_of().
  /// Dropped lanes with operations in flight.
  std::vector<std::map<std::uint64_t, lane_log>::node_type> dropped_;
  std::map<std::uint64_t, std::uint64_t> next_of_dropped_; ///< The next position of lanes dropped in this epoch.
  std::vector<rank_log> ranks_;
  std::size_t open_ = 0;
  std::size_t kept_values_ = 0, kept_bytes_ = 0; ///< Of the entries' values.
  std::size_t next_look_ = least_look;
  std::shared_ptr<const resume_points> points_{};
};

} // namespace troupe
