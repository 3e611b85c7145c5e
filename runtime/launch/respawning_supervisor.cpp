#include <troupe/runtime/launch/respawning_supervisor.hpp>

#include <troupe/runtime/duration.hpp>

namespace troupe::launch {

respawning_supervisor::respawning_supervisor(const launch_plan& plan, respawn_terms terms)
  : terms_{terms}, undone_{plan.processes} {
  for (const launch_place& place : plan.places) seats_.push_back({respawn_budget{terms}, place.spare});
}

exit_decision respawning_supervisor::on_exit(place_index place, pid_t, const exit_status& status) {
  seat& one = seats_[place];
  if (status.succeeded()) {
    if (!one.spare) --undone_;
    return {.what = undone_ == 0 ? after_exit::end_job : after_exit::done};
  }
  if (const auto delay = one.budget.take(std::chrono::steady_clock::now()))
    return {.what = after_exit::respawn,
            .delay = *delay,
            .reason = "is started again" + (delay->count() > 0 ? " in " + format_duration(*delay) : "") + " (" +
                      std::to_string(one.budget.taken()) + " of " + to_string(terms_) + ")"};
  const std::string spent = terms_.count > 0 ? "has been started again too often (" + to_string(terms_) + ")" : "";
  if (one.spare)
    return {.what = after_exit::done, .reason = spent.empty() ? "is given up" : spent + " and is given up"};
  return {.what = after_exit::end_job, .reason = spent};
}

} // namespace troupe::launch
