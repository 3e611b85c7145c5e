/// What has been released to one world and not yet been sent to its ranks' pipelines.
#pragma once

#include <troupe/collectives/rank_pipeline.hpp>
#include <troupe/collectives/sequencing/fusion_plan.hpp>

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
  ticket name;
  operation what;
  time_point deadline = time_point::max();
  answer reply{};
  std::optional<request_origin> from{};
  std::uint64_t message = 0; ///< See fusion_part.
};
/// All its participants' parts.
using released_operation = std::vector<released_part>;

/// Sends operations on in the order of their release, as many in one launch as fusion_plan allows. So that there is
/// something to fuse, small operations stay here while every launcher has enough to do: a launcher with two launches
/// before it is not idle until it asks for more.
///
/// Threads: those marked from any; the rest in the arbiter's turns.
class release_queue {
public:
  release_queue(std::vector<std::shared_ptr<rank_pipeline>> ranks, fusion_limits limits);

  void push(released_operation one);
  /// Sends on what may go now.
  void flush(time_point now);
  /// Sends on everything, whatever the launchers have to do.
  void flush_all(time_point now);

  /// Answers what has waited past its deadline; it keeps its place in the order, which all ranks must keep (ORD-1).
  void expire(time_point now);
  /// Before this there is nothing for expire() to do.
  [[nodiscard]] time_point next_due() const noexcept { return due_; }

  /// Any thread: whether a launcher that becomes free should have flush() called.
  [[nodiscard]] bool waits() const noexcept { return waits_.load(std::memory_order_seq_cst); }
  [[nodiscard]] std::size_t size() const noexcept { return ready_.size(); }

private:
  [[nodiscard]] bool launchers_are_busy() const noexcept;
  [[nodiscard]] std::size_t next_batch();
  void send(std::size_t operations, time_point now);

  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  fusion_limits limits_;
  fusion_planner planner_;
  std::deque<released_operation> ready_;
  time_point due_ = time_point::max();
  std::atomic<bool> waits_{false};

  // Kept for their capacity.
  std::vector<fusion_part> parts_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> batches_;
  std::vector<std::vector<submission>> together_; ///< By rank.
};

} // namespace troupe
