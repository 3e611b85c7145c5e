// The access of one world to the arbiter: class ordered_world of arbiter.hpp.
#include <troupe/collectives/order/arbiter_queue.hpp>
#include <troupe/completion/reply/reply_group.hpp>

#include <utility>

namespace troupe {

ordered_world::ordered_world(std::shared_ptr<arbiter> above, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                             std::function<void(std::shared_ptr<const absence_report>)> on_straggling,
                             std::shared_ptr<retry_queue> retries)
  : above_{std::move(above)},
    ranks_{std::move(ranks)},
    on_straggling_{std::move(on_straggling)},
    retries_{std::move(retries)},
    queue_{ranks_, above_->fused_} {}

void ordered_world::push(released_operation one) {
  queue_.push(std::move(one));
  if (!std::exchange(in_round_, true)) above_->released_to_.push_back(shared_from_this());
}

void ordered_world::ask(rank self, lane_request asked) {
  const time_point now = above_->time_->now();
  const sequencing_terms terms{.rank = self,
                               .lane = asked.where,
                               .client = asked.client,
                               .position = asked.position,
                               .asked = now,
                               .deadline = later(now, asked.deadline)};
  auto call = pipeline_of(self).prepare({.name = asked.name,
                                         .what = std::move(asked.what),
                                         .deadline = asked.deadline,
                                         .reply = std::move(asked.reply),
                                         .from = request_origin{.lane = asked.where, .client = asked.client},
                                         .site = asked.site},
                                        now);
  above_->queue_.submit(
      std::make_unique<arbiter::joining>(terms, shared_from_this(), std::move(call), asked.retry_safe));
}

void ordered_world::ask_all(ticket name, std::vector<operation> parts, nanoseconds deadline, reply_promise reply,
                            bool is_retry_safe, std::uint64_t client, call_site site) {
  const time_point now = above_->time_->now();
  auto answers = divide_promise(std::move(reply), name, parts.size());
  released_operation all;
  all.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    all.push_back({.self = ranks_[i]->self(),
                   .call = ranks_[i]->prepare(
                       {.name = name,
                        .what = std::move(parts[i]),
                        .deadline = deadline,
                        .reply = std::move(answers[i]),
                        .from = request_origin{.position = name.value(), .client = client, .of_world = true},
                        .site = site},
                       now)});
  above_->queue_.submit(std::make_unique<arbiter::whole>(shared_from_this(), std::move(all), is_retry_safe));
}

void ordered_world::cancel(rank self, lane where, std::uint64_t position) {
  above_->queue_.run([world = shared_from_this(), self, where, position] {
    arbiter& above = *world->above_;
    static_cast<void>(above.order_.cancel(world->number_, self, where, position, above.effects_));
    above.settle();
  });
}

void ordered_world::withdraw(rank self, std::uint64_t client, error why) {
  above_->queue_.run([world = shared_from_this(), self, client, why = std::move(why)] {
    arbiter& above = *world->above_;
    above.order_.withdraw(world->number_, self, client, why, above.effects_);
    above.settle();
  });
}

void ordered_world::add_registered(std::shared_ptr<registered_pool> pool) {
  above_->queue_.run([world = shared_from_this(), pool = std::move(pool)] { world->registered_.push_back(pool); });
}

std::shared_ptr<latch> ordered_world::hold() {
  const auto held = std::make_shared<latch>();
  above_->queue_.run([world = shared_from_this(), held] {
    for (const auto& one : world->ranks_) one->hold();
    held->open();
  });
  return held;
}

void ordered_world::sequence(std::function<void(rank_pipeline&)> work) {
  above_->queue_.run([world = shared_from_this(), work = std::move(work)] {
    world->queue_.flush_all();
    for (const auto& one : world->ranks_) one->sequence(work);
  });
}

std::shared_ptr<latch> ordered_world::close(error why) {
  const auto closed = std::make_shared<latch>();
  above_->queue_.run([world = shared_from_this(), why = std::move(why), closed] {
    arbiter& above = *world->above_;
    world->closed_ = why;
    world->closed_.effect = effect::rejected;
    above.order_.close_world(world->number_, why, above.effects_);
    above.settle();
    world->queue_.flush_all();
    above.worlds_.erase(world->number_);
    world->registered_.clear();
    if (world->retries_) world->retries_->leave(*world);
    closed->open();
  });
  return closed;
}

} // namespace troupe
