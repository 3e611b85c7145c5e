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

/// A capture_comparison in which the ranks' threads wait for each other.
class capture_match final : public capture_agreement {
public:
  /// \p registered: the pools of the world, in which the ranks must use the same places.
  explicit capture_match(int world_size, std::vector<std::shared_ptr<registered_pool>> registered = {})
    : registered_{std::move(registered)}, all_{world_size} {}

  std::size_t offer(rank self, std::span<const operation* const> all, bool divisible) override;
  void end(rank self) override;
  void fail(error why) override;
  void expire() override;
  [[nodiscard]] error failure() const override;

private:
  void wait(std::unique_lock<std::mutex>& lock, rank self);

  const std::vector<std::shared_ptr<registered_pool>> registered_;
  mutable std::mutex mutex_;
  condition changed_;
  capture_comparison all_;
};

} // namespace troupe
