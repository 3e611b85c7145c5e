#include <troupe/actors/world/request_gate.hpp>
#include <troupe/actors/world/world_state.hpp>

#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/pipeline/fault_suspects.hpp>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace troupe {

world_state::world_state(int world_size, std::vector<rank> local_ranks, std::optional<recovery_terms> recovery,
                         std::shared_ptr<const clock> time, std::uint64_t seed)
  : ranks_{world_size, std::move(local_ranks)}, time_{std::move(time)}, guided_{!recovery} {
  if (recovery) recovery_.emplace(*recovery, seed);
}

world_event world_state::event() const {
  return {.phase = phase_,
          .epoch = epoch_,
          .world_size = ranks_.world_size(),
          .local_ranks = ranks_.local(),
          .reason = reason_,
          .origins = ranks_.origins(),
          .lost = ranks_.lost(),
          .recovery = phase_ == world_phase::ready || phase_ == world_phase::failed ? attempts_.history : nullptr};
}

world_effects world_state::begin() {
  if (guided_) return {world_effect::announce{event()}}; // on_formation() continues
  epoch_ = epoch_.next();
  phase_ = world_phase::forming;
  expect_reports();
  return {world_effect::announce{event()}, world_effect::form{.how = rung_, .without = std::exchange(without_, {})}};
}

world_effects world_state::on_formed(epoch formed_in, const error& failure, std::vector<rank> blamed) {
  if (formed_in != epoch_ || phase_ != world_phase::forming) return {};
  if (failure) return fail(failure, std::move(blamed));
  if (!last_report()) return {};
  phase_ = world_phase::ready;
  reason_ = {};
  if (has_served_) {
    end_try({});
    close_history();
  }
  has_served_ = true;
  if (recovery_) recovery_->on_serving();
  const bool continues = std::exchange(held_, false);
  if (!continues) since_ = epoch_;
  world_effects effects{world_effect::adopt{continues}, world_effect::announce{event()}};
  if (std::exchange(retired_.unaborted, false)) effects.emplace_back(world_effect::abort_retired{});
  if (guided_) effects.emplace_back(world_effect::tell{formed_report{epoch_}});
  return effects;
}

void world_state::fell_back(error why) {
  end_try(std::move(why));
  rung_ = recovery_rung::form_beside;
  if (recovery_) recovery_->fell_back();
}

void world_state::end_try(error failure) {
  const time_point now = time_->now();
  attempts_.ended.push_back(
      {.rung = rung_, .took = now - std::exchange(attempts_.began, now), .failure = std::move(failure)});
}

void world_state::close_history() {
  if (!attempts_.ended.empty())
    attempts_.history = std::make_shared<const std::vector<recovery_try>>(std::exchange(attempts_.ended, {}));
}

world_effects world_state::on_fault(epoch formed_in, error failure, std::vector<rank> blamed) {
  const bool serving = phase_ == world_phase::forming || phase_ == world_phase::ready || quiescing_ ||
                       (phase_ == world_phase::stopping && !releasing_);
  if (formed_in != epoch_) return {};
  if (!serving) {
    if (held_ && !held_fault_) held_fault_ = std::move(failure);
    return {};
  }
  if (!needs_verdict(failure)) return fail(std::move(failure), std::move(blamed));
  if (unjudged_.epoch == epoch_) return {};
  unjudged_ = failure;
  unjudged_.epoch = epoch_;
  return {world_effect::tell{failed_report{.of = epoch_, .why = std::move(failure), .blamed = std::move(blamed)}}};
}

bool world_state::needs_verdict(const error& failure) const noexcept {
  return guided_ && !stop_requested_ && phase_ == world_phase::ready && !is_of_its_own(failure.code);
}

world_effects world_state::on_drained(epoch formed_in, const error& failure) {
  const bool draining = quiescing_ || (phase_ == world_phase::stopping && !releasing_);
  if (formed_in != epoch_ || !draining) return {};
  if (failure) return fail(failure);
  if (!last_report()) return {};
  if (quiescing_) return on_quiet();
  releasing_ = true;
  expect_reports();
  return {world_effect::release{}};
}

