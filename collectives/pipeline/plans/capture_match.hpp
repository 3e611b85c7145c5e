/// Agreement of the ranks of a capture that all live in this process.
#pragma once

#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/plans/capture_comparison.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>

#include <mutex>

namespace troupe {

/// A capture_comparison in which the ranks' threads wait for each other. A capture that some ranks do not join fails at
/// its deadline.
class capture_match final : public capture_agreement {
public:
  capture_match(int world_size, time_point deadline, capture_comparison::check also = {});

  std::size_t offer(rank self, std::span<const operation* const> all, bool divisible,
                    const interruption& interrupted) override;
  void end(rank self, const interruption& interrupted) override;
  void fail(error why) override;
  void expire() override;
  [[nodiscard]] error failure() const override;

private:
  void wait(std::unique_lock<std::mutex>& lock, rank self, const interruption& interrupted);

  const time_point deadline_;
  mutable std::mutex mutex_;
  condition changed_;
  capture_comparison all_;
};

} // namespace troupe
