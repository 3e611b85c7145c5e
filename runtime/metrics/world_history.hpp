/// Counts a world's events since it was formed: faults by kind, and recovery times.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/recording/request_tally.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

inline constexpr std::size_t recovery_rung_count = static_cast<std::size_t>(recovery_rung::give_up) + 1;

/// Bucket i of a rung's times counts tries that took at most rung_bound(i).
inline constexpr std::size_t rung_buckets = 17;
/// Returns the upper bound of a bucket: 1, 2, 4, … ms, up to 65.5 s.
[[nodiscard]] constexpr nanoseconds rung_bound(std::size_t bucket) noexcept {
  return nanoseconds{std::int64_t{1'000'000} << bucket};
}

/// Recovery tries on one rung, with one result.
struct rung_times {
  std::uint64_t tries = 0;
  nanoseconds took{0};                              ///< Total duration of the tries.
  std::array<std::uint64_t, rung_buckets> within{}; ///< Tries per bucket, not cumulative. Longer tries are in none.
};

/// A snapshot of a world's event counts.
struct history_reading {
  std::array<std::uint64_t, errc_count> faults{};          ///< Number of faults by error code.
  std::array<rung_times, recovery_rung_count> came_back{}; ///< Successful tries, by rung.
  std::array<rung_times, recovery_rung_count> did_not{};   ///< Failed tries, by rung.
  std::uint64_t straggling = 0; ///< Operations that were reported because some ranks had not requested them in time.
};

/// Collects the counts. Threads: any.
class world_history {
public:
  /// Counts what \p event reports for the first time. Call it for each event of a world, in order.
  void hear(const world_event& event);
  [[nodiscard]] history_reading read() const;

private:
  mutable std::mutex mutex_;
  history_reading seen_;
  world_phase phase_ = world_phase::forming;
  troupe::epoch epoch_{};
  std::shared_ptr<const std::vector<recovery_try>> recovery_;
};

} // namespace troupe
