/// What a world's events have come to since it was formed: faults by kind, and how long it took to come back from them.
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

/// Bucket i of a rung's times counts what took at most rung_bound(i).
inline constexpr std::size_t rung_buckets = 17;
/// 1, 2, 4, … ms, up to 65.5 s.
[[nodiscard]] constexpr nanoseconds rung_bound(std::size_t bucket) noexcept {
  return nanoseconds{std::int64_t{1'000'000} << bucket};
}

/// Tries to come back by one rung, with one outcome.
struct rung_times {
  std::uint64_t tries = 0;
  nanoseconds took{0};                              ///< In all.
  std::array<std::uint64_t, rung_buckets> within{}; ///< By bucket; not added up. What took longer is in none.
};

/// What they have come to by now.
struct history_reading {
  std::array<std::uint64_t, errc_count> faults{};          ///< By code of their reason.
  std::array<rung_times, recovery_rung_count> came_back{}; ///< By rung.
  std::array<rung_times, recovery_rung_count> did_not{};   ///< The same of tries that failed.
  std::uint64_t straggling = 0; ///< Operations that were told of since some ranks had not asked for them in time.
};

/// Threads: any.
class world_history {
public:
  /// Counts what \p event tells for the first time. Each event of a world, in their order.
  void hear(const world_event& event);
  [[nodiscard]] history_reading read() const;

private:
  mutable std::mutex guard_;
  history_reading seen_;
  world_phase phase_ = world_phase::forming;
  troupe::epoch epoch_{};
  std::shared_ptr<const std::vector<recovery_try>> recovery_;
};

} // namespace troupe
