// Handles requests marked retry_safe, which survive a fault. (docs/design/0030-retries.md)
#include <troupe/actors/world/world_executor.hpp>

#include <algorithm>

namespace troupe {

std::shared_ptr<retry_queue> make_retry_queue(const world_plan& plan) {
  const bool is_whole = plan.locals.size() == static_cast<std::size_t>(plan.world_size);
  if (plan.recovery.policy == recovery_policy::fail_fast || plan.ordering == ordering::caller || !is_whole)
    return nullptr;
  return plan.above->open_shelf();
}

void world_executor::expect_release() {
  // speak_for_unmade() reports for ranks whose pipelines could not be created.
  if (plan_.retries) unreleased_[state_.current_epoch()].ranks = std::max(pipelines_.size(), plan_.locals.size());
}

void world_executor::note_release(const rank_report& one) {
  const auto found = unreleased_.find(one.epoch);
  if (found == unreleased_.end()) return; // it is released when the world ends
  found->second.safely = found->second.safely && !one.failure;
  if (--found->second.ranks > 0) return;
  plan_.retries->released(one.epoch, found->second.safely);
  unreleased_.erase(found);
}

void world_executor::end_retries() {
  if (plan_.retries) plan_.retries->end();
}

} // namespace troupe
