// Runs work that requires that no operation is in flight. (docs/design/0016-maintenance.md)
#include <troupe/actors/world/world_executor.hpp>
#include <troupe/device/planted_bug.hpp>

#include <string>
#include <utility>

namespace troupe {

void world_executor::maintain(maintenance work) {
  maintenance_.push_back(std::move(work));
  carry_out(state_.on_maintenance_asked());
}

void world_executor::register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) {
  error objection = objection_to_maintenance(asked.epoch);
  if (!objection && asked.size_bytes == 0)
    objection = {.code = errc::invalid_argument, .text = "0 bytes cannot be registered: name a size"};
  if (objection) return reply->deliver(std::move(objection));
  if (is_planted(planted_bug::awaited_turn)) {
    const auto quiet = std::make_shared<latch>();
    maintain({.name = "the wait for a quiet world",
              .step = [](rank_pipeline&) {},
              .done = [quiet](const error&) { quiet->open(); }});
    quiet->wait();
  }
  const auto made = std::make_shared<world_registration>(asked.size_bytes, std::move(reply));
  maintain({.name = "the allocation of memory to register",
            .step = [made](rank_pipeline& one) { made->allocate(one); },
            .done =
                [this, made](const error& failure) {
                  error why = failure ? failure : made->failure();
                  if (!why) why = objection_to_maintenance();
                  why ? made->reply().deliver(std::move(why)) : enroll(made);
                }});
}

void world_executor::enroll(const std::shared_ptr<world_registration>& made) {
  maintain({.name = "the registration of memory",
            .step = [made](rank_pipeline& one) { made->enroll(one); },
            .done =
                [this, made](const error& failure) {
                  if (failure) return made->reply().deliver(failure);
                  const bool alone = plan_.locals.size() == static_cast<std::size_t>(plan_.world_size);
                  registered_.push_back(made->make_pool(alone));
                  if (order_) order_->add_registered(registered_.back());
                  publish();
                  made->reply().deliver(registration_reply{registered_.back()});
                }});
}

void world_executor::give_credit(const credit_request& asked, std::shared_ptr<credit_answer> reply) {
  if (error objection = objection_to_maintenance(asked.epoch)) return reply->deliver(std::move(objection));
  const nanoseconds deadline = asked.deadline == world_default_deadline ? plan_.deadlines.operation : asked.deadline;
  plan_.pending->ask({asked.operations, asked.bytes}, later(plan_.services.time->now(), deadline),
                     [reply](std::variant<credit, error> given) { reply->deliver(std::move(given)); });
}

void world_executor::hold() {
  if (order_) {
    held_ = order_->hold();
    return;
  }
  held_ = std::make_shared<latch>();
  // Also opens if the order ends before this turn: waiting threads then find failed pipelines.
  const std::shared_ptr<void> opener{nullptr, [held = held_](void*) { held->open(); }};
  auto hold_all = [all = pipelines_, opener] {
    for (const auto& one : all) one->hold();
  };
  if (guided_order_)
    guided_order_->turn(std::move(hold_all)); // in the order, or ranks would hold different operations
  else
    hold_all();
}

void world_executor::do_maintenance() {
  const maintenance& next = maintenance_.front();
  if (next.is_due && !next.is_due()) return;
  on_every_rank(next.name.c_str(), plan_.deadlines.drain + plan_.deadlines.form, rank_report::kind::maintained,
                [step = next.step, held = held_](rank_pipeline& one) {
                  held->wait(); // or one rank might hold an operation that another still launches
                  one.settle();
                  step(one);
                });
}

void world_executor::drop_maintenance(const error& reason) {
  for (const maintenance& one : std::exchange(maintenance_, {})) one.done(reason);
}

} // namespace troupe
