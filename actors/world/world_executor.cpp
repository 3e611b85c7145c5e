#include <troupe/actors/world/world_executor.hpp>

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/order/caller_order.hpp>
#include <troupe/collectives/pipeline/plans/capture_session.hpp>
#include <troupe/collectives/pipeline/plans/plan_steps.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

namespace troupe {

std::vector<rank> ranks_of(const world_plan& plan) {
  std::vector<rank> ranks;
  for (const local_rank& one : plan.locals) ranks.push_back(one.self);
  return ranks;
}

namespace {

/// Number of spare streams per rank: the rank's stream and those of its staging, two permanent and two temporary
/// streams of NCCL, and some for other streams that the process may create meanwhile.
constexpr std::size_t streams_of_a_rank = 12;

/// Returns the order of a world between two epochs.
std::shared_ptr<world_order> no_order() {
  static const auto none = std::make_shared<caller_order>();
  return none;
}

std::uint64_t next_world_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

} // namespace

world_executor::world_executor(world_plan plan, std::vector<std::shared_ptr<collective_state>> states,
                               std::shared_ptr<world_mailbox> mail, world_shell& shell)
  : plan_{std::move(plan)},
    places_(plan_.locals.size()),
    number_{next_world_number()},
    state_{plan_.world_size, ranks_of(plan_),
           with_window(plan_.recovery, plan_.deadlines.form, plan_.deadlines.abort,
                       std::max(plan_.services.limits.hang, plan_.services.limits.launch)),
           plan_.services.time, plan_.seed},
    gate_{std::make_shared<request_gate>(plan_.deadlines.operation, plan_.pending,
                                         request_gate::terms{state_.admission()})},
    states_{std::move(states)},
    mail_{std::move(mail)},
    shell_{shell},
    order_{no_order()} {
  std::iota(places_.begin(), places_.end(), std::size_t{0});
  plan_.status->belongs_to(number_, gate_);
  if (plan_.ordering == ordering::agreed && (!plan_.to_controller || plan_.is_alone))
    log_ = std::make_shared<resume_log>();
  if (plan_.recovery.policy != recovery_policy::fail_fast)
    for (const local_rank& one : plan_.locals)
      spares_.emplace(one.where, std::make_shared<spare_streams>(one.where, streams_of_a_rank));
}

void world_executor::begin() {
  carry_out(state_.begin());
}

void world_executor::on(world_note note) {
  std::visit(overloaded{
                 [this](rank_report& one) {
                   if (one.what == rank_report::kind::late) return announce_late(one);
                   if (one.failure) one.failure = take_report(one.epoch, std::move(one.failure));
                   switch (one.what) {
                     case rank_report::kind::late: break;
                     case rank_report::kind::formed:
                       return carry_out(state_.on_formed(one.epoch, one.failure, blamed_for(one.failure)));
                     case rank_report::kind::faulted:
                       return carry_out(state_.on_fault(one.epoch, one.failure, blamed_for(one.failure)));
                     case rank_report::kind::drained: return carry_out(state_.on_drained(one.epoch, one.failure));
                     case rank_report::kind::released: return carry_out(state_.on_released(one.epoch, one.failure));
                     case rank_report::kind::maintained:
                       return carry_out(state_.on_maintained(one.epoch, one.failure, blamed_for(one.failure)));
                   }
                 },
                 [this](const rebuild_due& due) { carry_out(state_.on_rebuild_due(due.failed)); },
                 [this](straggling_report& late) {
                   world_event now = state_.event();
                   now.straggling = std::move(late.report);
                   announce(now);
                 },
                 [this](const restored_report& one) { on_restored(one); },
                 [this](maintenance_turn& one) { on_turn(one); },
                 [this](const maintenance_over& one) {
                   if (one.epoch == state_.current_epoch()) carry_out(state_.on_maintenance_over());
                 },
                 [this](peer_capture& one) { on_peer_capture(std::move(one)); },
                 [this](const controller_directive& one) { follow(one); },
             },
             note);
}

void world_executor::on_rank_ended(std::size_t place, const std::string& reason) {
  if (const auto lost = lost_.find(place); lost != lost_.end()) { // later requests to this place get the same error
    states_[place] = shell_.replace_rank(place, lost->second.rank.value_or(rank{}));
    return states_[place]->lose(lost->second);
  }
  const auto index = std::ranges::find(places_, place) - places_.begin();
  const rank self = plan_.locals[static_cast<std::size_t>(index)].self;
  error why{.code = errc::abandoned,
            .text = "the collective actor of rank " + to_string(self) + " has ended: " + reason,
            .rank = self};
  ended_.insert(place);
  why = take_report(state_.current_epoch(), std::move(why));
  carry_out(state_.on_fault(state_.current_epoch(), why, blamed_for(why)));
}

void world_executor::stop() {
  if (suspended_) end_suspension();
  carry_out(state_.on_stop());
}

void world_executor::kill(const error& why) {
  world_event last = state_.event();
  last.phase = world_phase::stopped;
  last.reason = why;
  last.recovery = nullptr;
  plan_.status->set(last); // first, as in close_gates()
  drop_maintenance(why);
  for (auto& one : std::exchange(retired_, {})) pipelines_.push_back(std::move(one));
  for (const auto& one : pipelines_) one->fail(why);
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
  pipelines_.clear();
  failed_.clear();
  registered_.clear();
  unregistered_.clear();
  contexts_ = nullptr;
  order_ = no_order();
}

namespace {

error unasked_error() {
  return {.code = errc::stopping, .text = "the world is shutting down, and not all ranks had asked for the operation"};
}

} // namespace

void world_executor::follow(const controller_directive& from) {
  carry_out(std::visit(overloaded{
                           [this](const formation_order& order) {
                             auto effects = state_.on_formation(order);
                             if (effects.empty()) return effects;
                             told_points_ = order.resume;
                             commits_ = std::make_shared<commit_record>(order.of, order.resume);
                             plan_.to_controller->begins(commits_);
                             return effects;
                           },
                           [this](const commits_wanted& wanted) {
                             // The notes that have ended the earlier epochs came before this one.
                             plan_.to_controller->tell(
                                 commits_report{.of = wanted.of, .told = commits_ ? commits_->told() : told_commits{}});
                             return world_effects{};
                           },
                           [this](const failure_order& order) {
                             if (order.why) take_report(order.of, order.why, true);
                             const world_event now = state_.event();
                             // A world that leaves would otherwise wait for a confirmation that will not arrive.
                             if (now.phase == world_phase::stopping && order.of == now.epoch)
                               order_->close(unasked_error());
                             return state_.on_failure(order);
                           },
                           [this](const quiesce_order& order) {
                             auto effects = state_.on_quiesce(order);
                             if (!effects.empty()) quiet_ = shell_.quiesce(order.why);
                             return effects;
                           },
                           [this](const fence_notice& notice) { return state_.on_dismissed(notice.why); },
                           [this](const stop_order& order) {
                             if (order.why.code != errc::stopping) return state_.on_dismissed(order.why);
                             is_order_over_ = true;
                             return state_.on_stop();
                           },
                       },
                       from.what));
}

void world_executor::carry_out(const world_effects& effects) {
  for (const auto& effect : effects)
    std::visit(overloaded{
                   [this](const world_effect::form& how) { form(how); },
                   [this](const world_effect::tell& what) { plan_.to_controller->tell(what.what); },
                   [this](world_effect::adopt) { adopt(); },
                   [this](const world_effect::announce& what) {
                     publish(); // first: a listener may send requests as soon as it is notified that the world is ready
                     announce(what.event);
                   },
                   [this](const world_effect::close_gates& what) { close_gates(what.reason); },
                   [this](const world_effect::fail& what) {
                     for (const auto& one : pipelines_) one->fail(what.reason);
                     close_order(what.reason);
                     std::erase_if(asked_, [](const auto& one) { return one.second.front().restores; });
                     shell_.epoch_ended(what.reason, state_.event().phase == world_phase::failed);
                   },
                   [this](world_effect::abort) { abort(); },
                   [this](world_effect::retire) { retire(); },
                   [this](const world_effect::lose& what) { lose(what); },
                   [this](world_effect::abort_retired) {
                     on_each(std::exchange(retired_, {}), "the abort", plan_.deadlines.abort,
                             rank_report::kind::released, [all = spares_](rank_pipeline& one) {
                               one.abort();
                               keep_spares(all, one); // uses the streams that the abort has just freed
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
                                     give_back_spares(all, one);
                                   });
                   },
                   [this](world_effect::maintain) { do_maintenance(); },
                   [this](world_effect::maintained) { end_maintenance_step(); },
                   [this](const world_effect::drop_maintenance& what) { drop_maintenance(what.reason); },
                   [this](world_effect::leave) { shell_.leave(); },
               },
               effect);
}

void world_executor::close_order(const error& reason) {
  const bool for_good = state_.event().phase != world_phase::rebuilding;
  closed_ = order_->close(reason, for_good);
}

void world_executor::close_gates(const error& reason) {
  plan_.status->set(event()); // first: a client that is refused may ask for the status
  publish();
  plan_.pending->close(reason);
  for (const std::size_t place : places_) states_[place]->close(reason);
}

void world_executor::abort() {
  on_every_rank("the abort", plan_.deadlines.abort, rank_report::kind::released, [all = spares_](rank_pipeline& one) {
    one.abort();
    give_back_spares(all, one);
  });
}

void world_executor::drain() {
  if (!is_order_over_ && state_.event().phase == world_phase::stopping)
    closed_ = order_->leave(unasked_error());
  else
    close_order(unasked_error());
  on_every_rank(
      "the drain", 2 * plan_.deadlines.drain, rank_report::kind::drained,
      [limit = plan_.deadlines.drain, closed = closed_, quiet = std::exchange(quiet_, nullptr)](rank_pipeline& one) {
        if (closed) closed->wait(); // by then all released operations have been passed on
        if (quiet) quiet->wait();
        if (!one.drain(limit))
          throw exception{errc::deadline_exceeded,
                          "work was still in flight at the world's deadline to drain (deadlines.drain)"};
      });
}

void world_executor::on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report,
                                   const step& work) {
  report_for_uncreated(report);
  on_each(pipelines_, doing, deadline, report, work);
}

