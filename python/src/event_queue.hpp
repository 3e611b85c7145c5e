/// Events of worlds on their way to Python: told by threads of troupe, taken by one of Python's.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::python {

/// Threads: safe from any.
class event_queue {
public:
  void put(const world_event& one) {
    {
      const std::lock_guard lock{guard_};
      if (closed_) return;
      waiting_.push_back(one);
    }
    changed_.notify_all();
  }
  /// The next one; none: it is closed. Without the GIL.
  [[nodiscard]] std::optional<world_event> take() {
    std::unique_lock lock{guard_};
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return {};
    std::optional<world_event> next{std::move(waiting_.front())};
    waiting_.pop_front();
    return next;
  }
  /// What waits can still be taken; no more comes.
  void close() {
    {
      const std::lock_guard lock{guard_};
      closed_ = true;
    }
    changed_.notify_all();
  }

private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<world_event> waiting_;
  bool closed_ = false;
};

} // namespace troupe::python
