#include <troupe/processes/launch/respawn_policy.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <utility>

namespace troupe::launch {

using instant = std::chrono::steady_clock::time_point;

respawn_policy::respawn_policy(const launch_plan& plan, respawn_terms terms)
  : terms_{terms}, undone_{plan.request.processes} {
  for (const launch_place& place : plan.places)
    slots_.push_back({.budget = recovery_budget{terms.budget}, .spare = place.spare});
}

void respawn_policy::on_started(place_index place, instant now) {
  slots_[place].started = now;
}

void respawn_policy::on_rank(place_index place) {
  process_slot& one = slots_[place];
  if (one.spare && !std::exchange(one.stands_in, true)) ++undone_;
}

std::optional<std::chrono::nanoseconds> respawn_policy::on_wanted(place_index place, instant now) {
  process_slot& one = slots_[place];
  const auto delay = one.budget.take(including_pauses(now));
  if (delay) on_asked(place);
  return delay;
}

bool respawn_policy::on_held_back(place_index place) {
  process_slot& one = slots_[place];
  if (!one.spare && !std::exchange(one.done, true)) --undone_;
  return undone_ == 0;
}

void respawn_policy::on_asked(place_index place) {
  if (std::exchange(slots_[place].done, false)) ++undone_;
}

std::string respawn_policy::objection(process_slot& one, bool has_run, instant now) const {
  if (terms_.budget.count == 0) return {};
  const bool is_hasty = !one.joined && has_run && now - one.started < terms_.hasty;
  one.hasty_ends = is_hasty ? one.hasty_ends + 1 : 0;
  if (one.hasty_ends < 2) return {};
  return "has ended twice within " + format_duration(terms_.hasty) +
         " of its start without joining a world, so it is not started again";
}

exit_decision respawn_policy::on_exit(place_index place, bool has_run, const exit_status& status, instant now) {
  process_slot& one = slots_[place];
  const bool stood_in = std::exchange(one.stands_in, false);
  if (status.succeeded()) {
    const bool counts = one.spare ? stood_in : !std::exchange(one.done, true);
    if (counts) --undone_;
    return {.what = undone_ == 0 ? after_exit::end_job : after_exit::done};
  }
  if (stood_in) --undone_; // the process that takes over its rank counts instead
  std::string why = objection(one, has_run, now);
  if (why.empty()) {
    if (const auto delay = one.budget.take(including_pauses(now)))
      return {.what = after_exit::respawn,
              .delay = *delay,
              .reason = "is started again" + (delay->count() != 0 ? " in " + format_duration(*delay) : "") + " (" +
                        std::to_string(one.budget.taken()) + " of " + one.budget.limit({}) + ")"};
    if (terms_.budget.count > 0) why = "has been started again too often (" + one.budget.limit({}) + ")";
  }
  if (one.spare) return {.what = after_exit::done, .reason = why.empty() ? "is given up" : why + " and is given up"};
  return {.what = after_exit::end_job, .reason = why};
}

} // namespace troupe::launch