void world_executor::on_each(const pipelines& all, const char* doing, nanoseconds deadline, rank_report::kind report,
                             const step& work) {
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
  for (std::size_t i = pipelines_.size(); i < plan_.locals.size(); ++i)
    mail_->post(rank_report{report, plan_.locals[i].self, state_.current_epoch(), {}});
}

void world_executor::retire() {
  restored_.clear();
  report_for_uncreated(rank_report::kind::released);
  retired_.insert(retired_.end(), pipelines_.begin(), pipelines_.end());
  failed_ = std::exchange(pipelines_, {});
  order_ = no_order();
}

error world_executor::take_report(epoch of, error why, bool is_verdict) {
  if (of != state_.current_epoch() || reported_ >= of) return why;
  reported_ = of;
  report_ = take_fault_report({why, number_, of, plan_.world_size, is_verdict}, pipelines_, plan_.services.time->now());
  // A controller compares what the ranks have noticed.
  return plan_.recovery.policy == recovery_policy::guided ? why : fault_of(*report_);
}

void world_executor::announce_late(const rank_report& one) {
  if (one.epoch != state_.current_epoch()) return;
  world_event now = state_.event();
  now.report =
      take_fault_report({one.failure, number_, one.epoch, plan_.world_size}, pipelines_, plan_.services.time->now());
  announce(std::move(now));
}

