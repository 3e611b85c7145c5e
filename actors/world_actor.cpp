#include <troupe/actors/actor_error.hpp>
#include <troupe/actors/collective_actor.hpp>
#include <troupe/actors/world_actor.hpp>
#include <troupe/collectives/solo_communicator.hpp>
#include <troupe/collectives/validation.hpp>
#include <troupe/completion/answer_group.hpp>

#include <string>
#include <utility>

namespace troupe {

namespace {

std::vector<rank> ranks_of(const world_plan& plan) {
  std::vector<rank> ranks;
  for (const local_rank& one : plan.locals) ranks.push_back(one.self);
  return ranks;
}

template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

} // namespace

world_actor::world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_handle> collectives)
  : world_inner_handle::base{settings},
    plan_{std::move(plan)},
    state_{plan_.world_size, ranks_of(plan_)},
    collectives_{std::move(collectives)} {}

world_actor::behavior_type world_actor::make_behavior() {
  for (std::size_t i = 0; i < collectives_.size(); ++i)
    watches_.add(this, collectives_[i], [this, self = plan_.locals[i].self](const caf::error& reason) {
      carry_out(state_.on_fault(state_.current_epoch(), {.code = errc::abandoned,
                                                         .text = "the collective actor of rank " + to_string(self) +
                                                                 " ended: " + to_string(reason),
                                                         .rank = self}));
    });
  carry_out(state_.begin());
  return {
      [this](world_request& asked) -> caf::result<completion> {
        accept(std::move(asked), take_answer(this));
        return caf::delegated<completion>{};
      },
      [this](posted_world_request& posted) { accept(std::move(posted.what), std::move(*posted.reply)); },
      [this](split_request& asked) -> caf::result<split_reply> {
        split(std::move(asked), take_value_answer<split_reply>(this));
        return caf::delegated<split_reply>{};
      },
      [this](posted_split& posted) { split(std::move(posted.what), std::move(posted.reply)); },
      [this](registration_request& asked) -> caf::result<registration_reply> {
        register_memory(asked, take_value_answer<registration_reply>(this));
        return caf::delegated<registration_reply>{};
      },
      [this](posted_registration& posted) { register_memory(posted.what, std::move(posted.reply)); },
      [this](status_query) { return state_.event(); },
      [this](capabilities_query) { return plan_.services.able ? *plan_.services.able : capabilities{}; },
      [this](subscribe& wish) {
        compat::send(this, wish.listener, state_.event());
        listeners_.push_back(std::move(wish.listener));
      },
      [this](stop_world) { stop(); },
      [this](rank_report& report) {
        switch (report.what) {
          case rank_report::kind::formed: return carry_out(state_.on_formed(report.epoch, report.failure));
          case rank_report::kind::faulted: return carry_out(state_.on_fault(report.epoch, std::move(report.failure)));
          case rank_report::kind::closed: return carry_out(state_.on_closed(report.epoch));
          case rank_report::kind::drained: return carry_out(state_.on_drained(report.epoch, report.failure));
          case rank_report::kind::released: return carry_out(state_.on_released(report.epoch, report.failure));
          case rank_report::kind::maintained: return carry_out(state_.on_maintained(report.epoch, report.failure));
        }
      },
      [this](const straggling_report& late) {
        world_event now = state_.event();
        now.straggling = late.report;
        announce(now);
      },
      [this](offspring_report& report) {
        offspring_.heard(report);
        if (stopping_ && offspring_.all_stopped()) carry_out(state_.on_stop());
      },
  };
}