world_effects world_state::on_released(epoch formed_in, const error&) {
  if (formed_in <= retired_.up_to) return on_retired_released();
  if (formed_in != epoch_ || !releasing_ || !last_report()) return {};
  released_ = true;
  return stop_requested_ ? finish() : world_effects{};
}

world_effects world_state::on_retired_released() {
  if (retired_.count == 0 || --retired_.count > 0) return {};
  if (retired_.next_after) return {world_effect::rebuild_after{*std::exchange(retired_.next_after, std::nullopt)}};
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
  if (phase_ == world_phase::ready && unjudged_.epoch == epoch_) { // the controller may no longer answer
    reason.text = "the world was stopped after " + describe_reason(unjudged_);
    return fail(std::move(reason));
  }
  if (std::exchange(quiescing_, false)) { // a world that stops forms no further epoch
    phase_ = world_phase::stopping;
    reason_ = {};
    world_effects effects = end_hold(stopping_error());
    effects.emplace_back(world_effect::announce{event()});
    return effects;
  }
  if (phase_ == world_phase::rebuilding || epoch_ == epoch{0}) {
    // Between two epochs only retired pipelines exist.
    phase_ = world_phase::failed;
    if (reason_)
      reason_ = {.code = errc::stopping,
                 .text = "the world was stopped while it was rebuilt after " + describe_reason(reason_)};
    retired_.next_after.reset();
    releasing_ = released_ = true;
    world_effects effects = end_hold(stopping_error());
    world_effects last =
        std::exchange(retired_.unaborted, false) ? world_effects{world_effect::abort_retired{}} : finish();
    std::ranges::move(last, std::back_inserter(effects));
    return effects;
  }
  if (phase_ == world_phase::forming) {
    reason.text = "the world was stopped while it was forming";
    return fail(std::move(reason));
  }
  return maintenance_ > 0 ? world_effects{} : close(std::move(reason));
}

world_effects world_state::end_hold(const error& reason) {
  if (!std::exchange(held_, false)) return {};
  return {world_effect::close_gates{reason}, world_effect::end_hold{reason}};
}

world_effects world_state::close(error reason) {
  phase_ = world_phase::stopping;
  expect_reports();
  return {world_effect::close_gates{std::move(reason)}, world_effect::announce{event()}, world_effect::drain{}};
}

world_effects world_state::on_maintenance_due() {
  if (++due_ > 1) return {};
  return continue_maintenance();
}

world_effects world_state::continue_maintenance() {
  expect_reports();
  return {world_effect::maintain{}};
}

world_effects world_state::on_maintained(epoch formed_in, const error& failure, std::vector<rank> blamed) {
  if (formed_in != epoch_ || phase_ != world_phase::ready || due_ == 0) return {};
  if (failure) return fail(failure, std::move(blamed));
  if (!last_report()) return {};
  return {world_effect::maintained{}};
}

world_effects world_state::on_maintenance_over() {
  if (due_ == 0) return {}; // it was dropped
  --maintenance_;
  return --due_ > 0 ? continue_maintenance() : stop_if_idle();
}

world_effects world_state::on_maintenance_refused() {
  if (maintenance_ > due_) --maintenance_;
  return stop_if_idle();
}

world_effects world_state::stop_if_idle() {
  const bool stops = stop_requested_ && maintenance_ == 0 && phase_ == world_phase::ready;
  return stops ? close(stopping_error()) : world_effects{};
}

void world_state::drop_maintenance(world_effects& effects, const error& reason) {
  due_ = 0;
  if (std::exchange(maintenance_, 0) > 0) effects.emplace_back(world_effect::drop_maintenance{reason});
}

world_effects world_state::fail(error reason, std::vector<rank> blamed) {
  if (guided_ && !stop_requested_) {
    failed_report report{.of = epoch_, .why = reason, .blamed = std::move(blamed)};
    world_effects effects = await_controller(std::move(reason));
    effects.emplace_back(world_effect::tell{std::move(report)});
    return effects;
  }
  if (stop_requested_ || !has_served_) return fail_closed(std::move(reason));
  if (phase_ == world_phase::forming)
    end_try(reason);
  else
    attempts_.began = time_->now();
  const recovery_step step = recovery_->on_fault(
      {.why = reason, .world_size = ranks_.world_size(), .blamed = std::move(blamed)}, including_pauses(time_->now()));
  if (step.rung == recovery_rung::give_up) return fail_closed(step.why);
  return rebuild(std::move(reason), step);
}

