/// Gives each lane of a rank its own line in the admission quota.
#pragma once

#include <troupe/collectives/order/lane.hpp>
#include <troupe/completion/admission/admission_quota.hpp>

#include <array>
#include <atomic>
#include <cstddef>
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

  std::array<std::atomic<slot*>, 33> runs_{}; ///< One more than an index has bits.
  std::mutex guard_;                          ///< Protects creation.
  std::vector<std::unique_ptr<slot[]>> all_runs_;
  std::vector<pending_line_owner> all_;
};

} // namespace troupe
