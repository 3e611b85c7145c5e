/// Defines the credit that a client holds at an admission quota, and the counter behind quotas.
#pragma once

#include <troupe/completion/admission/quota_charge.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

/// Threads: all functions may be called from any thread. Operations that change the count are sequentially consistent,
/// so that a thread that returns quota and a thread that waits for it see each other.
class bounded_count {
public:
  /// Adds \p by unless the sum would exceed \p limit; 0 means no limit. Returns whether it was added. A failed call
  /// changes nothing, not even temporarily.
  [[nodiscard]] bool take(std::size_t by, std::size_t limit) noexcept {
    std::size_t now = count_.load(std::memory_order_seq_cst);
    do
      if (limit > 0 && (by > limit || now > limit - by)) return false;
    while (!count_.compare_exchange_weak(now, now + by, std::memory_order_seq_cst));
    return true;
  }
  void give_back(std::size_t by) noexcept { count_.fetch_sub(by, std::memory_order_seq_cst); }
  [[nodiscard]] std::size_t now() const noexcept { return count_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::size_t> count_{0};
};

/// Requests that name a credit are charged to it and not to the shared quota. The charge returns to the credit with the
/// outcome of the request. A credit therefore limits how many requests are pending at once, not their total number.
/// Such requests never get busy because of the world's limits, only because as many requests as the credit allows are
/// pending.
///
/// Lifetime: all copies are one credit. Its quota is returned when the last copy and the last request charged to it are
/// gone. It may outlive its world.
/// Threads: all functions may be called from any thread.
class credit {
public:
  class pool;

  /// Creates an empty credit. Requests with it are charged like requests without credit.
  credit() noexcept = default;
  /// Used by admission_quota.
  explicit credit(std::shared_ptr<pool> reserved) noexcept : pool_{std::move(reserved)} {}

  [[nodiscard]] explicit operator bool() const noexcept { return pool_ != nullptr; }
  /// Returns the reserved amount; zero for an empty credit.
  [[nodiscard]] pending_amount size() const noexcept;
  /// Returns the shared state. Not for users.
  [[nodiscard]] const std::shared_ptr<pool>& reserved() const noexcept { return pool_; }

private:
  std::shared_ptr<pool> pool_;
};

} // namespace troupe
