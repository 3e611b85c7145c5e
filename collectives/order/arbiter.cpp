#include <troupe/collectives/order/arbiter.hpp>

#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/pipeline/plans/capture_match.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace troupe {

/// One rank's request. It is a task first. Then the sequencer keeps it until its call is passed to the rank's pipeline.
class arbiter::joining final : public sequenced, public combining_queue::task {
public:
  joining(sequencing_terms terms, std::shared_ptr<ordered_world> world, std::shared_ptr<pipeline_call> call)
    : sequenced{std::move(terms)}, world_{std::move(world)}, call_{std::move(call)} {}

  [[nodiscard]] const operation& what() const noexcept override { return call_->what(); }
  [[nodiscard]] ordered_world& world() const noexcept { return *world_; }
  [[nodiscard]] std::shared_ptr<pipeline_call>& call() noexcept { return call_; }

  void execute(std::unique_ptr<task> self) noexcept override {
    static_cast<void>(self.release());
    arbiter& above = *world_->above_;
    belongs_to(world_->number_);
    if (!std::holds_alternative<agree>(what())) world_->note_launch();
    above.order_.ask(std::unique_ptr<sequenced>{this}, above.effects_);
    above.settle();
  }

private:
  std::shared_ptr<ordered_world> world_;
  std::shared_ptr<pipeline_call> call_;
};

arbiter::arbiter(std::shared_ptr<const clock> time, std::weak_ptr<troupe::poller> poller, sequencer_limits limits,
                 fusion_limits fused)
  : time_{std::move(time)},
    poller_{std::move(poller)},
    fused_{fused},
    order_{limits},
    queue_{[this] { end_round(); }, [this] { return hand_to_poller(); }} {}

arbiter::~arbiter() = default;

std::shared_ptr<ordered_world>
arbiter::open_world(std::vector<std::shared_ptr<rank_pipeline>> ranks,
                    std::function<void(std::shared_ptr<const absence_report>)> on_straggling,
                    std::shared_ptr<resume_log> log, const std::shared_ptr<const resume_points>& counted_from) {
  auto made = std::make_shared<ordered_world>(shared_from_this(), std::move(ranks), std::move(on_straggling),
                                              std::move(log), counted_from);
  for (const auto& one : made->ranks_)
    one->on_launched([waits = made->queue_.waits(), weak = made->weak_from_this()] {
      if (!waits->load()) return;
      // Sends the operations that wait for a launcher.
      if (const auto alive = weak.lock()) alive->above_->queue_.run([alive] { alive->queue_.flush(); });
    });
  queue_.run([this, made] {
    made->number_ = order_.open_world(made->size());
    worlds_.emplace(made->number_, made);
  });
  return made;
}

bool arbiter::hand_to_poller() const noexcept {
  const auto to = poller_.lock();
  return to && to->will_poll(*this);
}

bool arbiter::poll(time_point now, running_time) {
  const bool has_continued = queue_.take_over();
  if (now < due_.load(std::memory_order_acquire) || expiring_.exchange(true, std::memory_order_acq_rel))
    return has_continued;
  queue_.run([this, now] {
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
          part(i).call()->fail(std::move(mine));
        }
        return;
      }
  }
  released_operation parts;
  parts.reserve(together.size());
  for (std::size_t i = 0; i < together.size(); ++i) {
    joining& one = part(i);
    one.call()->stands_at({one.terms().lane, *one.terms().position, one.terms().client});
    parts.push_back({.self = one.terms().rank, .call = std::move(one.call())});
  }
  world.push(std::move(parts));
}

void arbiter::refuse(sequencing_effects::refusal& one) {
  auto& asked = static_cast<joining&>(*one.what);
  if (one.absence) {
    // Each client gets a copy, because the sequencer gives the same report to later clients while the first may be
    // reading it.
    auto mine = std::make_shared<absence_report>(*one.absence);
    complete(*mine, asked.world());
    one.why.absence = std::move(mine);
  }
  if (!one.why.rank) one.why.rank = asked.terms().rank;
  asked.call()->fail(std::move(one.why));
}

void arbiter::complete(absence_report& report, const ordered_world& world) const {
  for (auto& one : report.ranks) {
    pipeline_progress progress = world.pipeline_of(one.rank).progress();
    one.last_launched = std::move(progress.launched);
    one.last_finished = std::move(progress.finished);
  }
}

void arbiter::end_round() {
  if (!released_to_.empty()) {
    for (const auto& one : released_to_) {
      one->in_round_ = false;
      one->queue_.flush();
    }
    released_to_.clear();
  }
  std::size_t waiting = order_.waiting();
  time_point due = order_.next_due();
  for (const auto& [number, one] : worlds_) {
    waiting += one->queue_.size();
    due = std::min(due, one->queue_.next_due());
  }
  // Written only on change, because the poller reads them all the time.
  if (due != due_.load(std::memory_order_relaxed)) due_.store(due, std::memory_order_release);
  const std::size_t before = waiting_.load(std::memory_order_relaxed);
  if (waiting != before) waiting_.store(waiting);
  // The poller is woken early where it must look for the end of launches. Where their end wakes it, and for an agree,
  // it is needed only for requests that expire.
  const bool is_early = std::exchange(has_launches_, false);
  if (waiting == 0) is_poller_told_ = false;
  if (waiting == 0 || is_poller_told_) return;
  is_poller_told_ = is_early;
  if (const auto awake = poller_.lock()) is_early ? awake->notify() : awake->notify_before(due);
}

