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

world_state::world_state(int world_size, std::vector<rank> local_ranks)
  : world_size_{world_size}, local_ranks_{std::move(local_ranks)} {}

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
  return {world_effect::adopt{}, world_effect::announce{event()}};
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
  if (formed_in != epoch_ || !releasing_ || !last_report()) return {};
  released_ = true;
  return stop_requested_ ? finish() : world_effects{};
}

world_effects world_state::on_stop() {
  if (std::exchange(stop_requested_, true)) return {};
  if (phase_ == world_phase::failed) return released_ ? finish() : world_effects{};
  error reason = stopping_error();
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
  phase_ = world_phase::failed;
  reason_ = std::move(reason);
  releasing_ = true;
  expect_reports();
  error refusal{.code = errc::world_failed,
                .text = "the world has failed, form a new one; the reason was " + to_string(reason_),
                .epoch = epoch_};
  world_effects effects{world_effect::close_gates{refusal}, world_effect::fail{reason_},
                        world_effect::announce{event()}, world_effect::abort{}};
  if (std::exchange(maintenance_, 0) > 0) effects.emplace_back(world_effect::drop_maintenance{std::move(refusal)});
  return effects;
}

world_effects world_state::finish() {
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
      return {.code = errc::world_failed, .text = "the world is still forming: wait until it is ready"};
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
