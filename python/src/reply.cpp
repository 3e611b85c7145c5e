#include "reply.hpp"

#include <algorithm>

namespace troupe::python {

std::shared_ptr<reply> reply::make(held_object outputs) {
  return std::allocate_shared<reply>(recycling_allocator<reply>{}, std::move(outputs));
}

reply_promise reply::make_reply_promise() {
  self_ = shared_from_this();
  return reply_promise{*this};
}

void reply::deliver(outcome result) noexcept {
  std::vector<watcher> watchers;
  {
    const std::lock_guard lock{guard_};
    result_.emplace(std::move(result));
    done_.store(true, std::memory_order_release);
    watchers.swap(watchers_);
  }
  changed_.notify_all();
  for (const watcher& one : watchers) one.where->put(one.who);
}

bool reply::wait(nanoseconds spin, time_point until) {
  if (is_done()) return true;
  const time_point began = std::chrono::steady_clock::now();
  const time_point spun = std::min(until, began + spin);
  while (std::chrono::steady_clock::now() < spun) {
    for (int i = 0; i < 16; ++i) {
      if (is_done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }
  std::unique_lock lock{guard_};
  const auto done = [this] { return result_.has_value(); };
  if (until == time_point::max()) {
    changed_.wait(lock, done);
    return true;
  }
  return changed_.wait_until(lock, until, done);
}

bool reply::tell(const std::shared_ptr<loop_mailbox>& where, std::uint64_t who) {
  where->expect();
  const std::lock_guard lock{guard_};
  if (result_) {
    where->expect_no_more();
    return false;
  }
  watchers_.push_back({where, who});
  return true;
}

} // namespace troupe::python
