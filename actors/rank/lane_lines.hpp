/// A rank's lanes as whoever has something pending, each with a line of its own.
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

/// Lines by the index of their lane, made when a lane is first used. They lie in runs of 1, 2, 4, … that never move, so
/// that finding one is two loads; only a lane's first request takes a lock. Threads: safe from any.
class lane_lines {
public:
  /// The line of \p one, made in \p where if there is none. Lifetime: this object's.
  [[nodiscard]] pending_line& of(lane one, const std::shared_ptr<admission_quota>& where);

private:
  using slot = std::atomic<pending_line*>;

  pending_line& make(std::size_t run, std::size_t place, const std::shared_ptr<admission_quota>& where);

  std::array<std::atomic<slot*>, 33> runs_{}; ///< As many as there are bits in an index, and one.
  std::mutex guard_;                          ///< Of those who make one.
  std::vector<std::unique_ptr<slot[]>> all_runs_;
  std::vector<pending_line_owner> all_;
};

} // namespace troupe
