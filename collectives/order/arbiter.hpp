/// Puts the requests of all worlds that share GPUs into one order and sends them to the ranks' pipelines in that order
/// (ORD-1).
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/order/combining_queue.hpp>
#include <troupe/collectives/order/release_queue.hpp>
#include <troupe/collectives/order/resume_log.hpp>
#include <troupe/collectives/order/sequencer.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/completion/poller/poller.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class ordered_world;

/// Two worlds on the same GPUs must launch in the same order on each of these GPUs. If one GPU launches A before B and
/// another B before A, each waits for an operation that the other has not begun. Therefore all worlds that share GPUs
/// have one arbiter, and every operation for several pipelines goes through it.
///
/// No thread blocks in it: its tasks run in a combining_queue. The poller calls it for deadlines, and continues with
/// tasks that another thread has handed over.
/// Threads: all functions may be called from any thread.
class arbiter final : public polled, public std::enable_shared_from_this<arbiter> {
public:
  arbiter(std::shared_ptr<const clock> time, std::weak_ptr<troupe::poller> poller, sequencer_limits limits = {},
          fusion_limits fused = {});
  ~arbiter() override;

  /// Registers a world whose ranks all live in this process. \p ranks are their pipelines, in rank order. \p
  /// on_straggling is called with operations whose peers are late; it must neither block nor throw. \p log begins the
  /// epoch of \p ranks; if it is null, there are no resume points. Positions are then counted on from \p counted_from;
  /// if that is null, too, there are none, because clients order the requests.
  [[nodiscard]] std::shared_ptr<ordered_world>
  open_world(std::vector<std::shared_ptr<rank_pipeline>> ranks,
             std::function<void(std::shared_ptr<const absence_report>)> on_straggling = {},
             std::shared_ptr<resume_log> log = {}, const std::shared_ptr<const resume_points>& counted_from = {});

  bool poll(time_point now, running_time running) override;
  [[nodiscard]] const fusion_limits& fusion() const noexcept { return fused_; }
  /// Returns the number of requests that wait for peers or for a launcher.
  [[nodiscard]] std::size_t load() const noexcept override { return waiting_.load(std::memory_order_acquire); }

private:
  friend class ordered_world;
  class joining;

  void settle();
  void release(std::span<std::unique_ptr<sequenced>> together);
  void refuse(sequencing_effects::refusal& one);
  void complete(absence_report& report, const ordered_world& world) const;
  void end_round();
  /// Lets the poller continue with the tasks. Returns false if it does not poll this object.
  [[nodiscard]] bool hand_to_poller() const noexcept;

  std::shared_ptr<const clock> time_;
  std::weak_ptr<troupe::poller> poller_;
  fusion_limits fused_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<time_point> due_{time_point::max()};
  std::atomic<bool> expiring_{false};

  // Accessed only by tasks of queue_.
  sequencer order_;
  sequencing_effects effects_;
  std::map<std::uint32_t, std::shared_ptr<ordered_world>> worlds_;
  std::vector<std::shared_ptr<ordered_world>> released_to_; ///< Worlds to which operations were released in this round.
  bool has_launches_ = false;   ///< In this round something was asked for whose end the poller must look for.
  bool is_poller_told_ = false; ///< The poller knows of what waits.

  combining_queue queue_; ///< Declared last, because its tasks use all other members.
};

/// One world's access to the common order. Threads: all functions may be called from any thread; the requests of one
/// thread keep their order.
class ordered_world final : public world_order, public std::enable_shared_from_this<ordered_world> {
public:
  /// Used by arbiter::open_world().
  ordered_world(std::shared_ptr<arbiter> above, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                std::function<void(std::shared_ptr<const absence_report>)> on_straggling,
                std::shared_ptr<resume_log> log, const std::shared_ptr<const resume_points>& counted_from);

  void ask(rank self, lane_request asked) override;
  /// Requests an operation of all ranks, which has already been validated. \p parts are in rank order. \p reply is
  /// delivered when the last rank is done. \p client identifies the client in reports; 0: none.
  void ask_all(ticket name, std::vector<operation> parts, nanoseconds deadline, reply_promise reply,
               std::uint64_t client = 0, call_site site = {});

  void cancel(rank self, lane where, std::uint64_t position) override;
  void withdraw(rank self, std::uint64_t client, error why) override;

  /// Granted at once, at one place in the order of all worlds (ORD-3). Requests that wait for a launcher are released
  /// behind it. Its names and deadlines are not used, because no other process asks for it.
  void turn(turn_terms asked, turn_work work) override;
  /// Begins at once: everything released earlier is sent to the pipelines first.
  void capture(const std::shared_ptr<captured_plan>& plan, nanoseconds deadline, nanoseconds limit,
               capture_start start) override;
  void set_registered(std::vector<std::shared_ptr<registered_pool>> pools) override;
  std::shared_ptr<latch> leave(error why) override { return close(std::move(why)); }
  /// Refuses requests that wait for peers, and all later ones, with \p why. Requests that were already released are
  /// still sent to the pipelines. The latch opens when this is done.
  std::shared_ptr<latch> close(error why, bool for_good = true) override;
  [[nodiscard]] world_entry entry() override { return {.here = shared_from_this()}; }

  [[nodiscard]] const std::vector<std::shared_ptr<rank_pipeline>>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// Returns whether its operations have positions: false under ordering::caller.
  [[nodiscard]] bool is_agreed() const noexcept { return is_agreed_; }

private:
  friend class arbiter;
  /// Passes an operation on, at its place in the order.
  void push(released_operation one);
  /// Makes the value of an agree and answers all ranks.
  void decide(released_operation one);
  /// Counts an operation and records it in the log.
  void count(const released_operation& one, const std::shared_ptr<agreed_value>& agreed = {});
  [[nodiscard]] rank_pipeline& pipeline_of(rank one) const { return *ranks_[static_cast<std::size_t>(one.value())]; }
  /// Notes that something was asked for that the pipelines launch, if the poller must look for its end.
  void note_launch() noexcept;

  std::shared_ptr<arbiter> above_;
  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  std::function<void(std::shared_ptr<const absence_report>)> on_straggling_;
  std::shared_ptr<resume_log> log_; ///< Null: there are no resume points.
  const bool is_agreed_;

  // Accessed only by tasks of the arbiter's queue.
  std::uint32_t number_ = 0;
  release_queue queue_;
  error closed_;          ///< Set once the world is closed: the reason for which requests are refused.
  bool in_round_ = false; ///< An operation was released to this world in this round.
  std::vector<std::shared_ptr<registered_pool>> registered_;
  std::vector<std::uint64_t> released_;               ///< Number of requests released to each rank.
  std::vector<rank> participants_;                    ///< A member so that its memory is reused.
  std::map<std::optional<lane>, std::uint64_t> next_; ///< The next position of each lane. Used if there is no log.
};

} // namespace troupe