void world_executor::announce(world_event event) {
  complete(event);
  if (event.reason) event.report = std::exchange(report_, nullptr);
  plan_.status->publish(event);
}

rank_services world_executor::services_for_peers() {
  return {
      .ask =
          [to = states_[places_.front()]](rank_request asked, error objection, reply_promise reply,
                                          std::uint64_t client) {
            to->accept_for_peer(std::move(asked), std::move(objection), std::move(reply), client);
          },
      .here = local_names_here(),
      .lend =
          [helpers = plan_.helpers, make = plan_.lend,
           limit = plan_.deadlines.form](lent_kind what, std::size_t size_bytes, const rank_services::lent& done) {
            const auto made = std::make_shared<buffer>();
            helpers->run(
                "an allocation for another process", limit,
                [made, make, what, size_bytes] { *made = make(what, size_bytes); },
                [made, done](const error& why) { done(why ? buffer{} : std::move(*made), why); });
          },
      .capture =
          [mail = mail_, of = state_.current_epoch()](std::vector<operation> steps, plan_options options,
                                                      error objection, rank_services::captured done) {
            mail->post(peer_capture{of, std::move(steps), std::move(options), std::move(objection), std::move(done)});
          }};
}

void world_executor::on_peer_capture(peer_capture asked) {
  if (asked.epoch != state_.current_epoch()) return; // the order of that epoch has been closed and has answered
  plan_steps steps;
  for (operation& one : asked.steps) steps.push_back({std::move(one)});
  capture_request wanted{.steps = std::move(steps), .options = std::move(asked.options), .epoch = asked.epoch};
  if (!asked.objection) asked.objection = objection_to(wanted);
  // A rank that cannot capture its part joins the capture nevertheless and fails it, so that no other rank waits for
  // it.
  if (asked.objection)
    wanted = {.function = [why = asked.objection](rank_capture&) { throw exception{why}; },
              .options = std::move(wanted.options),
              .epoch = asked.epoch};
  perform(std::move(wanted), std::make_shared<capture_answer>([done = std::move(asked.done)](
                                                                  const std::variant<capture_reply, error>& result) {
            const error* const why = std::get_if<error>(&result);
            done(why != nullptr ? nullptr : std::get<capture_reply>(result).plan, why != nullptr ? *why : error{});
          }));
}

local_names world_executor::local_names_here() const {
  return {.memory = plan_.exported, .plans = plans_, .functions = plan_.functions};
}

void world_executor::publish() {
  world_admission admission = state_.admission();
  world_entry entry = order_->entry();
  admission.has_peers = entry.peers != nullptr;
  gate_->publish({.admission = std::move(admission),
                  .contexts = contexts_,
                  .order = std::move(entry.here),
                  .here = local_names_here(),
                  .peers = std::move(entry.peers),
                  .registered = registered_});
}

namespace {

/// Limit for ranks to leave a capture that has ended. A rank that takes longer is in a launch or in the client's
/// function that does not return, so its launcher is blocked too.
constexpr nanoseconds time_to_leave{std::chrono::seconds{2}};

/// Returns the sum, without overflow.
nanoseconds later_by(nanoseconds one, nanoseconds more) {
  return one > nanoseconds::max() - more ? nanoseconds::max() : one + more;
}

} // namespace

void world_executor::perform(capture_request asked, const std::shared_ptr<capture_answer>& reply) {
  if (error objection = objection_to(asked)) return reply->deliver(std::move(objection));
  if (plan_.to_controller && asked.options.name.empty())
    asked.options.name = std::string{unnamed_plan} + std::to_string(++unnamed_captures_);
  capture_function function = asked.function
                                  ? std::move(asked.function)
                                  : capture_of(std::move(asked.steps), plan_.world_size, plan_.above->fusion());
  const auto plan = std::make_shared<captured_plan>(std::move(function), std::move(asked.options));
  // A plan replaces an earlier one of the same name, because only one of them can be captured again.
  std::erase_if(captured_, [&](const auto& one) {
    const auto known = one.lock();
    return !known || (plan_.to_controller && known->options().name == plan->options().name);
  });
  captured_.push_back(plan);
  if (!plan->options().name.empty()) plans_->add(plan);
  capture_now(plan, patience_of(*plan), [plan, reply](const error& failure, nanoseconds) {
    if (failure) return reply->deliver(failure);
    reply->deliver(capture_reply{plan});
  });
}

nanoseconds world_executor::patience_of(const captured_plan& plan) const {
  return plan.options().deadline == world_default_deadline ? plan_.deadlines.form : plan.options().deadline;
}

