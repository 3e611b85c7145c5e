#include <troupe/collectives/backend/gloo/gloo_reach.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Period of the clock check. A check that comes more than twice as late means that the process slept.
constexpr nanoseconds look_every{std::chrono::milliseconds{100}};

} // namespace

gloo_reach::gloo_reach(nanoseconds patience, std::function<void()> give_up)
  : patience_{patience}, give_up_{std::move(give_up)}, thread_{[this] { watch(); }} {}

gloo_reach::~gloo_reach() {
  {
    const std::lock_guard lock{guard_};
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void gloo_reach::connecting(rank peer) {
  const std::lock_guard lock{guard_};
  if (is_unreached_) return;
  peer_ = peer;
  waited_ = {};
  changed_.notify_all();
}

void gloo_reach::connected() {
  const std::lock_guard lock{guard_};
  if (!is_unreached_) peer_.reset();
}

std::optional<rank> gloo_reach::unreached() const {
  const std::lock_guard lock{guard_};
  return is_unreached_ ? peer_ : std::nullopt;
}

void gloo_reach::watch() {
  name_this_thread("troupe/reach");
  std::unique_lock lock{guard_};
  while (!ended_) {
    if (!peer_) {
      changed_.wait(lock, [this] { return ended_ || peer_; });
      continue;
    }
    const time_point began = steady_now();
    static_cast<void>(changed_.wait_for(lock, look_every, [this] { return ended_; }));
    if (ended_ || !peer_) continue;
    waited_ += std::min(steady_now() - began, 2 * look_every);
    if (waited_ < patience_) continue;
    is_unreached_ = true;
    lock.unlock();
    return give_up_();
  }
}

} // namespace troupe
