#include <troupe/collectives/sequencing/release_queue.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Launches that a launcher has before it when it is given no more: the one that it works on, and the next.
constexpr std::size_t enough = 2;

} // namespace

release_queue::release_queue(std::vector<std::shared_ptr<rank_pipeline>> ranks, fusion_limits limits)
  : ranks_{std::move(ranks)},
    limits_{limits},
    planner_{static_cast<int>(ranks_.size()), limits},
    together_(ranks_.size()) {}

void release_queue::push(released_operation one) {
  for (const released_part& part : one) due_ = std::min(due_, part.deadline);
  ready_.push_back(std::move(one));
}

bool release_queue::launchers_are_busy() const noexcept {
  return std::ranges::any_of(ranks_, [](const auto& one) { return one->unlaunched() >= enough; });
}

void release_queue::flush(time_point now) {
  // Before the launchers are looked at: one that becomes free meanwhile sees that something waits, or is seen free.
  waits_.store(!ready_.empty(), std::memory_order_seq_cst);
  while (!ready_.empty()) {
    const bool may_wait =
        limits_.mode != fusion::off && limits_.max_operations > 1 && may_be_fused(ready_.front().front().what);
    if (may_wait && launchers_are_busy()) return;
    send(next_batch(), now);
  }
  due_ = time_point::max();
  waits_.store(false, std::memory_order_seq_cst);
}

void release_queue::flush_all(time_point now) {
  while (!ready_.empty()) send(next_batch(), now);
  due_ = time_point::max();
  waits_.store(false, std::memory_order_seq_cst);
}

std::size_t release_queue::next_batch() {
  if (limits_.mode == fusion::off || ready_.size() == 1) return 1;
  parts_.clear();
  ends_.clear();
  const std::size_t looked_at = std::min(ready_.size(), limits_.max_operations);
  for (std::size_t i = 0; i < looked_at; ++i) {
    for (const released_part& part : ready_[i]) parts_.push_back({part.self, &part.what, part.message});
    ends_.push_back(parts_.size());
  }
  batches_.clear();
  planner_.plan(parts_, ends_, batches_);
  return batches_.front();
}

void release_queue::send(std::size_t operations, time_point now) {
  for (std::size_t i = 0; i < operations; ++i) {
    for (released_part& part : ready_.front())
      together_[static_cast<std::size_t>(part.self.value())].push_back({.name = part.name,
                                                                        .what = std::move(part.what),
                                                                        .deadline = part.deadline - now,
                                                                        .reply = std::move(part.reply),
                                                                        .from = part.from});
    ready_.pop_front();
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    auto& mine = together_[r];
    if (mine.size() == 1)
      ranks_[r]->submit(std::move(mine.front()));
    else if (!mine.empty())
      ranks_[r]->submit_together(std::move(mine));
    mine.clear();
  }
}

void release_queue::expire(time_point now) {
  if (now < due_) return;
  due_ = time_point::max();
  for (released_operation& one : ready_)
    for (released_part& part : one) {
      if (!part.reply.pending()) continue;
      if (now < part.deadline) {
        due_ = std::min(due_, part.deadline);
        continue;
      }
      part.reply.deliver(error{.code = errc::deadline_exceeded,
                               .effect = effect::unknown_outcome,
                               .text = "no outcome before the request's deadline; it stays in its place in the order",
                               .rank = part.self,
                               .ticket = part.name});
    }
}

} // namespace troupe
