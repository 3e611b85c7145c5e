#include <troupe/collectives/order/retry_queue.hpp>

#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/order/arbiter.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

using stage = retried_operation::stage;
/// Lanes in which an older operation waits.
using lines = std::vector<std::optional<lane>>;

bool contains(const lines& some, const std::optional<lane>& one) {
  return std::ranges::find(some, one) != some.end();
}

epoch epoch_of(const ordered_world& one) {
  return one.ranks().front()->formed_in();
}

} // namespace

retry_queue::retry_queue(std::shared_ptr<arbiter> above) : above_{std::move(above)} {}

retry_queue::~retry_queue() = default;

void retry_queue::released(epoch of, bool safely) {
  above_->queue_.run([self = shared_from_this(), of, safely] {
    self->released_.emplace(of, safely);
    self->advance(self->above_->time_->now());
  });
}

void retry_queue::end() {
  above_->queue_.run([self = shared_from_this()] {
    self->ended_ = true;
    self->advance(self->above_->time_->now());
  });
}

void retry_queue::look_again() noexcept {
  if (looking_.exchange(true)) return;
  above_->queue_.run([self = shared_from_this()] {
    self->looking_.store(false); // first, so that later changes trigger another run
    self->advance(self->above_->time_->now());
  });
}

retry_counts retry_queue::counts() const noexcept {
  return {put_aside_.load(std::memory_order_relaxed), run_again_.load(std::memory_order_relaxed),
          given_up_.load(std::memory_order_relaxed)};
}

void retry_queue::enroll(ordered_world& where, std::optional<lane> line, released_operation& parts) {
  if (ended_) return;
  while (!all_.empty() && all_.front()->at() == stage::over) all_.pop_front();
  all_.push_back(retried_operation::make(weak_from_this(), line, epoch_of(where), where.size(), parts.size()));
  for (released_part& part : parts) part.call->is_retried_by(retry_claim{all_.back()});
}

void retry_queue::continue_in(std::shared_ptr<ordered_world> next) {
  world_ = std::move(next);
  advance(above_->time_->now());
  for (const auto& one : all_) {
    if (!one->line() || one->formed_in() >= epoch_of(*world_) || one->at() == stage::over) continue;
    if (std::ranges::find(held_, *one->line()) != held_.end()) continue;
    held_.push_back(*one->line());
    above_->order_.hold(world_->number_, *one->line());
  }
}

void retry_queue::leave(const ordered_world& gone) noexcept {
  if (world_.get() != &gone) return;
  world_ = nullptr;
  held_.clear();
}

void retry_queue::expire(time_point now) {
  if (now >= due_) advance(now);
}

void retry_queue::advance(time_point now) {
  lines blocked;
  waiting_ = 0;
  due_ = time_point::max();
  for (auto& one : all_) {
    const stage at = one->at();
    if (at == stage::over) continue;
    if (at == stage::lost && !one->counted()) {
      one->count();
      put_aside_.fetch_add(1, std::memory_order_relaxed);
    }
    if (at != stage::running && dispose(one, at == stage::lost && !contains(blocked, one->line()), now)) continue;
    if (world_ && one->formed_in() >= epoch_of(*world_) && at == stage::running) continue;
    if (!one->await()) continue;
    if (!contains(blocked, one->line())) blocked.push_back(one->line());
    if (at == stage::running) continue; // the outcomes of its parts will be reported
    ++waiting_;
    due_ = std::min(due_, one->deadline());
  }
  std::erase_if(all_, [](const auto& one) { return one->at() == stage::over; });
  const epoch oldest =
      all_.empty()
          ? epoch{~std::uint64_t{0}}
          : (*std::ranges::min_element(all_, {}, [](const auto& one) { return one->formed_in(); }))->formed_in();
  std::erase_if(released_, [&](const auto& one) { return one.first < oldest; });
  std::erase_if(held_, [&](const lane& one) {
    if (contains(blocked, one)) return false;
    above_->order_.resume(world_->number_, one, above_->effects_);
    return true;
  });
  above_->settle();
  above_->count_retries();
}

bool retry_queue::dispose(std::shared_ptr<retried_operation>& one, bool line_is_free, time_point now) {
  if (ended_ || now >= one->deadline()) {
    give_up(*one);
    return true;
  }
  const bool may_still_write = one->may_have_run();
  const auto released = released_.find(one->formed_in());
  if (may_still_write && released != released_.end() && !released->second) {
    give_up(*one);
    return true;
  }
  if (!line_is_free || world_ == nullptr || one->formed_in() >= epoch_of(*world_)) return false;
  if (may_still_write && released == released_.end()) return false;
  if (error why = misfit(*one))
    give_up(*one, std::move(why));
  else
    run_again(one, now);
  return true;
}

error retry_queue::misfit(const retried_operation& one) const {
  if (one.world_size() != world_->size())
    return {.code = errc::mismatch,
            .text = "the request was made in a world of " + std::to_string(one.world_size()) +
                    " ranks, which has recovered with " + std::to_string(world_->size()) +
                    ": ask again for the new size"};
  error why;
  one.visit([&](const retryable_part& part) {
    if (why) return;
    why = validate(part.what, world_->pipeline_of(part.self).context());
    if (why) why.rank = part.self;
  });
  return why;
}

