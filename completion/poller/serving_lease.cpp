#include <troupe/completion/poller/serving_lease.hpp>

#include <chrono>
#include <string>

namespace troupe {

serving_lease::standing serving_lease::check(epoch of) const noexcept {
  const rep end = end_.load(std::memory_order_acquire);
  const std::uint64_t granted = epoch_.load(std::memory_order_acquire);
  if (granted != of.value() && granted != any_epoch) return standing::revoked;
  if (end == no_end) return standing::held;
  if (end == is_revoked) return standing::revoked;
  return boot_clock::now() < boot_time{nanoseconds{end}} ? standing::held : standing::lapsed;
}

serving_lease::standing serving_lease::await(epoch of) const {
  standing now = check(of);
  if (now != standing::lapsed) return now;
  std::unique_lock lock{mutex_};
  static_cast<void>(changed_.wait_for(lock, grace(), [&] { return (now = check(of)) != standing::lapsed; }));
  return now;
}

error serving_lease::why() const {
  const rep end = end_.load(std::memory_order_acquire);
  std::string text = "this process may not serve its world: ";
  if (end > 0 && end != no_end) {
    const auto since = boot_clock::now() - boot_time{nanoseconds{end}};
    text += "the lease from its controller ended " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) +
            " ms ago and has not been renewed";
  } else {
    text += "its controller has not granted it a lease for this epoch";
  }
  text += ", because the controller is unreachable or was stopped, or this process was (MEM-1)";
  return {.code = errc::communicator_failed, .text = std::move(text)};
}

void serving_lease::begin(epoch of, nanoseconds grace) {
  grace_.store(grace.count(), std::memory_order_relaxed);
  set(is_revoked); // of the epoch before
  epoch_.store(of.value(), std::memory_order_release);
  set(is_awaited);
}

void serving_lease::begin_unlimited(epoch of) {
  set(is_revoked);
  epoch_.store(of.value(), std::memory_order_release);
  set(no_end);
}

void serving_lease::extend(epoch of, boot_time end) {
  const rep now = end_.load(std::memory_order_relaxed);
  if (epoch_.load(std::memory_order_relaxed) != of.value() || now == is_revoked) return;
  if (const rep later = end.time_since_epoch().count(); later > now) set(later);
}

void serving_lease::revoke() {
  set(is_revoked);
}

void serving_lease::set(rep end) {
  {
    const std::lock_guard lock{mutex_};
    end_.store(end, std::memory_order_release);
  }
  changed_.notify_all();
}

} // namespace troupe
