#include "trainer.hpp"

#include <troupe/actors/actor_error.hpp>

#include <algorithm>
#include <utility>

namespace training {

trainer::trainer(caf::actor_config& settings, troupe::world where, troupe::rank self, const model_shape& shape,
                 std::latch* ended)
  : trainer_handle::base{settings},
    world_{std::move(where)},
    self_{self},
    shape_{shape},
    ended_{*ended},
    replica_{std::make_unique<replica>(world_, self, shape)},
    error_{world_.allocate_pinned(replica_->error().size_bytes())} {
  for (saved_state& one : saved_) one.memory = new_checkpoint();
}

trainer::behavior_type trainer::make_behavior() {
  const auto answer_later = [this] {
    report_ = {};
    reply_ = make_response_promise<report>();
    return reply_;
  };
  return {[this, answer_later](const train& order) -> caf::result<report> {
            order_ = order;
            begun_ = enqueued_ = summed_ = 0;
            finishing_ = false;
            auto later = answer_later();
            begin_steps();
            return later;
          },
          [this, answer_later](const checkpoint& order) -> caf::result<report> {
            auto later = answer_later();
            save(order);
            return later;
          },
          [this](const roll_back& order) -> caf::result<report> {
            restore(order.step);
            return report{};
          },
          [this](const finish&) { quit(); }};
}

troupe::buffer trainer::new_checkpoint() const {
  return world_.allocate_pinned(replica_->state().size_bytes());
}

/// A runtime outlives its buffers and actors: memory goes before the end is told.
void trainer::on_exit() {
  replica_.reset();
  retired_.clear();
  saved_ = {};
  error_ = {};
  report_ = {};
  ended_.count_down();
}

/// As far as the steps before allow: the CPU runs one step ahead of what the GPU has done.
void trainer::begin_steps() {
  const std::size_t buckets = replica_->buckets();
  const auto may_begin = [&] {
    if (report_.failure || begun_ == order_.count) return false;
    return !order_.sums || (enqueued_ == begun_ * buckets && summed_ + buckets >= begun_ * buckets);
  };
  while (may_begin()) begin_step();
  if (order_.sums && summed_ < order_.count * buckets) return;
  if (!report_.failure && !std::exchange(finishing_, true)) finish_steps();
}

void trainer::begin_step() {
  const std::uint64_t step = order_.first + begun_++;
  if (order_.computes) replica_->forward(step);
  for (std::size_t bucket = 0; bucket < replica_->buckets(); ++bucket) {
    if (order_.computes) replica_->backward(bucket);
    order_.sums ? sum(bucket) : replica_->optimize(bucket, nullptr);
  }
}

void trainer::sum(std::size_t bucket) {
  const troupe::buffer gradients = replica_->gradients(bucket);
  // [bucket]
  // The all_reduce waits on the device for the backward pass of this bucket's layers; that of the next goes on beside.
  troupe::all_reduce what{troupe::operand{gradients, replica_->mark()}, gradients,
                          gradients.size_bytes() / sizeof(float)};
  ask<troupe::enqueued>(troupe::overlapped_request{{.what = std::move(what), .epoch = order_.epoch}},
                        [this, bucket](const troupe::enqueued& told) {
                          // It is in the GPU's queue. The optimizer waits for its end there, and the CPU for nothing.
                          if (order_.computes) replica_->optimize(bucket, told.ranks.front().behind.get());
                          ++enqueued_;
                          ask<troupe::completion>(troupe::outcome_request{told.outcome},
                                                  [this](const troupe::completion&) {
                                                    ++summed_; // only now is it certain that the sum is right
                                                    begin_steps();
                                                  });
                          begin_steps();
                        });
  // [bucket]
}

/// The reply to a copy of what the last step leaves behind says that the stream has come to its end.
void trainer::finish_steps() {
  ask<troupe::completion>(
      troupe::rank_request{.what = troupe::copy{{replica_->error(), replica_->mark()}, error_}, .epoch = order_.epoch},
      [this](const troupe::completion&) {
        const float samples = static_cast<float>(shape_.batch) * static_cast<float>(world_.size());
        for (const float one : error_.host_span<float>())
          report_.loss += static_cast<double>(one * samples) * static_cast<double>(one * samples);
        report_.loss /= static_cast<double>(shape_.batch * shape_.width);
      });
}

void trainer::save(const checkpoint& order) {
  std::erase_if(retired_, [](const auto& one) { return one->idle(); });
  saved_state& older = *std::ranges::min_element(saved_, {}, &saved_state::step);
  const saved_state next{order.step, older.memory ? older.memory : new_checkpoint()};
  older = {}; // where the copy fails, its memory is not used again: it may be written to later
  ask<troupe::completion>(troupe::rank_request{.what = troupe::copy{{replica_->state(), replica_->mark()}, next.memory},
                                               .epoch = order.epoch},
                          [this, &older, next](const troupe::completion&) {
                            older = next;
                            report_.saved = next.memory;
                          });
}

/// Failed communicators may write to what they were given until they have been aborted, and what waits for them in the
/// old stream comes only then. So the new epoch has memory and a stream of its own, and nothing to wait for.
void trainer::restore(std::uint64_t step) {
  retired_.push_back(std::exchange(replica_, std::make_unique<replica>(world_, self_, shape_)));
  if (step == 0) return;
  for (saved_state& one : saved_)
    if (one.step > step) one.step = 0; // of a checkpoint that not all trainers have finished
  replica_->restore(std::ranges::find(saved_, step, &saved_state::step)->memory);
}

template <class Answer, class Request, class Reply>
void trainer::ask(Request what, Reply on_reply) {
  ++unanswered_;
  // Looked up each time: a rank whose actor has ended has another one in the next epoch.
  troupe::compat::request_unbounded(this, world_.collective(self_), std::move(what))
      .then(
          [this, on_reply = std::move(on_reply)](const Answer& reply) {
            if (!report_.failure) on_reply(reply);
            settle();
          },
          [this](const caf::error& failure) {
            if (!report_.failure) report_.failure = troupe::from_caf(failure);
            settle();
          });
}

/// Every request is answered once, whatever happens: an order is done when all its requests are.
void trainer::settle() {
  if (--unanswered_ == 0) reply_.deliver(report_);
}

} // namespace training
