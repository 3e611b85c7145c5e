#include <troupe/actors/world/world_executor.hpp>

#include <troupe/collectives/order/caller_order.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace troupe {

std::vector<rank> ranks_of(const world_plan& plan) {
  std::vector<rank> ranks;
  for (const local_rank& one : plan.locals) ranks.push_back(one.self);
  return ranks;
}

namespace {

error unasked_error() {
  return {.code = errc::stopping, .text = "the world is shutting down, and not all ranks had asked for the operation"};
}

/// Returns the order of a world between two epochs.
std::shared_ptr<world_order> no_order() {
  static const auto none = std::make_shared<caller_order>();
  return none;
}

/// Returns the terms of a world that recovers by itself; nullopt for a guided one.
std::optional<recovery_terms> recovery_of(const world_plan& plan) {
  if (plan.to_controller) return std::nullopt;
  return with_window(plan.recovery, plan.deadlines.form, plan.deadlines.abort,
                     std::max(plan.services.limits.hang, plan.services.limits.launch));
}

bool fails_fast(const world_plan& plan) noexcept {
  return !plan.to_controller && plan.recovery.policy == recovery_policy::fail_fast;
}

std::uint64_t next_world_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

} // namespace

world_executor::world_executor(world_plan plan, std::vector<std::shared_ptr<collective_state>> states,
                               std::shared_ptr<world_mailbox> mail, world_shell& shell)
  : plan_{std::move(plan)},
    number_{next_world_number()},
    state_{plan_.world_size, ranks_of(plan_), recovery_of(plan_), plan_.services.time, plan_.seed},
    gate_{std::make_shared<request_gate>(plan_.deadlines.operation, plan_.pending,
                                         request_gate::terms{state_.admission()})},
    mail_{std::move(mail)},
    shell_{shell},
    places_{std::move(states), shell},
    now_{.order = no_order()},
    prepared_{{plan_, state_, now_, mail_, *this}, number_, spares_},
    hand_over_{{plan_, state_, now_, mail_, *this}},
    faults_{{plan_, state_, now_, mail_, *this}, number_},
    restored_{{plan_, state_, now_, mail_, *this}},
    maintenance_{{plan_, state_, now_, mail_, *this}},
    registered_{{plan_, state_, now_, mail_, *this}, maintenance_, restored_},
    plans_{{plan_, state_, now_, mail_, *this}, number_, *gate_, restored_} {
  plan_.status->belongs_to(number_, gate_);
  if (plan_.ordering == ordering::agreed && (!plan_.to_controller || plan_.is_alone))
    commits_.log = std::make_shared<resume_log>();
  if (!fails_fast(plan_)) spares_ = spare_reserve{plan_.locals};
}

void world_executor::begin() {
  carry_out(state_.begin());
}

void world_executor::on(world_note note) {
  std::visit(overloaded{
                 [this](rank_report& one) { on_report(one); },
                 [this](const rebuild_due& due) { carry_out(state_.on_rebuild_due(due.failed)); },
                 [this](straggling_report& late) {
                   world_event now = state_.event();
                   now.straggling = std::move(late.report);
                   announce(now);
                 },
                 [this](const restored_report& one) { restored_.settle(one); },
                 [this](maintenance_turn& one) { maintenance_.on_turn(one); },
                 [this](const maintenance_over& one) {
                   if (one.epoch == state_.current_epoch()) carry_out(state_.on_maintenance_over());
                 },
                 [this](peer_capture& one) { plans_.perform(std::move(one)); },
                 [this](const controller_directive& one) { follow(one); },
             },
             note);
}

