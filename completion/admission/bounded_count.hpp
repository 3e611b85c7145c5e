/// A counter that many threads raise and that never shows more than its limit.
#pragma once

#include <atomic>
#include <cstddef>

namespace troupe {

/// Threads: safe from any. Sequentially consistent, so that who gives back and who waits see each other.
class bounded_count {
public:
  /// Adds \p by unless that would exceed \p limit, of which 0 is none. Returns whether it did. Who is refused has
  /// changed nothing, not even for a moment.
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
