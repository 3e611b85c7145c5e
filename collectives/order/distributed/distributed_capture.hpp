/// A rank's agreement with the ranks of other processes on what a capture launches.
#pragma once

#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace troupe {

/// Asks the controller, which compares the launches of all ranks, and waits for its answers.
///
/// Threads: as capture_agreement; answer() from the thread that receives decisions.
class distributed_capture final : public capture_agreement {
public:
  /// Sends to the controller. Must not block on it. Each function may be called from any thread.
  struct channel {
    /// May throw: the launch cannot be sent.
    std::function<void(std::span<const operation* const>, bool divisible)> launch;
    std::function<void()> end;
    std::function<void(error)> fail;
  };

  explicit distributed_capture(channel controller) : controller_{std::move(controller)} {}

  std::size_t offer(rank self, std::span<const operation* const> all, bool divisible,
                    const interruption& interrupted) override;
  void end(rank self, const interruption& interrupted) override;
  void fail(error why) override;
  void expire() override;
  [[nodiscard]] error failure() const override;

  /// Handles the controller's answer to the oldest unanswered call: errc::none and the number of collectives to
  /// launch, or the reason why the capture has failed.
  void answer(const error& why, std::size_t agreed);
  /// Returns whether end() has been called: no other call follows.
  [[nodiscard]] bool has_ended() const;

private:
  void wait(std::unique_lock<std::mutex>& lock, const interruption& interrupted);

  const channel controller_;
  mutable std::mutex mutex_;
  condition changed_;
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  std::size_t agreed_ = 0; ///< From the last answer.
  bool ended_ = false;
  error failure_;
};

} // namespace troupe
