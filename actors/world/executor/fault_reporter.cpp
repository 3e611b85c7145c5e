#include <troupe/actors/world/executor/fault_reporter.hpp>

#include <troupe/actors/world/recovery/world_recovery.hpp>

namespace troupe {

error fault_reporter::take(epoch of, error why, bool is_verdict) {
  if (of != of_.state.current_epoch() || reported_ >= of) return why;
  reported_ = of;
  latest_ = take_fault_report({why, world_, of, of_.plan.world_size, is_verdict}, of_.now.pipelines,
                              of_.plan.services.time->now());
  // A controller compares what the ranks have noticed.
  return of_.plan.to_controller ? why : fault_of(*latest_);
}

std::shared_ptr<const fault_report> fault_reporter::late(const error& why) const {
  return take_fault_report({why, world_, of_.state.current_epoch(), of_.plan.world_size}, of_.now.pipelines,
                           of_.plan.services.time->now());
}

std::vector<rank> fault_reporter::blamed_for(const error& why) const {
  if (!of_.plan.to_controller && of_.plan.recovery.policy != recovery_policy::shrink) return {};
  fault_time when = fault_time::serving;
  if (of_.state.is_forming()) {
    const recovery_rung how = of_.state.rung();
    when = how == recovery_rung::shrink || how == recovery_rung::revoke ? fault_time::forming_of_failed
                                                                        : fault_time::forming;
  }
  return culprits_of(why, latest_.get(), when);
}

} // namespace troupe