void world_executor::on_report(rank_report& one) {
  if (prepared_.on_report(one)) return;
  if (one.what == rank_report::kind::late) return announce_late(one);
  if (one.failure) one.failure = faults_.take(one.epoch, std::move(one.failure));
  switch (one.what) {
    case rank_report::kind::late:
    case rank_report::kind::prepared: break;
    case rank_report::kind::held:
      if (one.epoch == state_.current_epoch()) tell(held_report{one.epoch});
      break;
    case rank_report::kind::handed_over: return end_hand_over();
    case rank_report::kind::formed:
      return carry_out(state_.on_formed(one.epoch, one.failure, faults_.blamed_for(one.failure)));
    case rank_report::kind::faulted:
      return carry_out(state_.on_fault(one.epoch, one.failure, faults_.blamed_for(one.failure)));
    case rank_report::kind::drained: return carry_out(state_.on_drained(one.epoch, one.failure));
    case rank_report::kind::released: return carry_out(state_.on_released(one.epoch, one.failure));
    case rank_report::kind::maintained:
      return carry_out(state_.on_maintained(one.epoch, one.failure, faults_.blamed_for(one.failure)));
  }
}

void world_executor::on_rank_ended(std::size_t place, const std::string& reason) {
  const auto index = places_.on_ended(place);
  if (!index) return;
  const rank self = plan_.locals[*index].self;
  error why{.code = errc::abandoned,
            .text = "the collective actor of rank " + to_string(self) + " has ended: " + reason,
            .rank = self};
  why = faults_.take(state_.current_epoch(), std::move(why));
  carry_out(state_.on_fault(state_.current_epoch(), why, faults_.blamed_for(why)));
}

void world_executor::stop() {
  prepared_.drop();
  maintenance_.end_suspension();
  carry_out(state_.on_stop());
  // The world still serves if maintenance waits for its turn, which does not come any more if the controller stops it.
  if (is_order_over_ && state_.event().phase == world_phase::ready) close_order(unasked_error());
}

void world_executor::kill(const error& why) {
  world_event last = state_.event();
  last.phase = world_phase::stopped;
  last.reason = why;
  last.recovery = nullptr;
  plan_.status->set(last); // first, as in close_gates()
  maintenance_.drop(why);
  prepared_.drop();
  for (auto& one : std::exchange(retired_, {})) now_.pipelines.push_back(std::move(one));
  for (const auto& one : now_.pipelines) one->fail(why);
  abort();
  close_order(why);
  plan_.pending->close(why);
  error refusal = why;
  refusal.effect = effect::rejected;
  gate_->publish({.admission = {.refusal = std::move(refusal)}});
  announce(std::move(last));
}

void world_executor::let_go() {
  plan_.services.poller->detach(*plan_.pending);
  gate_->close();
  now_.pipelines.clear();
  hand_over_.clear();
  failed_.clear();
  registered_.clear();
  contexts_ = nullptr;
  now_.order = no_order();
}

void world_executor::follow(const controller_directive& from) {
  carry_out(std::visit(overloaded{
                           [this](const formation_directive& directive) {
                             auto effects = state_.on_formation(directive);
                             if (effects.empty()) return effects;
                             commits_.told = directive.resume;
                             commits_.record = std::make_shared<commit_record>(directive.of, directive.resume);
                             // A rank that is alone in a sub-world may replace one that has committed there.
                             if (commits_.log && directive.resume)
                               commits_.log->learn(commits_of(*directive.resume, directive.of));
                             plan_.to_controller->begins(commits_.record);
                             return effects;
                           },
                           [this](const commits_wanted& wanted) {
                             // The notes that have ended the earlier epochs came before this one.
                             plan_.to_controller->tell(commits_report{
                                 .of = wanted.of, .told = commits_.record ? commits_.record->seal() : told_commits{}});
                             return world_effects{};
                           },
                           [this](const failure_directive& directive) {
                             if (directive.why) faults_.take(directive.of, directive.why, true);
                             const world_event now = state_.event();
                             // A world that leaves would otherwise wait for a confirmation that will not arrive.
                             if (now.phase == world_phase::stopping && directive.of == now.epoch)
                               now_.order->close(unasked_error());
                             return state_.on_failure(directive);
                           },
                           [this](const quiesce_directive& directive) {
                             auto effects = state_.on_quiesce(directive);
                             if (!effects.empty()) quiet_ = shell_.quiesce(directive.why);
                             return effects;
                           },
                           [this](const prepare_directive& directive) {
                             prepared_.prepare(directive);
                             return world_effects{};
                           },
                           [this](const hold_directive& directive) {
                             if (directive.of == state_.current_epoch()) hold();
                             return world_effects{};
                           },
                           [this](const drop_directive& directive) {
                             prepared_.drop(directive.of);
                             if (!state_.is_held()) now_.order->resume();
                             return world_effects{};
                           },
                           [this](const fence_notice& notice) { return state_.on_dismissed(notice.why); },
                           [this](const stop_directive& directive) {
                             if (directive.why.code != errc::stopping) return state_.on_dismissed(directive.why);
                             is_order_over_ = true;
                             if (!shell_.stop_sub_worlds(directive)) stop();
                             return world_effects{};
                           },
                       },
                       from.what));
}