error world_executor::objection_to(const capture_request& asked) const {
  if (error objection = state_.maintenance_objection(asked.epoch)) return objection;
  if (error objection = order_->objection_to_capture()) return objection;
  const auto refuse = [](std::string text) { return error{.code = errc::invalid_argument, .text = std::move(text)}; };
  if (asked.options.deadline < nanoseconds{0}) return refuse("a deadline cannot be negative");
  if (asked.options.name.size() > longest_plan_name_bytes || asked.options.name.starts_with(unnamed_plan))
    return refuse("a plan's name has at most " + std::to_string(longest_plan_name_bytes) +
                  " bytes and does not begin with '" + std::string{unnamed_plan} + "'");
  const std::size_t local = plan_.locals.size();
  const bool is_whole = local == static_cast<std::size_t>(plan_.world_size);
  const std::string here = is_whole ? "the world has " + std::to_string(local) + " ranks"
                                    : "this process has " + std::to_string(local) + " of the world's ranks";
  if (!asked.options.streams.empty() && asked.options.streams.size() != local)
    return refuse("the plan names " + std::to_string(asked.options.streams.size()) + " streams, " + here +
                  ": give one for each rank, or none");
  if (static_cast<bool>(asked.function) != asked.steps.empty())
    return refuse("a plan is captured from a function or from requests: give one of the two");
  for (std::size_t k = 0; k < asked.steps.size(); ++k) {
    const auto& parts = asked.steps[k];
    error objection;
    if (parts.size() != local)
      objection =
          refuse("it has " + std::to_string(parts.size()) + " parts, " + here + ": give one part for each rank");
    else if (is_whole)
      objection = check_agreement(parts);
    if (!objection) objection = gate_->objection_to(parts);
    if (!objection) continue;
    objection.text = "step " + std::to_string(k) + " of the plan: " + objection.text;
    return objection;
  }
  return {};
}

std::function<void(const std::shared_ptr<capture_session>&)>
world_executor::watch_for(nanoseconds limit, std::function<void(const error&, nanoseconds)> tell) const {
  return [limit, tell = std::move(tell), mail = mail_, helpers = plan_.helpers,
          now = state_.current_epoch()](const std::shared_ptr<capture_session>& session) {
    const auto over = [session, now, tell, mail](error failure) {
      if (!failure) return tell({}, session->took());
      // A rank that is still in the capture blocks its launcher, so nothing more can be launched there.
      for (const rank one : session->give_up())
        mail->post(
            rank_report{rank_report::kind::faulted,
                        one,
                        now,
                        {.code = errc::deadline_exceeded,
                         .text = "the capture of a plan has not returned from the client's function or from a launch",
                         .rank = one}});
      if (failure.code == errc::deadline_exceeded)
        failure = session->failure(); // the session knows where each rank was
      failure.effect = effect::rejected;
      tell(failure, session->took());
    };
    helpers->run(
        "the capture of a plan", later_by(limit, time_to_leave), [session] { session->wait(); }, over);
  };
}

void world_executor::capture_now(const std::shared_ptr<captured_plan>& plan, nanoseconds wait_for_peers,
                                 std::function<void(const error&, nanoseconds)> tell) {
  const nanoseconds patience = patience_of(*plan);
  const world_stamp stamp{number_, state_.current_epoch()};
  plan->begin(stamp, pipelines_); // now, because requests to replay it may come before its turn
  const nanoseconds limit = later_by(patience, order_->capture_grace());
  auto start = [plan, tell, stamp, limit, watch = watch_for(limit, tell),
                ranks = pipelines_](std::shared_ptr<capture_agreement> peers, error why) {
    if (!peers) {
      plan->fail(why);
      why.effect = effect::rejected;
      return tell(why, nanoseconds{0});
    }
    const auto session =
        std::make_shared<capture_session>(plan, ranks, stamp, later(steady_now(), limit), std::move(peers));
    watch(session);
    for (const auto& each : ranks) each->sequence([session](rank_pipeline& one) { session->take_part(one); });
  };
  order_->capture(plan, wait_for_peers, patience, std::move(start));
}

void world_executor::recapture_plans() {
  std::erase_if(captured_, [](const auto& one) { return one.expired(); });
  // Do this before any other request of this epoch, so that it precedes every replay. A failure is reported by later
  // replays.
  for (const auto& one : captured_) {
    const auto plan = one.lock();
    if (!plan) continue;
    restored_part made{.kind = restored_kind::plan, .number = plan->number(), .name = plan->options().name};
    const std::size_t streams = plan->options().streams.size();
    if (streams > 0 && streams != plan_.locals.size()) {
      made.state = restored_state::lost;
      made.failure = drop_plan(*plan);
      restored_.push_back(std::move(made));
      continue;
    }
    restored_.push_back(made);
    // A process that has joined captures its plans when it is ready to, so the others wait for it without limit.
    const nanoseconds wait_for_peers = nanoseconds::max();
    capture_now(plan, wait_for_peers,
                [made, mail = mail_, now = state_.current_epoch()](const error& failure, nanoseconds took) {
                  restored_part ended = made;
                  ended.state = failure ? restored_state::lost : restored_state::back;
                  ended.took = took;
                  ended.failure = failure;
                  mail->post(restored_report{now, std::move(ended)});
                });
  }
}

