#include <troupe/actors/world/recovery/world_recovery.hpp>
#include <troupe/collectives/pipeline/fault_suspects.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Returns whether \p why, which occurred \p when, is the fault of the rank that it names.
bool is_named(const error& why, fault_time when) noexcept {
  switch (when) {
    case fault_time::serving: return is_of_its_own(why.code);
    case fault_time::forming: return why.code != errc::deadline_exceeded;
    case fault_time::forming_of_failed:
      return why.code == errc::device_failed || why.code == errc::out_of_memory || why.code == errc::abandoned;
  }
  return false;
}

/// Returns whether, after an error \p code, other communicators can be derived from the failed ones.
bool leaves_communicators(errc code) noexcept {
  return code != errc::device_failed && code != errc::out_of_memory;
}

/// Returns a step that gives up with \p why, extended by \p more.
recovery_step give_up(error why, const std::string& more) {
  why.text += more;
  return {.rung = recovery_rung::give_up, .why = std::move(why)};
}

} // namespace

std::vector<rank> culprits_of(const error& why, const fault_report* report, fault_time when) {
  std::vector<rank> blamed;
  if (report != nullptr && when == fault_time::serving)
    for (const suspect& one : report->suspects) blamed.push_back(one.rank);
  if (why.rank && is_named(why, when)) blamed.push_back(*why.rank);
  std::ranges::sort(blamed);
  blamed.erase(std::unique(blamed.begin(), blamed.end()), blamed.end());
  return blamed;
}

recovery_step world_recovery::on_fault(const world_fault& fault, running_time now) {
  const error& why = fault.why;
  if (fails_fast() && fault.loses != fault_loss::nothing) return give_up(why, {});
  if (why.code == errc::process_poisoned && fault.loses == fault_loss::world)
    return give_up(why, "; the process must be replaced");
  const auto longest = fault.counts ? rebuilds_.take(now) : nanoseconds{0};
  if (!longest) return give_up(why, "; given up after " + rebuilds_.limit(" rebuilds"));
  recovery_step step;
  if (terms_.policy == recovery_policy::shrink) step.without = fault.blamed;
  const int left = fault.world_size - static_cast<int>(step.without.size());
  if (!suffices(left, fault.world_size))
    return give_up(why, fault.world_size == 1 ? "; it was the last rank"
                        : left <= 0           ? "; every rank has failed, and none would remain"
                                    : "; " + std::to_string(left) + " ranks would remain, and recovery.smallest is " +
                                          std::to_string(terms_.smallest));
  step.rung = last_ = choose(fault, left);
  is_recovering_ = true;
  const nanoseconds pause =
      fault.longest_pause == nanoseconds{0} ? fault.pause : doubled(fault.pause, pauses_++, fault.longest_pause);
  step.delay = std::max(pause, draw_delay(*longest));
  return step;
}

void world_recovery::on_serving() noexcept {
  is_recovering_ = false;
  pauses_ = 0;
}

bool world_recovery::suffices(int present, int world_size) const noexcept {
  return present == world_size || (terms_.policy == recovery_policy::shrink && present >= terms_.smallest);
}

recovery_rung world_recovery::choose(const world_fault& fault, int left) const {
  const bool of_the_failed = terms_.first_rung == recovery_rung::shrink || terms_.first_rung == recovery_rung::revoke;
  if (is_recovering_) {
    const bool was_of_the_failed = last_ == recovery_rung::shrink || last_ == recovery_rung::revoke;
    return was_of_the_failed ? recovery_rung::form_beside : recovery_rung::abort_first;
  }
  if (!of_the_failed) return terms_.first_rung;
  // A world of one rank has no backend communicator to derive another from. A shrink must exclude at least one rank.
  const bool can = terms_.first_rung == recovery_rung::shrink ? left > 1 && left < fault.world_size
                                                              : left > 1 && leaves_communicators(fault.why.code);
  return can ? terms_.first_rung : recovery_rung::form_beside;
}

/// The delay is random, so that several processes whose worlds fail together do not retry in step.
nanoseconds world_recovery::draw_delay(nanoseconds longest) noexcept {
  if (longest <= nanoseconds{0}) return nanoseconds{0};
  const nanoseconds half = longest / 2;
  const auto choices = static_cast<std::uint64_t>((longest - half).count() + 1);
  return half + nanoseconds{static_cast<nanoseconds::rep>(random_() % choices)};
}

} // namespace troupe