void world_executor::carry_out(const world_effects& effects) {
  for (const auto& effect : effects)
    std::visit(overloaded{
                   [this](const world_effect::form& how) { form(how); },
                   [this](const world_effect::tell& what) { tell(what.what); },
                   [this](world_effect::adopt what) { adopt(what.continues); },
                   [this](const world_effect::end_hold& what) { close_order(what.reason); },
                   [this](const world_effect::announce& what) {
                     publish(); // first: a listener may send requests as soon as it is notified that the world is ready
                     announce(what.event);
                   },
                   [this](const world_effect::close_gates& what) { close_gates(what.reason); },
                   [this](const world_effect::fail& what) {
                     prepared_.drop();
                     for (const auto& one : now_.pipelines) one->fail(what.reason);
                     close_order(what.reason);
                     maintenance_.drop_restorations();
                     shell_.epoch_ended(what.reason, state_.event().phase == world_phase::failed);
                   },
                   [this](world_effect::abort) { abort(); },
                   [this](world_effect::retire) { retire(); },
                   [this](const world_effect::lose& what) { lose(what); },
                   [this](world_effect::abort_retired) {
                     on_each(std::exchange(retired_, {}), "the abort", plan_.deadlines.abort,
                             rank_report::kind::released, [all = spares_](rank_pipeline& one) {
                               one.abort();
                               all.keep(one); // uses the streams that the abort has just freed
                             });
                   },
                   [this](const world_effect::rebuild_after& query) {
                     mail_->post_after(query.delay, rebuild_due{state_.current_epoch()});
                   },
                   [this](world_effect::drain) { drain(); },
                   [this](world_effect::release) {
                     on_every_rank("the release", plan_.deadlines.release, rank_report::kind::released,
                                   [all = spares_](rank_pipeline& one) {
                                     one.close();
                                     all.give_back(one);
                                   });
                   },
                   [this](world_effect::maintain) { maintenance_.run(); },
                   [this](world_effect::maintained) { maintenance_.end_step(); },
                   [this](const world_effect::drop_maintenance& what) { maintenance_.drop(what.reason); },
                   [this](world_effect::leave) { shell_.leave(); },
               },
               effect);
}

void world_executor::tell(member_report what) const {
  if (auto* const drained = std::get_if<drained_report>(&what); drained != nullptr && !failed_.empty())
    drained->succeeded = failed_.front()->successes()->value(); // of the pipeline that was retired before
  plan_.to_controller->tell(std::move(what));
}

std::shared_ptr<latch> world_executor::close_order(const error& reason) {
  hand_over_.refuse(reason);
  const bool for_good = state_.event().phase != world_phase::rebuilding;
  return now_.order->close(reason, for_good);
}

void world_executor::close_gates(const error& reason) {
  plan_.status->set(event()); // first: a client that is refused may ask for the status
  publish();
  plan_.pending->close(reason);
  places_.close(reason);
}

void world_executor::abort() {
  on_every_rank("the abort", plan_.deadlines.abort, rank_report::kind::released, [all = spares_](rank_pipeline& one) {
    one.abort();
    all.give_back(one);
  });
}

