/// Operations that were released to one world and not yet sent to its ranks' pipelines.
#pragma once

#include <troupe/collectives/pipeline/fusion_composer.hpp>
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
/// An operation whose place in the order is fixed: the parts of all participants.
using released_operation = std::vector<released_part, recycling_allocator<released_part>>;

/// Sends operations to the pipelines in the order of their release, as many in one launch as fusion_composer allows.
/// While a launcher is busy, operations that can be fused wait here, so that others can join them. The first operation
/// does not wait if the second cannot join it, for example because both write the same memory, or if the forecast says
/// that none will join. A launcher counts as busy with two queued launches, so it does not become idle before it gets
/// the next one.
///
/// Threads: a function marked "any thread" may be called from any thread; all others only from the arbiter's tasks.
class release_queue {
public:
  release_queue(std::vector<std::shared_ptr<rank_pipeline>> ranks, fusion_limits limits);

  void push(released_operation one);
  /// Sends the operations that do not have to wait for a launcher.
  void flush();
  /// Sends all operations, even if the launchers are busy.
  void flush_all();

  /// Answers requests that have waited past their deadline. They keep their place in the order, which all ranks must
  /// keep (ORD-1).
  void expire(time_point now);
  /// Returns the time before which expire() does nothing.
  [[nodiscard]] time_point next_due() const noexcept { return due_; }

  /// Any thread: returns the flag that is true if flush() must be called when a launcher becomes idle. The flag may
  /// outlive the queue.
  [[nodiscard]] std::shared_ptr<const std::atomic<bool>> waits() const noexcept { return waits_; }
  [[nodiscard]] std::size_t size() const noexcept { return ready_.size(); }

private:
  [[nodiscard]] bool launchers_are_busy() const noexcept;
  /// Returns whether the first operation can still be joined by others.
  [[nodiscard]] bool may_wait();
  /// Returns how many of the first \p most operations form the next launch.
  [[nodiscard]] std::size_t next_batch(std::size_t most);
  void survey(std::size_t operations);
  void send(std::size_t operations);
  void end_waiting() noexcept;
  /// Records waiting operations in the flight recorder before they are sent.
  void note_waiting() noexcept;
  [[nodiscard]] rank_pipeline& rank_of(const released_part& one) const {
    return *ranks_[static_cast<std::size_t>(one.self.value())];
  }

  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  fusion_limits limits_;
  operand_composer composer_;
  std::deque<released_operation, recycling_allocator<released_operation>> ready_;
  company_forecast forecast_;
  std::size_t examined_ = 0; ///< Number of operations at the front, at most 2, that may_wait() has found to fuse.
  std::size_t noted_ = 0;    ///< Number of operations at the front of ready_ that are recorded.
  time_point due_ = time_point::max();
  std::shared_ptr<std::atomic<bool>> waits_ = std::make_shared<std::atomic<bool>>(false);

  // Members so that their memory is reused.
  std::vector<fusion_part> parts_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> batches_;
  std::vector<pipeline_calls> together_; ///< Indexed by rank.
};

} // namespace troupe
