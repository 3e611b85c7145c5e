#include <troupe/actors/world_state.hpp>
#include <troupe/collectives/signature.hpp>

#include <string>
#include <utility>

namespace troupe {

namespace {

error stopping_error() {
  return {.code = errc::stopping, .text = "the world is stopping and takes no new requests"};
}

error epoch_objection(epoch meant_for, epoch now) {
  if (meant_for == now) return {};
  return {.code = errc::stale_epoch,
          .text = "the request is for epoch " + to_string(meant_for) + ", the world is in epoch " + to_string(now) +
                  ": take the epoch from the world's latest event",
          .epoch = now};
}

} // namespace

world_state::world_state(int world_size, std::vector<rank> local_ranks, recovery_terms recovery,
                         std::shared_ptr<const clock> time)
  : world_size_{world_size}, local_ranks_{std::move(local_ranks)}, time_{std::move(time)}, ladder_{recovery} {}

world_event world_state::event() const {
  return {.phase = phase_, .epoch = epoch_, .world_size = world_size_, .local_ranks = local_ranks_, .reason = reason_};
}

world_effects world_state::begin() {
  epoch_ = epoch_.next();
  phase_ = world_phase::forming;
  expect_reports();
  return {world_effect::announce{event()}, world_effect::form{}};
}

world_effects world_state::on_formed(epoch formed_in, const error& failure) {
  if (formed_in != epoch_ || phase_ != world_phase::forming) return {};
  if (failure) return fail(failure);
  if (!last_report()) return {};
  phase_ = world_phase::ready;
  reason_ = {};
  has_served_ = true;
  world_effects effects{world_effect::adopt{}, world_effect::announce{event()}};
  if (std::exchange(unaborted_, false)) effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

world_effects world_state::on_fault(epoch formed_in, error failure) {
  const bool serving = phase_ == world_phase::forming || phase_ == world_phase::ready ||
                       (phase_ == world_phase::stopping && !releasing_);
  if (formed_in != epoch_ || !serving) return {};
  return fail(std::move(failure));
}

world_effects world_state::on_closed(epoch formed_in) {
  if (formed_in != epoch_ || phase_ != world_phase::stopping || draining_ || !last_report()) return {};
  draining_ = true;
  expect_reports();
  return {world_effect::drain{}};
}

world_effects world_state::on_drained(epoch formed_in, const error& failure) {
  if (formed_in != epoch_ || phase_ != world_phase::stopping || !draining_ || releasing_) return {};
  if (failure) return fail(failure);
  if (!last_report()) return {};
  releasing_ = true;
  expect_reports();
  return {world_effect::release{}};
}

world_effects world_state::on_released(epoch formed_in, const error&) {
  if (formed_in <= retired_up_to_) return on_retired_released();
  if (formed_in != epoch_ || !releasing_ || !last_report()) return {};
  released_ = true;
  return stop_requested_ ? finish() : world_effects{};
}

world_effects world_state::on_retired_released() {
  if (retired_ == 0 || --retired_ > 0) return {};
  if (waits_for_retired_) return {world_effect::rebuild_after{*std::exchange(waits_for_retired_, std::nullopt)}};
  return stop_requested_ && released_ ? finish() : world_effects{};
}

world_effects world_state::on_rebuild_due(epoch failed) {
  if (failed != epoch_ || phase_ != world_phase::rebuilding || stop_requested_) return {};
  return begin();
}

world_effects world_state::on_stop() {
  if (std::exchange(stop_requested_, true)) return {};
  if (phase_ == world_phase::failed) return released_ ? finish() : world_effects{};
  error reason = stopping_error();
  if (phase_ == world_phase::rebuilding) {
    // Between two epochs there is nothing but what was put aside.
    phase_ = world_phase::failed;
    waits_for_retired_.reset();
    releasing_ = released_ = true;
    return std::exchange(unaborted_, false) ? world_effects{world_effect::abort_retired{}} : finish();
  }
  if (phase_ == world_phase::forming) {
    reason.text = "the world was stopped while it was forming";
    return fail(std::move(reason));
  }
  return maintenance_ > 0 ? world_effects{} : close(std::move(reason));
}

world_effects world_state::close(error reason) {
  phase_ = world_phase::stopping;
  expect_reports();
  return {world_effect::close_gates{std::move(reason)}, world_effect::announce{event()}};
}

world_effects world_state::on_maintenance_asked() {
  if (++maintenance_ > 1) return {};
  expect_reports();
  return {world_effect::hold{}, world_effect::maintain{}};
}

world_effects world_state::on_maintained(epoch formed_in, const error& failure) {
  if (formed_in != epoch_ || phase_ != world_phase::ready || maintenance_ == 0) return {};
  if (failure) return fail(failure);
  if (!last_report()) return {};
  world_effects effects{world_effect::maintained{}};
  if (--maintenance_ > 0) {
    expect_reports();
    effects.emplace_back(world_effect::maintain{});
    return effects;
  }
  effects.emplace_back(world_effect::resume{});
  if (stop_requested_)
    for (auto& next : close(stopping_error())) effects.push_back(std::move(next));
  return effects;
}

world_effects world_state::fail(error reason) {
  if (stop_requested_ || !has_served_) return fail_closed(std::move(reason));
  const bool again = phase_ == world_phase::forming;
  const recovery_step step = ladder_.on_fault(reason, time_->now(), again);
  if (step.rung == recovery_rung::give_up) return fail_closed(step.why);
  return rebuild(std::move(reason), step);
}

world_effects world_state::rebuild(error reason, const recovery_step& step) {
  phase_ = world_phase::rebuilding;
  reason_ = std::move(reason);
  error refusal = phase_objection();
  world_effects effects{world_effect::close_gates{refusal}, world_effect::fail{reason_},
                        world_effect::announce{event()}, world_effect::retire{}};
  retired_up_to_ = epoch_;
  retired_ += local_ranks_.size();
  unaborted_ = step.rung == recovery_rung::form_beside;
  if (std::exchange(maintenance_, 0) > 0) effects.emplace_back(world_effect::drop_maintenance{std::move(refusal)});
  if (unaborted_) {
    effects.emplace_back(world_effect::rebuild_after{step.delay});
    return effects;
  }
  waits_for_retired_ = step.delay;
  effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

world_effects world_state::fail_closed(error reason) {
  phase_ = world_phase::failed;
  reason_ = std::move(reason);
  releasing_ = true;
  expect_reports();
  error refusal{.code = errc::world_failed,
                .text = "the world has failed, form a new one; the reason was " + to_string(reason_),
                .epoch = epoch_};
  world_effects effects{world_effect::close_gates{refusal}, world_effect::fail{reason_},
                        world_effect::announce{event()}, world_effect::abort{}};
  if (std::exchange(unaborted_, false)) effects.emplace_back(world_effect::abort_retired{});
  if (std::exchange(maintenance_, 0) > 0) effects.emplace_back(world_effect::drop_maintenance{std::move(refusal)});
  return effects;
}

world_effects world_state::finish() {
  if (retired_ > 0) return {};
  phase_ = world_phase::stopped;
  return {world_effect::announce{event()}, world_effect::leave{}};
}

bool world_state::last_report() noexcept {
  return outstanding_ > 0 && --outstanding_ == 0;
}

error world_state::maintenance_objection(epoch meant_for) const {
  if (stop_requested_) return stopping_error();
  error objection = phase_objection();
  return objection ? objection : epoch_objection(meant_for, epoch_);
}

error world_state::phase_objection() const {
  switch (phase_) {
    case world_phase::ready: break;
    case world_phase::forming:
      if (!has_served_)
        return {.code = errc::world_failed, .text = "the world is still forming: wait until it is ready"};
      [[fallthrough]];
    case world_phase::rebuilding:
      return {.code = errc::rebuilding,
              .text = "the world is being formed anew: wait until it is ready in its next epoch; the reason was " +
                      to_string(reason_),
              .epoch = epoch_};
    case world_phase::failed:
      return {.code = errc::world_failed,
              .text = "the world has failed, form a new one; the reason was " + to_string(reason_),
              .epoch = epoch_};
    case world_phase::stopping:
    case world_phase::stopped: return stopping_error();
  }
  return {};
}

world_admission world_state::admission() const {
  return {.refusal = phase_objection(), .epoch = epoch_, .world_size = world_size_, .local_count = local_ranks_.size()};
}

error world_admission::objection_to(const world_request& asked) const {
  if (refusal) return refusal;
  if (error objection = epoch_objection(asked.epoch, epoch)) return objection;
  if (local_count != static_cast<std::size_t>(world_size))
    return {.code = errc::unsupported,
            .text = "only " + std::to_string(local_count) + " of the world's " + std::to_string(world_size) +
                    " ranks live in this process: ask each rank's collective actor instead"};
  if (asked.parts.size() != local_count)
    return {.code = errc::invalid_argument,
            .text = "the request has " + std::to_string(asked.parts.size()) + " parts, the world has " +
                    std::to_string(world_size) + " ranks: give one part for each rank"};
  if (asked.deadline < nanoseconds{0})
    return error{.code = errc::invalid_argument, .text = "a deadline cannot be negative"};
  return check_agreement(asked.parts);
}

} // namespace troupe
