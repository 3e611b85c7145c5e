#include <troupe/collectives/pipeline/plans/capture_match.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Period of the check for faults of the world, which do not wake the waiting threads.
constexpr auto between_looks = std::chrono::milliseconds{2};

} // namespace

capture_match::capture_match(int world_size, time_point deadline, capture_comparison::check also)
  : deadline_{deadline}, all_{world_size, std::move(also)} {}

std::size_t capture_match::offer(rank self, std::span<const operation* const> all, bool divisible,
                                 const interruption& interrupted) {
  std::unique_lock lock{mutex_};
  all_.offer(self, all, divisible);
  wait(lock, self, interrupted);
  return divisible ? all_.agreed(self) : all.size();
}

void capture_match::end(rank self, const interruption& interrupted) {
  std::unique_lock lock{mutex_};
  all_.end(self);
  wait(lock, self, interrupted);
}

void capture_match::wait(std::unique_lock<std::mutex>& lock, rank self, const interruption& interrupted) {
  changed_.notify_all(); // the call before may have let others go
  while (!all_.failure() && !all_.may_go(self)) {
    const auto now = steady_now();
    if (now >= deadline_)
      all_.expire();
    else if (error why = interrupted ? interrupted() : error{})
      all_.fail(std::move(why));
    else {
      changed_.sleep(lock, std::min<time_point>(deadline_, now + between_looks));
      continue;
    }
    changed_.notify_all();
  }
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
