#include <troupe/collectives/backend/faults/armed_faults.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

bool is_at(const fault_place& one, const fault_place& other) noexcept {
  return one.rank == other.rank && one.formation == other.formation;
}

bool holds(const std::vector<fault_place>& all, const fault_place& who) {
  return std::ranges::any_of(all, [&](const fault_place& one) { return is_at(one, who); });
}

void drop(std::vector<fault_place>& all, const fault_place& who) {
  std::erase_if(all, [&](const fault_place& one) { return is_at(one, who); });
}

[[noreturn]] void fail(const fault_place& who, const char* text) {
  throw exception{error{.code = errc::communicator_failed, .text = text, .rank = who.rank}};
}

} // namespace

std::future<time_point> armed_faults::arm(armed_call what, rank target, nanoseconds span) {
  armed_one one{.what = what, .target = target, .span = span, .happened = {}};
  auto happened = one.happened.get_future();
  const std::lock_guard lock{mutex_};
  armed_.push_back(std::move(one));
  count();
  return happened;
}

void armed_faults::release() {
  std::vector<armed_one> unused;
  {
    const std::lock_guard lock{mutex_};
    unused = std::exchange(armed_, {});
    ++releases_;
    count();
  }
  changed_.notify_all();
}

std::vector<ended_abort> armed_faults::take_ended_aborts() {
  const std::lock_guard lock{mutex_};
  return std::exchange(ended_, {});
}

std::optional<armed_faults::armed_one> armed_faults::take(armed_call what, rank target) {
  const auto found =
      std::ranges::find_if(armed_, [&](const armed_one& one) { return one.what == what && one.target == target; });
  if (found == armed_.end()) return std::nullopt;
  auto taken = std::move(*found);
  armed_.erase(found);
  count();
  taken.happened.set_value(monotonic_clock{}.now());
  return taken;
}

void armed_faults::before_init(const fault_place& who) {
  if (busy_ == 0) return;
  std::unique_lock lock{mutex_};
  if (take(armed_call::failed_init, who.rank)) fail(who, "an injected fault: this rank's communicator does not form");
  if (!take(armed_call::hung_init, who.rank)) return;
  hanging_.push_back(who);
  const std::uint64_t before = releases_;
  changed_.wait(lock, [&] { return releases_ != before || !holds(hanging_, who); });
  drop(hanging_, who);
  fail(who, "an injected fault: the forming of this rank's communicator hung until it was ended");
}

bool armed_faults::before_launch(const fault_place& who, std::span<const operation* const>) {
  if (busy_ == 0) return true;
  const std::lock_guard lock{mutex_};
  if (take(armed_call::refused_launch, who.rank)) fail(who, "an injected fault: the launch was refused");
  if (holds(withheld_, who)) return false;
  if (!take(armed_call::withheld_launch, who.rank)) return true;
  withheld_.push_back(who);
  count();
  return false;
}

void armed_faults::before_check(const fault_place& who) {
  if (busy_ == 0) return;
  const std::lock_guard lock{mutex_};
  if (take(armed_call::failed_check, who.rank)) fail(who, "an injected fault: an asynchronous error");
}

void armed_faults::before_abort(const fault_place& who) {
  std::unique_lock lock{mutex_};
  drop(withheld_, who);
  drop(hanging_, who);
  count();
  changed_.notify_all();
  const auto slow = take(armed_call::slow_abort, who.rank);
  if (!slow) return;
  const std::uint64_t before = releases_;
  changed_.wait_for(lock, slow->span, [&] { return releases_ != before; });
}

void armed_faults::after_abort(const fault_place& who) {
  const std::lock_guard lock{mutex_};
  ended_.push_back({who, monotonic_clock{}.now()});
}

} // namespace troupe