void world_executor::drain() {
  std::shared_ptr<latch> closed; // null while requests are held: nothing more is released
  if (!state_.is_held()) {
    const bool leaves = !is_order_over_ && state_.event().phase == world_phase::stopping;
    closed = leaves ? now_.order->leave(unasked_error()) : close_order(unasked_error());
  }
  on_every_rank("the drain", 2 * plan_.deadlines.drain, rank_report::kind::drained,
                [limit = plan_.deadlines.drain, closed, quiet = std::exchange(quiet_, nullptr)](rank_pipeline& one) {
                  if (closed) closed->wait(); // by then all released operations have been passed on
                  if (quiet) quiet->wait();
                  if (!one.drain(limit))
                    throw exception{errc::deadline_exceeded,
                                    "work was still in flight at the world's deadline to drain (deadlines.drain)"};
                });
}

void world_executor::on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report,
                                   const rank_work& work) {
  report_for_uncreated(report);
  on_each(now_.pipelines, doing, deadline, report, work);
}

void world_executor::on_each(const pipelines& all, const char* doing, nanoseconds deadline, rank_report::kind report,
                             const rank_work& work) {
  std::vector<deadline_pool::job> jobs; // all in one call, because ranks wait for each other
  jobs.reserve(all.size());
  for (const auto& one : all)
    jobs.push_back({std::string{doing} + " of rank " + to_string(one->self()), deadline, [one, work] { work(*one); },
                    [mail = mail_, report, self = one->self(), of = one->formed_in()](error failure) {
                      if (failure && !failure.rank) failure.rank = self;
                      mail->post(rank_report{report, self, of, std::move(failure)});
                    }});
  plan_.helpers->run(std::move(jobs));
}

void world_executor::report_for_uncreated(rank_report::kind report) {
  for (std::size_t i = now_.pipelines.size(); i < plan_.locals.size(); ++i)
    mail_->post(rank_report{report, plan_.locals[i].self, state_.current_epoch(), {}});
}

void world_executor::retire() {
  restored_.clear();
  report_for_uncreated(rank_report::kind::released);
  retired_.insert(retired_.end(), now_.pipelines.begin(), now_.pipelines.end());
  failed_ = std::exchange(now_.pipelines, {});
  if (state_.is_held()) {
    hand_over_.keep(now_.order);
    maintenance_.drop_restorations();
    shell_.epoch_ended(state_.event().reason, false);
  }
  now_.order = no_order();
}

void world_executor::announce_late(const rank_report& one) {
  if (one.epoch != state_.current_epoch()) return;
  world_event now = state_.event();
  now.report = faults_.late(one.failure);
  announce(std::move(now));
}

void world_executor::announce(world_event event) {
  complete(event);
  if (event.reason) event.report = faults_.detach();
  plan_.status->publish(event);
}

void world_executor::publish() {
  world_admission admission = state_.admission();
  world_entry entry = now_.order->entry();
  admission.has_peers = entry.peers != nullptr;
  gate_->publish({.admission = std::move(admission),
                  .contexts = contexts_,
                  .order = std::move(entry.here),
                  .here = names_of(plan_, plans_.directory()),
                  .peers = std::move(entry.peers),
                  .registered = registered_.pools()});
}

void world_executor::form(const world_effect::form& how) {
  const epoch now = state_.current_epoch();
  if (how.directive) take_rank(*how.directive);
  places_.replace_ended(plan_.locals);
  contexts_ = contexts_of(plan_, number_);
  if (plan_.to_controller)
    if (auto made = plan_.to_controller->take_communicator()) plan_.formed = {std::move(made)};
  try {
    if (auto prepared = prepared_.take(now)) {
      now_.pipelines.push_back(std::move(prepared));
      now_.pipelines.back()->record_commits(commits_.record);
      const auto register_again = registered_.registration_while_forming();
      on_every_rank("the forming", plan_.deadlines.form, rank_report::kind::formed, register_again);
      return;
    }
    auto made = plan_.formed.empty() ? make_communicators(how) : plan_.formed;
    for (std::size_t i = 0; i < plan_.locals.size(); ++i) {
      now_.pipelines.push_back(
          create_pipeline({plan_, state_, now_, mail_, *this}, number_, std::move(made[i]), i, now));
      now_.pipelines.back()->record_commits(commits_.record);
    }
  } catch (...) {
    return carry_out(state_.on_formed(now, current_error()));
  }
  on_every_rank("the forming", plan_.deadlines.form, rank_report::kind::formed, forming(how));
  plan_.formed.clear(); // the next epoch has others
}