void world_actor::on_exit() {
  if (!left_) {
    // Killed: what would have been done in order is done at once, without anyone left to report to.
    const error why{.code = errc::abandoned, .text = "the world actor was killed"};
    offspring_.stop_all();
    drop_maintenance(why);
    for (const auto& one : pipelines_) {
      one->fail(why);
      plan_.helpers->run(
          "the abort of rank " + to_string(one->self()), plan_.deadlines.abort, [one] { one->abort(); },
          [](const error&) {});
    }
    close_order(why);
    for (const auto& one : collectives_) compat::send(this, one, leave{});
    world_event last = state_.event();
    last.phase = world_phase::stopped;
    last.reason = why;
    announce(last);
  }
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
                   [this](const world_effect::announce& what) { announce(what.event); },
                   [this](const world_effect::close_gates& what) { close_gates(what.reason); },
                   [this](const world_effect::fail& what) {
                     for (const auto& one : pipelines_) one->fail(what.reason);
                     close_order(what.reason);
                   },
                   [this](world_effect::abort) {
                     on_every_rank("the abort", plan_.deadlines.abort, rank_report::kind::released,
                                   [](rank_pipeline& one) { one.abort(); });
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
  try {
    auto ends = plan_.formed.empty() ? make_ends() : plan_.formed;
    for (std::size_t i = 0; i < plan_.locals.size(); ++i) {
      const local_rank& one = plan_.locals[i];
      const auto world = caf::actor_cast<world_inner_handle>(this);
      pipelines_.push_back(rank_pipeline::create(
          plan_.services, std::move(ends[i]), one.hand, now, [world, self = one.self, now](error why) {
            compat::post(world, rank_report{rank_report::kind::faulted, self, now, std::move(why)});
          }));
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
    const auto world = caf::actor_cast<world_inner_handle>(this);
    order_ = plan_.above->open_world(
        pipelines_, [world](auto report) { compat::post(world, straggling_report{std::move(report)}); });
  }
  const auto order = plan_.ordering == ordering::agreed ? order_ : nullptr;
  for (std::size_t i = 0; i < collectives_.size(); ++i)
    compat::send(this, collectives_[i], adopt_pipeline{pipelines_[i], order, plan_.deadlines.operation});
}

void world_actor::close_order(const error& reason) {
  if (order_) closed_ = order_->close(reason);
}

void world_actor::close_gates(const error& reason) {
  const auto world = caf::actor_cast<world_inner_handle>(this);
  for (std::size_t i = 0; i < collectives_.size(); ++i)
    compat::send(this, collectives_[i],
                 close_gate{reason, [world, self = plan_.locals[i].self, now = state_.current_epoch()] {
                              compat::post(world, rank_report{rank_report::kind::closed, self, now, {}});
                            }});
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
  for (const auto& one : pipelines_)
    plan_.helpers->run(
        std::string{doing} + " of rank " + to_string(one->self()), deadline, [one, work] { work(*one); },
        [world, report, self = one->self(), now = one->formed_in()](error failure) {
          if (failure && !failure.rank) failure.rank = self;
          compat::post(world, rank_report{report, self, now, std::move(failure)});
        });
}

void world_actor::accept(world_request asked, answer reply) {
  const ticket name = state_.next_ticket();
  if (error objection = objection_to(asked)) {
    objection.ticket = name;
    return reply.deliver(std::move(objection));
  }
  auto answers = divide_answer(std::move(reply), name, pipelines_.size());
  const nanoseconds deadline = asked.deadline == world_default_deadline ? plan_.deadlines.operation : asked.deadline;
  order_->ask_all(name, std::move(asked.parts), deadline, std::move(answers));
}

void world_actor::stop() {
  stopping_ = true;
  offspring_.stop_all();
  if (offspring_.all_stopped()) carry_out(state_.on_stop());
}

seat world_actor::seat_of(const local_rank& one) const {
  return {.self = one.self, .world_size = plan_.world_size, .where = *one.where, .able = plan_.services.able.get()};
}

error world_actor::objection_to(const world_request& asked) const {
  if (error objection = state_.objection_to(asked)) return objection;
  // Every rank's part is checked before any is sent: a part refused later would leave its peers hanging (ORD-2).
  for (std::size_t i = 0; i < asked.parts.size(); ++i)
    if (error objection = validate(asked.parts[i], seat_of(plan_.locals[i]))) {
      objection.rank = plan_.locals[i].self;
      return objection;
    }
  for (const auto& one : registered_)
    if (error objection = check_places(asked.parts, *one)) return objection;
  return {};
}

spawned_world spawn_world(caf::actor_system& system, world_plan plan) {
  std::vector<collective_handle> collectives;
  for (const local_rank& one : plan.locals) collectives.push_back(system.spawn<collective_actor>(one.self));
  auto world = system.spawn<world_actor>(std::move(plan), collectives);
  return {world, std::move(collectives)};
}

} // namespace troupe
