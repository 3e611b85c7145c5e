#include <troupe/actors/world/world_registration.hpp>

#include <utility>
#include <vector>

namespace troupe {

void world_registration::allocate(rank_pipeline& one) {
  try {
    auto made = one.peers().allocate_region(size_bytes_);
    const std::lock_guard lock{mutex_};
    regions_[one.self()] = std::move(made);
  } catch (...) {
    error why = current_error();
    if (!why.rank) why.rank = one.self();
    const std::lock_guard lock{mutex_};
    if (!failure_) failure_ = std::move(why);
  }
}

error world_registration::failure() const {
  const std::lock_guard lock{mutex_};
  return failure_;
}

void world_registration::enroll(rank_pipeline& one) {
  std::shared_ptr<registered_region> mine;
  {
    const std::lock_guard lock{mutex_};
    mine = regions_.at(one.self());
  }
  one.peers().register_region(*mine);
}

std::shared_ptr<registered_pool> world_registration::make_pool(bool alone) const {
  const std::lock_guard lock{mutex_};
  std::vector<std::shared_ptr<registered_region>> regions;
  for (const auto& [self, region] : regions_) regions.push_back(region);
  return std::make_shared<registered_pool>(std::move(regions), alone);
}

} // namespace troupe
