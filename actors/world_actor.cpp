#include <troupe/actors/actor_error.hpp>
#include <troupe/actors/collective_actor.hpp>
#include <troupe/actors/world_actor.hpp>
#include <troupe/collectives/solo_communicator.hpp>
#include <troupe/collectives/validation.hpp>

#include <atomic>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::vector<rank> ranks_of(const world_plan& plan) {
  std::vector<rank> ranks;
  for (const local_rank& one : plan.locals) ranks.push_back(one.self);
  return ranks;
}

std::vector<seat> seats_of(const world_plan& plan, std::uint64_t number) {
  std::vector<seat> seats;
  for (const local_rank& one : plan.locals)
    seats.push_back({.self = one.self,
                     .world_size = plan.world_size,
                     .where = *one.where,
                     .able = plan.services.able.get(),
                     .stamp = {.world = number}});
  return seats;
}

std::vector<std::shared_ptr<device>> devices_of(const world_plan& plan) {
  std::vector<std::shared_ptr<device>> devices;
  for (const local_rank& one : plan.locals) devices.push_back(one.where);
  return devices;
}

std::uint64_t next_world_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

} // namespace

world_actor::world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_handle> collectives,
                         std::vector<std::shared_ptr<collective_state>> states)
  : world_inner_handle::base{settings},
    plan_{std::move(plan)},
    number_{next_world_number()},
    state_{plan_.world_size, ranks_of(plan_), plan_.recovery, plan_.services.time},
    entrance_{seats_of(plan_, number_),  devices_of(plan_), plan_.services.able,
              plan_.deadlines.operation, plan_.pending,     {state_.admission()}},
    collectives_{std::move(collectives)},
    states_{std::move(states)} {}

void world_actor::on_exit() {
  if (!left_) {
    // Killed: what would have been done in order is done at once, without anyone left to report to.
    const error why{.code = errc::abandoned, .text = "the world actor was killed"};
    offspring_.stop_all();
    drop_maintenance(why);
    for (auto& one : std::exchange(retired_, {})) pipelines_.push_back(std::move(one));
    for (const auto& one : pipelines_) {
      one->fail(why);
      plan_.helpers->run(
          "the abort of rank " + to_string(one->self()), plan_.deadlines.abort, [one] { one->abort(); },
          [](const error&) {});
    }
    close_order(why);
    plan_.pending->close(why);
    for (const auto& one : collectives_) compat::send(this, one, leave{});
    error refusal = why;
    refusal.effect = effect::rejected;
    entrance_.publish({.admission = {.refusal = std::move(refusal)}});
    world_event last = state_.event();
    last.phase = world_phase::stopped;
    last.reason = why;
    announce(last);
  }
  plan_.services.poller->detach(*plan_.pending);
  pipelines_.clear();
  registered_.clear();
  collectives_.clear();
  listeners_.clear();
  order_ = nullptr;
}

void world_actor::carry_out(world_effects effects) {
  for (auto& effect : effects)
    std::visit(overloaded{
                   [this](world_effect::form) { form(); },
                   [this](world_effect::adopt) { adopt(); },
                   [this](const world_effect::announce& what) {
                     publish(); // first: whoever hears that the world is ready may ask at once
                     announce(what.event);
                   },
                   [this](const world_effect::close_gates& what) { close_gates(what.reason); },
                   [this](const world_effect::fail& what) {
                     for (const auto& one : pipelines_) one->fail(what.reason);
                     close_order(what.reason);
                   },
                   [this](world_effect::abort) {
                     on_every_rank("the abort", plan_.deadlines.abort, rank_report::kind::released,
                                   [](rank_pipeline& one) { one.abort(); });
                   },
                   [this](world_effect::retire) { retire(); },
                   [this](world_effect::abort_retired) {
                     on_each(std::exchange(retired_, {}), "the abort", plan_.deadlines.abort,
                             rank_report::kind::released, [](rank_pipeline& one) { one.abort(); });
                   },
                   [this](const world_effect::rebuild_after& wish) {
                     compat::send_after(this, wish.delay, caf::actor_cast<world_inner_handle>(this),
                                        rebuild_due{state_.current_epoch()});
                   },
                   [this](world_effect::drain) {
                     close_order({.code = errc::stopping,
                                  .text = "the world is shutting down, and not all ranks had asked for the operation"});
                     on_every_rank("the drain", 2 * plan_.deadlines.drain, rank_report::kind::drained,
                                   [limit = plan_.deadlines.drain, closed = closed_](rank_pipeline& one) {
                                     if (closed.valid()) closed.wait(); // what was released is on its way by then
                                     if (!one.drain(limit))
                                       throw exception{errc::deadline_exceeded, "work was still in flight when the "
                                                                                "world's time to drain was over"};
                                   });
                   },
                   [this](world_effect::release) {
                     on_every_rank("the release", plan_.deadlines.release, rank_report::kind::released,
                                   [](rank_pipeline& one) { one.close(); });
                   },
                   [this](world_effect::hold) { hold(); },
                   [this](world_effect::maintain) { maintain(); },
                   [this](world_effect::maintained) {
                     const maintenance over = std::move(maintenance_.front());
                     maintenance_.pop_front();
                     over.done({});
                   },
                   [this](const world_effect::drop_maintenance& what) { drop_maintenance(what.reason); },
                   [this](world_effect::resume) {
                     for (const auto& one : pipelines_) one->resume();
                   },
                   [this](world_effect::leave) {
                     left_ = true;
                     for (const auto& one : collectives_) compat::send(this, one, leave{});
                     quit();
                   },
               },
               effect);
}