world_effect::lose world_state::lose(const std::vector<rank>& ranks) {
  ranks_.lose(ranks, epoch_);
  return {ranks,
          {.code = errc::rank_lost,
           .text = "this rank has left its world, which continues with " + std::to_string(ranks_.world_size()) +
                   " ranks from epoch " + to_string(epoch_.next()) + " on: ask one of those (world_event::origins); " +
                   "it left because of " + describe_reason(reason_),
           .epoch = epoch_.next()}};
}

world_effects world_state::rebuild(error reason, const recovery_step& step) {
  phase_ = world_phase::rebuilding;
  reason_ = std::move(reason);
  attempts_.history = nullptr;
  error refusal = phase_objection();
  world_effects effects{world_effect::close_gates{refusal}, world_effect::fail{reason_},
                        world_effect::announce{event()}, world_effect::retire{}};
  retired_.up_to = epoch_;
  retired_.count += ranks_.local_count();
  rung_ = step.rung;
  without_ = step.without;
  if (!step.without.empty()) effects.emplace_back(lose(step.without));
  retired_.unaborted = step.rung != recovery_rung::abort_first;
  drop_maintenance(effects, refusal);
  if (retired_.unaborted) {
    if (!guided_) effects.emplace_back(world_effect::rebuild_after{step.delay});
    return effects;
  }
  retired_.next_after = step.delay;
  effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

world_effects world_state::fail_closed(error reason) {
  phase_ = world_phase::failed;
  attempts_.history = nullptr;
  close_history();
  reason_ = std::move(reason);
  releasing_ = true;
  expect_reports();
  const error refusal = phase_objection();
  world_effects effects{world_effect::close_gates{refusal}, world_effect::fail{reason_},
                        world_effect::announce{event()}, world_effect::abort{}};
  if (std::exchange(retired_.unaborted, false)) effects.emplace_back(world_effect::abort_retired{});
  drop_maintenance(effects, refusal);
  return effects;
}

world_effects world_state::finish() {
  if (retired_.count > 0) return {};
  const error why = phase_ == world_phase::failed && reason_.code != errc::stopping ? reason_ : error{};
  phase_ = world_phase::stopped;
  // Send this before the announcement: a thread that waits for it may end the process, which would then count as lost.
  world_effects effects;
  if (guided_) effects.emplace_back(world_effect::tell{leave_notice{why}});
  effects.emplace_back(world_effect::announce{event()});
  effects.emplace_back(world_effect::leave{});
  return effects;
}

bool world_state::last_report() noexcept {
  return outstanding_ > 0 && --outstanding_ == 0;
}

error world_state::stopping_error() {
  return {.code = errc::stopping, .text = "the world is stopping and accepts no new requests"};
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
              .text = "the world is being formed again: wait until it is ready in its next epoch; the reason was " +
                      describe_reason(reason_),
              .epoch = epoch_};
    case world_phase::failed:
      return {.code = errc::world_failed,
              .text = "the world has failed, form a new one; the reason was " + describe_reason(reason_),
              .epoch = epoch_};
    case world_phase::stopping:
    case world_phase::stopped: return stopping_error();
  }
  return {};
}

world_admission world_state::admission() const {
  return {.refusal = phase_objection(),
          .epoch = epoch_,
          .world_size = ranks_.world_size(),
          .local_count = ranks_.local_count(),
          .began_with = ranks_.began_with(),
          .since = since_};
}

