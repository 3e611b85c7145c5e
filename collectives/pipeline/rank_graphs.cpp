#include <troupe/collectives/pipeline/rank_graphs.hpp>

#include <utility>

namespace troupe {

bool rank_graphs::add(std::uint64_t plan, std::shared_ptr<const graph> made) {
  const std::lock_guard lock{mutex_};
  if (closed_) return false;
  all_[plan].swap(made); // the old graph is destroyed after the unlock
  return true;
}

std::shared_ptr<const graph> rank_graphs::find(std::uint64_t plan) const {
  const std::lock_guard lock{mutex_};
  const auto found = all_.find(plan);
  return found == all_.end() ? nullptr : found->second;
}

void rank_graphs::erase(std::uint64_t plan) noexcept {
  std::map<std::uint64_t, std::shared_ptr<const graph>>::node_type gone;
  const std::lock_guard lock{mutex_};
  gone = all_.extract(plan);
}

void rank_graphs::close() noexcept {
  std::map<std::uint64_t, std::shared_ptr<const graph>> gone;
  const std::lock_guard lock{mutex_};
  closed_ = true;
  gone.swap(all_);
}

} // namespace troupe
