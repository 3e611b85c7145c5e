#include <troupe/collectives/sequencing/arbiter.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace troupe {

/// One rank's request: first a turn, then what the sequencer keeps, and at the end what a pipeline is given.
class arbiter::joining final : public sequenced, public turns::turn {
public:
  joining(const sequencing_terms& terms, std::shared_ptr<ordered_world> world, lane_request asked)
    : sequenced{terms}, world_{std::move(world)}, asked_{std::move(asked)} {}

  [[nodiscard]] const operation& what() const noexcept override { return asked_.what; }
  [[nodiscard]] ordered_world& world() const noexcept { return *world_; }
  [[nodiscard]] lane_request& asked() noexcept { return asked_; }

  void take(std::unique_ptr<turn> self) noexcept override {
    static_cast<void>(self.release());
    arbiter& above = *world_->above_;
    belongs_to(world_->number_);
    above.order_.ask(std::unique_ptr<sequenced>{this}, above.effects_);
    above.settle();
  }

private:
  std::shared_ptr<ordered_world> world_;
  lane_request asked_;
};

arbiter::arbiter(std::shared_ptr<const clock> time, std::weak_ptr<troupe::poller> poller, sequencer_limits limits,
                 fusion_limits fused)
  : time_{std::move(time)}, poller_{std::move(poller)}, fused_{fused}, order_{limits}, turns_{[this] {
      end_round();
    }} {}

arbiter::~arbiter() = default;

std::shared_ptr<ordered_world>
arbiter::open_world(std::vector<std::shared_ptr<rank_pipeline>> ranks,
                    std::function<void(std::shared_ptr<const absence_report>)> on_straggling) {
  auto made = std::make_shared<ordered_world>(shared_from_this(), std::move(ranks), std::move(on_straggling));
  for (const auto& one : made->ranks_)
    one->on_launched([weak = made->weak_from_this()] {
      const auto alive = weak.lock();
      if (alive && alive->queue_.waits()) alive->above_->continue_with(*alive);
    });
  turns_.run([this, made] {
    made->number_ = order_.open_world(made->size());
    worlds_.emplace(made->number_, made);
  });
  return made;
}

bool arbiter::poll(time_point now) {
  if (now < due_.load(std::memory_order_acquire) || expiring_.exchange(true, std::memory_order_acq_rel)) return false;
  turns_.run([this, now] {
    order_.expire(now, effects_);
    settle();
    for (const auto& [number, one] : worlds_) one->queue_.expire(now);
    expiring_.store(false, std::memory_order_release);
  });
  return true;
}

void arbiter::settle() {
  std::size_t begin = 0;
  for (const std::size_t end : effects_.ends) {
    release(std::span{effects_.released}.subspan(begin, end - begin));
    begin = end;
  }
  for (auto& one : effects_.refused) refuse(one);
  for (auto& one : effects_.straggling) {
    const auto world = worlds_.find(one->world);
    if (world == worlds_.end() || !world->second->on_straggling_) continue;
    complete(*one, *world->second);
    world->second->on_straggling_(std::move(one));
  }
  effects_.clear();
}

void arbiter::release(std::span<std::unique_ptr<sequenced>> together) {
  const auto part = [&](std::size_t i) -> joining& { return static_cast<joining&>(*together[i]); };
  ordered_world& world = part(0).world();
  if (!world.registered_.empty()) {
    std::vector<const operation*> parts;
    for (std::size_t i = 0; i < together.size(); ++i) parts.push_back(&part(i).what());
    for (const auto& pool : world.registered_)
      if (const error objection = check_places(parts, *pool)) {
        for (std::size_t i = 0; i < together.size(); ++i) {
          error mine = objection;
          mine.rank = part(i).terms().rank;
          part(i).asked().reply.deliver(std::move(mine));
        }
        return;
      }
  }
  released_operation parts;
  parts.reserve(together.size());
  for (std::size_t i = 0; i < together.size(); ++i) {
    joining& one = part(i);
    lane_request& asked = one.asked();
    parts.push_back({.self = one.terms().rank,
                     .name = asked.name,
                     .what = std::move(asked.what),
                     .deadline = one.terms().deadline,
                     .reply = std::move(asked.reply),
                     .from = request_origin{one.terms().lane, *one.terms().position}});
  }
  world.push(std::move(parts));
}

