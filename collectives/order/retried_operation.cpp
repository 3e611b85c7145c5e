#include <troupe/collectives/order/retried_operation.hpp>
#include <troupe/collectives/order/retry_queue.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

void answer_all(std::vector<kept_part> all) noexcept {
  for (kept_part& one : all) one.reply.deliver(std::move(one.result));
}

} // namespace

std::shared_ptr<retried_operation> retried_operation::make(std::weak_ptr<retry_queue> shelf, std::optional<lane> line,
                                                           epoch formed_in, int world_size, std::size_t parts) {
  return std::allocate_shared<retried_operation>(recycling_allocator<retried_operation>{}, std::move(shelf), line,
                                                 formed_in, world_size, parts);
}

retried_operation::retried_operation(std::weak_ptr<retry_queue> shelf, std::optional<lane> line, epoch formed_in,
                                     int world_size, std::size_t parts) noexcept
  : shelf_{std::move(shelf)}, line_{line}, formed_in_{formed_in}, world_size_{world_size}, open_{parts} {}

retried_operation::~retried_operation() {
  answer_all(take()); // the retry queue was destroyed first
}

void retried_operation::keep(kept_part one) noexcept {
  bool kept = false;
  bool all_done = false;
  {
    const std::lock_guard lock{guard_};
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
    if (const auto shelf = shelf_.lock()) return shelf->look_again();
  answer_all(take());
}

void retried_operation::settled() noexcept {
  bool is_awaited = false;
  {
    const std::lock_guard lock{guard_};
    --open_;
    is_awaited = awaited_ && !over_;
  }
  // One participant has its answer and may reuse its memory, so the others cannot be run again without it.
  answer_all(take());
  if (!is_awaited) return;
  if (const auto shelf = shelf_.lock()) shelf->look_again();
}

bool retried_operation::await() noexcept {
  const std::lock_guard lock{guard_};
  awaited_ = true;
  return !over_;
}

retried_operation::stage retried_operation::at() const noexcept {
  const std::lock_guard lock{guard_};
  if (over_) return stage::over;
  if (!any_lost_) return stage::running;
  return open_ > 0 ? stage::lost_in_part : stage::lost;
}

bool retried_operation::may_have_run() const noexcept {
  const std::lock_guard lock{guard_};
  return std::ranges::any_of(kept_, [](const kept_part& one) {
    const error* const failure = failure_of(one.result);
    return failure == nullptr || failure->effect == effect::unknown_outcome;
  });
}

time_point retried_operation::deadline() const noexcept {
  const std::lock_guard lock{guard_};
  time_point first = time_point::max();
  for (const kept_part& one : kept_) first = std::min(first, one.deadline);
  return first;
}

std::vector<kept_part> retried_operation::take() noexcept {
  const std::lock_guard lock{guard_};
  over_ = true;
  return std::exchange(kept_, {});
}

} // namespace troupe
