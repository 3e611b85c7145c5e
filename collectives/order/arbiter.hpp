/// Puts the requests of all worlds that share GPUs into one order and sends them to the ranks' pipelines in it (ORD-1).
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/order/combining_queue.hpp>
#include <troupe/collectives/order/rank_order.hpp>
#include <troupe/collectives/order/release_queue.hpp>
#include <troupe/collectives/order/retry_queue.hpp>
#include <troupe/collectives/order/sequencer.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/completion/poller/polled.hpp>
#include <troupe/completion/poller/poller.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace troupe {

class ordered_world;

/// Two worlds on the same GPUs must reach every one of them in the same order: if one GPU is given A before B and the
/// other B before A, each waits for what the other has not begun. So one arbiter stands above all worlds that share
/// GPUs, and whatever is for several pipelines goes through it.
///
/// Nobody waits for it: see turns. The poller calls it for deadlines.
/// Threads: safe from any.
class arbiter final : public polled, public std::enable_shared_from_this<arbiter> {
public:
  arbiter(std::shared_ptr<const clock> time, std::weak_ptr<troupe::poller> poller, sequencer_limits limits = {},
          fusion_limits fused = {});
  ~arbiter() override;

  /// A way in for a world whose ranks all live in this process; \p ranks are their pipelines, in rank order.
  /// \p on_straggling hears of operations whose peers are late; it must neither block nor throw. What \p retries has
  /// put aside comes first in it; none: marks of retry_safe are not looked at.
  [[nodiscard]] std::shared_ptr<ordered_world>
  open_world(std::vector<std::shared_ptr<rank_pipeline>> ranks,
             std::function<void(std::shared_ptr<const absence_report>)> on_straggling = {},
             std::shared_ptr<retry_queue> retries = {});
  /// For the epochs of one world, which ends it.
  [[nodiscard]] std::shared_ptr<retry_queue> open_shelf();

  bool poll(time_point now) override;
  [[nodiscard]] const fusion_limits& fusion() const noexcept { return fused_; }
  /// Requests that wait for peers, or for a launcher.
  [[nodiscard]] std::size_t load() const noexcept override { return waiting_.load(std::memory_order_acquire); }

private:
  friend class ordered_world;
  friend class retry_queue;
  class joining;
  class whole;

  void settle();
  void release(std::span<std::unique_ptr<sequenced>> together);
  void refuse(sequencing_effects::refusal& one);
  void complete(absence_report& report, const ordered_world& world) const;
  void end_round();
  /// One of them has changed.
  void count_shelves();
  /// A launcher has become free.
  void continue_with(ordered_world& world);

  std::shared_ptr<const clock> time_;
  std::weak_ptr<troupe::poller> poller_;
  fusion_limits fused_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<time_point> due_{time_point::max()};
  std::atomic<bool> expiring_{false};

  // Touched in turns alone.
  sequencer order_;
  sequencing_effects effects_;
  std::map<std::uint32_t, std::shared_ptr<ordered_world>> worlds_;
  std::vector<std::shared_ptr<ordered_world>> released_to_; ///< In this round.
  std::vector<std::weak_ptr<retry_queue>> shelves_;
  std::size_t put_aside_ = 0;                ///< On all shelves.
  time_point retry_due_ = time_point::max(); ///< Of all shelves.

  combining_queue queue_; ///< Last: what it runs uses all of the above.
};

/// One world's way into the order. Threads: safe from any; requests of one thread keep their order.
class ordered_world final : public rank_order, public std::enable_shared_from_this<ordered_world> {
public:
  /// Made by arbiter::open_world().
  ordered_world(std::shared_ptr<arbiter> above, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                std::function<void(std::shared_ptr<const absence_report>)> on_straggling,
                std::shared_ptr<retry_queue> retries);

  void ask(rank self, lane_request asked) override;
  /// An operation of all ranks, validated; \p parts in rank order. \p reply comes when the last rank is done.
  /// \p client asks, for whom it may concern; 0: nobody in particular.
  void ask_all(ticket name, std::vector<operation> parts, nanoseconds deadline, reply_promise reply,
               bool is_retry_safe = false, std::uint64_t client = 0, call_site site = {});

  void cancel(rank self, lane where, std::uint64_t position) override;
  void withdraw(rank self, std::uint64_t client, error why) override;
  [[nodiscard]] bool can_retry() const noexcept override { return true; }

  /// Requests on memory of \p pool must name the same place on every rank.
  void add_registered(std::shared_ptr<registered_pool> pool);
  /// Every pipeline at once: accept requests and launch none; the same set of operations is held on each. The latch
  /// opens when that is so.
  [[nodiscard]] std::shared_ptr<latch> hold();
  /// \p work runs on every rank's launcher, at one place among the operations of all worlds: what has been released
  /// goes before it. It must not throw.
  void sequence(std::function<void(rank_pipeline&)> work);
  /// Refuses what waits for peers, and whatever comes later, with \p why; what has been released is sent on. The latch
  /// opens when that is so.
  std::shared_ptr<latch> close(error why);

  [[nodiscard]] const std::vector<std::shared_ptr<rank_pipeline>>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }

private:
  friend class arbiter;
  friend class retry_queue;
  void push(released_operation one);
  [[nodiscard]] rank_pipeline& pipeline_of(rank one) const { return *ranks_[static_cast<std::size_t>(one.value())]; }

  std::shared_ptr<arbiter> above_;
  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  std::function<void(std::shared_ptr<const absence_report>)> on_straggling_;
  std::shared_ptr<retry_queue> retries_; ///< None: nothing is run again.

  // Touched in turns alone.
  std::uint32_t number_ = 0;
  release_queue queue_;
  error closed_;          ///< Why nothing more is taken, once that is so.
  bool in_round_ = false; ///< Something was released to it in this round.
  std::vector<std::shared_ptr<registered_pool>> registered_;
};

} // namespace troupe
