#include <troupe/actors/collective_state.hpp>
#include <troupe/collectives/validation.hpp>

#include <string>
#include <utility>

namespace troupe {

collective_state::collective_state(rank self)
  : self_{self},
    closed_{.code = errc::world_failed, .text = "the world is still forming: wait until it is ready", .rank = self} {}

void collective_state::adopt(std::shared_ptr<rank_pipeline> pipeline, std::shared_ptr<ordered_world> order,
                             nanoseconds default_deadline) {
  pipeline_ = std::move(pipeline);
  order_ = std::move(order);
  default_deadline_ = default_deadline;
  closed_ = {};
}

void collective_state::close(error reason) {
  closed_ = std::move(reason);
  closed_.effect = effect::rejected;
}

void collective_state::accept(rank_request asked, answer reply, std::uint64_t client) {
  if (error objection = objection_to(asked)) {
    if (!objection.rank) objection.rank = self_;
    return reply.deliver(std::move(objection));
  }
  const nanoseconds deadline = asked.deadline == world_default_deadline ? default_deadline_ : asked.deadline;
  const ticket name = std::exchange(next_, next_.next());
  if (!order_) return pipeline_->submit(name, std::move(asked.what), deadline, std::move(reply));
  order_->ask(self_, {.what = std::move(asked.what),
                      .name = name,
                      .deadline = deadline,
                      .reply = std::move(reply),
                      .where = asked.lane,
                      .client = client,
                      .position = asked.position});
}

void collective_state::cancel(const cancel_request& wish) {
  if (order_) order_->cancel(self_, wish.lane, wish.position);
}

void collective_state::forget(std::uint64_t client, const error& why) {
  if (order_) order_->withdraw(self_, client, why);
}

error collective_state::objection_to(const rank_request& asked) const {
  if (closed_) return closed_;
  if (asked.epoch != pipeline_->formed_in())
    return error{.code = errc::stale_epoch,
                 .text = "the request is for epoch " + to_string(asked.epoch) + ", the world is in epoch " +
                         to_string(pipeline_->formed_in()) + ": take the epoch from the world's latest event",
                 .epoch = pipeline_->formed_in()};
  if (asked.deadline < nanoseconds{0})
    return error{.code = errc::invalid_argument, .text = "a deadline cannot be negative"};
  return validate(asked.what, pipeline_->sitting());
}

void collective_state::end(const std::string& reason) {
  error why{.code = errc::abandoned,
            .text = "the collective actor of rank " + to_string(self_) + " has ended: " + reason,
            .rank = self_};
  if (pipeline_ && pipeline_->load() > 0) pipeline_->fail(why);
  pipeline_ = nullptr;
  order_ = nullptr;
  close(std::move(why));
}

} // namespace troupe
