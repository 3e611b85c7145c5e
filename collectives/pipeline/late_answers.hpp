/// Keeps the answers of operations without a launch that wait for the lease of their process (MEM-1).
#pragma once

#include <troupe/device/error.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace troupe {

/// The answers of one rank's pipeline, in the order in which they are given. The launcher may be in a call that does
/// not return, or end without the work that waits for it. Therefore the answers are kept here, as requests are kept in
/// the track. Threads: safe from any.
class late_answers {
public:
  /// Called once, with errc::none or the reason why success may not be reported.
  using answer = std::function<void(const error& why)>;

  void add(answer one);
  /// Gives the oldest answer, a success. Does nothing if fail() has taken it.
  void give_next();
  /// Gives all that wait with \p why.
  void fail(const error& why);
  /// Returns whether none waits or is being given. Until then a later answer would overtake one.
  [[nodiscard]] bool all_given() const noexcept { return ungiven_.load() == 0; }

private:
  /// Takes the oldest. Returns null if none waits.
  [[nodiscard]] answer take();

  std::mutex mutex_;
  std::deque<answer> waiting_;
  std::atomic<std::size_t> ungiven_{0}; ///< Number of those that wait or are being given.
};

} // namespace troupe
