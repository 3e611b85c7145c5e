/// "Completion is not success": the sign on a communicator that everything behind it no longer counts.
#pragma once

#include <troupe/device/error.hpp>

#include <atomic>
#include <mutex>

namespace troupe {

/// Set once, before the communicator is aborted: an abort makes hung work leave the device, and the completion signals
/// behind it then fire although nothing was computed. Threads: safe from any.
class fault_mark {
public:
  /// Marks as failed; the first reason stays. Returns whether this call was the first.
  bool set(error why);
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// The reason; errc::none while not failed.
  [[nodiscard]] error why() const;

private:
  std::atomic<bool> failed_{false};
  mutable std::mutex guard_;
  error why_;
};

} // namespace troupe
