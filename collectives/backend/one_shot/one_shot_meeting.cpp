#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

one_shot_peers one_shot_meeting::meet(rank self, one_shot_offer mine) {
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

one_shot_peers one_shot_meeting::concluded() const {
  one_shot_peers all{.blocks = one_shot_blocks};
  for (const auto& one : offers_) {
    if (one->scratch == nullptr) return {.why = one->why};
    for (const auto& other : offers_)
      if (!one->where->api().describe_peer(one->where->id(), other->where->id()).access)
        return {.why = "device " + to_string(one->where->id()) + " has no peer access to device " +
                       to_string(other->where->id())};
    all.scratch.push_back(one->scratch);
    all.blocks = std::min(all.blocks, one->blocks);
  }
  return all;
}

void one_shot_meeting::abort() noexcept {
  const std::lock_guard lock{mutex_};
  aborted_ = true;
  changed_.notify_all();
}

std::shared_ptr<one_shot_meeting> one_shot_meeting::derived(const derivation& name, int world_size) {
  const std::lock_guard lock{mutex_};
  std::erase_if(derived_, [](const auto& one) { return one.second.expired(); });
  auto& slot = derived_[name];
  auto found = slot.lock();
  if (found == nullptr) slot = found = std::make_shared<one_shot_meeting>(world_size);
  return found;
}

} // namespace troupe
