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

arbiter::arbiter(std::shared_ptr<const clock> time, std::weak_ptr<troupe::poller> poller, sequencer_limits limits)
  : time_{std::move(time)}, poller_{std::move(poller)}, order_{limits}, turns_{[this] { end_round(); }} {}

arbiter::~arbiter() = default;

std::shared_ptr<ordered_world>
arbiter::open_world(std::vector<std::shared_ptr<rank_pipeline>> ranks,
                    std::function<void(std::shared_ptr<const absence_report>)> on_straggling) {
  auto made = std::make_shared<ordered_world>(shared_from_this(), std::move(ranks), std::move(on_straggling));
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
  const time_point now = time_->now();
  for (std::size_t i = 0; i < together.size(); ++i) {
    joining& one = part(i);
    lane_request& asked = one.asked();
    world.pipeline_of(one.terms().rank)
        .submit(asked.name, std::move(asked.what), one.terms().deadline - now, std::move(asked.reply));
  }
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

void arbiter::complete(absence_report&, const ordered_world&) const {}

void arbiter::end_round() {
  const std::size_t now = order_.waiting();
  const std::size_t before = waiting_.exchange(now, std::memory_order_acq_rel);
  due_.store(order_.next_due(), std::memory_order_release);
  if (now > 0 && before == 0)
    if (const auto awake = poller_.lock()) awake->notify();
}

ordered_world::ordered_world(std::shared_ptr<arbiter> above, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                             std::function<void(std::shared_ptr<const absence_report>)> on_straggling)
  : above_{std::move(above)}, ranks_{std::move(ranks)}, on_straggling_{std::move(on_straggling)} {}

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
  above_->turns_.run(
      [self = shared_from_this(), name, parts = std::move(parts), deadline, answers = std::move(answers)]() mutable {
        for (std::size_t i = 0; i < parts.size(); ++i)
          self->ranks_[i]->submit(name, std::move(parts[i]), deadline, std::move(answers[i]));
      });
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

void ordered_world::close(error why) {
  above_->turns_.run([world = shared_from_this(), why = std::move(why)] {
    arbiter& above = *world->above_;
    above.order_.close_world(world->number_, why, above.effects_);
    above.settle();
    above.worlds_.erase(world->number_);
    world->registered_.clear();
  });
}

} // namespace troupe