namespace {

/// Returns the contexts of the plan's ranks, which keep alive the objects that they refer to.
std::shared_ptr<const std::vector<rank_context>> contexts_of(const world_plan& plan, std::uint64_t number) {
  struct owner {
    std::vector<std::shared_ptr<device>> devices;
    std::shared_ptr<const capabilities> able;
    std::vector<rank_context> contexts;
  };
  auto made = std::make_shared<owner>();
  made->able = plan.services.able;
  for (const local_rank& one : plan.locals) {
    made->devices.push_back(one.where);
    made->contexts.push_back({.self = one.self,
                              .world_size = plan.world_size,
                              .where = *one.where,
                              .able = made->able.get(),
                              .stamp = {.world = number}});
  }
  return {made, &made->contexts};
}

} // namespace

void world_executor::form(const world_effect::form& how) {
  const epoch now = state_.current_epoch();
  if (how.order) take_rank(*how.order);
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (ended_.contains(places_[i])) states_[places_[i]] = shell_.replace_rank(places_[i], plan_.locals[i].self);
  ended_.clear();
  contexts_ = contexts_of(plan_, number_);
  if (plan_.to_controller)
    if (auto made = plan_.to_controller->take_communicator()) plan_.formed = {std::move(made)};
  try {
    auto made = plan_.formed.empty() ? make_communicators(how) : plan_.formed;
    for (std::size_t i = 0; i < plan_.locals.size(); ++i) {
      const local_rank& one = plan_.locals[i];
      pipelines_.push_back(rank_pipeline::create(
          plan_.services, std::move(made[i]), one.launch_thread, now, [mail = mail_, at = one.self, now](error why) {
            mail->post(rank_report{rank_report::kind::faulted, at, now, std::move(why)});
          }));
      pipelines_.back()->belongs_to(number_);
      pipelines_.back()->record_commits(commits_);
      pipelines_.back()->on_late([mail = mail_, at = one.self, now](error why) {
        mail->post(rank_report{rank_report::kind::late, at, now, std::move(why)});
      });
    }
  } catch (...) {
    return carry_out(state_.on_formed(now, current_error()));
  }
  on_every_rank("the forming", plan_.deadlines.form, rank_report::kind::formed, forming(how));
  plan_.formed.clear(); // the next epoch has others
}

void world_executor::take_rank(const formation_order& order) {
  plan_.world_size = order.world_size;
  plan_.locals.front().self = order.self;
  plan_.id = order.id;
  has_newcomers_ = order.has_newcomers;
  if (!order.has_newcomers) return;
  // A new process has registered no memory. Memory of the others is registered again when the new process registers
  // memory of the same size.
  std::ranges::move(registered_, std::back_inserter(unregistered_));
  registered_.clear();
}

world_executor::step world_executor::forming(const world_effect::form& how) {
  const bool is_formed = !plan_.formed.empty();
  const bool is_beside = how.how != recovery_rung::abort_first && !is_formed;
  registering_ = registered_.empty() ? nullptr : std::make_shared<decltype(registering_)::element_type>();
  // A forming that was given up may still run when later epochs have fewer ranks, so it keeps its own list of regions.
  std::vector<std::vector<std::shared_ptr<registered_region>>> registered;
  for (const auto& pool : registered_) registered.push_back(pool->regions());
  return [is_formed, is_beside, all = spares_, registered = std::move(registered), times = registering_,
          time = plan_.services.time, locals = ranks_of(plan_)](rank_pipeline& one) {
    if (is_beside) give_back_spares(all, one);
    is_formed ? one.init_formed() : one.init();
    const auto local = std::ranges::find(locals, one.self()) - locals.begin();
    std::vector<std::pair<time_point, time_point>> spans;
    for (std::size_t i = 0; i < registered.size(); ++i) {
      const time_point began = time->now();
      one.peers().register_region(*registered[i][static_cast<std::size_t>(local)]);
      spans.emplace_back(began, time->now());
    }
    if (times) times->set(one.self(), std::move(spans));
    if (!is_beside) keep_spares(all, one);
  };
}

void world_executor::give_back_spares(const spares& all, const rank_pipeline& of) {
  if (const auto found = all.find(of.where()); found != all.end()) found->second->give_back();
}

void world_executor::keep_spares(const spares& all, const rank_pipeline& of) {
  const auto found = all.find(of.where());
  if (found == all.end()) return;
  try {
    found->second->fill();
  } catch (const exception&) { // spare streams are a precaution: later users of the device get its error
  }
}

world_executor::communicators world_executor::make_communicators() const {
  communicators made;
  const unique_id id = plan_.id ? *plan_.id : plan_.world_size > 1 ? plan_.backend->make_unique_id() : unique_id{};
  for (const local_rank& one : plan_.locals)
    if (plan_.world_size > 1)
      made.push_back(plan_.backend->create(id, one.self, plan_.world_size, one.where));
    else
      made.push_back(std::make_shared<solo_communicator>(one.where));
  return made;
}

void world_executor::adopt() {
  restored_registrations_are_back();
  order_ = open_order();
  order_->set_registered(registered_);
  recapture_plans();
  if (plan_.ordering == ordering::agreed) { // else processes do not agree on a place for it
    for (const auto& pool : unregistered_) register_again(pool);
    shell_.formed_again();
  }
  plan_.pending->reopen();
  if (first_ == epoch{}) {
    first_ = state_.current_epoch();
    plan_.services.poller->attach(plan_.pending);
  }
  plan_.status->revise_by([ranks = pipelines_, order = order_, policy = plan_.recovery.policy](world_event& now) {
    const auto failed = std::ranges::find_if(ranks, [](const auto& one) { return one->failed(); });
    error why = failed != ranks.end() ? (*failed)->fault() : order->ending();
    if (!why) return;
    now.reason = std::move(why);
    const bool ends = policy == recovery_policy::fail_fast || now.reason.code == errc::process_poisoned;
    now.phase = ends ? world_phase::failed : world_phase::rebuilding;
    now.is_suspended = false;
    now.recovery = nullptr;
    now.restored = nullptr;
    now.resume = nullptr;
  });
  const std::shared_ptr<rank_order> order = plan_.ordering == ordering::caller ? nullptr : order_;
  for (std::size_t i = 0; i < places_.size(); ++i)
    states_[places_[i]]->adopt(pipelines_[i], order, plan_.deadlines.operation, plan_.pending, first_);
  order_->serve(services_for_peers());
}

