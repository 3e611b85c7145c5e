#include <troupe/actors/world/world_executor.hpp>
#include <troupe/device/overloaded.hpp>
#include <troupe/device/planted_bug.hpp>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

namespace troupe {

std::vector<rank> ranks_of(const world_plan& plan) {
  std::vector<rank> ranks;
  for (const local_rank& one : plan.locals) ranks.push_back(one.self);
  return ranks;
}

namespace {

std::vector<std::shared_ptr<device>> devices_of(const world_plan& plan) {
  std::vector<std::shared_ptr<device>> devices;
  for (const local_rank& one : plan.locals) devices.push_back(one.where);
  return devices;
}

/// A rank's stream and those of its staging, two of NCCL's and two that it uses temporarily, and some for other streams
/// that the process may create meanwhile.
constexpr std::size_t streams_of_a_rank = 12;

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
    entrance_{devices_of(plan_), plan_.services.able, plan_.deadlines.operation, plan_.pending, {state_.admission()}},
    states_{std::move(states)},
    mail_{std::move(mail)},
    shell_{shell} {
  std::iota(places_.begin(), places_.end(), std::size_t{0});
  plan_.board->belongs_to(number_);
  if (!plan_.retries) plan_.retries = make_retry_queue(plan_);
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
                   if (one.what == rank_report::kind::late) return tell_of_late(one);
                   if (one.failure) take_report(one.epoch, one.failure);
                   switch (one.what) {
                     case rank_report::kind::late: break;
                     case rank_report::kind::formed:
                       return carry_out(state_.on_formed(one.epoch, one.failure, blamed_for(one.failure)));
                     case rank_report::kind::faulted:
                       return carry_out(state_.on_fault(one.epoch, one.failure, blamed_for(one.failure)));
                     case rank_report::kind::closed: return carry_out(state_.on_closed(one.epoch));
                     case rank_report::kind::drained: return carry_out(state_.on_drained(one.epoch, one.failure));
                     case rank_report::kind::released:
                       note_release(one);
                       return carry_out(state_.on_released(one.epoch, one.failure));
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
                 [this](const guidance& one) { follow(one); },
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
  take_report(state_.current_epoch(), why);
  carry_out(state_.on_fault(state_.current_epoch(), why, blamed_for(why)));
}

void world_executor::stop() {
  end_retries();
  if (suspended_) resume(*suspended_);
  carry_out(state_.on_stop());
}

void world_executor::kill(const error& why) {
  end_retries();
  drop_maintenance(why);
  for (auto& one : std::exchange(retired_, {})) pipelines_.push_back(std::move(one));
  for (const auto& one : pipelines_) one->fail(why);
  run_on_each(
      pipelines_, "the abort", plan_.deadlines.abort,
      [all = spares_](rank_pipeline& one) {
        one.abort();
        give_back_spares(all, one);
      },
      [](rank, epoch, const error&) {});
  close_order(why);
  plan_.pending->close(why);
  error refusal = why;
  refusal.effect = effect::rejected;
  entrance_.publish({.admission = {.refusal = std::move(refusal)}});
  world_event last = state_.event();
  last.phase = world_phase::stopped;
  last.reason = why;
  announce(last);
}

void world_executor::let_go() {
  plan_.services.poller->detach(*plan_.pending);
  pipelines_.clear();
  failed_.clear();
  registered_.clear();
  order_ = nullptr;
  guided_order_ = nullptr;
  plan_.retries = nullptr;
}

void world_executor::follow(const guidance& from) {
  carry_out(std::visit(overloaded{
                           [this](const formation_order& order) { return state_.on_formation(order); },
                           [this](const failure_order& order) {
                             if (order.why) take_report(order.of, order.why);
                             return state_.on_failure(order);
                           },
                           [this](const quiesce_order& order) { return state_.on_quiesce(order); },
                           [this](const fence_notice& notice) { return state_.on_dismissed(notice.why); },
                           [this](const stop_order& order) {
                             return order.why.code == errc::stopping ? state_.on_stop()
                                                                     : state_.on_dismissed(order.why);
                           },
                       },
                       from.what));
}

void world_executor::carry_out(const world_effects& effects) {
  for (const auto& effect : effects)
    std::visit(overloaded{
                   [this](const world_effect::form& how) { form(how); },
                   [this](const world_effect::tell& what) { plan_.guide->tell(what.what); },
                   [this](world_effect::adopt) { adopt(); },
                   [this](const world_effect::announce& what) {
                     publish(); // first: a listener may send requests as soon as it hears that the world is ready
                     announce(what.event);
                   },
                   [this](const world_effect::close_gates& what) { close_gates(what.reason); },
                   [this](const world_effect::fail& what) {
                     for (const auto& one : pipelines_) one->fail(what.reason);
                     close_order(what.reason);
                   },
                   [this](world_effect::abort) {
                     end_retries();
                     on_every_rank("the abort", plan_.deadlines.abort, rank_report::kind::released,
                                   [all = spares_](rank_pipeline& one) {
                                     one.abort();
                                     give_back_spares(all, one);
                                   });
                   },
                   [this](world_effect::retire) { retire(); },
                   [this](const world_effect::lose& what) { lose(what); },
                   [this](world_effect::abort_retired) {
                     if (is_planted(planted_bug::blocking_turn))
                       for (const auto& one : retired_) one->abort();
                     on_each(std::exchange(retired_, {}), "the abort", plan_.deadlines.abort,
                             rank_report::kind::released, [all = spares_](rank_pipeline& one) {
                               one.abort();
                               keep_spares(all, one); // uses the streams that the abort has just freed
                             });
                   },
                   [this](const world_effect::rebuild_after& wish) {
                     mail_->post_after(wish.delay, rebuild_due{state_.current_epoch()});
                   },
                   [this](world_effect::drain) { drain(); },
                   [this](world_effect::release) {
                     on_every_rank("the release", plan_.deadlines.release, rank_report::kind::released,
                                   [all = spares_](rank_pipeline& one) {
                                     one.close();
                                     give_back_spares(all, one);
                                   });
                   },
                   [this](world_effect::hold) { hold(); },
                   [this](world_effect::maintain) { do_maintenance(); },
                   [this](world_effect::maintained) {
                     const maintenance over = std::move(maintenance_.front());
                     maintenance_.pop_front();
                     over.done({});
                   },
                   [this](const world_effect::drop_maintenance& what) { drop_maintenance(what.reason); },
                   [this](world_effect::resume) {
                     for (const auto& one : pipelines_) one->resume();
                   },
                   [this](world_effect::leave) { shell_.leave(); },
               },
               effect);
}

void world_executor::close_order(const error& reason) {
  if (order_) closed_ = order_->close(reason);
  if (guided_order_) guided_order_->close(reason);
}

void world_executor::close_gates(const error& reason) {
  publish();
  plan_.pending->close(reason);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    states_[places_[i]]->close(reason);
    mail_->post(rank_report{rank_report::kind::closed, plan_.locals[i].self, state_.current_epoch(), {}});
  }
}

void world_executor::drain() {
  close_order(
      {.code = errc::stopping, .text = "the world is shutting down, and not all ranks had asked for the operation"});
  on_every_rank(
      "the drain", 2 * plan_.deadlines.drain, rank_report::kind::drained,
      [limit = plan_.deadlines.drain, closed = closed_](rank_pipeline& one) {
        if (closed) closed->wait(); // by then all released operations have been passed on
        if (!one.drain(limit))
          throw exception{errc::deadline_exceeded, "work was still in flight when the world's time to drain was over"};
      });
}

void world_executor::on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report,
                                   const step& work) {
  speak_for_unmade(report);
  on_each(pipelines_, doing, deadline, report, work);
}

void world_executor::on_each(const pipelines& all, const char* doing, nanoseconds deadline, rank_report::kind report,
                             const step& work) {
  run_on_each(all, doing, deadline, work, [mail = mail_, report](rank self, epoch of, error failure) {
    if (failure && !failure.rank) failure.rank = self;
    mail->post(rank_report{report, self, of, std::move(failure)});
  });
}

void world_executor::run_on_each(const pipelines& all, const char* doing, nanoseconds deadline, const step& work,
                                 const std::function<void(rank, epoch, error)>& ended) {
  std::vector<deadline_pool::job> jobs; // all in one call, because ranks wait for each other
  jobs.reserve(all.size());
  for (const auto& one : all)
    jobs.push_back(
        {std::string{doing} + " of rank " + to_string(one->self()), deadline, [one, work] { work(*one); },
         [ended, self = one->self(), of = one->formed_in()](error why) { ended(self, of, std::move(why)); }});
  plan_.helpers->run(std::move(jobs));
}

void world_executor::speak_for_unmade(rank_report::kind report) {
  for (std::size_t i = pipelines_.size(); i < plan_.locals.size(); ++i)
    mail_->post(rank_report{report, plan_.locals[i].self, state_.current_epoch(), {}});
}

void world_executor::retire() {
  restored_.clear();
  expect_release();
  speak_for_unmade(rank_report::kind::released);
  retired_.insert(retired_.end(), pipelines_.begin(), pipelines_.end());
  failed_ = std::exchange(pipelines_, {});
  order_ = nullptr;
  guided_order_ = nullptr;
}

} // namespace troupe
