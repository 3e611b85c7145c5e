/// A rank's agreement with the ranks of other processes on what a capture launches.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// Asks the controller, which compares the launches of all ranks, and waits for its answers.
///
/// Threads: as capture_agreement; answer() from the thread that receives decisions.
class distributed_capture final : public capture_agreement {
public:
  /// \p place: the number of the capture's turn among all that were granted, from 1. \p send: sends a record to the
  /// controller, from any thread. Must not block on it. \p registered: the rank's pools, in which its peers must use
  /// the same places.
  distributed_capture(std::uint64_t place, std::function<void(request_record)> send,
                      std::vector<std::shared_ptr<registered_pool>> registered = {})
    : place_{place}, send_{std::move(send)}, registered_{std::move(registered)} {}

  std::size_t offer(rank self, std::span<const operation* const> all, bool divisible) override;
  void end(rank self) override;
  void fail(error why) override;
  void expire() override;
  [[nodiscard]] error failure() const override;

  /// Handles the controller's answer to the oldest unanswered call: errc::none and the number of collectives to
  /// launch, or the reason why the capture has failed.
  void answer(const error& why, std::size_t agreed);
  /// Returns whether end() has been called: no other call follows.
  [[nodiscard]] bool has_ended() const;

private:
  void wait(std::unique_lock<std::mutex>& lock);

  const std::uint64_t place_;
  const std::function<void(request_record)> send_;
  const std::vector<std::shared_ptr<registered_pool>> registered_;
  mutable std::mutex mutex_;
  condition changed_;
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  std::size_t agreed_ = 0; ///< From the last answer.
  bool ended_ = false;
  error failure_;
};

} // namespace troupe