ordered_world::ordered_world(std::shared_ptr<arbiter> above, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                             std::function<void(std::shared_ptr<const absence_report>)> on_straggling,
                             std::shared_ptr<resume_log> log, const std::shared_ptr<const resume_points>& counted_from)
  : above_{std::move(above)},
    ranks_{std::move(ranks)},
    on_straggling_{std::move(on_straggling)},
    log_{std::move(log)},
    is_agreed_{log_ || counted_from},
    queue_{ranks_, above_->fused_},
    released_(ranks_.size()) {
  if (!log_ && counted_from)
    for (const resume_point& one : counted_from->lanes) next_[one.where] = one.complete;
  if (!log_) return;
  std::vector<std::shared_ptr<const success_count>> successes;
  for (const auto& one : ranks_) successes.push_back(one->successes());
  log_->begin(ranks_.front()->formed_in(), std::move(successes));
}

void ordered_world::count(const released_operation& one, const std::shared_ptr<agreed_value>& agreed) {
  if (!is_agreed_) return;
  const pipeline_call& first = *one.front().call;
  const std::optional<lane> where = first.from().of_world ? std::nullopt : std::optional{first.from().lane};
  if (!log_) {
    const std::uint64_t position = next_[where]++;
    if (agreed) agreed->position = position;
    return;
  }
  participants_.clear();
  for (const released_part& part : one) {
    participants_.push_back(part.self);
    part.call->released_as(++released_[static_cast<std::size_t>(part.self.value())]);
  }
  log_->released(ranks_.front()->formed_in(), where, participants_, commit_of(first.what()), {}, agreed);
}

void ordered_world::decide(released_operation one) {
  std::vector<const agree*> contributions;
  contributions.reserve(one.size());
  for (const released_part& part : one) contributions.push_back(&std::get<agree>(part.call->what()));
  auto result = agreed_value_of(contributions);
  if (const error* const why = std::get_if<error>(&result)) {
    for (const released_part& part : one) {
      error mine = *why;
      mine.rank = part.self;
      part.call->fail(std::move(mine));
    }
    return;
  }
  const auto value = std::make_shared<agreed_value>(std::get<agreed_value>(std::move(result)));
  value->epoch = ranks_.front()->formed_in();
  count(one, value);
  for (const released_part& part : one)
    pipeline_of(part.self).answer_under_lease([call = part.call, value, time = above_->time_](const error& why) {
      why ? call->fail(with_unknown_outcome(why)) : static_cast<void>(call->agreed_on(value, time->now()));
    });
}

void ordered_world::note_launch() noexcept {
  if (!ranks_.front()->rings()) above_->has_launches_ = true;
}

void ordered_world::push(released_operation one) {
  if (std::holds_alternative<agree>(one.front().call->what())) return decide(std::move(one));
  count(one);
  note_launch();
  queue_.push(std::move(one));
  if (!std::exchange(in_round_, true)) above_->released_to_.push_back(shared_from_this());
}

void ordered_world::ask(rank self, lane_request asked) {
  const time_point now = above_->time_->now();
  sequencing_terms terms{.rank = self,
                         .lane = asked.where,
                         .client = asked.client,
                         .position = asked.position,
                         .asked = now,
                         .deadline = later(now, asked.deadline),
                         .objection = std::move(asked.objection)};
  auto call = pipeline_of(self).prepare({.name = asked.name,
                                         .what = std::move(asked.what),
                                         .deadline = asked.deadline,
                                         .reply = std::move(asked.reply),
                                         .from = request_origin{.lane = asked.where, .client = asked.client},
                                         .site = asked.site},
                                        now);
  above_->queue_.submit(std::make_unique<arbiter::joining>(std::move(terms), shared_from_this(), std::move(call)));
}

void ordered_world::ask_all(ticket name, std::vector<operation> parts, nanoseconds deadline, reply_promise reply,
                            std::uint64_t client, call_site site) {
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
  // Requested for all ranks at once, the operation needs no matching.
  above_->queue_.run([world = shared_from_this(), all = std::move(all)]() mutable {
    if (!world->closed_) return world->push(std::move(all));
    for (const released_part& one : all) one.call->fail(world->closed_);
  });
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

void ordered_world::turn(turn_terms, turn_work work) {
  above_->queue_.run([work = std::move(work)] { work({}, {}); });
}

void ordered_world::capture(const std::shared_ptr<captured_plan>&, nanoseconds, nanoseconds, capture_start start) {
  above_->queue_.run([world = shared_from_this(), start = std::move(start)] {
    world->queue_.flush_all();
    start(std::make_shared<capture_match>(world->size(), world->registered_), {});
  });
}

void ordered_world::set_registered(std::vector<std::shared_ptr<registered_pool>> pools) {
  above_->queue_.run(
      [world = shared_from_this(), pools = std::move(pools)]() mutable { world->registered_ = std::move(pools); });
}

std::shared_ptr<latch> ordered_world::close(error why, bool) {
  auto closed = std::make_shared<latch>();
  above_->queue_.run([world = shared_from_this(), why = std::move(why), closed] {
    arbiter& above = *world->above_;
    world->closed_ = why;
    world->closed_.effect = effect::rejected;
    above.order_.close_world(world->number_, why, above.effects_);
    above.settle();
    world->queue_.flush_all();
    above.worlds_.erase(world->number_);
    world->registered_.clear();
    closed->open();
  });
  return closed;
}

} // namespace troupe