std::shared_ptr<world_order> world_executor::open_order() {
  if (pipelines_.size() == static_cast<std::size_t>(plan_.world_size))
    return plan_.above->open_world(
        pipelines_, [mail = mail_](auto report) { mail->post(straggling_report{std::move(report)}); }, log_);
  if (plan_.to_controller && plan_.ordering == ordering::agreed)
    return plan_.to_controller->open_order(pipelines_.front(), plan_.exported);
  return std::make_shared<caller_order>(pipelines_);
}

namespace {

// The names of turns. Turns are matched by name, so processes that register memory of the same size share a turn.
std::string allocation_of(std::size_t size_bytes) {
  return "the allocation of " + std::to_string(size_bytes) + " bytes to register";
}
std::string registration_of(std::size_t size_bytes) {
  return "the registration of " + std::to_string(size_bytes) + " bytes";
}

} // namespace

void world_executor::maintain(maintenance work) {
  maintain(std::deque<maintenance>{std::move(work)});
}

void world_executor::maintain(std::deque<maintenance> steps) {
  if (!steps.front().restores) state_.on_maintenance_asked();
  const std::uint64_t number = ++maintenance_asked_;
  const maintenance& first = steps.front();
  turn_terms terms{.name = first.name,
                   .deadline = first.restores ? nanoseconds::max() : plan_.deadlines.drain + plan_.deadlines.form,
                   .split = first.split,
                   .told = first.told};
  asked_.emplace(number, std::move(steps));
  order_->turn(std::move(terms), [mail = mail_, now = state_.current_epoch(), all = pipelines_,
                                  number](const error& why, std::span<const opened_world> opened) {
    if (!why)
      for (const auto& one : all) one->hold();
    mail->post(maintenance_turn{now, number, why, {opened.begin(), opened.end()}});
  });
}

void world_executor::on_turn(maintenance_turn& one) {
  if (one.epoch != state_.current_epoch()) return;
  auto asked = asked_.extract(one.number);
  if (asked.empty()) { // it was dropped
    if (!one.refusal)
      for (const auto& each : pipelines_) each->resume();
    return;
  }
  std::deque<maintenance>& steps = asked.mapped();
  const bool restores = steps.front().restores;
  if (restores && !one.refusal) {
    one.refusal = objection_to_maintenance(); // a world that stops does not wait for restorations
    for (std::size_t i = 0; one.refusal && i < pipelines_.size(); ++i) pipelines_[i]->resume();
  }
  if (one.refusal) {
    if (!restores) carry_out(state_.on_maintenance_refused());
    for (const maintenance& each : steps) each.done(one.refusal);
    return;
  }
  if (restores) state_.on_maintenance_asked();
  if (steps.front().granted) steps.front().granted(std::move(one.opened));
  maintenance_.push_back(std::move(steps));
  carry_out(state_.on_maintenance_due());
}

void world_executor::perform(const registration_request& asked, std::shared_ptr<registration_promise> reply) {
  error objection = objection_to_maintenance(asked.epoch);
  if (!objection && asked.size_bytes == 0)
    objection = {.code = errc::invalid_argument, .text = "0 bytes cannot be registered: name a size"};
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<regions>();
  const auto failures = std::make_shared<rank_results<error>>();
  // Allocate in a step of its own, so that a rank without memory is detected before others wait for it.
  maintain({.name = allocation_of(asked.size_bytes),
            .step =
                [made, failures, size_bytes = asked.size_bytes](rank_pipeline& one) {
                  try {
                    made->set(one.self(), one.peers().allocate_region(size_bytes));
                  } catch (...) {
                    error why = current_error();
                    if (!why.rank) why.rank = one.self();
                    failures->set(one.self(), std::move(why));
                  }
                },
            .done =
                [this, made, failures, size_bytes = asked.size_bytes, reply = std::move(reply)](const error& failure) {
                  const auto failed = failures->all();
                  error why = failure ? failure : failed.empty() ? objection_to_maintenance() : failed.front();
                  why ? reply->deliver(std::move(why)) : enroll(made, size_bytes, reply);
                }});
}

void world_executor::enroll(const std::shared_ptr<regions>& made, std::size_t size_bytes,
                            std::shared_ptr<registration_promise> reply) {
  maintain({.name = registration_of(size_bytes),
            .step = [made](rank_pipeline& one) { one.peers().register_region(*made->of(one.self())); },
            .done =
                [this, made, reply = std::move(reply)](const error& failure) {
                  if (failure) return reply->deliver(failure);
                  const bool alone = plan_.locals.size() == static_cast<std::size_t>(plan_.world_size);
                  add_registered(std::make_shared<registered_pool>(made->all(), alone));
                  reply->deliver(registration_reply{registered_.back()});
                }});
}

