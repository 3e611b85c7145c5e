/// Agreement of the ranks of a capture that all live in this process.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/plans/capture_comparison.hpp>
#include <troupe/device/threads/condition.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Returns a check that ranks use the same offsets in memory of these pools; null if there are none.
[[nodiscard]] capture_comparison::check compare_places(std::vector<std::shared_ptr<registered_pool>> registered);

/// A capture_comparison in which the ranks' threads wait for each other.
class capture_match final : public capture_agreement {
public:
  explicit capture_match(int world_size, capture_comparison::check also = {}) : all_{world_size, std::move(also)} {}

  std::size_t offer(rank self, std::span<const operation* const> all, bool divisible) override;
  void end(rank self) override;
  void fail(error why) override;
  void expire() override;
  [[nodiscard]] error failure() const override;

private:
  void wait(std::unique_lock<std::mutex>& lock, rank self);

  mutable std::mutex mutex_;
  condition changed_;
  capture_comparison all_;
};

} // namespace troupe
