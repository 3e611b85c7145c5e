#include <troupe/collectives/pipeline/plans/capture_match.hpp>

namespace troupe {

capture_comparison::check compare_places(std::vector<std::shared_ptr<registered_pool>> registered) {
  if (registered.empty()) return {};
  return [pools = std::move(registered)](std::span<const operation* const> parts) -> error {
    for (const auto& one : pools)
      if (error why = check_places(parts, *one)) return why;
    return {};
  };
}

std::size_t capture_match::offer(rank self, std::span<const operation* const> all, bool divisible) {
  std::unique_lock lock{mutex_};
  all_.offer(self, all, divisible);
  wait(lock, self);
  return divisible ? all_.agreed(self) : all.size();
}

void capture_match::end(rank self) {
  std::unique_lock lock{mutex_};
  all_.end(self);
  wait(lock, self);
}

void capture_match::wait(std::unique_lock<std::mutex>& lock, rank self) {
  changed_.notify_all(); // the call before may have let others go
  changed_.wait(lock, [&] { return all_.failure() || all_.may_go(self); });
  if (all_.failure()) throw exception{all_.failure()};
}

void capture_match::expire() {
  const std::lock_guard lock{mutex_};
  all_.expire();
  changed_.notify_all();
}

void capture_match::fail(error why) {
  const std::lock_guard lock{mutex_};
  all_.fail(std::move(why));
  changed_.notify_all();
}

error capture_match::failure() const {
  const std::lock_guard lock{mutex_};
  return all_.failure();
}

} // namespace troupe