void world_executor::add_registered(std::shared_ptr<registered_pool> pool) {
  registered_.push_back(std::move(pool));
  order_->set_registered(registered_);
  publish();
}

void world_executor::register_again(const std::shared_ptr<registered_pool>& pool) {
  restored_part part{.kind = restored_kind::registration, .number = next_restored_registration()};
  restored_.push_back(part);
  // Use the same turns as a process that registers for the first time.
  maintenance enrollment{.name = registration_of(pool->size_bytes()),
                         .restores = true,
                         .step = [pool](rank_pipeline& one) { one.peers().register_region(*pool->regions().front()); },
                         .done =
                             [this, pool, part, began = plan_.services.time->now()](const error& failure) mutable {
                               if (failure) return; // the next epoch tries again
                               std::erase(unregistered_, pool);
                               add_registered(pool);
                               part.state = restored_state::back;
                               part.took = plan_.services.time->now() - began;
                               on_restored({state_.current_epoch(), part});
                             }};
  maintain({.name = allocation_of(pool->size_bytes()),
            .restores = true,
            .step = [](rank_pipeline&) {}, // the memory is already allocated
            .done =
                [this, next = std::move(enrollment)](const error& failure) mutable {
                  if (!failure && !objection_to_maintenance()) maintain(std::move(next));
                }});
}

std::uint64_t world_executor::next_restored_registration() const {
  return static_cast<std::uint64_t>(std::ranges::count(restored_, restored_kind::registration, &restored_part::kind));
}

void world_executor::perform(const credit_request& asked, const std::shared_ptr<credit_answer>& reply) {
  if (error objection = objection_to_maintenance(asked.epoch)) return reply->deliver(std::move(objection));
  const nanoseconds deadline = asked.deadline == world_default_deadline ? plan_.deadlines.operation : asked.deadline;
  plan_.pending->ask({asked.operations, asked.bytes}, later(plan_.services.time->now(), deadline),
                     [reply](std::variant<credit, error> given) { reply->deliver(std::move(given)); });
}

void world_executor::do_maintenance() {
  const maintenance& next = maintenance_.front().front();
  if (next.is_due && !next.is_due()) return;
  on_every_rank(next.name.c_str(), plan_.deadlines.drain + plan_.deadlines.form, rank_report::kind::maintained,
                [step = next.step](rank_pipeline& one) {
                  one.settle();
                  step(one);
                });
}

void world_executor::end_maintenance_step() {
  std::deque<maintenance>& now = maintenance_.front();
  const maintenance over = std::move(now.front());
  now.pop_front();
  const bool continues = !now.empty();
  if (!continues) maintenance_.pop_front();
  over.done({});
  if (continues) return carry_out(state_.continue_maintenance());
  serve_again();
}

void world_executor::serve_again() {
  // Resume at the same place in the order at all ranks, so that all ranks launch the held operations and those of other
  // worlds in one order (ORD-3). The next piece of maintenance begins only after the ranks have received them.
  order_->turn({.name = "the end of maintenance"}, [mail = mail_, now = state_.current_epoch(),
                                                    all = pipelines_](const error&, std::span<const opened_world>) {
    for (const auto& one : all) one->resume();
    mail->post(maintenance_over{now});
  });
}

void world_executor::drop_maintenance(const error& reason) {
  // If the epoch ends without a fault, the operations that its pipelines hold are launched.
  for (std::size_t i = 0; i < maintenance_.size(); ++i)
    for (const auto& one : pipelines_) one->resume();
  for (const auto& steps : std::exchange(maintenance_, {}))
    for (const maintenance& each : steps) each.done(reason);
  for (const auto& [number, steps] : std::exchange(asked_, {}))
    for (const maintenance& each : steps) each.done(reason);
}

void world_executor::restored_registrations_are_back() {
  if (!registering_) return;
  const auto ranks = std::exchange(registering_, nullptr)->all();
  restoration all;
  for (std::size_t i = 0; i < ranks.front().size(); ++i) {
    auto [began, ended] = ranks.front()[i];
    for (const auto& spans : ranks) {
      began = std::min(began, spans[i].first);
      ended = std::max(ended, spans[i].second);
    }
    all.push_back(
        {.kind = restored_kind::registration, .number = i, .state = restored_state::back, .took = ended - began});
  }
  std::ranges::move(restored_, std::back_inserter(all)); // sub-worlds that recovered earlier
  restored_ = std::move(all);
}

void world_executor::on_restored(const restored_report& one) {
  if (one.epoch != state_.current_epoch()) return;
  const auto found = std::ranges::find_if(restored_, [&](const restored_part& known) {
    return known.state == restored_state::under_way && known.kind == one.what.kind && known.number == one.what.number;
  });
  if (found == restored_.end()) return;
  *found = one.what;
  announce_restored();
}

void world_executor::sub_world_is_back(restored_part one) {
  std::erase_if(restored_, [&](const restored_part& known) {
    return known.kind == restored_kind::sub_world && known.number == one.number;
  });
  restored_.push_back(std::move(one));
  announce_restored();
}

void world_executor::announce_restored() {
  const bool all_told =
      std::ranges::none_of(restored_, [](const restored_part& one) { return one.state == restored_state::under_way; });
  // Several results that arrive in succession are reported by one event.
  if (all_told && state_.event().phase == world_phase::ready) announce(state_.event());
}

world_event world_executor::event() const {
  world_event now = state_.event();
  complete(now);
  return now;
}

