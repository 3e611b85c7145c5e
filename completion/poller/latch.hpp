/// Something that happens once, and that others wait for.
#pragma once

#include <troupe/device/threads/condition.hpp>

#include <mutex>

namespace troupe {

/// Threads: safe from any. Whoever waits holds it until then, and so does whoever opens it.
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
