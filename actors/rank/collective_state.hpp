/// Decides, without CAF, whether a rank's request is admitted or with which error it is refused.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/rcu_pointer.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/rank_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/process_mark.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Maps a lane's index to its pending line, which is created when the lane is first used. The lines are stored in runs
/// of 1, 2, 4, … that never move, so a lookup takes two loads; only the first request of a lane takes a lock. Threads:
/// safe from any.
class lane_lines {
public:
  /// Returns the line of \p one, created in \p where if it does not exist. Lifetime: that of this object.
  [[nodiscard]] pending_line& of(lane one, const std::shared_ptr<admission_quota>& where);

private:
  using slot = std::atomic<pending_line*>;

  pending_line& make(std::size_t run, std::size_t place, const std::shared_ptr<admission_quota>& where);

  std::array<std::atomic<slot*>, 33> runs_{}; ///< Number of runs: one more than the bits of an index.
  std::mutex mutex_;                          ///< Serializes the creation of lines.
  std::vector<std::unique_ptr<slot[]>> all_runs_;
  std::vector<pending_line_owner> all_;
};

/// Returns the error for a request that names epoch \p named (0: none) while the world is in epoch \p now.
[[nodiscard]] error stale_epoch_error(epoch named, epoch now);

/// Holds the rank's pipeline, and with it the stream and the communicator, for the duration of an epoch.
/// It is shared by the rank's actor, which receives the clients' requests, and the world's actor, which opens and
/// closes it. In a fork it refuses every request and withdraws none: the order's memory is shared with the other ranks.
/// Threads: safe from any.
class collective_state {
public:
  explicit collective_state(rank self);

  /// Opens the rank for requests. \p order is null if the callers guarantee the order. \p pending is the quota of the
  /// whole world. \p first is the first epoch in which the world was ready in this process. \p since: requests that
  /// name an epoch from this one on are admitted, as the world has changed only by plan since; 0: only the present one.
  void adopt(std::shared_ptr<rank_pipeline> pipeline, std::shared_ptr<rank_order> order, nanoseconds default_deadline,
             std::shared_ptr<admission_quota> pending, epoch first = epoch{1}, epoch since = epoch{});
  /// Rejects all further requests with \p reason.
  void close(error reason);
  /// Rejects all further requests with \p reason and releases the pipeline, because the rank has left the world.
  void lose(error reason);

  /// Submits \p asked, or delivers the reason for a refusal to \p reply (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1). An
  /// agree that is refused for what it asks enters the order with its error, so that all ranks are refused.
  void accept(rank_request asked, reply_promise reply, std::uint64_t client) noexcept;
  /// Submits this rank's part of a request that another process has sent to all ranks. A part that is refused, because
  /// of \p objection or by this rank, enters the order with its error, so that no peer waits for this rank.
  void accept_for_peer(rank_request asked, error objection, reply_promise reply, std::uint64_t client) noexcept;
  void cancel(const cancel_request& query);
  /// Withdraws the waiting requests of \p client, which sends no more.
  void forget(std::uint64_t client, const error& why);

  /// Ends the rank because its actor has ended. The outcome of work in flight is unknown.
  void end(const std::string& reason);

private:
  /// The conditions of the present epoch: whether requests are admitted, and where they go.
  struct terms {
    /// Returns whether a request that names epoch \p named is admitted. A request that names none is admitted only in
    /// the first epoch: after a rebuild, ranks may differ in which requests they saw succeed, so each request must name
    /// the epoch that its client has acknowledged (CUT-1). After a planned change they do not differ.
    [[nodiscard]] bool admits(epoch named) const noexcept;

    bool ended = false;
    error closed{}; ///< Why requests are refused; errc::none if they are admitted.
    std::shared_ptr<rank_pipeline> pipeline{};
    std::shared_ptr<rank_order> order{};
    nanoseconds default_deadline{0};
    std::shared_ptr<admission_quota> pending{};
    epoch first{}; ///< The first epoch in which the world was ready in this process.
    epoch since{}; ///< See adopt(); not 0.
  };

  /// Returns this rank's number in the present epoch.
  [[nodiscard]] rank name_in(const terms& now) const noexcept { return now.pipeline ? now.pipeline->self() : self_; }
  [[nodiscard]] static error objection_to(const rank_request& asked, const terms& now);
  /// Returns whether a refusal of \p asked is passed to the order, which tells all ranks of it.
  [[nodiscard]] static bool takes_position(const rank_request& asked, const terms& now) noexcept;
  /// Makes \p asked a request that enters the order only to be refused. Returns its objection.
  [[nodiscard]] std::unique_ptr<error> refuse_in_order(rank_request& asked, error why, const terms& now) const;
  /// Counts \p asked as pending until \p reply is delivered. Errors: busy.
  [[nodiscard]] error charge(const rank_request& asked, const terms& now, reply_promise& reply);

  const rank self_; ///< The number in the first epoch that it was part of; it may differ in later epochs.
  const process_mark made_;
  rcu_pointer<terms> terms_;
  lane_lines lines_;
  std::atomic<std::uint64_t> next_{1}; ///< The next ticket.
};

} // namespace troupe
