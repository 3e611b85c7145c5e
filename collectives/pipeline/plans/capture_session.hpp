/// One capture of a plan under way, on all ranks.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/world_stamp.hpp>
#include <troupe/collectives/pipeline/plans/capture_match.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

class graph;

/// Each rank takes part on its launcher's thread, at one place in the order of launches: so that ranks that wait for
/// each other do so in the same order on every GPU (ORD-1). All or nothing: a plan has graphs on all ranks or can be
/// replayed on none.
class capture_session {
public:
  /// Of \p plan, for the world and epoch \p stamp, of which \p ranks are all. \p registered: memory whose places ranks
  /// must agree on.
  capture_session(std::shared_ptr<captured_plan> plan, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                  world_stamp stamp, time_point deadline,
                  std::vector<std::shared_ptr<registered_pool>> registered = {});

  /// On the launcher's thread of \p one, once. Calls the client's function; may wait for the other ranks.
  void take_part(rank_pipeline& one) noexcept;

  /// Waits until all have taken part, or until it has failed and nobody is in it any more; throws why. From then on the
  /// plan can be replayed, or says why not. Blocks: helpers.
  void wait();
  /// Where nobody waits for wait() any longer, long after the deadline: returns the ranks that are stuck in it.
  [[nodiscard]] std::vector<rank> give_up();
  [[nodiscard]] error failure() const { return meeting_.failure(); }
  /// From the first rank that took part to the last that ended so far; 0 where none did.
  [[nodiscard]] nanoseconds took() const;

private:
  [[nodiscard]] bool enter(rank self);
  void leave(rank self, captured_plan::content mine);
  [[nodiscard]] captured_plan::content run(rank_pipeline& one);
  [[nodiscard]] error interruption() const;

  const std::shared_ptr<captured_plan> plan_;
  const std::vector<std::shared_ptr<rank_pipeline>> ranks_;
  const time_point deadline_;
  capture_match meeting_;

  mutable std::mutex guard_;
  condition changed_;
  std::vector<rank> inside_;
  std::size_t left_ = 0;
  time_point began_ = time_point::max();
  time_point ended_{};
  captured_plan::content content_;
};

} // namespace troupe