void world_executor::hold() {
  now_.order->hold([mail = mail_, self = plan_.locals.front().self, of = state_.current_epoch()] {
    mail->post(rank_report{rank_report::kind::held, self, of, {}});
  });
}

void world_executor::take_rank(const formation_directive& directive) {
  plan_.world_size = directive.world_size;
  plan_.locals.front().self = directive.self;
  plan_.id = directive.id;
  has_newcomers_ = directive.has_newcomers;
  if (directive.has_newcomers) registered_.expect_newcomers();
}

rank_work world_executor::forming(const world_effect::form& how) {
  const bool is_formed = !plan_.formed.empty();
  const bool is_beside = how.how != recovery_rung::abort_first && !is_formed;
  return [is_formed, is_beside, all = spares_,
          register_again = registered_.registration_while_forming()](rank_pipeline& one) {
    if (is_beside) all.give_back(one);
    is_formed ? one.init_formed() : one.init();
    register_again(one);
    if (!is_beside) all.keep(one);
  };
}

void world_executor::adopt(bool continues) {
  registered_.formed();
  now_.order = open_order();
  const auto held = hand_over_.take();
  now_.order->set_registered(registered_.pools());
  plans_.capture_again();
  if (plan_.ordering == ordering::agreed) { // else processes do not agree on a place for it
    registered_.register_missing();
    shell_.formed_again();
  }
  plan_.pending->reopen();
  if (first_ == epoch{}) {
    first_ = state_.current_epoch();
    plan_.services.poller->attach(plan_.pending);
  }
  plan_.status->revise_by([ranks = now_.pipelines, order = now_.order, is_fatal = fails_fast(plan_)](world_event& now) {
    const auto failed = std::ranges::find_if(ranks, [](const auto& one) { return one->failed(); });
    error why = failed != ranks.end() ? (*failed)->fault() : order->ending();
    if (!why) return;
    now.reason = std::move(why);
    const bool ends = is_fatal || now.reason.code == errc::process_poisoned;
    now.phase = ends ? world_phase::failed : world_phase::rebuilding;
    now.is_suspended = false;
    now.recovery = nullptr;
    now.restored = nullptr;
    now.resume = nullptr;
    now.one_shot = nullptr;
  });
  const bool passes_on = held && continues;
  if (passes_on) {
    const error why{.code = errc::rebuilding,
                    .text = "the world has changed its ranks as planned: ask again in epoch " +
                            to_string(state_.current_epoch())};
    // Together, and first: a client that makes a request for the ranks in the status is not refused for their number.
    // The former order still holds it, behind earlier ones.
    plan_.status->set(event());
    const auto next = std::exchange(now_.order, held);
    publish();
    now_.order = next;
    hand_over_.begin(held, why);
    for (const auto& one : retired_) one->fail(why); // they are idle
  }
  open_places(passes_on ? hand_over_.entrance() : now_.order);
  now_.order->serve(services_of({plan_, state_, now_, mail_, *this}, places_.front(), plans_.directory()));
}

void world_executor::open_places(const std::shared_ptr<world_order>& through) {
  const std::shared_ptr<rank_order> order = plan_.ordering == ordering::caller ? nullptr : through;
  for (std::size_t i = 0; i < now_.pipelines.size(); ++i)
    places_[i].adopt(now_.pipelines[i], order, plan_.deadlines.operation, plan_.pending, first_,
                     state_.unbroken_since());
}

