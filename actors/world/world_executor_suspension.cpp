// Suspends an idle world, which releases its memory: two pieces of maintenance between which the world stays held.
// (docs/design/0046-suspension.md)
#include <troupe/actors/world/world_executor.hpp>

#include <string>
#include <utility>

namespace troupe {

namespace {

error objection_to_suspension(const capabilities* able) {
  if (able == nullptr) return {};
  const feature_finding found = able->find(feature::suspend);
  if (found.available != availability::no) return {};
  return {.code = errc::unsupported, .text = able->version + " gives no memory back: " + found.why};
}

} // namespace

void world_executor::suspend(const suspension_request& asked, std::shared_ptr<suspension_answer> reply) {
  error objection = objection_to_maintenance(asked.epoch);
  if (!objection && suspended_)
    objection = {.code = errc::invalid_argument, .text = "the world is suspended already: resume it first"};
  if (!objection) objection = objection_to_suspension(plan_.services.able.get());
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<world_suspension>();
  suspended_ = made;
  maintain({.name = "the suspension",
            .step = [made](rank_pipeline& one) { made->give_back(one); },
            .done =
                [this, made, reply = std::move(reply)](const error& failure) {
                  if (failure) return reply->deliver(failure);
                  made->comes_into_force();
                  announce(state_.event());
                  reply->deliver(made->given_back());
                }});
  maintain({.name = "the resumption",
            .is_due = [made] { return made->is_to_end(); },
            .step = [](rank_pipeline& one) { world_suspension::take_again(one); },
            .done =
                [this, made](const error& failure) {
                  suspended_ = nullptr;
                  if (!failure) announce(state_.event());
                  made->ended(failure);
                }});
}

void world_executor::resume(std::shared_ptr<resumption_answer> reply) {
  if (!suspended_) return reply->deliver(resumption_reply{});
  suspended_->await_end(std::move(reply));
  resume(*suspended_);
}

void world_executor::resume(world_suspension& made) {
  if (made.end_it() && made.is_in_force()) do_maintenance();
}

} // namespace troupe
