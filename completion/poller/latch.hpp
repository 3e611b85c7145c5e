/// A one-time event that other threads wait for.
#pragma once

#include <troupe/device/threads/condition.hpp>

#include <mutex>

namespace troupe {

/// A latch that one call opens. Threads: all functions may be called from any thread. Each thread that waits or opens
/// must keep the latch alive during its call.
class latch {
public:
  void open() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock{mutex_};
    opened_.wait(lock, [this] { return open_; });
  }
  /// Waits for at most \p at_most. Returns whether the latch is open.
  [[nodiscard]] bool wait_for(nanoseconds at_most) {
    std::unique_lock lock{mutex_};
    return opened_.wait_for(lock, at_most, [this] { return open_; });
  }
  [[nodiscard]] bool is_open() const {
    const std::lock_guard lock{mutex_};
    return open_;
  }

private:
  mutable std::mutex mutex_;
  condition opened_;
  bool open_ = false;
};

} // namespace troupe
