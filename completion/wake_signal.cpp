#include <troupe/completion/wake_signal.hpp>

namespace troupe {

// notify() adds, then looks whether someone is parked; park() says that it is parked, then looks at the count. Both
// pairs are sequentially consistent, so at least one side sees the other and no wake-up is lost.

void wake_signal::notify() noexcept {
  count_.fetch_add(1);
  if (!parked_.load()) return;
  const std::lock_guard lock{guard_};
  wake_.notify_one();
}

void wake_signal::park(std::uint32_t seen, nanoseconds at_most) {
  std::unique_lock lock{guard_};
  parked_.store(true);
  wake_.wait_until(lock, later(std::chrono::steady_clock::now(), at_most), [&] { return count_.load() != seen; });
  parked_.store(false);
}

} // namespace troupe