void world_executor::end_hand_over() {
  // Otherwise a later epoch opens the places.
  if (hand_over_.on_end() && state_.event().phase == world_phase::ready) open_places(now_.order);
}

std::shared_ptr<world_order> world_executor::open_order() {
  if (now_.pipelines.size() == static_cast<std::size_t>(plan_.world_size)) {
    // The only process of a world has no log of its own: its positions follow the controller's points.
    auto counted_from = plan_.ordering == ordering::agreed ? commits_.told : nullptr;
    if (!counted_from && plan_.ordering == ordering::agreed) counted_from = std::make_shared<const resume_points>();
    return plan_.above->open_world(
        now_.pipelines, [mail = mail_](auto report) { mail->post(straggling_report{std::move(report)}); }, commits_.log,
        counted_from);
  }
  if (plan_.to_controller && plan_.ordering == ordering::agreed)
    return plan_.to_controller->open_order(now_.pipelines.front(), plan_.exported);
  return std::make_shared<caller_order>(now_.pipelines);
}

void world_executor::perform(const leave_request& asked, const std::shared_ptr<leave_answer>& reply) {
  if (!plan_.to_controller)
    return reply->deliver(
        error{.code = errc::unsupported,
              .text = "this world has no controller, which could let ranks leave: stop it, and form another"});
  auto answered = std::make_shared<rank_change_promise>([reply](std::variant<world_processes, error> result) {
    if (auto* const why = std::get_if<error>(&result)) return reply->deliver(std::move(*why));
    reply->deliver(leave_reply{});
  });
  plan_.to_controller->change({.kind = rank_change_kind::leave, .renumbers = asked.renumbers}, std::move(answered));
}

void world_executor::perform(const credit_request& asked, const std::shared_ptr<credit_answer>& reply) {
  if (error objection = objection_to_maintenance(asked.epoch)) return reply->deliver(std::move(objection));
  const nanoseconds deadline = asked.deadline == world_default_deadline ? plan_.deadlines.operation : asked.deadline;
  plan_.pending->ask({asked.operations, asked.bytes}, later(plan_.services.time->now(), deadline),
                     [reply](std::variant<credit, error> given) { reply->deliver(std::move(given)); });
}

world_event world_executor::event() const {
  world_event now = state_.event();
  complete(now);
  return now;
}

void world_executor::complete(world_event& event) const {
  event.is_suspended = event.phase == world_phase::ready && maintenance_.is_suspended();
  if (event.phase == world_phase::ready && plan_.ordering == ordering::agreed)
    event.resume = commits_.log ? commits_.log->points() : commits_.told;
  if (event.phase == world_phase::ready) event.restored = restored_.latest();
  if (event.phase == world_phase::ready && !now_.pipelines.empty())
    event.one_shot = now_.pipelines.front()->peers().one_shot();
}

void world_executor::lose(const world_effect::lose& what) {
  std::vector<local_rank> kept;
  std::vector<std::size_t> gone; // indices into the previous locals
  for (std::size_t i = 0; i < plan_.locals.size(); ++i)
    if (std::ranges::find(what.ranks, plan_.locals[i].self) == what.ranks.end()) {
      kept.push_back(plan_.locals[i]);
      kept.back().self = rank{static_cast<int>(kept.size()) - 1};
    } else {
      gone.push_back(i);
      spares_.forget(plan_.locals[i].where);
    }
  places_.lose(gone, plan_.locals, what.reason);
  registered_.leave_out(gone);
  plan_.locals = std::move(kept);
  plan_.world_size = static_cast<int>(plan_.locals.size());
}

std::vector<std::shared_ptr<communicator>> world_executor::make_communicators(const world_effect::form& how) {
  const pipelines failed = std::exchange(failed_, {});
  if (how.how != recovery_rung::shrink && how.how != recovery_rung::revoke) return troupe::make_communicators(plan_);
  try {
    return derive_communicators(plan_, how, failed);
  } catch (...) {
    state_.fell_back(current_error());
    return troupe::make_communicators(plan_);
  }
}

} // namespace troupe
