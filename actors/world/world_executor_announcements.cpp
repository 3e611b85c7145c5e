// Reports faults and phases, and publishes whether requests are admitted.
#include <troupe/actors/world/world_executor.hpp>

#include <utility>

namespace troupe {

void world_executor::take_report(epoch of, const error& why) {
  if (of != state_.current_epoch() || reported_ >= of) return;
  reported_ = of;
  report_ = take_fault_report({why, number_, of, plan_.world_size}, pipelines_, plan_.services.time->now());
}

void world_executor::tell_of_late(const rank_report& one) {
  if (one.epoch != state_.current_epoch()) return;
  world_event now = state_.event();
  now.report =
      take_fault_report({one.failure, number_, one.epoch, plan_.world_size}, pipelines_, plan_.services.time->now());
  announce(std::move(now));
}

void world_executor::announce(world_event event) {
  complete(event);
  if (event.reason) event.report = std::exchange(report_, nullptr);
  plan_.board->publish(event);
  shell_.announce(event);
}

void world_executor::publish() {
  entrance_.publish({.admission = state_.admission(),
                     .seats = seats_,
                     .order = order_,
                     .registered = registered_,
                     .is_ordered_by_callers = plan_.ordering == ordering::caller});
}

} // namespace troupe
