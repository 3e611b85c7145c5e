#include <troupe/collectives/order/release_queue.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Returns limits that fuse released requests only in mode free, because the requests released at one time differ from
/// run to run.
fusion_limits of_releases(fusion_limits limits) noexcept {
  if (limits.mode != fusion::free) limits.mode = fusion::off;
  return limits;
}

/// Number of launches with which a launcher counts as busy: the one in progress, and the next.
constexpr std::size_t busy_launches = 2;

} // namespace

release_queue::release_queue(std::vector<std::shared_ptr<rank_pipeline>> ranks, fusion_limits limits)
  : ranks_{std::move(ranks)},
    limits_{of_releases(limits)},
    composer_{static_cast<int>(ranks_.size()), limits_},
    together_(ranks_.size()) {}

void release_queue::push(released_operation one) {
  for (const released_part& part : one) due_ = std::min(due_, part.call->deadline());
  ready_.push_back(std::move(one));
}

bool release_queue::launchers_are_busy() const noexcept {
  return std::ranges::any_of(ranks_, [](const auto& one) { return one->unlaunched() >= busy_launches; });
}

bool release_queue::may_wait() {
  if (examined_ == 0) {
    if (!forecast_.expects_company()) return false;
    survey(1);
    if (!composer_.may_have_company(parts_)) return false;
    examined_ = 1;
  }
  if (examined_ == 1 && ready_.size() > 1) {
    const bool joined = next_batch(2) == 2;
    forecast_.note(joined);
    if (!joined) return false;
    examined_ = 2;
  }
  return true;
}

void release_queue::flush() {
  for (; !ready_.empty(); send(next_batch(limits_.max_operations))) {
    if (!launchers_are_busy() || !may_wait()) continue;
    // Set before the second check. A launcher that becomes idle meanwhile either sees the flag, or the second check
    // sees it idle.
    waits_->store(true);
    if (launchers_are_busy()) return note_waiting();
  }
  end_waiting();
}

void release_queue::note_waiting() noexcept {
  for (; noted_ < ready_.size(); ++noted_)
    for (const released_part& part : ready_[noted_]) part.call->note_asked();
}

void release_queue::flush_all() {
  while (!ready_.empty()) send(next_batch(limits_.max_operations));
  end_waiting();
}

void release_queue::end_waiting() noexcept {
  due_ = time_point::max();
  if (waits_->load(std::memory_order_relaxed)) waits_->store(false);
}

void release_queue::survey(std::size_t operations) {
  parts_.clear();
  ends_.clear();
  for (std::size_t i = 0; i < operations; ++i) {
    for (const released_part& part : ready_[i]) parts_.push_back({part.self, &part.call->what()});
    ends_.push_back(parts_.size());
  }
}

std::size_t release_queue::next_batch(std::size_t most) {
  if (limits_.mode == fusion::off || ready_.size() == 1) return 1;
  survey(std::min(ready_.size(), most));
  batches_.clear();
  composer_.plan(parts_, ends_, batches_);
  return batches_.front();
}

void release_queue::send(std::size_t operations) {
  examined_ = 0;
  noted_ -= std::min(noted_, operations);
  if (operations == 1) {
    released_operation alone = std::move(ready_.front());
    ready_.pop_front();
    for (released_part& part : alone) {
      part.call->all_have_asked();
      rank_of(part).submit(std::move(part.call));
    }
    return;
  }
  for (std::size_t i = 0; i < operations; ++i) {
    for (released_part& part : ready_.front())
      together_[static_cast<std::size_t>(part.self.value())].push_back(std::move(part.call));
    ready_.pop_front();
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!together_[r].empty()) ranks_[r]->submit_together(std::move(together_[r]));
    together_[r].clear();
  }
}

void release_queue::expire(time_point now) {
  if (now < due_) return;
  due_ = time_point::max();
  for (const released_operation& one : ready_)
    for (const released_part& part : one) {
      if (part.call->answered()) continue;
      if (now < part.call->deadline()) {
        due_ = std::min(due_, part.call->deadline());
        continue;
      }
      part.call->fail(
          error{.code = errc::deadline_exceeded,
                .effect = effect::unknown_outcome,
                .text = "no outcome before the request's deadline; the request keeps its place in the order",
                .rank = part.self});
    }
}

} // namespace troupe
