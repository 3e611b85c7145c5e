#include <troupe/completion/poller/fault_mark.hpp>

#include <utility>

namespace troupe {

bool fault_mark::set(error why) {
  const std::lock_guard lock{guard_};
  if (failed_.load(std::memory_order_relaxed)) return false;
  why_ = std::move(why);
  failed_.store(true, std::memory_order_release);
  return true;
}

error fault_mark::why() const {
  const std::lock_guard lock{guard_};
  return why_;
}

} // namespace troupe
