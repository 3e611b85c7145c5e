#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/pipeline/plans/capture_match.hpp>

#include <cstdint>

namespace troupe {

std::size_t capture_match::offer(rank self, std::span<const operation* const> all, bool divisible) {
  std::vector<std::uint64_t> places = digests_of_places(parts_of_launch(all).collectives, registered_);
  std::unique_lock lock{mutex_};
  all_.offer(self, all, divisible, std::move(places));
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