void retry_queue::run_again(std::shared_ptr<retried_operation>& one, time_point now) {
  std::vector<retryable_part> kept = one->take();
  std::ranges::stable_sort(kept, {}, [](const retryable_part& part) {
    return std::pair{part.self, part.from.position};
  });
  auto next = retried_operation::make(weak_from_this(), one->line(), epoch_of(*world_), one->world_size(), kept.size());
  released_operation parts;
  parts.reserve(kept.size());
  for (retryable_part& part : kept) {
    auto call = world_->pipeline_of(part.self).prepare({.name = part.name,
                                                        .what = std::move(part.what),
                                                        .deadline = part.deadline - now,
                                                        .reply = std::move(part.reply),
                                                        .from = part.from,
                                                        .queued = part.queued},
                                                       now);
    const error* const failure = failure_of(part.result);
    if (failure == nullptr || failure->effect == effect::unknown_outcome) call->may_have_run_before();
    call->is_retried_by(retry_claim{next});
    parts.push_back({.self = part.self, .call = std::move(call)});
  }
  one = std::move(next);
  run_again_.fetch_add(1, std::memory_order_relaxed);
  world_->push(std::move(parts));
}

void retry_queue::give_up(retried_operation& one, error instead) {
  if (one.counted()) given_up_.fetch_add(1, std::memory_order_relaxed);
  // An operation that may have run is not reported as rejected, whatever prevents another run.
  const bool says_why = instead && !one.may_have_run();
  for (retryable_part& part : one.take()) {
    if (!says_why) {
      part.reply.deliver(std::move(part.result));
      continue;
    }
    error why = instead;
    if (!why.rank) why.rank = part.self;
    why.ticket = part.name;
    why.epoch = one.formed_in();
    part.reply.deliver(std::move(why));
  }
}

namespace {

void answer_all(std::vector<retryable_part> all) noexcept {
  for (retryable_part& one : all) one.reply.deliver(std::move(one.result));
}

} // namespace

std::shared_ptr<retried_operation> retried_operation::make(std::weak_ptr<retry_queue> queue, std::optional<lane> line,
                                                           epoch formed_in, int world_size, std::size_t parts) {
  return std::allocate_shared<retried_operation>(recycling_allocator<retried_operation>{}, std::move(queue), line,
                                                 formed_in, world_size, parts);
}

retried_operation::retried_operation(std::weak_ptr<retry_queue> queue, std::optional<lane> line, epoch formed_in,
                                     int world_size, std::size_t parts) noexcept
  : retry_queue_{std::move(queue)}, line_{line}, formed_in_{formed_in}, world_size_{world_size}, open_{parts} {}

retried_operation::~retried_operation() {
  answer_all(take()); // the retry queue was destroyed first
}

void retried_operation::keep(retryable_part one) noexcept {
  bool kept = false;
  bool all_done = false;
  {
    const std::lock_guard lock{mutex_};
    --open_;
    if (!over_) {
      try {
        kept_.reserve(kept_.size() + open_ + 1);
        any_lost_ = any_lost_ || failure_of(one.result) != nullptr;
        kept_.push_back(std::move(one));
        kept = true;
      } catch (...) { // out of memory: no further part is kept
        over_ = true;
      }
    }
    all_done = kept && open_ == 0 && !any_lost_;
    if (kept && !any_lost_ && open_ > 0) return;
  }
  if (!kept) one.reply.deliver(std::move(one.result));
  if (kept && !all_done)
    if (const auto queue = retry_queue_.lock()) return queue->look_again();
  answer_all(take());
}

void retried_operation::settled() noexcept {
  bool is_awaited = false;
  {
    const std::lock_guard lock{mutex_};
    --open_;
    is_awaited = awaited_ && !over_;
  }
  // One participant has its answer and may reuse its memory, so the others cannot be run again without it.
  answer_all(take());
  if (!is_awaited) return;
  if (const auto queue = retry_queue_.lock()) queue->look_again();
}

bool retried_operation::await() noexcept {
  const std::lock_guard lock{mutex_};
  awaited_ = true;
  return !over_;
}

retried_operation::stage retried_operation::at() const noexcept {
  const std::lock_guard lock{mutex_};
  if (over_) return stage::over;
  if (!any_lost_) return stage::running;
  return open_ > 0 ? stage::lost_in_part : stage::lost;
}

bool retried_operation::may_have_run() const noexcept {
  const std::lock_guard lock{mutex_};
  return std::ranges::any_of(kept_, [](const retryable_part& one) {
    const error* const failure = failure_of(one.result);
    return failure == nullptr || failure->effect == effect::unknown_outcome;
  });
}

time_point retried_operation::deadline() const noexcept {
  const std::lock_guard lock{mutex_};
  time_point first = time_point::max();
  for (const retryable_part& one : kept_) first = std::min(first, one.deadline);
  return first;
}

std::vector<retryable_part> retried_operation::take() noexcept {
  const std::lock_guard lock{mutex_};
  over_ = true;
  return std::exchange(kept_, {});
}

} // namespace troupe
