/// What one rank's collective actor decides, without CAF: whether a request is admitted, and how it is refused.
#pragma once

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/rank/lane_lines.hpp>
#include <troupe/actors/world/rcu_pointer.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/rank_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/admission/admission_quota.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe {

/// The refusal of a rank's request for epoch \p named, or for none (0), where the world is in \p now.
[[nodiscard]] error stale_epoch_error(epoch named, epoch now);

/// Holds the rank's pipeline, and with it stream and communicator, for as long as the epoch lasts.
/// Shared by the rank's actor, whose clients speak to it, and the world's, which opens and closes it.
/// Threads: safe from any.
class collective_state {
public:
  explicit collective_state(rank self);

  /// \p order is none where the callers promise theirs; \p pending is the whole world's; \p first is the epoch that the
  /// world was ready in first, here.
  void adopt(std::shared_ptr<rank_pipeline> pipeline, std::shared_ptr<rank_order> order, nanoseconds default_deadline,
             std::shared_ptr<admission_quota> pending, epoch first = epoch{1});
  /// Everything from now on is rejected with \p reason.
  void close(error reason);
  /// The same for good: its rank has left the world.
  void lose(error reason);

  /// Sends \p asked on its way, or delivers to \p reply why not (ONE-1, ORD-2, EPO-1). Never blocks (BLK-1).
  void accept(rank_request asked, reply_promise reply, std::uint64_t client) noexcept;
  void cancel(const cancel_request& wish);
  /// \p client asks no more.
  void forget(std::uint64_t client, const error& why);

  /// The actor ends: work in flight loses its owner, so its outcome is unknown.
  void end(const std::string& reason);

private:
  /// What requests are judged by, and where they go.
  struct terms {
    /// Whether a request that names \p named is for this epoch. Those that name none are for the first: after a rebuild
    /// ranks may differ in which requests they saw succeed, so that each names what its client has acknowledged
    /// (CUT-1).
    [[nodiscard]] bool admits(epoch named) const noexcept;

    bool ended = false;
    error closed{}; ///< Why nothing is admitted; errc::none where it is.
    std::shared_ptr<rank_pipeline> pipeline{};
    std::shared_ptr<rank_order> order{};
    nanoseconds default_deadline{0};
    std::shared_ptr<admission_quota> pending{};
    epoch first{}; ///< The epoch that the world was ready in first, here.
  };

  /// What this rank is called in the present epoch.
  [[nodiscard]] rank name_in(const terms& now) const noexcept { return now.pipeline ? now.pipeline->self() : self_; }
  [[nodiscard]] static error objection_to(const rank_request& asked, const terms& now, const reply_promise& reply);
  [[nodiscard]] static error objection_to_retry(const rank_request& asked, const terms& now,
                                                const reply_promise& reply);
  /// Counts \p asked among what is pending until \p reply is delivered. Errors: busy.
  [[nodiscard]] error charge(const rank_request& asked, const terms& now, reply_promise& reply);

  const rank self_; ///< In the first epoch that it was part of; later ones may call it otherwise.
  rcu_pointer<terms> terms_;
  lane_lines lines_;
  std::atomic<std::uint64_t> next_{1}; ///< Ticket.
};

} // namespace troupe
