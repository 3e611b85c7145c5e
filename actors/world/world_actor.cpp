#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/rank/collective_actor.hpp>
#include <troupe/actors/world/world_actor.hpp>

#include <memory>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// Posts notes to the actor's own mailbox.
class actor_mailbox final : public world_mailbox {
public:
  explicit actor_mailbox(world_actor* self) : to_{self} {}

  void post(world_note what) override {
    std::visit([this](auto& one) { to_.post(std::move(one)); }, what);
  }
  void post_after(nanoseconds delay, world_note what) override {
    std::visit([&](auto& one) { to_.post_after(delay, std::move(one)); }, what);
  }

private:
  compat::weak_handle<world_inner_handle> to_; // weak: pipelines live as long as the actor that they report to
};

} // namespace

world_actor::world_actor(caf::actor_config& settings, world_plan plan, std::vector<collective_handle> actors,
                         std::shared_ptr<rank_directory> ranks, std::vector<std::shared_ptr<collective_state>> states)
  : world_inner_handle::base{settings},
    conductor_{std::move(plan), std::move(states), std::make_shared<actor_mailbox>(this), *this},
    actors_{std::move(actors)},
    ranks_{std::move(ranks)} {}

void world_actor::on_exit() {
  ending_ = true;
  if (!left_) {
    sub_worlds_.stop_all();
    conductor_.kill({.code = errc::abandoned, .text = "the world actor was killed"});
    dismiss_ranks();
  }
  conductor_.let_go();
  actors_.clear();
  ranks_ = nullptr;
  listeners_.clear();
}

void world_actor::announce(const world_event& event) {
  for (const auto& one : listeners_)
    if (ending_)
      compat::post(one, event);
    else
      compat::send(this, one, event);
}

void world_actor::watch_rank(std::size_t place) {
  watches_.add(this, actors_[place], [this, place](const caf::error& reason) {
    if (!left_) conductor_.on_rank_ended(place, to_string(reason));
  });
}

std::shared_ptr<collective_state> world_actor::replace_rank(std::size_t place, rank self) {
  auto state = std::make_shared<collective_state>(self);
  actors_[place] = system().spawn<collective_actor>(state);
  ranks_->replace(place, actors_[place]);
  watch_rank(place);
  return state;
}

void world_actor::leave() {
  left_ = true;
  dismiss_ranks();
  quit();
}

void world_actor::dismiss_ranks() {
  for (const auto& one : actors_) compat::post(one, troupe::leave{});
}

void world_actor::split(split_request asked, std::shared_ptr<split_answer> reply) {
  error objection = conductor_.objection_to_maintenance(asked.epoch);
  if (!objection) objection = check_groups(asked.groups, conductor_.plan().world_size);
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<world_split>(std::move(asked.groups), conductor_.plan().world_size);
  conductor_.maintain({.name = "the split",
                       .step = [made](rank_pipeline& one) { made->take_part(one); },
                       .done =
                           [this, made, reply](const error& failure) {
                             const world_plan& plan = conductor_.plan();
                             error why = failure ? failure : conductor_.objection_to_maintenance();
                             if (!why)
                               return sub_worlds_.raise(system(), caf::actor_cast<world_inner_handle>(this), plan,
                                                        *made, reply);
                             made->abandon(*plan.helpers, plan.deadlines.abort);
                             reply->deliver(std::move(why));
                           }});
}

void world_actor::stop() {
  stopping_ = true;
  sub_worlds_.stop_all();
  if (sub_worlds_.all_stopped()) conductor_.stop();
}

spawned_world spawn_world(caf::actor_system& system, world_plan plan) {
  std::vector<std::shared_ptr<collective_state>> states;
  std::vector<collective_handle> actors;
  for (const local_rank& one : plan.locals) {
    states.push_back(std::make_shared<collective_state>(one.self));
    actors.push_back(system.spawn<collective_actor>(states.back()));
  }
  const auto ranks = std::make_shared<rank_directory>(actors);
  return {system.spawn<world_actor>(std::move(plan), std::move(actors), ranks, std::move(states)), ranks};
}

} // namespace troupe
