/// Marks a communicator as failed, because completion is not success: later completions on it do not count.
#pragma once

#include <troupe/device/error.hpp>

#include <atomic>
#include <mutex>

namespace troupe {

/// The mark is set once, before the communicator is aborted. An abort makes hung work leave the device, and the
/// completion signals behind that work then fire although nothing was computed.
/// Threads: all functions may be called from any thread.
class fault_mark {
public:
  /// Sets the mark with \p why, unless it is already set. Returns whether this call set it.
  bool set(error why);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Returns the reason; errc::none while not failed.
  [[nodiscard]] error why() const;

private:
  std::atomic<bool> failed_{false};
  mutable std::mutex guard_;
  error why_;
};

} // namespace troupe
