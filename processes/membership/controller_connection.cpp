#include <troupe/processes/membership/controller_connection.hpp>

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/pause_detector.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/membership/membership.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds tick_period{20};
/// Longest delay between two attempts to connect; it doubles up to this with each attempt that fails.
constexpr std::chrono::seconds longest_retry_delay{1};
/// Longest time without the controller after which the user is first told why.
constexpr std::chrono::seconds latest_first_notice{3};
/// Of a pause of this process, at most this much counts as time without the controller, as it does in process_link.
constexpr std::chrono::milliseconds counted_of_pause{250};

} // namespace

bool is_refusal(const transport_fault& why) noexcept {
  return why.kind == transport_event_kind::bad_token || why.kind == transport_event_kind::bad_certificate ||
         why.kind == transport_event_kind::other_version;
}

struct controller_connection::parts {
  parts(const control_settings& settings, std::string token, nanoseconds longest_absence)
    : patience{longest_absence},
      told_patience{settings.patience},
      dialer{make_control_dialer(settings, std::move(token))},
      lost{.code = errc::missing, .text = "the controller at " + settings.address + " has not answered"} {}

  void watch() {
    time_point reached = steady_now();
    const nanoseconds first_notice = std::min<nanoseconds>(latest_first_notice, told_patience / 4);
    nanoseconds next_notice = first_notice;
    pause_detector ticks{reached};
    bool is_told = false; // whether `ended` was reported by the hooks themselves
    bool is_wanted = true;
    std::unique_lock lock{guard};
    while (!is_stopped && !ended) {
      if (!is_connecting && !is_connected && is_wanted && steady_now() >= next_attempt) {
        is_connecting = true;
        const std::uint64_t mine = ++attempt;
        lock.unlock();
        connect(mine);
        lock.lock();
      }
      changed.wait_for(lock, tick_period, [this] { return is_stopped; });
      const time_point now = steady_now();
      const nanoseconds pause = ticks.tick(now, counted_of_pause);
      reached = is_connected ? now : without_pause(reached, pause, now);
      if (now - reached > patience) ended = lost;
      const bool was_connecting = is_connecting; // the attempt may succeed during the tick, which may not see it yet
      lock.unlock();
      finding found = what.tick();
      lock.lock();
      if (found.is_silent && !was_connecting) is_connected = false;
      is_wanted = found.is_wanted && !was_connecting;
      if (is_connected) next_notice = first_notice;
      if (!is_connected && found.is_wanted && now - reached >= next_notice) {
        const std::string notice = lost.text + "; this process has waited for it for " + format_duration(next_notice) +
                                   " and gives up after " + format_duration(told_patience) + " (control.patience)";
        next_notice = 2 * next_notice;
        lock.unlock();
        log_warning(notice);
        lock.lock();
      }
      if (found.over && !ended) {
        ended = std::move(found.over);
        is_told = true;
      }
    }
    const auto why = is_told ? std::nullopt : ended;
    lock.unlock();
    if (why && what.gave_up) what.gave_up(*why);
    changed.notify_all();
  }

  /// \p mine is the number of this attempt. An earlier connection may end after a later attempt has begun.
  void connect(std::uint64_t mine) {
    dialer->connect({.on_admitted =
                         [this] {
                           dialer->send(what.introduction());
                           const std::lock_guard lock{guard};
                           is_connected = true;
                           is_connecting = false;
                           retry_delay = {};
                         },
                     .on_message = [this](const std::string& bytes) { what.receive(bytes); },
                     .on_lost =
                         [this, mine](const transport_fault& why) {
                           std::unique_lock lock{guard};
                           if (mine != attempt) return;
                           const bool was_admitted = !is_connecting;
                           lock.unlock();
                           what.disconnected(why, was_admitted);
                           lock.lock();
                           if (mine != attempt) return;
                           is_connected = is_connecting = false;
                           if (!was_admitted) {
                             retry_delay = std::clamp<nanoseconds>(2 * retry_delay, tick_period, longest_retry_delay);
                             next_attempt = steady_now() + retry_delay;
                           }
                           lost = {.code = errc::missing, .text = why.text};
                           if (is_refusal(why)) ended = lost;
                         }});
  }

  const nanoseconds patience;
  const nanoseconds told_patience; ///< control.patience, after which this object or its owner gives up.
  const std::shared_ptr<transport_dialer> dialer;
  hooks what;
  std::mutex guard;
  condition changed;
  bool is_stopped = false;
  bool is_connecting = false;
  bool is_connected = false;
  std::uint64_t attempt = 0;
  nanoseconds retry_delay{}; ///< After the latest attempt, if that failed.
  time_point next_attempt{};
  error lost; ///< Why there is no connection.
  std::optional<error> ended;
  worker watching;
};

controller_connection::controller_connection(const control_settings& settings, std::string token, nanoseconds patience)
  : parts_{std::make_unique<parts>(settings, std::move(token), patience)} {}

controller_connection::~controller_connection() {
  stop();
}

void controller_connection::begin(hooks what, const char* thread_name) {
  parts_->what = std::move(what);
  parts_->watching = worker{[all = parts_.get(), thread_name] {
    name_this_thread(thread_name);
    all->watch();
  }};
}

void controller_connection::send(std::string bytes) {
  parts_->dialer->send(std::move(bytes));
}

void controller_connection::stop() {
  {
    const std::lock_guard lock{parts_->guard};
    parts_->is_stopped = true;
  }
  parts_->changed.notify_all();
  if (parts_->watching.joinable()) parts_->watching.join();
  parts_->dialer->stop();
}

std::optional<std::string> controller_connection::obstacle() const {
  const std::lock_guard lock{parts_->guard};
  return parts_->is_connected ? std::nullopt : std::optional{parts_->lost.text};
}

std::optional<error> controller_connection::wait_ended(nanoseconds at_most) {
  std::unique_lock lock{parts_->guard};
  static_cast<void>(parts_->changed.wait_for(lock, at_most, [this] { return parts_->ended.has_value(); }));
  return parts_->ended;
}

} // namespace troupe
