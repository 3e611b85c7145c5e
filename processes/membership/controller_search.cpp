#include <troupe/processes/membership/controller_search.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Longest delay between two attempts to connect; it doubles up to this with each attempt that fails.
constexpr std::chrono::seconds longest_retry_delay{1};
/// The same if there are several controllers. It is shorter because an attempt tries only one of them, and the lease of
/// this process may be about to end.
constexpr std::chrono::milliseconds longest_retry_delay_of_several{200};
/// Longest time without the controller after which the user is first told why.
constexpr std::chrono::seconds latest_first_notice{3};
/// Of a pause of this process, this much counts as time without the controller, as it does in control_session.
constexpr std::chrono::milliseconds counted_without_ticks{250};

} // namespace

bool is_refusal(const transport_fault& why) noexcept {
  return why.kind == transport_event_kind::bad_token || why.kind == transport_event_kind::bad_certificate ||
         why.kind == transport_event_kind::other_version;
}

controller_search::controller_search(const control_settings& settings, nanoseconds patience, time_point now)
  : patience_{patience},
    told_patience_{settings.patience},
    longest_retry_delay_{settings.address.find(',') != std::string::npos ? longest_retry_delay_of_several
                                                                         : longest_retry_delay},
    first_notice_{std::min<nanoseconds>(latest_first_notice, told_patience_ / 4)},
    next_notice_{first_notice_},
    running_{now, counted_without_ticks},
    reached_{running_.last()},
    lost_{.code = errc::missing, .text = "the controller at " + settings.address + " has not answered"} {}

std::optional<std::uint64_t> controller_search::begin_attempt(time_point now) {
  if (state_ != state::absent || !is_wanted_ || now < next_attempt_) return {};
  state_ = state::connecting;
  return ++attempts_;
}

void controller_search::admit() {
  state_ = state::connected;
  retry_delay_ = {};
}

bool controller_search::was_admitted(std::uint64_t attempt) const noexcept {
  return attempt != attempts_ || state_ != state::connecting; // another attempt follows one that has been admitted
}

void controller_search::lose(std::uint64_t attempt, const transport_fault& why, time_point now) {
  if (attempt != attempts_) return;
  if (std::exchange(state_, state::absent) == state::connecting) {
    retry_delay_ = std::clamp<nanoseconds>(2 * retry_delay_, tick_period, longest_retry_delay_);
    next_attempt_ = now + retry_delay_;
  }
  lost_ = {.code = errc::missing, .text = why.text};
  if (is_refusal(why)) ended_ = lost_;
}

void controller_search::begin_tick(time_point now) {
  running_.read(now);
  seen_ = state_;
  if (seen_ == state::connected) reached_ = running_.last();
}

std::optional<std::string> controller_search::end_tick(const controller_finding& found) {
  const nanoseconds absence = running_.last() - reached_;
  // `found` is of the tick's beginning: an attempt to connect may have succeeded since.
  is_wanted_ = found.is_wanted && seen_ != state::connecting;
  if (found.over)
    ended_ = found.over;
  else if (absence > patience_)
    ended_ = lost_;
  if (seen_ == state::connected) {
    if (found.is_silent) state_ = state::absent;
    next_notice_ = first_notice_;
  }
  if (state_ == state::connected || !found.is_wanted || absence < next_notice_) return {};
  std::string notice = lost_.text + "; this process has waited for it for " + format_duration(next_notice_) +
                       " and gives up after " + format_duration(told_patience_) + " (control.patience)";
  next_notice_ = 2 * next_notice_;
  return notice;
}

std::optional<std::string> controller_search::obstacle() const {
  return state_ == state::connected ? std::nullopt : std::optional{lost_.text};
}

} // namespace troupe