void world_executor::complete(world_event& event) const {
  event.is_suspended = event.phase == world_phase::ready && suspended_ && suspended_->is_in_force;
  if (event.phase == world_phase::ready && plan_.ordering == ordering::agreed)
    event.resume = log_ ? log_->points() : told_points_;
  if (event.phase == world_phase::ready && !restored_.empty())
    event.restored = std::make_shared<const restoration>(restored_);
}

std::vector<rank> world_executor::blamed_for(const error& why) const {
  const recovery_policy policy = plan_.recovery.policy;
  if (policy != recovery_policy::shrink && policy != recovery_policy::guided) return {};
  fault_time when = fault_time::serving;
  if (state_.is_forming()) {
    const recovery_rung how = state_.rung();
    when = how == recovery_rung::shrink || how == recovery_rung::revoke ? fault_time::forming_of_failed
                                                                        : fault_time::forming;
  }
  return culprits_of(why, report_.get(), when);
}

void world_executor::lose(const world_effect::lose& what) {
  std::vector<local_rank> locals;
  std::vector<std::size_t> places;
  std::vector<std::size_t> gone; // indices into the previous locals
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (std::ranges::find(what.ranks, plan_.locals[i].self) == what.ranks.end()) {
      locals.push_back(std::move(plan_.locals[i]));
      locals.back().self = rank{static_cast<int>(places.size())};
      places.push_back(places_[i]);
      continue;
    }
    gone.push_back(i);
    spares_.erase(plan_.locals[i].where);
    const std::size_t place = places_[i];
    error told = what.reason;
    told.rank = plan_.locals[i].self;
    lost_[place] = told;
    if (ended_.erase(place) > 0) states_[place] = shell_.replace_rank(place, plan_.locals[i].self);
    states_[place]->lose(std::move(told));
  }
  for (const auto& pool : registered_) pool->leave_out(gone);
  plan_.locals = std::move(locals);
  plan_.world_size = static_cast<int>(places.size());
  places_ = std::move(places);
}

world_executor::communicators world_executor::make_communicators(const world_effect::form& how) {
  const pipelines failed = std::exchange(failed_, {});
  if (how.how != recovery_rung::shrink && how.how != recovery_rung::revoke) return make_communicators();
  try {
    return derive_communicators(how, failed);
  } catch (...) {
    state_.fell_back(current_error());
    return make_communicators();
  }
}

world_executor::communicators world_executor::derive_communicators(const world_effect::form& how,
                                                                   const pipelines& failed) const {
  communicators made;
  for (const auto& one : failed) {
    if (std::ranges::find(how.without, one->self()) != how.without.end()) continue;
    const rank self{static_cast<int>(made.size())};
    made.push_back(how.how == recovery_rung::revoke ? one->peers().revoke_and_split()
                                                    : one->peers().shrink({how.without, self, plan_.world_size}));
  }
  if (made.size() != plan_.locals.size())
    throw exception{errc::communicator_failed, "not every rank has a communicator from which another can be derived"};
  return made;
}

error world_executor::drop_plan(captured_plan& plan) {
  error why{.code = errc::invalid_argument,
            .text = "it was captured in " + std::to_string(plan.options().streams.size()) +
                    " streams of the client, one for each rank, and the world has " + std::to_string(plan_.world_size) +
                    " ranks now: capture another"};
  plan.begin({number_, state_.current_epoch()}, pipelines_);
  plan.fail(why);
  return why;
}

namespace {

error objection_to_suspension(const capabilities* able) {
  if (able == nullptr) return {};
  const feature_finding found = able->find(feature::suspend);
  if (found.available != availability::no) return {};
  return {.code = errc::unsupported, .text = able->version + " cannot release its memory: " + found.why};
}

} // namespace

void world_executor::perform(const suspension_request& asked, std::shared_ptr<suspension_answer> reply) {
  error objection = objection_to_maintenance(asked.epoch);
  if (!objection && suspended_)
    objection = {.code = errc::invalid_argument, .text = "the world is suspended already: resume it first"};
  if (!objection) objection = objection_to_suspension(plan_.services.able.get());
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<suspension>();
  const auto released = std::make_shared<rank_results<std::size_t>>();
  suspended_ = made;
  maintenance begin{.name = "the suspension",
                    .step = [released](rank_pipeline& one) { released->set(one.self(), one.peers().suspend()); },
                    .done =
                        [this, made, released, reply = std::move(reply)](const error& failure) {
                          if (failure) return reply->deliver(failure);
                          made->is_in_force = true;
                          announce(state_.event());
                          reply->deliver(suspension_reply{released->all()});
                        }};
  maintenance end{.name = "the resumption",
                  .is_due = [made] { return made->is_to_end; },
                  .step = [](rank_pipeline& one) { one.peers().resume(); },
                  .done =
                      [this, made](const error& failure) {
                        suspended_ = nullptr;
                        if (!failure) announce(state_.event());
                        for (const auto& one : std::exchange(made->waiting, {}))
                          failure ? one->deliver(failure) : one->deliver(resumption_reply{});
                      }};
  maintain(std::deque<maintenance>{std::move(begin), std::move(end)});
}

void world_executor::perform(const resumption_request&, std::shared_ptr<resumption_answer> reply) {
  if (!suspended_) return reply->deliver(resumption_reply{});
  suspended_->waiting.push_back(std::move(reply));
  end_suspension();
}

void world_executor::end_suspension() {
  if (!std::exchange(suspended_->is_to_end, true) && suspended_->is_in_force) do_maintenance();
}

} // namespace troupe
