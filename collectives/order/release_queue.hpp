/// What has been released to one world and not yet been sent to its ranks' pipelines.
#pragma once

#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace troupe {

/// One rank's part of an operation whose place in the order is fixed.
struct released_part {
  rank self;
  std::shared_ptr<pipeline_call> call;
};
/// All its participants' parts.
using released_operation = std::vector<released_part, recycling_allocator<released_part>>;

/// Sends operations on in the order of their release, as many in one launch as fusion_plan allows. So that there is
/// something to fuse, what could be fused stays here while a launcher has enough to do: with two launches before it, it
/// is not idle until it asks for more.
///
/// Threads: those marked from any; the rest in the arbiter's turns.
class release_queue {
public:
  release_queue(std::vector<std::shared_ptr<rank_pipeline>> ranks, fusion_limits limits);

  void push(released_operation one);
  /// Sends on what may go now.
  void flush();
  /// Sends on everything, whatever the launchers have to do.
  void flush_all();

  /// Answers what has waited past its deadline; it keeps its place in the order, which all ranks must keep (ORD-1).
  void expire(time_point now);
  /// Before this there is nothing for expire() to do.
  [[nodiscard]] time_point next_due() const noexcept { return due_; }

  /// Any thread: whether a launcher that becomes free should have flush() called. It outlives the queue.
  [[nodiscard]] const std::shared_ptr<const std::atomic<bool>>& waits() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t size() const noexcept { return ready_.size(); }

private:
  [[nodiscard]] bool launchers_are_busy() const noexcept;
  [[nodiscard]] bool may_wait();
  [[nodiscard]] std::size_t next_batch();
  void survey(std::size_t operations);
  void send(std::size_t operations);
  void end_waiting() noexcept;
  /// What stays here is seen in the flight recorder already.
  void note_waiting() noexcept;
  [[nodiscard]] rank_pipeline& rank_of(const released_part& one) const {
    return *ranks_[static_cast<std::size_t>(one.self.value())];
  }

  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  fusion_limits limits_;
  fusion_planner planner_;
  std::deque<released_operation, recycling_allocator<released_operation>> ready_;
  std::size_t noted_ = 0; ///< Of ready_, from its front.
  time_point due_ = time_point::max();
  std::shared_ptr<std::atomic<bool>> waits_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<const std::atomic<bool>> waiting_ = waits_;

  // Kept for their capacity.
  std::vector<fusion_part> parts_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> batches_;
  std::vector<pipeline_calls> together_; ///< By rank.
};

} // namespace troupe
