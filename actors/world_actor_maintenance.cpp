// Work that needs a quiet world: what asks for it, and how it is done. (docs/design/0016-maintenance.md)
#include <troupe/actors/world_actor.hpp>

#include <string>
#include <utility>

namespace troupe {

void world_actor::split(split_request asked, std::shared_ptr<split_answer> reply) {
  error objection = state_.maintenance_objection(asked.epoch);
  if (!objection) objection = check_groups(asked.groups, plan_.world_size);
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<world_split>(std::move(asked.groups), plan_.world_size);
  maintenance_.push_back({.name = "the split",
                          .step = [made](rank_pipeline& one) { made->take_part(one); },
                          .done =
                              [this, made, reply](const error& failure) {
                                error why = failure ? failure : state_.maintenance_objection(state_.current_epoch());
                                if (!why)
                                  return offspring_.raise(system(), caf::actor_cast<world_inner_handle>(this), plan_,
                                                          *made, reply);
                                made->abandon(*plan_.helpers, plan_.deadlines.abort);
                                reply->deliver(std::move(why));
                              }});
  carry_out(state_.on_maintenance_asked());
}

void world_actor::register_memory(registration_request asked, std::shared_ptr<registration_answer> reply) {
  error objection = state_.maintenance_objection(asked.epoch);
  if (!objection && asked.size_bytes == 0)
    objection = {.code = errc::invalid_argument, .text = "0 bytes cannot be registered: name a size"};
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<world_registration>(asked.size_bytes, std::move(reply));
  maintenance_.push_back({.name = "the allocation of memory to register",
                          .step = [made](rank_pipeline& one) { made->allocate(one); },
                          .done =
                              [this, made](const error& failure) {
                                error why = failure ? failure : made->failure();
                                if (!why) why = state_.maintenance_objection(state_.current_epoch());
                                why ? made->reply().deliver(std::move(why)) : enroll(made);
                              }});
  carry_out(state_.on_maintenance_asked());
}

void world_actor::enroll(const std::shared_ptr<world_registration>& made) {
  maintenance_.push_back({.name = "the registration of memory",
                          .step = [made](rank_pipeline& one) { made->enroll(one); },
                          .done =
                              [this, made](const error& failure) {
                                if (failure) return made->reply().deliver(failure);
                                const bool alone = plan_.locals.size() == static_cast<std::size_t>(plan_.world_size);
                                registered_.push_back(made->make_pool(alone));
                                state_.forbid_rebuilds("memory is registered with the communicators that failed");
                                if (order_) order_->add_registered(registered_.back());
                                publish();
                                made->reply().deliver(registration_reply{registered_.back()});
                              }});
  carry_out(state_.on_maintenance_asked());
}

void world_actor::hold() {
  if (order_) {
    held_ = order_->hold();
    return;
  }
  for (const auto& one : pipelines_) one->hold();
  std::promise<void> at_once;
  at_once.set_value();
  held_ = at_once.get_future().share();
}

void world_actor::maintain() {
  const maintenance& next = maintenance_.front();
  on_every_rank(next.name.c_str(), plan_.deadlines.drain + plan_.deadlines.form, rank_report::kind::maintained,
                [step = next.step, held = held_](rank_pipeline& one) {
                  held.wait(); // else one rank might hold what another still launches
                  one.settle();
                  step(one);
                });
}

void world_actor::drop_maintenance(const error& reason) {
  for (const maintenance& one : std::exchange(maintenance_, {})) one.done(reason);
}

} // namespace troupe
