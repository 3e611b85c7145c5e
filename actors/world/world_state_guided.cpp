// Decides for a world that spans processes. Its controller determines when this process forms, and as which rank.
#include <troupe/actors/world/world_state.hpp>

#include <utility>

namespace troupe {

world_effects world_state::await_guidance(error reason) {
  const bool again = phase_ == world_phase::forming;
  if (again && has_served_)
    end_try(reason);
  else
    try_began_ = time_->now();
  quiescing_ = draining_ = false;
  world_effects effects = rebuild(std::move(reason), {.rung = recovery_rung::form_beside});
  // Abort at once and do not wait for it: a kernel that waits for a dead process's GPU would delay the next forming,
  // which continues beside the rest of the abort (docs/design/0038-controllers.md).
  if (std::exchange(unaborted_, false)) effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

world_effects world_state::on_formation(const formation_order& order) {
  const bool can_form =
      phase_ == world_phase::forming || phase_ == world_phase::ready || phase_ == world_phase::rebuilding;
  if (stop_requested_ || !can_form || order.of <= epoch_) return {};
  world_effects effects;
  const bool is_first = phase_ == world_phase::forming && epoch_ == epoch{0};
  if (phase_ != world_phase::rebuilding && !is_first) effects = await_guidance(order.reason);
  epoch_ = order.of;
  world_size_ = order.world_size;
  local_ranks_ = {order.self};
  if (is_first) origins_ = local_ranks_;
  phase_ = world_phase::forming;
  expect_reports();
  effects.emplace_back(world_effect::announce{event()});
  effects.emplace_back(world_effect::form{.how = rung_, .order = order});
  return effects;
}

world_effects world_state::on_failure(const failure_order& order) {
  const bool serving = phase_ == world_phase::forming || phase_ == world_phase::ready || quiescing_;
  if (order.of != epoch_ || !serving) return {};
  return stop_requested_ ? fail_closed(order.why) : await_guidance(order.why);
}

world_effects world_state::on_quiesce(const quiesce_order& order) {
  if (order.of != epoch_ || phase_ != world_phase::ready || stop_requested_) return {};
  quiescing_ = true;
  phase_ = world_phase::rebuilding;
  reason_ = order.why;
  try_began_ = time_->now();
  expect_reports();
  world_effects effects{world_effect::close_gates{reason_}, world_effect::announce{event()}};
  if (std::exchange(maintenance_, 0) > 0) effects.emplace_back(world_effect::drop_maintenance{reason_});
  return effects;
}

world_effects world_state::on_quiet() {
  quiescing_ = draining_ = false;
  retired_up_to_ = epoch_;
  retired_ += local_ranks_.size();
  rung_ = recovery_rung::form_beside;
  unaborted_ = true;
  return {world_effect::fail{reason_}, world_effect::retire{}, world_effect::tell{drained_report{epoch_}}};
}

world_effects world_state::on_dismissed(error why) {
  if (phase_ == world_phase::failed || phase_ == world_phase::stopped || releasing_) return {};
  const bool has_pipelines = quiescing_ || (phase_ != world_phase::rebuilding && epoch_ != epoch{0});
  quiescing_ = draining_ = false;
  if (has_pipelines) return fail_closed(std::move(why));
  // Before the first epoch and between two epochs only retired pipelines exist.
  phase_ = world_phase::failed;
  reason_ = std::move(why);
  releasing_ = released_ = true;
  world_effects effects{world_effect::announce{event()}};
  if (std::exchange(unaborted_, false)) effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

} // namespace troupe
