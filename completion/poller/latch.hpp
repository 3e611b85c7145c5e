/// A one-time event that other threads wait for.
#pragma once

#include <troupe/device/threads/condition.hpp>

#include <mutex>

namespace troupe {

/// Threads: all functions may be called from any thread. Each thread that waits or opens must keep the latch alive
/// during its call.
class latch {
public:
  void open() {
    const std::lock_guard lock{guard_};
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock{guard_};
    opened_.wait(lock, [this] { return open_; });
  }

private:
  std::mutex guard_;
  condition opened_;
  bool open_ = false;
};

} // namespace troupe
