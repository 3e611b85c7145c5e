#include <troupe/completion/poller/wake_signal.hpp>

namespace troupe {

void wake_signal::wake() noexcept {
  const std::lock_guard lock{mutex_};
  parked_.store(false);
  wake_.notify_all();
}

void wake_signal::sleep(nanoseconds at_most) {
  std::unique_lock lock{mutex_};
  wake_.wait_for(lock, at_most, [this] { return !parked_.load(); });
}

} // namespace troupe
