#include <troupe/collectives/backend/one_shot/one_shot_local_meeting.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

one_shot_peers one_shot_local_meeting::meet(rank self, one_shot_offer mine) {
  std::unique_lock lock{mutex_};
  offers_[static_cast<std::size_t>(self.value())] = std::move(mine);
  if (++arrived_ == offers_.size()) {
    peers_ = concluded();
    offers_.clear(); // each rank keeps what it got
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return peers_ || aborted_; });
  if (!peers_)
    throw exception{error{.code = errc::communicator_failed,
                          .text = "the communicator was aborted while its ranks shared their scratch memory",
                          .rank = self}};
  one_shot_peers got = *peers_;
  if (--arrived_ == 0) peers_->scratch.clear();
  return got;
}

one_shot_peers one_shot_local_meeting::concluded() const {
  one_shot_peers all{.blocks = one_shot_blocks};
  for (const auto& one : offers_) {
    if (one->scratch == nullptr) return {.why = one->why};
    for (const auto& other : offers_)
      if (std::ranges::find(one->reaches, other->where->id()) == one->reaches.end())
        return {.why = "device " + to_string(one->where->id()) + " does not reach device " +
                       to_string(other->where->id()) + " by peer access over NVLink"};
    all.scratch.push_back(one->scratch);
    all.blocks = std::min(all.blocks, one->blocks);
  }
  return all;
}

void one_shot_local_meeting::abort() noexcept {
  std::vector<std::shared_ptr<one_shot_local_meeting>> forming;
  {
    const std::lock_guard lock{mutex_};
    aborted_ = true;
    changed_.notify_all();
    for (const auto& [name, one] : derived_)
      if (std::get<0>(name) == derivation_kind::split)
        if (auto alive = one.lock()) forming.push_back(std::move(alive));
  }
  for (const auto& one : forming) one->abort(); // nothing else ends those that wait there (communicator::split())
}

std::shared_ptr<one_shot_meeting> one_shot_local_meeting::derived(const derivation& name, int world_size) {
  const std::lock_guard lock{mutex_};
  std::erase_if(derived_, [](const auto& one) { return one.second.expired(); });
  auto& slot = derived_[name];
  auto found = slot.lock();
  if (found == nullptr) {
    slot = found = std::make_shared<one_shot_local_meeting>(world_size);
    found->aborted_ = aborted_ && std::get<0>(name) == derivation_kind::split;
  }
  return found;
}

std::shared_ptr<one_shot_meeting> one_shot_local_place::meeting_of(const unique_id& id, int world_size) {
  const std::lock_guard lock{mutex_};
  std::erase_if(meetings_, [](const auto& one) { return one.second.expired(); });
  auto& slot = meetings_[id.bytes];
  auto found = slot.lock();
  if (found == nullptr) slot = found = std::make_shared<one_shot_local_meeting>(world_size);
  return found;
}

} // namespace troupe