void arbiter::refuse(sequencing_effects::refusal& one) {
  auto& asked = static_cast<joining&>(*one.what);
  if (one.absence) {
    complete(*one.absence, asked.world());
    one.why.absence = std::move(one.absence);
  }
  if (!one.why.rank) one.why.rank = asked.terms().rank;
  one.why.ticket = asked.asked().name;
  one.why.epoch = asked.world().pipeline_of(asked.terms().rank).formed_in();
  asked.asked().reply.deliver(std::move(one.why));
}

void arbiter::complete(absence_report& report, const ordered_world& world) const {
  for (auto& one : report.ranks) {
    pipeline_progress progress = world.pipeline_of(one.rank).progress();
    one.last_launched = std::move(progress.launched);
    one.last_finished = std::move(progress.finished);
  }
}

void arbiter::continue_with(ordered_world& world) {
  turns_.run([this, one = world.shared_from_this()] { one->queue_.flush(time_->now()); });
}

void arbiter::end_round() {
  if (!released_to_.empty()) {
    const time_point now = time_->now();
    for (const auto& one : released_to_) {
      one->in_round_ = false;
      one->queue_.flush(now);
    }
    released_to_.clear();
  }
  std::size_t waiting = order_.waiting();
  time_point due = order_.next_due();
  for (const auto& [number, one] : worlds_) {
    waiting += one->queue_.size();
    due = std::min(due, one->queue_.next_due());
  }
  const std::size_t before = waiting_.exchange(waiting, std::memory_order_acq_rel);
  due_.store(due, std::memory_order_release);
  if (waiting > 0 && before == 0)
    if (const auto awake = poller_.lock()) awake->notify();
}

ordered_world::ordered_world(std::shared_ptr<arbiter> above, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                             std::function<void(std::shared_ptr<const absence_report>)> on_straggling)
  : above_{std::move(above)},
    ranks_{std::move(ranks)},
    on_straggling_{std::move(on_straggling)},
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
  above_->turns_.take(std::make_unique<arbiter::joining>(terms, shared_from_this(), std::move(asked)));
}

void ordered_world::ask_all(ticket name, std::vector<operation> parts, nanoseconds deadline,
                            std::vector<answer> answers) {
  const time_point until = later(above_->time_->now(), deadline);
  released_operation all;
  all.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    all.push_back({.self = ranks_[i]->self(),
                   .name = name,
                   .what = std::move(parts[i]),
                   .deadline = until,
                   .reply = std::move(answers[i])});
  above_->turns_.run([self = shared_from_this(), all = std::move(all)]() mutable { self->push(std::move(all)); });
}

void ordered_world::cancel(rank self, lane where, std::uint64_t position) {
  above_->turns_.run([world = shared_from_this(), self, where, position] {
    arbiter& above = *world->above_;
    static_cast<void>(above.order_.cancel(world->number_, self, where, position, above.effects_));
    above.settle();
  });
}

void ordered_world::withdraw(rank self, std::uint64_t client, error why) {
  above_->turns_.run([world = shared_from_this(), self, client, why = std::move(why)] {
    arbiter& above = *world->above_;
    above.order_.withdraw(world->number_, self, client, why, above.effects_);
    above.settle();
  });
}

void ordered_world::add_registered(std::shared_ptr<registered_pool> pool) {
  above_->turns_.run([world = shared_from_this(), pool = std::move(pool)] { world->registered_.push_back(pool); });
}

std::shared_future<void> ordered_world::hold() {
  const auto held = std::make_shared<std::promise<void>>();
  above_->turns_.run([world = shared_from_this(), held] {
    for (const auto& one : world->ranks_) one->hold();
    held->set_value();
  });
  return held->get_future().share();
}

std::shared_future<void> ordered_world::close(error why) {
  const auto closed = std::make_shared<std::promise<void>>();
  above_->turns_.run([world = shared_from_this(), why = std::move(why), closed] {
    arbiter& above = *world->above_;
    above.order_.close_world(world->number_, why, above.effects_);
    above.settle();
    world->queue_.flush_all(above.time_->now());
    above.worlds_.erase(world->number_);
    world->registered_.clear();
    closed->set_value();
  });
  return closed->get_future().share();
}

} // namespace troupe