world_effects world_state::await_controller(error reason) {
  const bool again = phase_ == world_phase::forming;
  if (again && has_served_)
    end_try(reason);
  else
    attempts_.began = time_->now();
  quiescing_ = held_ = false;
  world_effects effects = rebuild(std::move(reason), {.rung = recovery_rung::form_beside});
  // Abort at once and do not wait for it: a kernel that waits for a dead process's GPU would delay the next forming,
  // which continues beside the rest of the abort (docs/design/0038-membership-controller.md).
  retired_.unaborted = false;
  effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

world_effects world_state::on_formation(const formation_directive& directive) {
  const bool can_form =
      phase_ == world_phase::forming || phase_ == world_phase::ready || phase_ == world_phase::rebuilding;
  if (stop_requested_ || !can_form || directive.of <= epoch_) return {};
  world_effects effects;
  if (held_ && held_fault_) { // the next epoch would begin without some of what this rank held
    reason_ = std::exchange(held_fault_, {});
    effects = end_hold(phase_objection());
    effects.emplace_back(world_effect::announce{event()});
    effects.emplace_back(world_effect::tell{failed_report{.of = directive.of, .why = reason_}});
    return effects;
  }
  const bool is_first = epoch_ == epoch{0};
  if (phase_ != world_phase::rebuilding && !is_first) effects = await_controller(directive.reason);
  epoch_ = directive.of;
  ranks_.renumber(directive.world_size, directive.self, is_first);
  phase_ = world_phase::forming;
  expect_reports();
  if (!held_) effects.emplace_back(world_effect::announce{event()}); // else clients are not concerned
  effects.emplace_back(world_effect::form{.how = rung_, .directive = directive});
  return effects;
}

world_effects world_state::on_failure(const failure_directive& directive) {
  const bool serving = phase_ == world_phase::forming || phase_ == world_phase::ready || quiescing_;
  // The epoch that was to continue the held one may fail before this process is directed to form it.
  if (directive.of != epoch_ && !(held_ && directive.of > epoch_)) return {};
  if (!serving) { // the epoch was drained, and held requests wait for the next one
    if (held_) reason_ = directive.why;
    world_effects effects = end_hold(phase_objection());
    if (!effects.empty()) effects.emplace_back(world_effect::announce{event()});
    return effects;
  }
  return stop_requested_ ? fail_closed(directive.why) : await_controller(directive.why);
}

world_effects world_state::on_quiesce(const quiesce_directive& directive) {
  if (directive.of != epoch_ || phase_ != world_phase::ready || stop_requested_) return {};
  quiescing_ = true;
  held_ = directive.is_planned;
  held_fault_ = {};
  phase_ = world_phase::rebuilding;
  reason_ = directive.why;
  attempts_.began = time_->now();
  expect_reports();
  world_effects effects;
  if (!held_) effects = {world_effect::close_gates{reason_}, world_effect::announce{event()}};
  drop_maintenance(effects, reason_);
  effects.emplace_back(world_effect::drain{});
  return effects;
}

world_effects world_state::on_quiet() {
  quiescing_ = false;
  retired_.up_to = epoch_;
  retired_.count += ranks_.local_count();
  rung_ = recovery_rung::form_beside;
  retired_.unaborted = true;
  if (held_) return {world_effect::retire{}, world_effect::tell{drained_report{.of = epoch_}}};
  return {world_effect::fail{reason_}, world_effect::retire{}, world_effect::tell{drained_report{.of = epoch_}}};
}

world_effects world_state::on_dismissed(error why) {
  if (phase_ == world_phase::failed || phase_ == world_phase::stopped || releasing_) return {};
  const bool has_pipelines = quiescing_ || (phase_ != world_phase::rebuilding && epoch_ != epoch{0});
  quiescing_ = held_ = false;
  if (has_pipelines) return fail_closed(std::move(why));
  // Before the first epoch and between two epochs only retired pipelines exist. Clients of single ranks and sub-worlds
  // learn from here that the world does not form again.
  phase_ = world_phase::failed;
  reason_ = std::move(why);
  releasing_ = released_ = true;
  world_effects effects{world_effect::close_gates{phase_objection()}, world_effect::fail{reason_},
                        world_effect::announce{event()}};
  if (std::exchange(retired_.unaborted, false)) effects.emplace_back(world_effect::abort_retired{});
  return effects;
}

} // namespace troupe
