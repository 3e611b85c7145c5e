/// A counter that many threads increase and that never exceeds its limit.
#pragma once

#include <atomic>
#include <cstddef>

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

} // namespace troupe