void world_actor::form() {
  const epoch now = state_.current_epoch();
  const compat::weak_handle<world_inner_handle> self{this}; // pipelines live as long as the actor that they report to
  try {
    auto ends = plan_.formed.empty() ? make_ends() : plan_.formed;
    for (std::size_t i = 0; i < plan_.locals.size(); ++i) {
      const local_rank& one = plan_.locals[i];
      pipelines_.push_back(rank_pipeline::create(
          plan_.services, std::move(ends[i]), one.hand, now, [self, at = one.self, now](error why) {
            self.post(rank_report{rank_report::kind::faulted, at, now, std::move(why)});
          }));
      pipelines_.back()->belongs_to(number_);
    }
  } catch (...) {
    return carry_out(state_.on_formed(now, current_error()));
  }
  on_every_rank(
      "the forming", plan_.deadlines.form, rank_report::kind::formed,
      [met = !std::exchange(plan_.formed, {}).empty()](rank_pipeline& one) { met ? one.init_formed() : one.init(); });
}

std::vector<std::shared_ptr<communicator>> world_actor::make_ends() const {
  std::vector<std::shared_ptr<communicator>> ends;
  const unique_id id = plan_.id ? *plan_.id : plan_.world_size > 1 ? plan_.backend->make_unique_id() : unique_id{};
  for (const local_rank& one : plan_.locals)
    if (plan_.world_size > 1)
      ends.push_back(plan_.backend->create(id, one.self, plan_.world_size, one.where));
    else
      ends.push_back(std::make_shared<solo_communicator>(one.where));
  return ends;
}

void world_actor::adopt() {
  if (pipelines_.size() == static_cast<std::size_t>(plan_.world_size)) {
    const compat::weak_handle<world_inner_handle> self{this};
    order_ =
        plan_.above->open_world(pipelines_, [self](auto report) { self.post(straggling_report{std::move(report)}); });
    recapture_plans();
  }
  plan_.pending->reopen();
  if (!std::exchange(has_served_, true)) plan_.services.poller->attach(plan_.pending);
  const auto order = plan_.ordering == ordering::agreed ? order_ : nullptr;
  for (std::size_t i = 0; i < states_.size(); ++i)
    states_[i]->adopt(pipelines_[i], order, plan_.deadlines.operation, plan_.pending);
}

void world_actor::close_order(const error& reason) {
  if (order_) closed_ = order_->close(reason);
}

void world_actor::close_gates(const error& reason) {
  publish();
  plan_.pending->close(reason);
  const auto world = caf::actor_cast<world_inner_handle>(this);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i]->close(reason);
    compat::send(this, world, rank_report{rank_report::kind::closed, plan_.locals[i].self, state_.current_epoch(), {}});
  }
}

void world_actor::announce(const world_event& event) {
  for (const auto& one : listeners_) compat::send(this, one, event);
  plan_.board->publish(event);
}

void world_actor::on_every_rank(const char* doing, nanoseconds deadline, rank_report::kind report, const step& work) {
  const auto world = caf::actor_cast<world_inner_handle>(this);
  // A rank whose pipeline could not even be made has nothing to do, and says so.
  for (std::size_t i = pipelines_.size(); i < plan_.locals.size(); ++i)
    compat::send(this, world, rank_report{report, plan_.locals[i].self, state_.current_epoch(), {}});
  on_each(pipelines_, doing, deadline, report, work);
}

void world_actor::on_each(const std::vector<std::shared_ptr<rank_pipeline>>& pipelines, const char* doing,
                          nanoseconds deadline, rank_report::kind report, const step& work) {
  const auto world = caf::actor_cast<world_inner_handle>(this);
  for (const auto& one : pipelines)
    plan_.helpers->run(
        std::string{doing} + " of rank " + to_string(one->self()), deadline, [one, work] { work(*one); },
        [world, report, self = one->self(), now = one->formed_in()](error failure) {
          if (failure && !failure.rank) failure.rank = self;
          compat::post(world, rank_report{report, self, now, std::move(failure)});
        });
}

void world_actor::retire() {
  const auto world = caf::actor_cast<world_inner_handle>(this);
  for (std::size_t i = pipelines_.size(); i < plan_.locals.size(); ++i) // could not even be made
    compat::send(this, world,
                 rank_report{rank_report::kind::released, plan_.locals[i].self, state_.current_epoch(), {}});
  for (auto& one : std::exchange(pipelines_, {})) retired_.push_back(std::move(one));
  order_ = nullptr;
}

void world_actor::publish() {
  entrance_.publish({.admission = state_.admission(), .order = order_, .registered = registered_});
}

void world_actor::give_credit(const credit_request& asked, std::shared_ptr<credit_answer> reply) {
  if (error objection = state_.maintenance_objection(asked.epoch)) return reply->deliver(std::move(objection));
  const nanoseconds deadline = asked.deadline == world_default_deadline ? plan_.deadlines.operation : asked.deadline;
  plan_.pending->ask({asked.operations, asked.bytes}, later(plan_.services.time->now(), deadline),
                     [reply](std::variant<credit, error> given) { reply->deliver(std::move(given)); });
}

void world_actor::stop() {
  stopping_ = true;
  offspring_.stop_all();
  if (offspring_.all_stopped()) carry_out(state_.on_stop());
}

spawned_world spawn_world(caf::actor_system& system, world_plan plan) {
  std::vector<std::shared_ptr<collective_state>> states;
  std::vector<collective_handle> collectives;
  for (const local_rank& one : plan.locals) {
    states.push_back(std::make_shared<collective_state>(one.self));
    collectives.push_back(system.spawn<collective_actor>(states.back()));
  }
  auto world = system.spawn<world_actor>(std::move(plan), collectives, std::move(states));
  return {world, std::move(collectives)};
}

} // namespace troupe
