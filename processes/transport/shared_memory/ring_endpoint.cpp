#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/transport/shared_memory/ring_endpoint.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

/// A connection that has been idle for a second is checked less often. The end of the peer's process is also noticed
/// through its other connections.
constexpr nanoseconds idle_after = std::chrono::seconds{1};
constexpr nanoseconds idle_park = std::chrono::milliseconds{50};

} // namespace

/// Shared by the endpoint, its thread and its senders, so that any of them may be the last.
struct ring_endpoint::core {
  core(ring_connection made, const wait_profile& profile) : rings{std::move(made)}, wait{profile} {}

  void send(std::string_view message) {
    const std::lock_guard lock{sending};
    if (is_stopped.load(std::memory_order_relaxed)) return;
    static_cast<void>(rings.sending().send(message, steady_now()));
    note();
    if (needs_flush.load(std::memory_order_relaxed)) rings.receiving().wake();
  }
  /// Writes kept messages. Returns why sending has failed, if it has.
  error flush(time_point now) {
    if (!needs_flush.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock{sending};
    static_cast<void>(rings.sending().flush(now));
    note();
    return rings.sending().failure();
  }
  void note() noexcept {
    needs_flush.store(rings.sending().is_waiting() || rings.sending().failure(), std::memory_order_release);
  }
  void run(const ring_listener& to);

  ring_connection rings; ///< The receiving half belongs to the thread.
  const wait_profile wait;
  std::mutex sending;                   ///< Guards the sending half.
  std::atomic<bool> needs_flush{false}; ///< A message was kept, or sending has failed.
  std::atomic<bool> is_stopped{false};
};

void ring_endpoint::core::run(const ring_listener& to) {
  ring_receiver& in = rings.receiving();
  std::string message;
  time_point now = steady_now();
  time_point last_work = now;
  while (!is_stopped.load(std::memory_order_relaxed)) {
    const nanoseconds idle = now - last_work;
    const bool is_waiting = needs_flush.load(std::memory_order_relaxed);
    const nanoseconds park = is_waiting           ? ring_sender::room_interval
                             : idle >= idle_after ? idle_park
                                                  : ring_receiver::usual_park;
    const nanoseconds spin = wait.spin > idle ? wait.spin - idle : nanoseconds{0};
    static_cast<void>(in.wait({.spin = spin, .nap = wait.nap}, later(now, park), park));
    while (!is_stopped.load(std::memory_order_relaxed) && in.receive(message)) {
      last_work = steady_now();
      if (!to.receive(message)) return;
    }
    now = steady_now();
    error why = in.failure();
    if (!why) why = flush(now);
    if (!why) continue;
    if (!is_stopped.load(std::memory_order_relaxed)) to.failed(why);
    return;
  }
}

ring_endpoint::ring_endpoint(ring_connection rings, const wait_profile& wait, ring_listener to)
  : core_{std::make_shared<core>(std::move(rings), wait)}, thread_{[mine = core_, to = std::move(to)] {
      name_this_thread("troupe/rings");
      if (to.enter) to.enter();
      mine->run(to);
    }} {}

ring_endpoint::~ring_endpoint() {
  stop();
  if (thread_.is_current())
    thread_.detach();
  else
    thread_.join();
}

std::function<void(std::string)> ring_endpoint::sender() const {
  return [to = core_](const std::string& message) { to->send(message); };
}

void ring_endpoint::stop() noexcept {
  core_->is_stopped.store(true);
  core_->rings.receiving().wake();
}

} // namespace troupe
