#include <troupe/actors/world/recovery/recovery_ladder.hpp>
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

recovery_step recovery_ladder::on_fault(const error& why, time_point now, const recovery_view& seen) {
  if (terms_.policy == recovery_policy::fail_fast) return give_up(why, {});
  if (why.code == errc::process_poisoned) return give_up(why, "; the process must be replaced");
  while (!rebuilds_.empty() && now - rebuilds_.front() > terms_.window) rebuilds_.pop_front();
  if (rebuilds_.size() >= terms_.rebuilds)
    return give_up(why, "; given up after " + std::to_string(rebuilds_.size()) + " rebuilds within recovery.window");
  recovery_step step;
  if (terms_.policy == recovery_policy::shrink) step.without = seen.blamed;
  const auto world_size = static_cast<std::size_t>(seen.world_size);
  if (step.without.size() >= world_size)
    return give_up(why, world_size == 1 ? "; it was the last rank" : "; every rank has failed, and none would remain");
  const std::size_t before = rebuilds_.size();
  rebuilds_.push_back(now);
  step.rung = last_ = choose(why, seen, world_size - step.without.size());
  step.delay = draw_delay(before);
  return step;
}

recovery_rung recovery_ladder::choose(const error& why, const recovery_view& seen, std::size_t left) const {
  const bool of_the_failed = terms_.first_rung == recovery_rung::shrink || terms_.first_rung == recovery_rung::revoke;
  if (seen.while_rebuilding) {
    const bool was_of_the_failed = last_ == recovery_rung::shrink || last_ == recovery_rung::revoke;
    return was_of_the_failed ? recovery_rung::form_beside : recovery_rung::abort_first;
  }
  if (!of_the_failed) return terms_.first_rung;
  // A world of one rank has no backend communicator to derive another from. A shrink must exclude at least one rank.
  const bool can = terms_.first_rung == recovery_rung::shrink
                       ? left > 1 && left < static_cast<std::size_t>(seen.world_size)
                       : left > 1 && leaves_communicators(why.code);
  return can ? terms_.first_rung : recovery_rung::form_beside;
}

/// The delay is random, so that several processes whose worlds fail together do not retry in step.
nanoseconds recovery_ladder::draw_delay(std::size_t before) noexcept {
  const nanoseconds most = backoff_before(terms_, before);
  if (most <= nanoseconds{0}) return nanoseconds{0};
  const nanoseconds half = most / 2;
  const auto choices = static_cast<std::uint64_t>((most - half).count() + 1);
  return half + nanoseconds{static_cast<nanoseconds::rep>(random_() % choices)};
}

} // namespace troupe
