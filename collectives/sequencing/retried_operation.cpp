#include <troupe/collectives/sequencing/retried_operation.hpp>
#include <troupe/collectives/sequencing/retry_shelf.hpp>
#include <troupe/completion/recycling.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

void answer_with_faults(std::vector<lost_part> all) noexcept {
  for (lost_part& one : all) one.reply.deliver(std::move(one.why));
}

} // namespace

std::shared_ptr<retried_operation> retried_operation::make(std::weak_ptr<retry_shelf> shelf, std::optional<lane> line,
                                                           epoch formed_in, int world_size, std::size_t parts) {
  return std::allocate_shared<retried_operation>(recycling_allocator<retried_operation>{}, std::move(shelf), line,
                                                 formed_in, world_size, parts);
}

retried_operation::retried_operation(std::weak_ptr<retry_shelf> shelf, std::optional<lane> line, epoch formed_in,
                                     int world_size, std::size_t parts) noexcept
  : shelf_{std::move(shelf)}, line_{line}, formed_in_{formed_in}, world_size_{world_size}, open_{parts} {}

retried_operation::~retried_operation() {
  answer_with_faults(take()); // the shelf went first
}

void retried_operation::put_aside(lost_part one) noexcept {
  bool kept = false;
  {
    const std::lock_guard lock{guard_};
    --open_;
    if (!over_) {
      try {
        lost_.push_back(std::move(one));
        kept = true;
      } catch (...) { // no memory: whatever else is lost is answered, too
        over_ = true;
      }
    }
  }
  if (kept) {
    if (const auto shelf = shelf_.lock()) return shelf->look_again();
  } else {
    one.reply.deliver(std::move(one.why));
  }
  answer_with_faults(take());
}

void retried_operation::settled() noexcept {
  {
    const std::lock_guard lock{guard_};
    --open_;
  }
  // A participant has its answer, and may use its memory for something else: the others cannot be run without it.
  answer_with_faults(take());
}

retried_operation::stage retried_operation::at() const noexcept {
  const std::lock_guard lock{guard_};
  if (over_) return stage::over;
  if (lost_.empty()) return stage::running;
  return open_ > 0 ? stage::lost_in_part : stage::lost;
}

bool retried_operation::may_have_run() const noexcept {
  const std::lock_guard lock{guard_};
  return std::ranges::any_of(lost_, [](const lost_part& one) { return one.why.effect == effect::unknown_outcome; });
}

time_point retried_operation::deadline() const noexcept {
  const std::lock_guard lock{guard_};
  time_point first = time_point::max();
  for (const lost_part& one : lost_) first = std::min(first, one.deadline);
  return first;
}

std::vector<lost_part> retried_operation::take() noexcept {
  const std::lock_guard lock{guard_};
  over_ = true;
  return std::exchange(lost_, {});
}

} // namespace troupe
