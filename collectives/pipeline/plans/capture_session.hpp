/// Runs one capture of a plan on all ranks.
#pragma once

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

class graph;
class rank_pipeline;

/// Begins a capture of \p plan for the world and epoch \p at. When the plan is destroyed, its graphs on \p ranks are
/// destroyed, too.
void begin_capture(captured_plan& plan, world_stamp at, const std::vector<std::shared_ptr<rank_pipeline>>& ranks);

/// One capture of a plan on the ranks of this process. Each rank takes part on its launcher's thread, at one position
/// in the order of launches, so that ranks wait for each other in the same order on every GPU (ORD-1). All or nothing:
/// either the plan has graphs on all ranks of the world, or it cannot be replayed on any.
class capture_session {
public:
  /// Captures \p plan for the world and epoch \p stamp. \p ranks are the world's ranks in this process, and \p peers
  /// lets them agree with all others.
  capture_session(std::shared_ptr<captured_plan> plan, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                  world_stamp stamp, time_point deadline, std::shared_ptr<capture_agreement> peers);

  /// Call once, on the launcher's thread of \p one. Calls the client's function. May wait for the other ranks.
  void take_part(rank_pipeline& one) noexcept;

  /// Waits until all ranks have taken part, or until the capture has failed and no rank is in it any more; then throws
  /// the reason. Afterwards the plan can be replayed, or reports why not. Blocks: call on a helper thread.
  void wait();
  /// For use long after the deadline, if no thread is in wait() any more: ends the capture and returns the ranks that
  /// are stuck in it.
  [[nodiscard]] std::vector<rank> give_up();
  [[nodiscard]] error failure() const { return peers_->failure(); }
  /// After wait(): why the success may not be reported, although the plan has been captured (MEM-1); errc::none if it
  /// may.
  [[nodiscard]] const error& lapse() const noexcept { return lapse_; }
  /// Returns the time from the first rank that took part to the last that ended so far; 0 if none did.
  [[nodiscard]] nanoseconds took() const;

private:
  [[nodiscard]] bool enter(rank self);
  void leave(rank self, captured_plan::content mine);
  /// Returns the place of \p one among the ranks of this process.
  [[nodiscard]] std::ptrdiff_t place_of(const rank_pipeline& one) const;
  [[nodiscard]] captured_plan::content run(rank_pipeline& one);
  [[nodiscard]] error interruption() const;

  const std::shared_ptr<captured_plan> plan_;
  const std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  const time_point deadline_;
  const std::shared_ptr<capture_agreement> peers_;

  mutable std::mutex mutex_;
  condition changed_;
  std::vector<rank> inside_;
  std::size_t left_ = 0;
  time_point began_ = time_point::max();
  time_point ended_{};
  captured_plan::content content_;
  error lapse_; ///< Written by wait() alone.
};

} // namespace troupe
